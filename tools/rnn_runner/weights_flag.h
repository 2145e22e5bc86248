// --weights: what a command that runs nets keeps weights of products in.
#pragma once

#include <string>
#include <vector>

#include "stepnet/core/operator.h"
#include "stepnet/core/workspace.h"
#include "stepnet/proto/net.pb.h"
#include "stepnet/tools/rnn_runner/command.h"

namespace stepnet::runner {

FlagUse WeightsFlag();

// Whether --weights asks for bfloat16. Throws UsageError for what it cannot be, and where --device is a GPU.
bool WantsBFloat16Weights();

// Stores weights among `parameters` as --weights says, and says on standard error which: for Net::Create. Throws what
// StoreWeightsInBFloat16 throws.
void StoreWeights(const NetDef& net, const std::vector<std::string>& parameters, Workspace& workspace,
                  const RunOptions& options);

// Command::unknown_flag is this where gradients are computed. Says what to do in place of --weights; "" for other
// flags.
std::string AdviceOnWeights(const std::string& flag);

}  // namespace stepnet::runner
