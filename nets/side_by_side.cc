#include "stepnet/nets/side_by_side.h"

#include <algorithm>

#include "stepnet/nets/op_builder.h"

namespace stepnet {

OperatorDef JoinOperator(const std::vector<std::string>& inputs, int axis, const std::string& joined,
                         const std::string& sizes) {
  NetDef net;
  AddOp(&net, "Concat", inputs, {joined, sizes}).Int("axis", axis);
  return net.op(0);
}

OperatorDef PartOperator(const std::string& joined, int axis, const std::vector<std::string>& parts,
                         const std::vector<std::int64_t>& sizes) {
  NetDef net;
  AddOp(&net, "Split", {joined}, parts).Int("axis", axis).Ints("split", sizes);
  return net.op(0);
}

OperatorDef ProductOperator(const std::string& left, const std::string& matrix, bool transposed,
                            const std::string& product) {
  NetDef net;
  AddOp(&net, transposed ? "FC" : "FCTransposed", {left, matrix}, {product}).Int("axis", -1);
  return net.op(0);
}

OperatorDef ProductOfParts(const std::string& left, const std::vector<std::string>& matrices, const std::string& bias,
                           const std::string& product) {
  std::vector<std::string> inputs = {left};
  if (!bias.empty()) inputs.push_back(bias);
  inputs.insert(inputs.end(), matrices.begin(), matrices.end());
  NetDef net;
  AddOp(&net, bias.empty() ? "FCOfParts" : "FCOfPartsWithBias", inputs, {product});
  return net.op(0);
}

std::optional<OperatorDef> WithBiasGradient(const OperatorDef& gradient, const std::string& bias_gradient) {
  if (gradient.type() != "FCGradient" && gradient.type() != "FCTransposedGradient") return {};
  const auto says = [&](const char* name) {
    return std::ranges::any_of(gradient.arg(), [&](const Argument& argument) { return argument.name() == name; });
  };
  if (!says("no_bias") || says("without") || gradient.output_size() == 0) return {};
  OperatorDef with_bias = gradient;
  with_bias.clear_arg();
  for (const Argument& argument : gradient.arg()) {
    if (argument.name() != "no_bias") {
      *with_bias.add_arg() = argument;
    } else if (argument.i() == 0) {
      return {};
    }
  }
  with_bias.clear_output();
  for (int o = 0; o < gradient.output_size(); ++o) {
    with_bias.add_output(gradient.output(o));
    if (o == 0) with_bias.add_output(bias_gradient);
  }
  return with_bias;
}

}  // namespace stepnet
