#include "cell_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <random>

#include "stepnet/core/workspace.h"
#include "stepnet/nets/backward.h"
#include "stepnet/nets/backward_step.h"
#include "stepnet/nets/double_net.h"
#include "stepnet/nets/net.h"
#include "stepnet/nets/op_builder.h"
#include "stepnet/tests/core/source_path.h"
#include "stepnet/tests/devices/tested_devices.h"
#include "stepnet/tests/executor/recurrent_case.h"

namespace stepnet {
namespace {

Tensor RandomTensor(const Shape& shape, std::mt19937& random) {
  Tensor tensor(DType::kDouble, shape);
  std::uniform_real_distribution<double> element(-1, 1);
  for (std::int64_t i = 0; i < shape.size(); ++i) tensor.data<double>()[i] = element(random);
  return tensor;
}

double WeightedSum(const Tensors& outputs, const Tensors& weights) {
  double sum = 0;
  for (const auto& [name, weight] : weights) {
    const Tensor& output = outputs.at(name);
    for (std::int64_t i = 0; i < weight.size(); ++i) sum += output.data<double>()[i] * weight.data<double>()[i];
  }
  return sum;
}

}  // namespace

std::vector<std::string> ExampleCells() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(SourcePath("examples/cells"))) {
    if (entry.path().extension() == ".cell") names.push_back(entry.path().stem());
  }
  std::ranges::sort(names);
  return names;
}

CellSource ReadExampleCell(const std::string& name) { return ReadCell(SourcePath("examples/cells/") + name + ".cell"); }

CellSizes SmallSizes(const CellDef& cell) {
  static const CellSizes kSmall = {{"D", 2}, {"H", 3}, {"P", 2}, {"E", 2}, {"A", 3}, {"S", 4}, {"K", 2}};
  CellSizes sizes;
  for (const CellSize& size : cell.size()) sizes[size.name()] = kSmall.at(size.name());
  return sizes;
}

Tensors CellCase::RandomValues(const CellNet& net) const {
  std::mt19937 random(seed);
  Tensors given;
  for (const CellNetInput& input : net.inputs) {
    std::vector<std::int64_t> dims = input.dims;
    std::ranges::replace(dims, CellNetInput::kSteps, num_steps);
    std::ranges::replace(dims, CellNetInput::kBatch, batch);
    if (input.dtype == DType::kFloat) {
      given[input.blob] = RandomTensor(Shape(dims), random);
      continue;
    }
    Tensor tensor(input.dtype, Shape(dims));
    for (std::int64_t i = 0; i < tensor.size(); ++i) {
      if (input.dtype == DType::kBool) tensor.data<bool>()[i] = random() % 4 > 0;
      // Sequences of all lengths, the longest and the shortest first.
      if (input.dtype == DType::kInt32) {
        tensor.data<std::int32_t>()[i] = static_cast<std::int32_t>(i == 0   ? num_steps
                                                                   : i == 1 ? 0
                                                                            : random() % (num_steps + 1));
      }
    }
    given[input.blob] = tensor;
  }
  Workspace workspace;
  RunNetOnce(InDouble(net.init_net), workspace);
  for (const OperatorDef& fill : net.init_net.op()) {
    const Tensor& filled = workspace.GetTensor(fill.output(0));
    const bool is_parameter = std::ranges::find(net.parameters, fill.output(0)) != net.parameters.end();
    given[fill.output(0)] = is_parameter ? RandomTensor(filled.shape(), random) : filled.Clone();
  }
  return given;
}

Tensors RunCell(const CellNet& net, const Tensors& given) {
  Workspace workspace;
  RunOnEveryDevice(
      InDouble(net.net), [&](Workspace& there) { Feed(given, there); }, workspace);
  Tensors outputs;
  for (const std::string& blob : net.net.external_output()) outputs[blob] = workspace.GetTensor(blob);
  return outputs;
}

