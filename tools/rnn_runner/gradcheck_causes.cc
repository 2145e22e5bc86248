#include "stepnet/tools/rnn_runner/gradcheck_causes.h"

#include <cmath>
#include <optional>

#include "stepnet/core/error.h"
#include "stepnet/core/floating.h"
#include "stepnet/core/strings.h"
#include "stepnet/report/text.h"
#include "stepnet/tools/rnn_runner/tensor_text.h"

namespace stepnet::runner {
namespace {

struct Element {
  std::int64_t number = 0;
  double value = 0;
};

std::optional<Element> FirstNotFinite(const Tensor& tensor) {
  std::optional<Element> found;
  if (!IsFloating(tensor.dtype())) return found;
  ForEachNumber(tensor, [&](std::int64_t i, double value) {
    if (!found && !std::isfinite(value)) found = {.number = i, .value = value};
  });
  return found;
}

// "[1, 0, 2]"
std::string IndexText(const Shape& shape, std::int64_t number) {
  std::vector<std::string> indices;
  for (int d = 0; d < shape.rank(); ++d) indices.push_back(StrCat(number / shape.SizeFrom(d + 1) % shape[d]));
  return StrCat("[", Join(indices, ", "), "]");
}

// In which blob the first number that is not finite arises, and where.
std::string OriginText(const NetDef& net, const Workspace& workspace) {
  for (int k = 0; k < net.op_size(); ++k) {
    for (const std::string& output : net.op(k).output()) {
      const Blob* blob = workspace.FindBlob(output);
      if (blob == nullptr || !blob->HasTensor()) continue;
      const Tensor tensor = blob->GetTensor().To({});
      const auto element = FirstNotFinite(tensor);
      if (!element) continue;
      const bool has_steps = net.op(k).type() == "RecurrentNetwork" && tensor.dim(0) > 1;
      const std::string step =
          has_steps ? StrCat(", in step ", element->number / tensor.shape().SizeFrom(1)) : std::string();
      return StrCat("\n  the first number that is not finite is ", std::isnan(element->value) ? "NaN" : "an infinity",
                    " in ", NameText(output), ", ", tensor.Description(), ", at ",
                    IndexText(tensor.shape(), element->number), step);
    }
  }
  return "";
}

}  // namespace

void CheckLossIsFinite(double loss, const NetDef& net, const Workspace& workspace) {
  if (std::isfinite(loss)) return;
  throw Error(ErrorCode::kInvalidArgument,
              StrCat("the loss is ", std::isnan(loss) ? "NaN" : "infinite",
                     " at these inputs, so that there are no gradients to compare", OriginText(net, workspace),
                     "\n  a division by 0, as by a state that starts with zeros, and a root or logarithm of what is "
                     "negative give such numbers; --input and --shape give other inputs"));
}

std::string NetWithStopGradient(const NetDef& net) {
  for (const OperatorDef& op : net.op()) {
    if (op.type() == "StopGradient") return net.name();
    for (const Argument& argument : op.arg()) {
      if (!argument.has_n()) continue;
      if (std::string name = NetWithStopGradient(argument.n()); !name.empty()) return name;
    }
  }
  return "";
}

}  // namespace stepnet::runner
