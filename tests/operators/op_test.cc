#include "op_test.h"

#include <cmath>
#include <random>

#include "stepnet/nets/gradient.h"
#include "stepnet/nets/net.h"
#include "stepnet/nets/net_check.h"
#include "stepnet/tests/devices/tested_devices.h"

namespace stepnet {
namespace {

Tensor FromDoubles(DType dtype, const Shape& shape, const std::vector<double>& values) {
  if (dtype == DType::kDouble) return Tensor::Of<double>(shape, values);
  return Tensor::Of<float>(shape, std::vector<float>(values.begin(), values.end()));
}

NetDef NetOf(const std::vector<OperatorDef>& ops) {
  NetDef net;
  net.set_name("test");
  for (const OperatorDef& op : ops) *net.add_op() = op;
  return net;
}

}  // namespace

std::vector<double> ToDoubles(const Tensor& tensor) {
  std::vector<double> values(static_cast<size_t>(tensor.size()));
  const auto copy = [&](auto zero) {
    const auto* data = tensor.data<decltype(zero)>();
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(data[i]);
  };
  switch (tensor.dtype()) {
    case DType::kFloat: copy(float{}); break;
    case DType::kDouble: copy(double{}); break;
    case DType::kInt32: copy(std::int32_t{}); break;
    case DType::kInt64: copy(std::int64_t{}); break;
    case DType::kUInt8: copy(std::uint8_t{}); break;
    case DType::kBool: copy(bool{}); break;
    default: ADD_FAILURE() << "no doubles in " << tensor.Description();
  }
  return values;
}

OpTest::OpTest(const std::string& type, int num_outputs) {
  def_.set_type(type);
  for (int i = 0; i < num_outputs; ++i) def_.add_output(StrCat("output", i));
}

OpTest& OpTest::Arg(const std::string& name, float value) {
  Argument* argument = def_.add_arg();
  argument->set_name(name);
  argument->set_f(value);
  return *this;
}
OpTest& OpTest::Arg(const std::string& name, int value) {
  Argument* argument = def_.add_arg();
  argument->set_name(name);
  argument->set_i(value);
  return *this;
}
OpTest& OpTest::Arg(const std::string& name, const char* value) {
  Argument* argument = def_.add_arg();
  argument->set_name(name);
  argument->set_s(value);
  return *this;
}
OpTest& OpTest::Ints(const std::string& name, const std::vector<std::int64_t>& values) {
  Argument* argument = def_.add_arg();
  argument->set_name(name);
  for (const std::int64_t value : values) argument->add_ints(value);
  return *this;
}
OpTest& OpTest::Floats(const std::string& name, const std::vector<float>& values) {
  Argument* argument = def_.add_arg();
  argument->set_name(name);
  for (const float value : values) argument->add_floats(value);
  return *this;
}
OpTest& OpTest::Strings(const std::string& name, const std::vector<std::string>& values) {
  Argument* argument = def_.add_arg();
  argument->set_name(name);
  for (const std::string& value : values) argument->add_strings(value);
  return *this;
}
OpTest& OpTest::Seed(unsigned seed) {
  def_.mutable_device_option()->set_random_seed(seed);
  return *this;
}

OpTest& OpTest::Input(const std::string& name, const Shape& shape, const std::vector<double>& values) {
  def_.add_input(name);
  inputs_.push_back({.name = name, .shape = shape, .values = values, .fixed = {}});
  return *this;
}
OpTest& OpTest::Input(const std::string& name, const Tensor& tensor) {
  def_.add_input(name);
  inputs_.push_back({.name = name, .shape = tensor.shape(), .values = {}, .fixed = tensor});
  return *this;
}
OpTest& OpTest::Random(const std::string& name, const Shape& shape, int seed, const std::vector<double>& kinks) {
  RandomIn(name, shape, seed, -1, 1);
  for (double& value : inputs_.back().values) {
    for (const double kink : kinks) {
      if (std::abs(value - kink) < 0.05) value = kink + (value < kink ? -0.05 : 0.05);
    }
  }
  return *this;
}
OpTest& OpTest::RandomIn(const std::string& name, const Shape& shape, int seed, double low, double high) {
  std::mt19937 rng(static_cast<unsigned>(seed));
  std::uniform_real_distribution<double> uniform(low, high);
  std::vector<double> values(static_cast<size_t>(shape.size()));
  // Floats exactly, so that float and double runs start from the same numbers.
  for (double& value : values) value = static_cast<float>(uniform(rng));
  return Input(name, shape, values);
}
OpTest& OpTest::InPlace(int input, int output) {
  def_.set_output(output, def_.input(input));
  return *this;
}

void OpTest::Feed(Workspace& workspace, DType dtype) const {
  for (const Value& input : inputs_) {
    workspace.SetTensor(input.name,
                        input.fixed.defined() ? input.fixed.Clone() : FromDoubles(dtype, input.shape, input.values));
  }
}

std::vector<Tensor> OpTest::Run(DType dtype) const {
  Workspace workspace;
  RunOnEveryDevice(
      NetOf({def_}), [&](Workspace& there) { Feed(there, dtype); }, workspace);
  std::vector<Tensor> outputs;
  for (const std::string& output : def_.output()) outputs.push_back(workspace.GetTensor(output));
  return outputs;
}

void OpTest::Gives(const Shape& shape, const std::vector<double>& values, int output, double tolerance) const {
  for (const DType dtype : {DType::kFloat, DType::kDouble}) {
    const Tensor tensor = Run(dtype).at(output);
    ASSERT_EQ(tensor.shape(), shape) << def_.type() << " in " << dtype;
    const std::vector<double> got = ToDoubles(tensor);
    for (size_t i = 0; i < values.size(); ++i) {
      if (std::isnan(values[i]) ? std::isnan(got[i]) : got[i] == values[i]) continue;
      ASSERT_LE(std::abs(got[i] - values[i]), tolerance * (1 + std::abs(values[i])))
          << def_.type() << " in " << dtype << ", element " << i << ": is " << got[i] << ", should be " << values[i];
    }
  }
}

void OpTest::GivesExactly(const Tensor& expected, int output) const {
  const Tensor tensor = Run().at(output);
  ASSERT_EQ(tensor.Description(), expected.Description());
  if (tensor.dtype() == DType::kString) {
    for (std::int64_t i = 0; i < tensor.size(); ++i) {
      ASSERT_EQ(tensor.data<std::string>()[i], expected.data<std::string>()[i]) << "element " << i;
    }
    return;
  }
  ASSERT_EQ(ToDoubles(tensor), ToDoubles(expected));
}

void OpTest::Follows(const std::function<std::vector<double>(const std::vector<std::vector<double>>&)>& formula,
                     int output, double tolerance) const {
  std::vector<std::vector<double>> values;
  for (const Value& input : inputs_) values.push_back(input.fixed.defined() ? ToDoubles(input.fixed) : input.values);
  const std::vector<double> expected = formula(values);
  const Shape shape = Run().at(output).shape();
  ASSERT_EQ(shape.size(), expected.size());
  Gives(shape, expected, output, tolerance);
}

void OpTest::GradientMatches(std::vector<int> outputs, std::vector<int> inputs, double tolerance) const {
  if (outputs.empty()) {
    for (int o = 0; o < def_.output_size(); ++o) outputs.push_back(o);
  }
  Workspace before;
  Feed(before, DType::kDouble);
  const NetDef forward = NetOf({def_});
  RunNetOnce(forward, before);
  // Weights of the sum that is differentiated; they are the outputs' gradients.
  std::mt19937 rng(123);
  std::uniform_real_distribution<double> uniform(-1, 1);
  std::vector<GradientBlobs> output_gradients(def_.output_size());
  std::vector<std::vector<double>> weights(def_.output_size());
  for (const int o : outputs) {
    const Shape shape = before.GetTensor(def_.output(o)).shape();
    weights[o].resize(static_cast<size_t>(shape.size()));
    for (double& weight : weights[o]) weight = uniform(rng);
    output_gradients[o].dense = StrCat("weights", o);
    before.SetTensor(output_gradients[o].dense, Tensor::Of<double>(shape, weights[o]));
  }
  const OperatorGradient gradient = MakeGradient(def_, output_gradients);
  Workspace workspace;
  const auto feed = [&](Workspace& there) {
    for (const std::string& name : before.LocalBlobs()) {
      if (before.FindBlob(name)->HasTensor()) there.SetTensor(name, before.GetTensor(name).Clone());
    }
  };
  RunOnEveryDevice(NetOf(gradient.ops), feed, workspace);
  if (inputs.empty()) {
    for (int i = 0; i < def_.input_size(); ++i) {
      if (!inputs_[i].fixed.defined()) inputs.push_back(i);
    }
  }
  for (const int i : inputs) {
    ASSERT_FALSE(gradient.input_gradients[i].dense.empty()) << def_.type() << " gives no gradient of input " << i;
    const Tensor analytic = workspace.GetTensor(gradient.input_gradients[i].dense);
    ASSERT_EQ(analytic.shape(), inputs_[i].shape) << "gradient of " << inputs_[i].name;
    const auto loss_at = [&](std::int64_t element, double delta) {
      OpTest moved = *this;
      moved.inputs_[i].values[static_cast<size_t>(element)] += delta;
      Workspace trial;
      moved.Feed(trial, DType::kDouble);
      RunNetOnce(forward, trial);
      double sum = 0;
      for (const int o : outputs) {
        const std::vector<double> values = ToDoubles(trial.GetTensor(def_.output(o)));
        for (size_t k = 0; k < values.size(); ++k) sum += weights[o][k] * values[k];
      }
      return sum;
    };
    for (std::int64_t k = 0; k < analytic.size(); ++k) {
      constexpr double kStep = 1e-5;
      const double numeric = (loss_at(k, kStep) - loss_at(k, -kStep)) / (2 * kStep);
      ASSERT_NEAR(analytic.data<double>()[k], numeric, tolerance * (1 + std::abs(numeric)))
          << def_.type() << ": gradient of " << inputs_[i].name << ", element " << k;
    }
  }
}

void ExpectError(const std::function<void()>& action, const std::string& text) {
  try {
    action();
    ADD_FAILURE() << "no error, expected: " << text;
  } catch (const Error& error) {
    const std::string dots = "…";
    if (text.starts_with(dots)) {
      EXPECT_NE(std::string(error.what()).find(text.substr(dots.size())), std::string::npos)
          << "the error is: " << error.what();
    } else {
      EXPECT_EQ(std::string(error.what()), text);
    }
  }
}

}  // namespace stepnet
