// Decompositions: operators that stand for several, as RNN for the recurrent networks of its layers.
//
// Such an operator has no kernel, and no gradient rule of its own. A net keeps it while it is checked; then the
// operators that it stands for take its place, and what comes behind, as gradients, placement and plans, knows these
// alone.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "stepnet/core/operator.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {

enum class NetUse { kInference, kTraining };

struct DecompositionContext {
  NetUse use = NetUse::kInference;
  std::string scope = {};  // what the names of all blobs begin with but those of the operator's inputs and outputs
};
// The operators that stand for `op`, which has been checked; they write its outputs, and none of its inputs.
using Decomposition = std::function<NetDef(const OperatorCall& op, const DecompositionContext& context)>;

class DecompositionRegistration {
 public:
  DecompositionRegistration(const std::string& type, Decomposition decomposition);
};

bool HasDecomposition(const std::string& type);

// An operator of which only parts run.
struct WholeOperator {
  std::string text;  // OperatorText
  std::vector<std::string> inputs;
};

struct DecomposedNet {
  std::shared_ptr<const NetDef> net;
  std::vector<int> origins;             // of each operator the index of the one that it is, or is a part of
  std::map<int, WholeOperator> wholes;  // by that index
};

// The net with parts in place of operators that have a decomposition, in its step nets, too; the net itself where there
// are none. Parts have the device and the control inputs of the operator. Throws kInvalidNet, with the operator, where
// that is wrong by itself, and where all parts together would take more than 64 MB.
DecomposedNet Decomposed(std::shared_ptr<const NetDef> net, NetUse use);

}  // namespace stepnet
