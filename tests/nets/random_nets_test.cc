// Random nets: the gradients that are made for them match central differences, in double.
#include <algorithm>
#include <random>

#include "stepnet/core/strings.h"
#include "stepnet/nets/backward.h"
#include "stepnet/nets/net.h"
#include "stepnet/tests/executor/recurrent_case.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

using Feeds = std::vector<std::pair<std::string, Tensor>>;

constexpr std::int64_t kSize = 4;

struct RandomNet {
  NetDef net;
  std::vector<std::string> losses;
  Feeds feeds;
};

// Blobs are [2, 2, 4], or [2, 2, 2] after Split; tables are [4, 4].
class Generator {
 public:
  explicit Generator(unsigned seed) : rng_(seed) { result_.net.set_name(StrCat("seed ", seed)); }

  RandomNet Make() {
    for (const char* name : {"x", "y"}) whole_.push_back(Fed(name, {2, 2, kSize}));
    for (const char* name : {"table", "other"}) tables_.push_back(Fed(name, {kSize, kSize}));
    result_.feeds.emplace_back("rows", Tensor::Of<std::int64_t>({2, 2}, {1, 3, 1, 0}));
    result_.feeds.emplace_back("mask", Tensor::Of<bool>({2, 2}, {true, false, false, true}));
    const int num_ops = 3 + Pick(10);
    for (int k = 0; k < num_ops; ++k) AddOp(k);
    const int num_losses = 1 + Pick(3);
    for (int i = 0; i < num_losses; ++i) AddLoss(i);
    return std::move(result_);
  }

 private:
  int Pick(int n) { return static_cast<int>(rng_() % static_cast<unsigned>(n)); }
  const std::string& Any(const std::vector<std::string>& names) { return names[Pick(static_cast<int>(names.size()))]; }

  const std::string& Fed(const std::string& name, const Shape& shape) {
    result_.feeds.emplace_back(name, Random(shape, static_cast<unsigned>(rng_())));
    return result_.feeds.back().first;
  }

  OperatorDef& Add(const std::string& text) {
    OperatorDef& op = *result_.net.add_op();
    op = ParseOp(text);
    return op;
  }

  // A name for a result: mostly a new one, sometimes that of a blob that is no input, whose value is gone then.
  std::string NewIn(std::vector<std::string>* pool, int k, const std::vector<std::string>& inputs) {
    const std::string& old = Any(*pool);
    if (Pick(6) == 0 && std::ranges::find(inputs, old) == inputs.end()) return old;
    pool->push_back(StrCat("v", k));
    return pool->back();
  }

  void AddOp(int k) {
    std::vector<std::string>* pool = half_.empty() || Pick(3) > 0 ? &whole_ : &half_;
    const std::string a = Any(*pool), b = Any(*pool), c = Any(*pool);
    switch (Pick(8)) {
      case 0:
      case 1: {
        static const std::vector<std::string> types = {"Tanh",     "Sigmoid", "Sin",      "Softsign",
                                                       "Negative", "Swish",   "Softplus", "Copy"};
        const std::string type = Any(types);
        // In place where the operator can; whether the value is still needed is for AddGradients to find out.
        const bool in_place = Pick(3) == 0 && (type == "Tanh" || type == "Sigmoid" || type == "Negative");
        Add(StrCat(in_place ? a : NewIn(pool, k, {a}), " = ", type, "(", a, ")"));
        break;
      }
      case 2:
      case 3: {
        static const std::vector<std::string> types = {"Add", "Sub", "Mul"};
        const std::string type = Any(types);
        Add(StrCat(Pick(3) == 0 ? a : NewIn(pool, k, {a, b}), " = ", type, "(", a, ", ", b, ")"));
        break;
      }
      case 4: Add(StrCat(Pick(3) == 0 ? a : NewIn(pool, k, {a, b, c}), " = Sum(", a, ", ", b, ", ", c, ")")); break;
      case 5: AddLayer(k); break;
      case 6: AddSplitOrConcat(k); break;
      default: {
        OperatorDef& op = Add(StrCat(Pick(3) == 0 ? a : NewIn(pool, k, {a, b}), " = Where(mask, ", a, ", ", b, ")"));
        AddInt(&op, "broadcast_on_rows", 1);
      }
    }
  }

  // A table read by its rows, or as the weights of a layer.
  void AddLayer(int k) {
    const std::string table = Any(tables_);
    switch (Pick(4)) {
      case 0: Add(StrCat(NewIn(&whole_, k, {}), " = Gather(", table, ", rows)")); return;
      case 1:
        tables_.push_back(StrCat("t", k));
        Add(StrCat(tables_.back(), " = Tanh(", table, ")"));
        return;
      default: break;
    }
    const std::string x = Any(whole_);
    const std::string bias = Pick(2) == 0 ? ", " + Fed(StrCat("b", k), {kSize}) : "";
    OperatorDef& op = Add(StrCat("v", k, " = FC(", x, ", ", table, bias, ")"));
    AddInt(&op, "axis", 2);
    whole_.push_back(op.output(0));
  }

