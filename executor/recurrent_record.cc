#include "stepnet/executor/recurrent_record.h"

namespace stepnet {

double BytesOfStates(const ForwardPlan& plan, std::int64_t num_steps) {
  double bytes = 0;
  for (const StateLayout& state : plan.states) {
    const double row = static_cast<double>(state.row.size()) * static_cast<double>(DTypeBytes(state.dtype));
    bytes += row * static_cast<double>(num_steps + state.num_initial);
  }
  return bytes;
}

void CheckSequence(const std::vector<Link>& links, const std::string& name, const Tensor& tensor,
                   std::int64_t num_steps) {
  for (const Link& link : links) {
    if (link.external != name) continue;
    if (tensor.shape().rank() == 0) {
      throw Error(ErrorCode::kShapeMismatch,
                  StrCat("\"", name, "\" is linked as a sequence and is ", tensor.Description()));
    }
    if (link.offset == 0 && link.window == 1 && tensor.dim(0) != num_steps) {
      throw Error(ErrorCode::kShapeMismatch,
                  StrCat("the sequence \"", name, "\" is ", tensor.Description(), " and has ", tensor.dim(0),
                         " steps where the first input has ", num_steps));
    }
    CheckLinkInBounds(link, tensor.dim(0), num_steps);
  }
}

}  // namespace stepnet
