// Between which operators of a step its transfers come.
#pragma once

#include <map>
#include <vector>

#include "stepnet/compiler/step_draft.h"

namespace stepnet {

inline constexpr int kNoOperator = -1;

// By op_index, in the order of the request; they point into the draft.
using TransfersByOperator = std::map<int, std::vector<const Transfer*>>;

struct TransferOrder {
  TransfersByOperator before;  // kNoOperator: at the begin of the step
  TransfersByOperator after;
};

// Transfers into blobs come before the operator that is the first to use them, as late as that: memory outside may be a
// sum that the step itself adds to before. Those into blobs that none uses come first. What no operator writes goes on
// at once. Others come after the last writer. Step outputs of what lives in rows, or is not written, come last, as the
// step may write those rows by another name.
TransferOrder OrderTransfers(const StepDraft& draft);

}  // namespace stepnet
