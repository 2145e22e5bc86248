// What the links of a backward step show, and where it finds what it reads: the check of a net and the plan ask the
// same functions, as they do forward (nets/link_roles.h).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "stepnet/nets/forward_operator.h"

namespace stepnet {

bool IsGradientOperator(const OperatorCall& op);

// The name of an input of the forward operator, as either operator lists it; "" when there is none.
std::string ForwardInputName(const OperatorCall& op, const RecurrentSpec& spec, int input);

// The inputs of the forward operator whose gradients the gradient operator gives, in the order of its outputs: input 0,
// params, initial states.
std::vector<int> InputsOfGradients(const RecurrentSpec& spec);

// What the backward step net calls the gradient of param k.
std::string NameOfParamGradient(const OperatorCall& op, const RecurrentSpec& spec, size_t k);

// What an output of the forward operator shows; nothing where it is not made.
struct OutputRole {
  int step_output = -1;
  int state = -1;
  std::int64_t offset = 0;  // first row of the state, from its end where negative

  friend bool operator==(const OutputRole&, const OutputRole&) = default;
};
OutputRole FindOutputRole(const RecurrentSpec& spec, const std::string& output);

struct BackwardLinkRole {
  enum class Kind { kNothing, kState, kStepOutput, kOutput };
  Kind kind = Kind::kNothing;  // what it is the gradient of; kOutput: the gradient operator's output itself
  int index = -1;

  BackwardLinkRole() = default;
  BackwardLinkRole(Kind of, int at) : kind(of), index(at) {}

  // Whether the rows can hold something before the step, for it to read; otherwise it only adds to them. In a
  // state these are rows behind the initial ones, of which there is at least one.
  bool MayGive(const Link& link) const {
    return kind == Kind::kStepOutput || (kind == Kind::kState && link.offset > 0);
  }
};

// One for each backward link. `op` may be either operator: of the forward one it is not known yet what its gradient
// calls its outputs. Appends to `problems`, where given: links that name no gradient, and links to gradients of step
// outputs that show other rows than the step's own.
std::vector<BackwardLinkRole> FindBackwardLinkRoles(const OperatorCall& op, const RecurrentSpec& spec,
                                                    std::vector<NetProblem>* problems = nullptr);

// Where a backward step finds a blob that it reads before it writes it.
enum class BackwardSource { kNowhere, kLink, kTimestep, kForwardStep, kForwardInput };

// Finds that for each blob which the backward step of the gradient operator `op`, whose links have these roles, so
// reads. Appends to `problems`: blobs that are found nowhere, and blobs of the forward step that the forward run does
// not keep. Without `forward` only of blobs that links show.
std::map<std::string, BackwardSource> FindBackwardSources(const OperatorCall& op, const RecurrentSpec& spec,
                                                          const std::vector<BackwardLinkRole>& links,
                                                          const ForwardOperator* forward,
                                                          std::vector<NetProblem>* problems);

struct BackwardRoles {
  std::vector<BackwardLinkRole> links;            // of each backward link
  std::map<std::string, BackwardSource> sources;  // of each blob that the backward step reads before it writes it
};

}  // namespace stepnet
