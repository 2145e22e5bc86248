// RecurrentSpec: the arguments of RecurrentNetwork and RecurrentNetworkGradient, parsed once into types.
//
// Caffe2 writes them as parallel lists of strings (link_internal, link_external, …); nobody looks at those again. A
// call of the operator owns what they were parsed into (OperatorCall::Parsed): checks, plans and runs share it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "stepnet/core/operator.h"
#include "stepnet/nets/gradient_request.h"

namespace stepnet {

// A blob of the step net is rows [t + offset, t + offset + window) of a blob outside, at step t.
struct Link {
  std::string internal;
  std::string external;
  std::int64_t offset = 0;
  std::int64_t window = 1;
};

// A state: rows 0 … L-1 hold initial values, row t + L what step t gives. [T + L, B, …]
struct RecurrentState {
  std::string name;
  int initial = 0;  // index of the initial value in the operator's inputs
};

// After the run `destination` is rows [offset, end) of `source`; a negative offset counts from the end.
struct OffsetAlias {
  std::string source;
  std::string destination;
  std::int64_t offset = 0;
};

// An output of the operator that holds a blob of the step net for all steps: [T, …].
struct StepOutput {
  std::string blob;
  std::string destination;
};

struct RecurrentSpec {
  std::shared_ptr<const NetDef> step_net;
  std::shared_ptr<const NetDef>
      backward_step_net;  // null when absent: an operator without gradient, or with an empty one
  std::vector<RecurrentState> states;
  bool private_states = false;  // nobody reads states under their names after a run
  std::vector<Link> links;
  std::vector<Link> backward_links;  // beside `links`, in the backward step net
  std::vector<OffsetAlias> aliases;
  std::vector<StepOutput> step_outputs;
  std::string timestep;
  std::vector<int> params;                // inputs whose gradient the gradient operator gives, after that of input 0
  std::vector<std::string> param_grads;   // their gradients' names in the backward step net
  std::vector<int> outputs_with_grads;    // forward outputs that have a gradient
  std::vector<std::string> recompute;     // blobs that the backward step net computes again
  std::vector<GradientRequest> requests;  // one an output of the gradient operator; empty: all kWrite
  std::map<std::string, std::string> renames;
  RunOptions options;  // of the run, with what the arguments say of executor and threads
  bool prints_schedules = false;
  int num_workspaces = 0;
  int max_streams = 0;  // of a GPU; 0: as many as suit it

  // An empty net when there is none: gradients that are links alone need nothing computed.
  const std::shared_ptr<const NetDef>& BackwardStep() const;
  // Whether there is a gradient. Files lose a backward step net without operators; its links remain.
  bool HasBackwardStep() const { return backward_step_net != nullptr || !backward_links.empty(); }
  std::string Renamed(const std::string& blob) const;
  // Number of the state of that name; -1 when there is none.
  int StateIndex(const std::string& name) const;
  bool IsState(const std::string& name) const { return StateIndex(name) >= 0; }
  // Number of the step output of that name, the last one, which stays; -1 when there is none.
  int StepOutputIndex(const std::string& output) const;
};

// What is wrong with a link to the first input, or to its gradient, that shows a step other rows than its own: there
// are as many as there are steps. "" where nothing is.
std::string ProblemOfFirstInputLink(const Link& link);

// Throws kInvalidNet when `output` is a step output whose gradient no backward link takes.
void ExpectGradientTaken(const RecurrentSpec& spec, const std::string& output);

// The spec of `op`, one of both operators, the same object for all copies of the call. Throws kInvalidArgument for
// lists of different lengths, indices out of range, negative windows; kInputOutput for a step net in text that does not
// parse; kInternal for an operator of another type.
std::shared_ptr<const RecurrentSpec> RecurrentSpecOf(const OperatorCall& op);
// Appends what that would throw, all of it, and returns the rest: lists that do not belong together may be cut short,
// and step_net may be null.
std::shared_ptr<const RecurrentSpec> RecurrentSpecOf(const OperatorCall& op, std::vector<Error>* faults);

// What RecurrentSpec::Renamed says, for who needs no more of `op`.
std::string RenamedBy(const OperatorCall& op, const std::string& blob);

// The arguments of both operators, for their declarations.
std::vector<ArgumentSpec> RecurrentArguments();

// Appends what can be known to be wrong before shapes are known: problems within the step nets, links of blobs that
// nobody has, aliases of blobs that are no state. `gradient` tells which of the two operators `op` is.
void CheckRecurrent(const OperatorCall& op, bool gradient, std::vector<NetProblem>* problems);

}  // namespace stepnet
