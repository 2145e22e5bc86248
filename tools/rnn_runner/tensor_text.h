// Tensors in numbers: their elements as doubles, and a summary.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "stepnet/core/workspace.h"

namespace stepnet::runner {

// Calls fn(i, element i as double) for each element. REQUIRES: not kString.
void ForEachNumber(const Tensor& tensor, const std::function<void(std::int64_t, double)>& fn);
// Sets element i to number(i), rounded to the dtype; integers are cut to their range. REQUIRES: not kString.
void FillFromNumbers(const Tensor& tensor, const std::function<double(std::int64_t)>& number);

// Describes the elements that are finite; all zero when there are none.
struct Summary {
  double min = 0;
  double max = 0;
  double mean = 0;
  double deviation = 0;  // standard deviation, of all the elements there are
  std::int64_t finite = 0;
  std::int64_t nans = 0;
  std::int64_t infinities = 0;
};
Summary Summarize(const Tensor& tensor);

// A row of a table with the columns of kSummaryHeader.
extern const std::vector<std::string> kSummaryHeader;
std::vector<std::string> SummaryRow(const std::string& name, const Tensor& tensor);

// The same values in another floating-point dtype; other tensors as they are.
Tensor Converted(const Tensor& tensor, DType from, DType to);

using TensorMap = std::map<std::string, Tensor>;

// All tensors of the workspace, float ones in double.
TensorMap DoubleTensors(const Workspace& workspace);
// Gives the blobs copies of these: operators may overwrite what they read, so each run has its own.
void FeedCopies(const TensorMap& tensors, Workspace& workspace);

}  // namespace stepnet::runner