CellGradientNet MakeGradientNet(const CellNet& net, const Tensors& given, const Tensors& weights) {
  NetDef def = InDouble(net.net);
  Tensors inputs = given;
  std::vector<std::string> losses;
  for (const auto& [name, weight] : weights) {
    AddOp(&def, "Mul", {name, name + "_weight"}, {name + "_weighted"});
    losses.push_back(name + "_weighted");
    inputs[name + "_weight"] = weight;
  }
  std::vector<std::string> wanted = net.parameters;
  for (const CellNetInput& input : net.inputs) {
    if (input.dtype == DType::kFloat) wanted.push_back(input.blob);
  }
  AddBackwardStepNets(
      &def, [&](const std::string& blob) { return !given.contains(blob) || given.at(blob).dtype() == DType::kDouble; });
  NetWithGradients made = AddGradients(def, losses, wanted);
  std::map<std::string, std::string> gradients;
  for (const auto& [name, gradient] : made.gradients) gradients[name] = gradient.dense;
  return {std::move(made.net), std::move(inputs), std::move(gradients)};
}

Tensors CellGradients(const CellNet& net, const Tensors& given, const Tensors& weights) {
  const CellGradientNet made = MakeGradientNet(net, given, weights);
  Workspace workspace;
  RunOnEveryDevice(
      made.net, [&](Workspace& there) { Feed(made.inputs, there); }, workspace);
  Tensors gradients;
  for (const auto& [name, gradient] : made.gradients) gradients[name] = workspace.GetTensor(gradient);
  return gradients;
}

void ExpectTensorsNear(const Tensors& got, const Tensors& wanted, double tolerance) {
  for (const auto& [name, tensor] : wanted) {
    ASSERT_TRUE(got.contains(name)) << name;
    const Tensor& mine = got.at(name);
    ASSERT_EQ(mine.size(), tensor.size()) << name << " is " << mine.shape() << " and not " << tensor.shape();
    for (int axis = 0; axis < std::min(2, tensor.shape().rank()); ++axis)
      ASSERT_EQ(mine.dim(axis), tensor.dim(axis)) << name;
    for (std::int64_t i = 0; i < tensor.size(); ++i) {
      const double value = tensor.data<double>()[i];
      ASSERT_NEAR(mine.data<double>()[i], value, tolerance * (1 + std::abs(value)))
          << name << ", element " << i << " of " << mine.shape();
    }
  }
}

void ExpectFollowsReference(const CellCase& test, const ReferenceStep& step) {
  const CellNet net = test.Expand();
  const Tensors given = test.RandomValues(net);
  const Tensors wanted = RunReference(test.cell.def, step, given);
  ASSERT_EQ(wanted.size(), test.batch == 0 ? 0 : net.outputs.size());
  ExpectTensorsNear(RunCell(net, given), wanted);
}

void ExpectGradientsOfReference(const CellCase& test, const ReferenceStep& step) {
  const CellNet net = test.Expand();
  const Tensors given = test.RandomValues(net);
  std::mt19937 random(test.seed + 1);
  Tensors weights;
  for (const std::string& output : net.outputs) weights[output] = {};
  const Tensors outputs = RunCell(net, given);
  for (auto& [name, weight] : weights) weight = RandomTensor(outputs.at(name).shape(), random);
  const Tensors gradients = CellGradients(net, given, weights);
  for (const std::string& parameter : net.parameters) EXPECT_TRUE(gradients.contains(parameter)) << parameter;
  const auto loss = [&] { return WeightedSum(RunReference(test.cell.def, step, given), weights); };
  for (const auto& [name, gradient] : gradients) {
    ASSERT_EQ(gradient.shape(), given.at(name).shape()) << name;
    for (const auto& [i, numeric] : Differences(given.at(name), loss)) {
      ASSERT_NEAR(gradient.data<double>()[i], numeric, 1e-7 * (1 + std::abs(numeric)))
          << "gradient of " << name << ", element " << i << " of " << gradient.shape();
    }
  }
}

}  // namespace stepnet
