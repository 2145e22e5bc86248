// Every registered operator, and its gradient, on random inputs of whatever shapes and dtypes it takes: other devices
// compute what the CPU does, or refuse it with the same message. (The operators' own tests run on every device too.)
#include <optional>
#include <random>
#include <set>

#include "stepnet/core/strings.h"
#include "stepnet/nets/decomposition.h"
#include "stepnet/nets/gradient.h"
#include "stepnet/nets/net.h"
#include "stepnet/nets/net_check.h"
#include "stepnet/tests/executor/random_step.h"
#include "stepnet/tests/executor/recurrent_case.h"
#include "tested_devices.h"

namespace stepnet {
namespace {

// Where the shapes of inputs hang together in a way that is hardly ever drawn; dtypes are 'f' for any floating-point
// number, 'i' for int32 and 'l' for int64.
struct InputShape {
  std::vector<std::int64_t> sizes;
  char dtype = 'f';
};
const std::map<std::string, std::vector<InputShape>> kShapes = {
    {"LSTMUnit", {{{1, 3, 2}}, {{1, 3, 2}}, {{1, 3, 8}}, {{3}, 'i'}, {{1}, 'i'}}},
    {"LSTMUnitGradient",
     {{{1, 3, 2}},
      {{1, 3, 2}},
      {{1, 3, 8}},
      {{3}, 'i'},
      {{1}, 'i'},
      {{1, 3, 2}},
      {{1, 3, 2}},
      {{1, 3, 2}},
      {{1, 3, 2}}}},
    {"GRUUnit", {{{1, 3, 2}}, {{1, 3, 6}}, {{3}, 'i'}, {{1}, 'i'}}},
    {"GRUUnitGradient", {{{1, 3, 2}}, {{1, 3, 6}}, {{3}, 'i'}, {{1}, 'i'}, {{1, 3, 2}}, {{1, 3, 2}}}},
    {"Adam", {{{3, 4}}, {{3, 4}}, {{3, 4}}, {{3, 4}}, {{1}}, {{1}, 'l'}}},
    {"Conv", {{{2, 2, 4, 4}}, {{3, 2, 2, 2}}, {{3}}}},
    {"ConvGradient", {{{2, 2, 4, 4}}, {{3, 2, 2, 2}}, {{2, 3, 3, 3}}}},
    {"SliceGradient", {{{3, 4}}, {{2}, 'i'}, {{2}, 'i'}, {{1, 1}}}},
    {"SoftmaxWithLossGradient", {{{3, 4}}, {{3}, 'i'}, {{3, 4}}, {{}}}},
};

// Not drawn: what reads and writes files or prints, what runs nets, what needs a GPU, and what tests register.
bool IsLeftOut(const std::string& type) {
  static const std::set<std::string> kLeftOut = {"Load", "Save", "DBExists", "Print", "CopyCPUToGPU", "CopyGPUToCPU"};
  return type.find('.') != std::string::npos || kLeftOut.contains(type) || type.starts_with("RecurrentNetwork") ||
         HasDecomposition(type) || GetOperator(type).is_private;
}

Tensor DrawTensor(DType dtype, const Shape& shape, std::mt19937& random) {
  const Tensor tensor = Tensor::Zeros(dtype, shape);
  for (std::int64_t i = 0; i < tensor.size(); ++i) {
    const double number = static_cast<double>(random()) / 2147483648.0 - 1;
    if (dtype == DType::kFloat) tensor.data<float>()[i] = static_cast<float>(number);
    if (dtype == DType::kDouble) tensor.data<double>()[i] = number;
    if (dtype == DType::kInt32) tensor.data<std::int32_t>()[i] = static_cast<std::int32_t>(random() % 3);
    if (dtype == DType::kInt64) tensor.data<std::int64_t>()[i] = static_cast<std::int64_t>(random() % 3);
    if (dtype == DType::kBool) tensor.data<bool>()[i] = random() % 2 == 0;
  }
  return tensor;
}

class CaseDrawer {
 public:
  CaseDrawer(const OperatorSchema& schema, std::mt19937& random) : schema_(schema), random_(random) {}

