// OpTest: one operator with its inputs, and the questions that every operator is asked.
//
//   OpTest("Elu").Arg("alpha", 0.5f).Input("x", {4}, {-20, -1, 0, 3}).Gives({4}, {-0.5, -0.316060, 0, 3});
//   OpTest("Elu").Random("x", {3, 5}, /*seed=*/7, /*kinks=*/{0}).GradientMatches();
//
// Gives runs the operator in float and in double; GradientMatches compares its registered gradient, in double, with
// central differences of a weighted sum of its outputs. Both run on every device that there is
// (tests/devices/tested_devices.h).
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "stepnet/core/operator.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {

class OpTest {
 public:
  explicit OpTest(const std::string& type, int num_outputs = 1);

  OpTest& Arg(const std::string& name, float value);
  OpTest& Arg(const std::string& name, int value);
  OpTest& Arg(const std::string& name, const char* value);
  OpTest& Ints(const std::string& name, const std::vector<std::int64_t>& values);
  OpTest& Floats(const std::string& name, const std::vector<float>& values);
  OpTest& Strings(const std::string& name, const std::vector<std::string>& values);
  OpTest& Seed(unsigned seed);  // device_option.random_seed

  // Floating-point values, given to the operator as float and as double.
  OpTest& Input(const std::string& name, const Shape& shape, const std::vector<double>& values);
  // Values of another type, the same in every run; gradients are not asked for.
  OpTest& Input(const std::string& name, const Tensor& tensor);
  // Uniform in [-1, 1), at least 0.05 away from the values in `kinks`.
  OpTest& Random(const std::string& name, const Shape& shape, int seed, const std::vector<double>& kinks = {});
  // Uniform in [low, high).
  OpTest& RandomIn(const std::string& name, const Shape& shape, int seed, double low, double high);
  // Output o is the blob of input i.
  OpTest& InPlace(int input, int output);

  // The outputs of a run with floating-point inputs of this dtype.
  std::vector<Tensor> Run(DType dtype = DType::kFloat) const;
  // Runs in float and double and compares output `output` element by element, to |a-b| <= tolerance*(1+|b|).
  void Gives(const Shape& shape, const std::vector<double>& values, int output = 0, double tolerance = 2e-6) const;
  // Does what Gives does, for values of other types, exactly.
  void GivesExactly(const Tensor& expected, int output = 0) const;
  // Compares the result with that of a function of the inputs, in double: for random shapes.
  void Follows(const std::function<std::vector<double>(const std::vector<std::vector<double>>&)>& formula,
               int output = 0, double tolerance = 1e-5) const;
  // `outputs` lists the outputs that get a gradient; all when empty. `inputs` those whose gradient is compared.
  void GradientMatches(std::vector<int> outputs = {}, std::vector<int> inputs = {}, double tolerance = 1e-6) const;

 private:
  struct Value {
    std::string name;
    Shape shape;
    std::vector<double> values;  // when `fixed` is undefined
    Tensor fixed;
  };
  void Feed(Workspace& workspace, DType dtype) const;

  OperatorDef def_;
  std::vector<Value> inputs_;
};

// The elements of a float, double or integer tensor.
std::vector<double> ToDoubles(const Tensor& tensor);

// Expects an Error whose what() is `text`, or contains it when it starts with "…".
void ExpectError(const std::function<void()>& action, const std::string& text);

}  // namespace stepnet
