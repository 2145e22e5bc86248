// Static verification of nets: everything that can be known to be wrong without running them.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "stepnet/core/operator.h"

namespace stepnet {

// An operator of a net; of none where `net` is null.
struct OperatorPlace {
  const NetDef* net = nullptr;
  int index = -1;
};

struct NetCheckOptions {
  RunOptions run = {};
  // Blobs that exist before the net runs although it does not list them in external_input.
  std::function<bool(const std::string&)> blob_exists = {};
  // What the net lists in external_input counts for nothing: `blob_exists` tells.
  bool ignores_external_input = false;
  // Otherwise a net without external_input reads whatever the workspace holds when it runs.
  bool all_inputs_known = false;
  // All operators run on the device of the run, without copies between devices.
  bool is_step_net = false;
  // The operator of another net that has written a blob which this one finds when it runs, where that is known.
  std::function<OperatorPlace(const std::string&)> writer_outside = {};
  // Holds the net, where that is known: then the nets within it need not be copied.
  std::shared_ptr<const NetDef> owner = {};
};

// The operators of a checked net whose type takes nets as arguments, for these take long to make, each on the device
// that it is placed on; by index.
using CheckedCalls = std::map<int, OperatorCall>;

// All problems of a net and of the step nets within it, in program order: unknown operator types, operators without a
// kernel for the device and without a decomposition, arity, arguments, in-place rules, blobs that are read before
// anything writes them, outputs that nothing produces, what each operator's own check finds, and formulas that are
// wrong whatever the operator is given (core/formulas/formula_sample.h); then what operators do not agree on with each
// other (nets/net_rule.h). `calls`, where it is given, becomes those that need not be made again.
std::vector<NetProblem> CheckNet(const NetDef& net, const NetCheckOptions& options = {}, CheckedCalls* calls = nullptr);

// Those of an operator by itself, whatever writes what it reads.
std::vector<NetProblem> CheckOperator(const OperatorDef& op);

// What is allowed, and most likely a mistake: blobs that an operator writes again before anything has read them, as two
// cells in one net do that have no prefixes.
std::vector<NetProblem> WarningsOfNet(const NetDef& net);

// Throws kInvalidNet with all problems in its message when there are any.
void ThrowIfProblems(const std::vector<NetProblem>& problems);

// Gives, of each operator and each of its outputs, the types of the operators that read that value before the blob is
// written again; "" stands for the net's external output. kSourcesChange is among those of the record of a
// RecurrentNetwork that reads, or gives, what some operator writes before one that reads the record reads it, too.
std::vector<OperatorCall::Readers> ReadersOfOutputs(const NetDef& net);
inline constexpr const char kSourcesChange[] = "sources change";

// The type that a net of Caffe2's type `type` runs as: "simple" or "dag". Throws kInvalidNet for types that have no
// meaning here.
std::string CanonicalNetType(const std::string& type);

// "y = FC(x, w, b)", for messages about operators that need not be registered.
std::string OperatorText(const OperatorDef& op);

}  // namespace stepnet