  // An operator with inputs, which its shape rule may take.
  void Draw(OperatorDef* op, std::vector<Tensor>* inputs) {
    op->Clear();
    inputs->clear();
    op->set_type(schema_.type);
    floating_ = Once(2) ? DType::kFloat : DType::kDouble;
    const auto fixed = kShapes.find(schema_.type);
    const int max_inputs = std::min(schema_.max_inputs(), schema_.min_inputs() + 2);
    const int count = fixed != kShapes.end() ? static_cast<int>(fixed->second.size())
                                             : schema_.min_inputs() + Below(max_inputs - schema_.min_inputs() + 1);
    const int max_outputs = std::min(schema_.max_outputs(), schema_.min_outputs() + 3);
    for (int i = 0; i < count; ++i) {
      op->add_input(StrCat("in", i));
      inputs->push_back(fixed != kShapes.end() ? Fixed(fixed->second[i]) : Any(*inputs));
    }
    for (int o = schema_.min_outputs() + Below(max_outputs - schema_.min_outputs() + 1); o > 0; --o) {
      op->add_output(StrCat("out", op->output_size()));
    }
    for (const auto& [input, output] : schema_.enforced_in_place) {
      if (input < op->input_size() && output < op->output_size()) op->set_output(output, op->input(input));
    }
    for (const ArgumentSpec& argument : schema_.arguments) {
      if (argument.name == "kernel") {
        AddInt(op, "kernel", 2);
      } else if (argument.required || Once(4)) {
        DrawArgument(argument, op);
      }
    }
  }

 private:
  int Below(int n) { return n <= 0 ? 0 : static_cast<int>(random_() % static_cast<unsigned>(n)); }
  bool Once(int in) { return Below(in) == 0; }

  Tensor Fixed(const InputShape& shape) {
    const DType dtype = shape.dtype == 'f' ? floating_ : shape.dtype == 'i' ? DType::kInt32 : DType::kInt64;
    return DrawTensor(dtype, Shape(shape.sizes), random_);
  }

  // It often has the shape of another input.
  Tensor Any(const std::vector<Tensor>& before) {
    static const std::vector<std::vector<std::int64_t>> kSizes = {
        {3, 4}, {4}, {3}, {}, {1}, {4, 4}, {2, 3, 4}, {2, 4, 3}, {4, 3}, {1, 3, 4}, {3, 1}, {2, 2, 3, 3}, {0, 4}, {2}};
    constexpr DType kOthers[] = {DType::kInt32, DType::kInt64, DType::kBool};
    const bool is_like_another = !before.empty() && Once(2);
    const Shape shape = is_like_another ? before[Below(static_cast<int>(before.size()))].shape()
                                        : Shape(kSizes[Below(static_cast<int>(kSizes.size()))]);
    return DrawTensor(Below(10) < 7 ? floating_ : kOthers[Below(3)], shape, random_);
  }

  void DrawArgument(const ArgumentSpec& spec, OperatorDef* op) {
    if (spec.name.starts_with("*") || spec.names_blobs) return;
    Argument* argument = op->add_arg();
    argument->set_name(spec.name);
    switch (spec.type) {
      case ArgumentType::kFloat:
      case ArgumentType::kNumber: argument->set_f(0.25F * static_cast<float>(1 + Below(8))); break;
      case ArgumentType::kInt: argument->set_i(Below(4)); break;
      case ArgumentType::kBool: argument->set_i(Below(2)); break;
      case ArgumentType::kString:
        argument->set_s(spec.constraint.one_of.empty()
                            ? "float"
                            : spec.constraint.one_of[Below(static_cast<int>(spec.constraint.one_of.size()))]);
        break;
      case ArgumentType::kInts:
        for (int k = 1 + Below(3); k > 0; --k) argument->add_ints(Below(4));
        break;
      case ArgumentType::kAny: argument->set_s(Once(2) ? "float" : "double"); break;
      default: op->mutable_arg()->RemoveLast();
    }
  }

