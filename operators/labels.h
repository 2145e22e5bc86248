// Labels: which of D classes each of N rows belongs to. Shared by the losses that read them.
#pragma once

#include "stepnet/core/class_labels.h"
#include "stepnet/core/operator.h"

namespace stepnet {

// x seen as a matrix [N, D].
struct Rows {
  std::int64_t count;  // N
  std::int64_t size;   // D
};

// Throws kTypeMismatch unless input i is int32 or int64, kShapeMismatch unless it holds one label a row and rows have
// classes.
void CheckLabelsInfo(const ShapeQuery& query, int i, const Rows& rows);

// Label i of the input. Unless it is from 0 to num_classes - 1 it is a fault of the run, and a row of kNoClass.
std::int64_t LabelAt(const OpRun& run, int input, std::int64_t i, std::int64_t num_classes);

}  // namespace stepnet
