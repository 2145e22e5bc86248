#include "recurrent_case.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "stepnet/core/strings.h"
#include "stepnet/nets/backward.h"
#include "stepnet/nets/backward_step.h"
#include "stepnet/tests/core/sanitized.h"

namespace stepnet {
namespace {

std::vector<std::string> SplitNames(const std::string& text) {
  std::vector<std::string> names;
  std::string name;
  for (const char c : text + ",") {
    if (c == ',') {
      if (!name.empty()) names.push_back(name);
      name.clear();
    } else if (c != ' ') {
      name += c;
    }
  }
  return names;
}

}  // namespace

OperatorDef ParseOp(const std::string& text) {
  const size_t equals = text.find('=');
  const size_t open = text.find('(');
  OperatorDef op;
  const std::string outputs = equals == std::string::npos ? "" : text.substr(0, equals);
  const size_t type_begin = equals == std::string::npos ? 0 : equals + 1;
  for (const std::string& name : SplitNames(outputs)) op.add_output(name);
  op.set_type(SplitNames(text.substr(type_begin, open - type_begin)).at(0));
  for (const std::string& name : SplitNames(text.substr(open + 1, text.find(')') - open - 1))) op.add_input(name);
  return op;
}

void AddInt(OperatorDef* op, const std::string& name, std::int64_t value) {
  Argument* argument = op->add_arg();
  argument->set_name(name);
  argument->set_i(value);
}
void AddInts(OperatorDef* op, const std::string& name, const std::vector<std::int64_t>& values) {
  Argument* argument = op->add_arg();
  argument->set_name(name);
  for (const std::int64_t value : values) argument->add_ints(value);
}
void AddString(OperatorDef* op, const std::string& name, const std::string& value) {
  Argument* argument = op->add_arg();
  argument->set_name(name);
  argument->set_s(value);
}
void AddStrings(OperatorDef* op, const std::string& name, const std::vector<std::string>& values) {
  Argument* argument = op->add_arg();
  argument->set_name(name);
  for (const std::string& value : values) argument->add_strings(value);
}

Tensor Column(const std::vector<double>& values) {
  return Tensor::Of<double>({static_cast<std::int64_t>(values.size()), 1, 1}, values);
}

Tensor One(double value) { return Tensor::Of<double>({1, 1}, {value}); }

Tensor Random(const Shape& shape, unsigned seed, DType dtype) {
  std::mt19937 rng(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  std::vector<double> values(static_cast<size_t>(shape.size()));
  for (double& value : values) value = static_cast<float>(uniform(rng));
  if (dtype == DType::kDouble) return Tensor::Of<double>(shape, values);
  return Tensor::Of<float>(shape, std::vector<float>(values.begin(), values.end()));
}

std::vector<double> Values(const Tensor& tensor) {
  if (tensor.dtype() == DType::kDouble) return {tensor.data<double>(), tensor.data<double>() + tensor.size()};
  return {tensor.data<float>(), tensor.data<float>() + tensor.size()};
}

std::map<std::int64_t, double> Differences(const Tensor& tensor, const std::function<double()>& loss) {
  constexpr double kStep = 1e-5;
  std::map<std::int64_t, double> differences;
  for (std::int64_t i = 0; i < tensor.size(); ++i) {
    if (!IsTried(i)) continue;
    double& element = tensor.data<double>()[i];
    const double before = element;
    element = before + kStep;
    const double above = loss();
    element = before - kStep;
    const double below = loss();
    element = before;
    differences[i] = (above - below) / (2 * kStep);
  }
  return differences;
}

void ExpectSame(const Tensor& a, const Tensor& b, const std::string& what) {
  ASSERT_EQ(a.Description(), b.Description()) << what;
  if (a.dtype() == DType::kString) {
    EXPECT_TRUE(std::equal(a.data<std::string>(), a.data<std::string>() + a.size(), b.data<std::string>())) << what;
    return;
  }
  EXPECT_EQ(std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.size_bytes())), 0) << what << " differs";
}

RecurrentCase::RecurrentCase() {
  forward_.set_type("RecurrentNetwork");
  step_net_.set_name("step");
  backward_net_.set_name("backward_step");
}

int RecurrentCase::InputIndex(const std::string& blob) {
  const auto found = std::find(forward_.input().begin(), forward_.input().end(), blob);
  if (found != forward_.input().end()) return static_cast<int>(found - forward_.input().begin());
  forward_.add_input(blob);
  return forward_.input_size() - 1;
}

RecurrentCase& RecurrentCase::Sequence(const std::string& blob, const std::string& internal, std::int64_t offset,
                                       std::int64_t window) {
  InputIndex(blob);
  return internal.empty() ? *this : Link(internal, blob, offset, window);
}

