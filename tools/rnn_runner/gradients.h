// A net with its gradients: what `grad` prints, and what --loss makes of a net before other commands run it.
#pragma once

#include <string>
#include <vector>

#include "stepnet/nets/backward.h"
#include "stepnet/proto/net.pb.h"
#include "stepnet/tools/rnn_runner/command.h"

namespace stepnet::runner {

// --loss of commands that run a net.
FlagUse LossFlag();

// Throws kInvalidArgument for a name in --loss that is the record of a run, through which no gradient goes.
void CheckLosses(const NetDef& net, const std::vector<std::string>& losses);

// The net with the gradients of the sum of the elements of all `losses` by `inputs`, each called x_grad and among the
// outputs; RecurrentNetwork operators get backward step nets. Throws what CheckNet and AddGradients do.
NetWithGradients WithGradients(NetDef net, const std::vector<std::string>& losses,
                               const std::vector<std::string>& inputs, const GradientRequests& requests = {});

}  // namespace stepnet::runner
