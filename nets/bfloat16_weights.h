// Weights of products in bfloat16, for inference: half as many bytes to read and to keep. The arithmetic is that of
// float, and results are bit for bit those of the same net with weights that were rounded to bfloat16 and kept in
// float.
//
//   model.Initialize(workspace);
//   StoreWeightsInBFloat16(model.net, {"w", "u"}, workspace);
//   const std::unique_ptr<Net> net = Net::Create(model.net, workspace);
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "stepnet/core/operator.h"
#include "stepnet/core/workspace.h"

namespace stepnet {

// A weight that stays float, and who keeps it from bfloat16.
struct FloatWeight {
  std::string name;
  std::string reason;  // "Gather, op 0 of net \"encoder\", reads it too"
};

struct BFloat16Weights {
  std::vector<std::string> stored;  // in bfloat16
  std::vector<FloatWeight> kept;
  std::int64_t bytes = 0;  // of those that are stored; they had twice as many
};

// Returns those of `parameters` that `net` and its step nets read as weights of products and as nothing else, gradients
// included: they may be stored in bfloat16.
std::vector<std::string> BFloat16Candidates(const NetDef& net, const std::vector<std::string>& parameters,
                                            const RunOptions& options = {});

// Rounds to bfloat16, to nearest even, those of `parameters` that `net` and its step nets read as weights of products
// (Kernel::bfloat16_weights) and as nothing else; all others stay as they are. To be called when `workspace` holds
// them, before a net is made; a blob that is set to float later is float again. Throws kInvalidArgument where there are
// none, with what keeps them, and on other devices than the CPU; kInvalidNet where the net computes gradients with one;
// kTypeMismatch for weights in double.
BFloat16Weights StoreWeightsInBFloat16(const NetDef& net, const std::vector<std::string>& parameters,
                                       Workspace& workspace, const RunOptions& options = {});

// Makes float of those of `parameters` that are float16 or bfloat16 in `workspace`, as files of tensors hold them:
// float has all their numbers. Weights of products in bfloat16 stay, for fewer bytes to read (BFloat16Candidates of
// `net`; none where it is null).
void WidenParameters(const std::vector<std::string>& parameters, const NetDef* net, Workspace& workspace,
                     const RunOptions& options = {});

}  // namespace stepnet