RecurrentCase& RecurrentCase::State(const std::string& name, const std::string& initial, const std::string& prev,
                                    const std::string& next, std::int64_t num_initial) {
  states_.push_back(name);
  initial_ids_.push_back(InputIndex(initial));
  if (!prev.empty()) Link(prev, name, 0);
  if (!next.empty()) Link(next, name, num_initial);
  return *this;
}

RecurrentCase& RecurrentCase::Link(const std::string& internal, const std::string& external, std::int64_t offset,
                                   std::int64_t window) {
  links_.internal.push_back(internal);
  links_.external.push_back(external);
  links_.offset.push_back(offset);
  links_.window.push_back(window);
  return *this;
}

RecurrentCase& RecurrentCase::Captured(const std::string& blob) {
  InputIndex(blob);
  return *this;
}

RecurrentCase& RecurrentCase::Step(const std::string& op) { return Step(ParseOp(op)); }
RecurrentCase& RecurrentCase::Step(const OperatorDef& op) {
  *step_net_.add_op() = op;
  return *this;
}

RecurrentCase& RecurrentCase::Output(const std::string& name, const std::string& state, std::int64_t offset) {
  forward_.add_output(name);
  alias_src_.push_back(state);
  alias_dst_.push_back(name);
  alias_offset_.push_back(offset);
  return *this;
}

RecurrentCase& RecurrentCase::BackwardStep(const std::string& op) {
  has_backward_ = true;
  return op.empty() ? *this : BackwardStep(ParseOp(op));
}
RecurrentCase& RecurrentCase::BackwardStep(const OperatorDef& op) {
  has_backward_ = true;
  *backward_net_.add_op() = op;
  return *this;
}

RecurrentCase& RecurrentCase::BackwardLink(const std::string& internal, const std::string& external,
                                           std::int64_t offset, std::int64_t window) {
  backward_links_.internal.push_back(internal);
  backward_links_.external.push_back(external);
  backward_links_.offset.push_back(offset);
  backward_links_.window.push_back(window);
  return *this;
}

RecurrentCase& RecurrentCase::Param(const std::string& blob, const std::string& gradient) {
  params_.push_back(InputIndex(blob));
  param_grads_.push_back(gradient);
  return *this;
}

RecurrentCase& RecurrentCase::OutputGradient(const std::string& output) {
  const auto found = std::find(forward_.output().begin(), forward_.output().end(), output);
  outputs_with_grads_.push_back(found - forward_.output().begin());
  return *this;
}

RecurrentCase& RecurrentCase::WithGradient(std::vector<std::string> outputs) {
  has_gradient_ = true;
  gradient_outputs_ = std::move(outputs);
  return *this;
}

NetDef RecurrentCase::Build() const {
  OperatorDef forward = forward_;
  forward.add_output("record");
  *forward.add_arg() = [&] {
    Argument argument;
    argument.set_name("step_net");
    *argument.mutable_n() = step_net_;
    return argument;
  }();
  if (has_backward_) {
    Argument* argument = forward.add_arg();
    argument->set_name("backward_step_net");
    *argument->mutable_n() = backward_net_;
  }
  const auto add_links = [&](const std::string& prefix, const LinkArgs& links) {
    AddStrings(&forward, prefix + "internal", links.internal);
    AddStrings(&forward, prefix + "external", links.external);
    AddInts(&forward, prefix + "offset", links.offset);
    AddInts(&forward, prefix + "window", links.window);
  };
  add_links("link_", links_);
  add_links("backward_link_", backward_links_);
  AddStrings(&forward, "recurrent_states", states_);
  AddInts(&forward, "initial_recurrent_state_ids", initial_ids_);
  AddStrings(&forward, "alias_src", alias_src_);
  AddStrings(&forward, "alias_dst", alias_dst_);
  AddInts(&forward, "alias_offset", alias_offset_);
  AddInts(&forward, "param", params_);
  AddStrings(&forward, "param_grads", param_grads_);
  AddInts(&forward, "outputs_with_grads", outputs_with_grads_);
  NetDef net;
  net.set_name("case");
  *net.add_op() = forward;
  if (has_gradient_) {
    OperatorDef gradient;
    gradient.set_type("RecurrentNetworkGradient");
    for (const std::int64_t output : outputs_with_grads_) {
      gradient.add_input(forward.output(static_cast<int>(output)) + "_grad");
    }
    for (const std::string& input : forward.input()) gradient.add_input(input);
    for (const std::string& output : forward.output()) gradient.add_input(output);
    std::vector<std::string> outputs = gradient_outputs_;
    if (outputs.empty()) {
      outputs.push_back(forward.input(0) + "_grad");
      for (const std::int64_t param : params_) outputs.push_back(forward.input(static_cast<int>(param)) + "_grad");
      for (const std::int64_t id : initial_ids_) outputs.push_back(forward.input(static_cast<int>(id)) + "_grad");
    }
    for (const std::string& output : outputs) gradient.add_output(output);
    *gradient.mutable_arg() = forward.arg();
    gradient.MergeFrom(gradient_);
    *net.add_op() = gradient;
  }
  return net;
}