  void AddSplitOrConcat(int k) {
    if (half_.size() < 2 || Pick(2) == 0) {
      const std::string x = Any(whole_);
      half_.insert(half_.end(), {StrCat("l", k), StrCat("r", k)});
      AddInt(&Add(StrCat("l", k, ", r", k, " = Split(", x, ")")), "axis", 2);
    } else {
      const std::string a = Any(half_), b = Any(half_);
      AddInt(&Add(StrCat(NewIn(&whole_, k, {}), ", sizes", k, " = Concat(", a, ", ", b, ")")), "axis", 2);
    }
  }

  // The sum of a blob's elements, each times a number of its own.
  void AddLoss(int i) {
    const bool is_half = !half_.empty() && Pick(3) == 0;
    const std::string weights = Fed(StrCat("weights", i), {2, 2, is_half ? kSize / 2 : kSize});
    Add(StrCat("loss", i, " = Mul(", Any(is_half ? half_ : whole_), ", ", weights, ")"));
    result_.losses.push_back(StrCat("loss", i));
  }

  std::mt19937 rng_;
  RandomNet result_;
  std::vector<std::string> whole_, half_, tables_;
};

void Feed(const Feeds& feeds, Workspace& workspace) {
  for (const auto& [name, tensor] : feeds) workspace.SetTensor(name, tensor.Clone());
}

double LossOf(const RandomNet& random, Net& net, Workspace& workspace) {
  Feed(random.feeds, workspace);
  net.Run();
  double sum = 0;
  for (const std::string& loss : random.losses) {
    for (const double value : Values(workspace.GetTensor(loss))) sum += value;
  }
  return sum;
}

// As one tensor of the shape of the blob.
std::vector<double> Whole(const GradientBlobs& gradient, const Tensor& blob, const Workspace& workspace) {
  if (!gradient.dense.empty()) return Values(workspace.GetTensor(gradient.dense));
  std::vector<double> whole(static_cast<size_t>(blob.size()));
  const std::vector<double> rows = ToDoubles(workspace.GetTensor(gradient.indices));
  const std::vector<double> values = Values(workspace.GetTensor(gradient.values));
  for (size_t i = 0; i < values.size(); ++i) {
    whole[static_cast<size_t>(rows[i / kSize]) * kSize + i % kSize] += values[i];
  }
  return whole;
}

// Compares the gradients of all feeds in double; returns how many feeds the losses depend on.
int CheckGradients(RandomNet random, const NetWithGradients& made) {
  Workspace with_gradients, forward;
  Feed(random.feeds, with_gradients);
  RunNetOnce(made.net, with_gradients);
  const std::unique_ptr<Net> net = Net::Create(random.net, forward);
  for (const auto& [name, tensor] : random.feeds) {
    if (tensor.dtype() != DType::kDouble) continue;
    std::vector<double> gradient(static_cast<size_t>(tensor.size()));
    const auto found = made.gradients.find(name);
    if (found != made.gradients.end()) gradient = Whole(found->second, tensor, with_gradients);
    EXPECT_EQ(static_cast<std::int64_t>(gradient.size()), tensor.size()) << name;
    if (testing::Test::HasFailure()) break;
    for (std::int64_t i = 0; i < tensor.size(); ++i) {
      constexpr double kStep = 1e-5;
      double& element = tensor.data<double>()[i];
      const double before = element;
      element = before + kStep;
      const double above = LossOf(random, *net, forward);
      element = before - kStep;
      const double below = LossOf(random, *net, forward);
      element = before;
      const double numeric = (above - below) / (2 * kStep);
      EXPECT_NEAR(gradient[static_cast<size_t>(i)], numeric, 1e-6 * (1 + std::abs(numeric)))
          << name << " element " << i << " of\n"
          << random.net.DebugString();
      if (testing::Test::HasFailure()) return 0;
    }
  }
  return static_cast<int>(made.gradients.size());
}

TEST(RandomNets, GradientsMatchDifferences) {
  int checked = 0;
  for (unsigned seed = 0; seed < 400 && !HasFailure(); ++seed) {
    RandomNet random = Generator(seed).Make();
    std::vector<std::string> inputs;
    for (const auto& [name, tensor] : random.feeds) inputs.push_back(name);
    const NetWithGradients made = AddGradients(random.net, random.losses, inputs);
    checked += CheckGradients(std::move(random), made);
  }
  EXPECT_GT(checked, 700);
}

}  // namespace
}  // namespace stepnet
