#include "stepnet/executor/recurrent_record.h"

namespace stepnet {

Tensor TimestepNumbers(std::int64_t num_steps, const Tensor& old) {
  if (old.defined() && old.size() >= num_steps) return old;
  Tensor numbers(DType::kInt32, Shape({num_steps}));
  std::int32_t* data = numbers.data<std::int32_t>();
  for (std::int64_t t = 0; t < num_steps; ++t) data[t] = static_cast<std::int32_t>(t);
  return numbers;
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
