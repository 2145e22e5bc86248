#include <cmath>

#include "op_test.h"
#include "training_steps.h"

namespace stepnet {
namespace {

const char kAdam[] = R"(type: "Adam" input: "p" input: "m" input: "v" input: "g" input: "lr" input: "iter"
                        output: "p" output: "m" output: "v" arg { name: "beta1" f: 0.75 } arg { name: "beta2" f: 0.875 }
                        arg { name: "epsilon" f: 0.0625 } )";

// One step of each of the two forms, from moments that are not corrected for their start at 0.
using Step = std::function<double(double p, double m, double v, double correction1, double correction2)>;

// The moments in closed form: m = (1 - b1) * the sum of b1^(t - k) g_k over the steps k up to t, and v with squares.
std::vector<double> Adam(std::vector<double> p, const Steps& gradients, const Step& step) {
  for (size_t i = 0; i < p.size(); ++i) {
    for (size_t t = 1; t <= gradients.size(); ++t) {
      double m = 0, v = 0;
      for (size_t k = 1; k <= t; ++k) {
        const double g = gradients[k - 1][i];
        m += 0.25 * std::pow(0.75, static_cast<double>(t - k)) * g;
        v += 0.125 * std::pow(0.875, static_cast<double>(t - k)) * g * g;
      }
      p[i] = step(p[i], m, v, 1 - std::pow(0.75, static_cast<double>(t)), 1 - std::pow(0.875, static_cast<double>(t)));
    }
  }
  return p;
}

// torch.optim.AdamW with a rate of 0.25, by its documentation.
Step PyTorch(double weight_decay) {
  return [=](double p, double m, double v, double correction1, double correction2) {
    return p - 0.25 * weight_decay * p - 0.25 * (m / correction1) / (std::sqrt(v / correction2) + 0.0625);
  };
}
double Caffe2(double p, double m, double v, double correction1, double correction2) {
  return p - 0.25 * (std::sqrt(correction2) / correction1) * m / (std::sqrt(v) + 0.0625);
}

void ExpectAdam(const std::string& arguments, std::int64_t n, const Step& step) {
  ExpectTraining(kAdam + arguments, n, -0.25,
                 [&](std::vector<double> p, const Steps& gradients) { return Adam(std::move(p), gradients, step); });
}

TEST(Adam, FollowsCaffe2OverSeveralSteps) {
  for (const std::int64_t n : {0, 1, 3, 16, 37}) ExpectAdam("", n, Caffe2);  // around the sizes of vectors
}

TEST(Adam, FollowsPyTorchOverSeveralSteps) {
  const std::string as_pytorch = R"(arg { name: "bias_corrected_epsilon" i: 1 } )";
  ExpectAdam(as_pytorch, 5, PyTorch(0));
  ExpectAdam(as_pytorch + R"(arg { name: "weight_decay" f: 0.5 })", 5, PyTorch(0.5));
}

// Moments cancel: each step is as long as the rate, against the sign of the gradient.
TEST(Adam, MovesByTheRateWhereTheGradientStaysTheSame) {
  NetDef net;
  ParseMessageText(R"(op { type: "Adam" input: "p" input: "m" input: "v" input: "g" input: "lr" input: "iter"
                           output: "p" output: "m" output: "v" arg { name: "epsilon" f: 0 } }
                      op { type: "Iter" input: "iter" output: "iter" })",
                   "the test", &net);
  Workspace workspace;
  workspace.SetTensor("p", Tensor::Of<double>({2}, {1, 1}));
  workspace.SetTensor("m", Tensor::Zeros(DType::kDouble, {2}));
  workspace.SetTensor("v", Tensor::Zeros(DType::kDouble, {2}));
  workspace.SetTensor("g", Tensor::Of<double>({2}, {1e-3, -1e3}));
  workspace.SetTensor("lr", Tensor::Of<double>({1}, {-0.01}));
  workspace.SetTensor("iter", Tensor::Of<std::int64_t>({1}, {0}));
  for (int step = 1; step <= 100; ++step) {
    RunNetOnce(net, workspace);
    const std::vector<double> p = ToDoubles(workspace.GetTensor("p"));
    ASSERT_NEAR(p[0], 1 - 0.01 * step, 1e-9) << step;
    ASSERT_NEAR(p[1], 1 + 0.01 * step, 1e-9) << step;
  }
}

TEST(Adam, LeavesItsInputsAloneWhereOutputsAreOthers) {
  OpTest test("Adam", 3);
  test.Arg("beta1", 0.5f).Arg("beta2", 0.75f).Arg("epsilon", 0.0f);
  test.Input("p", {1}, {1}).Input("m", {1}, {0}).Input("v", {1}, {0}).Input("g", {1}, {4}).Input("lr", {1}, {-0.5});
  test.Input("iter", Tensor::Of<std::int64_t>({1}, {0}));
  test.Gives({1}, {0.5}, 0);
  test.Gives({1}, {2}, 1);
  test.Gives({1}, {4}, 2);
}

TEST(Adam, RefusesBadInput) {
  const auto run = [](const Shape& moment, const Tensor& rate, const Tensor& iteration) {
    OpTest("Adam", 3)
        .Random("p", {2}, 1)
        .Random("m", {2}, 1)
        .Random("v", moment, 1)
        .Random("g", {2}, 1)
        .Input("lr", rate)
        .Input("n", iteration)
        .Run();
  };
  const Tensor rate = Tensor::Of<float>({1}, {1});
  const Tensor zero = Tensor::Of<std::int64_t>({1}, {0});
  ExpectError([&] { run({3}, rate, zero); }, "…Adam needs inputs of one shape; p is float [2] and v is float [3]");
  ExpectError([&] { run({2}, zero, zero); }, "…Adam works on float and double; lr is int64 [1]");
  ExpectError([&] { run({2}, rate, rate); }, "…Adam counts iterations in int64; n is float [1]");
  ExpectError([&] { run({2}, rate, Tensor::Of<std::int64_t>({1}, {-1})); }, "…the iteration number n is -1, below 0");
  ExpectError(
      [] {
        OpTest test("Adam", 3);
        for (const char* input : {"p", "m", "v", "g", "lr", "n"}) test.Random(input, {1}, 1);
        test.Arg("beta2", 1.0f).Run();
      },
      "…Adam: beta2 is 1, must be below 1");
}

}  // namespace
}  // namespace stepnet