  const OperatorSchema& schema_;
  std::mt19937& random_;
  DType floating_ = DType::kFloat;
};

NetDef NetOf(std::span<const OperatorDef> ops) {
  NetDef net;
  for (const OperatorDef& op : ops) *net.add_op() = op;
  return net;
}

// Whether the rules of the operator take these inputs, as far as that can be said without running it.
bool IsTaken(const OperatorDef& def, const std::vector<Tensor>& inputs) {
  try {
    if (!CheckNet(NetOf({&def, 1}), {.blob_exists = [](const std::string&) { return true; }}).empty()) return false;
    const OperatorCall op(def);
    std::vector<TensorInfo> infos;
    for (const Tensor& input : inputs) infos.push_back({.dtype = input.dtype(), .shape = input.shape()});
    for (const int i : op.schema().shape_value_inputs) {
      if (i < static_cast<int>(infos.size())) infos[i].value = inputs[i];
    }
    if (!op.schema().shapes) return true;
    const std::vector<TensorInfo> outputs = op.schema().shapes(ShapeQuery(op, infos));
    return static_cast<int>(outputs.size()) >= def.output_size();
  } catch (const Error&) {
    return false;
  } catch (const ValueUnknown&) {
    return true;
  }
}

struct Counts {
  int forward = 0, gradients = 0;
};

// The gradient of what has run in `after`, where the operator has one: of all outputs, or else of one.
void RunGradient(const OperatorDef& op, const Workspace& after, std::mt19937& random, Counts* counts) {
  NamedInputs inputs;
  for (const std::string& name : after.LocalBlobs()) {
    if (after.FindBlob(name)->HasTensor()) inputs[name] = after.GetTensor(name);
  }
  std::vector<GradientBlobs> of_outputs(op.output_size());
  for (int o = 0; o < op.output_size(); ++o) {
    const Tensor& output = after.GetTensor(op.output(o));
    if (output.dtype() != DType::kFloat && output.dtype() != DType::kDouble) continue;
    of_outputs[o].dense = StrCat("of_", op.output(o));
    inputs[of_outputs[o].dense] = DrawTensor(output.dtype(), output.shape(), random);
  }
  for (int only = -1; only < op.output_size(); ++only) {
    std::vector<GradientBlobs> given(op.output_size());
    for (int o = 0; o < op.output_size(); ++o) {
      if (only < 0 || o == only) given[o] = of_outputs[o];
    }
    try {
      const OperatorGradient gradient = MakeGradient(op, given);
      Workspace workspace;
      RunOnEveryDevice(
          NetOf(gradient.ops), [&](Workspace& there) { Feed(inputs, there); }, workspace);
      ++counts->gradients;
      return;
    } catch (const Error&) {  // not differentiable, or not so; everywhere
    }
  }
}

Counts RunCases(const OperatorSchema& schema, unsigned seed, int num_cases) {
  constexpr int kMaxTries = 3000;
  std::mt19937 random(seed);
  CaseDrawer drawer(schema, random);
  Counts counts;
  OperatorDef op;
  std::vector<Tensor> inputs;
  for (int k = 0; k < kMaxTries && counts.forward < num_cases; ++k) {
    drawer.Draw(&op, &inputs);
    if (!IsTaken(op, inputs)) continue;
    NamedInputs named;
    for (size_t i = 0; i < inputs.size(); ++i) named[op.input(static_cast<int>(i))] = inputs[i];
    Workspace after;
    try {
      RunOnEveryDevice(
          NetOf({&op, 1}), [&](Workspace& there) { Feed(named, there); }, after);
      ++counts.forward;
    } catch (const Error&) {  // by all
      continue;
    }
    RunGradient(op, after, random, &counts);
    if (testing::Test::HasFailure()) return counts;
  }
  return counts;
}

TEST(OperatorsOnDevices, ComputeWhatTheyComputeOnTheCpu) {
  std::set<std::string> never, no_gradient;
  for (const std::string& type : OperatorTypes()) {
    if (IsLeftOut(type)) continue;
    const OperatorSchema& schema = GetOperator(type);
    Counts counts;
    for (unsigned seed = 0; seed < NumSeeds(1) && !HasFailure(); ++seed) {
      const Counts more = RunCases(schema, seed, 6);
      counts.forward += more.forward;
      counts.gradients += more.gradients;
    }
    if (HasFailure()) return;
    if (counts.forward == 0) never.insert(type);
    if (counts.gradients == 0 && schema.gradient_kind == GradientKind::kRule) no_gradient.insert(type);
  }
  EXPECT_EQ(never, std::set<std::string>());
  EXPECT_EQ(no_gradient, std::set<std::string>());
}

}  // namespace
}  // namespace stepnet