RecurrentCase& RecurrentCase::Feed(const std::string& blob, const Tensor& tensor) {
  workspace_->SetTensor(blob, tensor);
  return *this;
}

Net& RecurrentCase::net() {
  if (net_ == nullptr) net_ = Net::Create(Build(), *workspace_);
  return *net_;
}

RecurrentCase& RecurrentCase::Run() {
  net().Run();
  return *this;
}

void ExpectGradientsMatch(const std::function<RecurrentCase()>& make,
                          const std::vector<std::pair<std::string, Tensor>>& feeds,
                          const std::vector<std::string>& outputs,
                          std::vector<std::pair<std::string, std::string>> gradients) {
  if (gradients.empty()) {
    for (const auto& [name, tensor] : feeds) gradients.emplace_back(name, name + "_grad");
  }
  // The forward operator alone gives the outputs' shapes and the numeric gradients.
  RecurrentCase forward = make();
  NetDef forward_net = forward.Build();
  while (forward_net.op_size() > 1) forward_net.mutable_op()->RemoveLast();
  Workspace workspace;
  for (const auto& [name, tensor] : feeds) workspace.SetTensor(name, tensor.Clone());
  const std::unique_ptr<Net> net = Net::Create(forward_net, workspace);
  net->Run();
  RecurrentCase full = make();
  for (const auto& [name, tensor] : feeds) full.Feed(name, tensor.Clone());
  std::vector<std::vector<double>> weights;
  for (size_t o = 0; o < outputs.size(); ++o) {
    const Tensor weight = Random(workspace.GetTensor(outputs[o]).shape(), 900 + static_cast<unsigned>(o));
    full.Feed(outputs[o] + "_grad", weight);
    weights.push_back(Values(weight));
  }
  full.Run();
  const auto loss = [&] {
    net->SetRunCounter(0);
    net->Run();
    double sum = 0;
    for (size_t o = 0; o < outputs.size(); ++o) {
      const std::vector<double> values = Values(workspace.GetTensor(outputs[o]));
      for (size_t k = 0; k < values.size(); ++k) sum += values[k] * weights[o][k];
    }
    return sum;
  };
  for (const auto& [input, gradient] : gradients) {
    const Tensor analytic = full.Get(gradient);
    const Tensor value = workspace.GetTensor(input);
    ASSERT_EQ(analytic.shape(), value.shape()) << gradient;
    for (const auto& [k, numeric] : Differences(value, loss)) {
      ASSERT_NEAR(analytic.data<double>()[k], numeric, 1e-7 * (1 + std::abs(numeric)))
          << gradient << ", element " << k << " of " << analytic.shape();
    }
  }
}

void ExpectMadeGradientsMatch(const NetDef& forward, const std::vector<std::string>& outputs,
                              const std::vector<std::pair<std::string, Tensor>>& feeds) {
  std::vector<std::string> inputs;
  for (const auto& [name, tensor] : feeds) {
    if (tensor.dtype() == DType::kDouble) inputs.push_back(name);
  }
  NetDef net = forward;
  AddBackwardStepNets(&net, [&](const std::string& blob) {
    const auto fed = std::ranges::find(feeds, blob, [](const auto& feed) { return feed.first; });
    return fed == feeds.end() || fed->second.dtype() == DType::kDouble;
  });
  const NetWithGradients made = AddGradients(net, outputs, inputs);
  Workspace workspace;
  for (const auto& [name, tensor] : feeds) workspace.SetTensor(name, tensor.Clone());
  RunNetOnce(made.net, workspace);
  const auto loss = [&] {
    Workspace fresh;
    for (const auto& [name, tensor] : feeds) fresh.SetTensor(name, tensor.Clone());
    RunNetOnce(forward, fresh);
    double sum = 0;
    for (const std::string& blob : outputs) {
      for (const double value : Values(fresh.GetTensor(blob))) sum += value;
    }
    return sum;
  };
  for (const auto& [name, tensor] : feeds) {
    if (tensor.dtype() != DType::kDouble) continue;
    std::vector<double> gradient(static_cast<size_t>(tensor.size()));
    if (const auto found = made.gradients.find(name); found != made.gradients.end()) {
      gradient = Values(workspace.GetTensor(found->second.dense));
    }
    ASSERT_EQ(static_cast<std::int64_t>(gradient.size()), tensor.size()) << name;
    for (const auto& [i, numeric] : Differences(tensor, loss)) {
      EXPECT_NEAR(gradient[i], numeric, 2e-7 * (1 + std::abs(numeric))) << name << " element " << i;
    }
  }
}

}  // namespace stepnet
