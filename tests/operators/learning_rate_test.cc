#include <cmath>
#include <limits>

#include "op_test.h"
#include "stepnet/nets/net.h"

namespace stepnet {
namespace {

Tensor Iteration(std::int64_t n) { return Tensor::Of<std::int64_t>({1}, {n}); }

TEST(Iter, CountsInPlace) {
  NetDef net;
  OperatorDef* op = net.add_op();
  op->set_type("Iter");
  op->add_input("n");
  op->add_output("n");
  Workspace workspace;
  workspace.SetTensor("n", Iteration(0));
  for (std::int64_t run = 1; run <= 3; ++run) {
    RunNetOnce(net, workspace);
    EXPECT_EQ(workspace.GetTensor("n").data<std::int64_t>()[0], run);
  }
}

TEST(Iter, RefusesWhatIsNoCounter) {
  const auto count = [](const Tensor& n) { OpTest("Iter").Input("n", n).InPlace(0, 0).Run(); };
  ExpectError([&] { count(Iteration(-1)); },
              "invalid argument: the iteration number n is -1, below 0\n"
              "  at op 0 `n = Iter(n)` with n int64 [1]\n  in net \"test\"");
  ExpectError([&] { count(Iteration(std::numeric_limits<std::int64_t>::max())); },
              "…the iteration number n is 9223372036854775807, and Iter cannot count on\n");
  ExpectError([&] { count(Tensor::Of<std::int32_t>({1}, {0})); }, "…Iter counts iterations in int64; n is int32 [1]\n");
  ExpectError([&] { count(Tensor::Of<std::int64_t>({0}, {})); },
              "…Iter needs an iteration number of one element; n is int64 [0]\n");
  ExpectError([] { OpTest("Iter").Input("n", Iteration(0)).Run(); }, "…Iter works in place: output 0 must be \"n\"");
}

using Formula = std::function<double(double)>;

// The rates of some iterations, all with base_lr -0.5.
void ExpectRates(const OpTest& test, const Formula& factor, const std::vector<std::int64_t>& iterations) {
  for (const std::int64_t n : iterations) {
    const Tensor rate = OpTest(test).Arg("base_lr", -0.5f).Input("n", Iteration(n)).Run()[0];
    ASSERT_EQ(rate.Description(), "float [1]");
    const double expected = -0.5 * factor(static_cast<double>(n));
    EXPECT_NEAR(rate.data<float>()[0], expected, 1e-6 * std::abs(expected)) << "iteration " << n;
  }
}

OpTest Rate(const char* policy) { return OpTest("LearningRate").Arg("policy", policy); }

TEST(LearningRate, FollowsItsPolicies) {
  const std::vector<std::int64_t> some = {0, 1, 2, 3, 7, 99, 100, 101, 12345};
  ExpectRates(
      Rate("fixed"), [](double) { return 1; }, some);
  ExpectRates(Rate("step").Arg("stepsize", 3).Arg("gamma", 0.5f),
              [](double n) { return std::exp2(-static_cast<double>(static_cast<int>(n) / 3)); }, {0, 1, 2, 3, 7, 99});
  ExpectRates(Rate("exp").Arg("gamma", 0.75f), [](double n) { return std::exp(n * std::log(0.75)); }, {0, 1, 7, 99});
  ExpectRates(
      Rate("inv").Arg("gamma", 0.25f).Arg("power", 0.5f), [](double n) { return 1 / std::sqrt(1 + n / 4); }, some);
  ExpectRates(
      Rate("poly").Arg("max_iter", 100).Arg("power", 2.0f),
      [](double n) { return n < 100 ? (1 - n / 100) * (1 - n / 100) : 0; }, some);
}

TEST(LearningRate, IsDoubleWhereDtypeSaysSo) {
  const OpTest exp = Rate("exp").Arg("gamma", 0.75f).Arg("base_lr", -0.5f).Input("n", Iteration(50));
  const Tensor rate = OpTest(exp).Arg("dtype", 13).Run()[0];
  ASSERT_EQ(rate.Description(), "double [1]");
  EXPECT_NEAR(rate.data<double>()[0], -0.5 * std::exp(50 * std::log(0.75)), 1e-20);
  ExpectError([&] { OpTest(exp).Arg("dtype", 2).Run(); }, "…LearningRate makes float or double, not int32\n");
}

TEST(LearningRate, CosineStartsAgainAfterEachPeriod) {
  const auto wave = [](double part) { return 0.25 + 0.5 * (1 + std::cos(M_PI * part)) / 2; };
  const OpTest cosine = Rate("cosine").Arg("min_lr", 0.25f).Arg("max_lr", 0.75f).Arg("period", 4);
  ExpectRates(OpTest(cosine).Arg("lr_shrink", 0.5f),
              [&](double n) { return std::exp2(-std::floor(n / 4)) * wave(n / 4 - std::floor(n / 4)); },
              {0, 1, 2, 3, 4, 7, 8, 41});
  // Periods of 4, 8, 16: they begin at 0, 4, 12 and 28.
  const OpTest longer = OpTest(cosine).Arg("lr_shrink", 1.0f).Arg("t_mult", 2.0f);
  ExpectRates(longer, [&](double n) { return wave(n / 4); }, {0, 3});
  ExpectRates(longer, [&](double n) { return wave((n - 4) / 8); }, {4, 5, 11});
  ExpectRates(longer, [&](double n) { return wave((n - 12) / 16); }, {12, 27});
  ExpectRates(longer, [&](double n) { return wave((n - 28) / 32); }, {28, 59});
}

TEST(LearningRate, EachPolicyCanWarmUp) {
  ExpectRates(Rate("linearWarmup").Arg("num_iter", 10).Arg("start_multiplier", 0.5f),
              [](double n) { return n < 10 ? 0.5 + 0.05 * n : 1; }, {0, 1, 9, 10, 11, 500});
  ExpectRates(Rate("exp").Arg("gamma", 0.5f).Arg("linear_warmup_num_iter", 4).Arg("start_warmup_multiplier", 0.0f),
              [](double n) { return n < 4 ? n / 4 : std::exp2(4 - n); }, {0, 1, 3, 4, 5, 9});
}

TEST(LearningRate, RefusesPoliciesWithoutTheirArguments) {
  const auto run = [](const OpTest& test, std::int64_t n = 0) {
    OpTest(test).Arg("base_lr", 1.0f).Input("n", Iteration(n)).Run();
  };
  ExpectError([&] { run(Rate("step").Arg("gamma", 0.5f)); }, "…LearningRate with policy step needs stepsize above 0");
  ExpectError([&] { run(Rate("exp")); }, "…LearningRate with policy exp needs gamma above 0");
  ExpectError([&] { run(Rate("inv").Arg("gamma", 1.0f)); }, "…LearningRate with policy inv needs power above 0");
  ExpectError([&] { run(Rate("poly").Arg("power", 1.0f)); }, "…LearningRate with policy poly needs max_iter above 0");
  ExpectError([&] { run(Rate("linearWarmup")); }, "…LearningRate with policy linearWarmup needs num_iter");
  ExpectError([&] { run(Rate("cosine").Arg("period", 0)); }, "…period is 0, must be at least 1");
  ExpectError([&] { run(Rate("ramp")); }, "…policy is \"ramp\"");
  ExpectError([&] { run(Rate("fixed"), -3); }, "…the iteration number n is -3, below 0");
  ExpectError([] { Rate("fixed").Input("n", Iteration(0)).Run(); }, "…LearningRate needs the argument \"base_lr\"");
}

}  // namespace
}  // namespace stepnet
