#include "op_test.h"
#include "training_steps.h"

namespace stepnet {
namespace {

// What torch.optim.SGD documents: its momentum is without the rate, which stays the same here.
std::vector<double> PyTorchSgd(std::vector<double> p, const Steps& gradients, double rate, double momentum,
                               double weight_decay, bool nesterov) {
  std::vector<double> buffer(p.size());
  for (const std::vector<double>& g : gradients) {
    for (size_t i = 0; i < p.size(); ++i) {
      const double decayed = g[i] + weight_decay * p[i];
      buffer[i] = momentum * buffer[i] + decayed;
      p[i] -= rate * (nesterov ? decayed + momentum * buffer[i] : buffer[i]);
    }
  }
  return p;
}

TEST(MomentumSGDUpdate, FollowsPyTorchOverSeveralSteps) {
  const std::string op = R"(type: "MomentumSGDUpdate" input: "g" input: "m" input: "lr" input: "p"
                            output: "step" output: "m" output: "p" )";
  ExpectTraining(op, 5, 0.25, [](std::vector<double> p, const Steps& gradients) {
    return PyTorchSgd(std::move(p), gradients, 0.25, 0, 0, false);
  });
  const std::string arguments = R"(arg { name: "momentum" f: 0.75 } arg { name: "weight_decay" f: 0.125 } )";
  for (const std::int64_t n : {0, 1, 3, 16, 37}) {  // around the sizes of vectors
    for (const bool nesterov : {false, true}) {
      ExpectTraining(op + arguments + (nesterov ? R"(arg { name: "nesterov" i: 1 })" : ""), n, 0.25,
                     [&](std::vector<double> p, const Steps& gradients) {
                       return PyTorchSgd(std::move(p), gradients, 0.25, 0.75, 0.125, nesterov);
                     });
    }
  }
}

OpTest OneStep() {
  return OpTest("MomentumSGDUpdate", 3)
      .Arg("momentum", 0.5f)
      .Input("g", {2}, {1, -2})
      .Input("m", {2}, {4, 8})
      .Input("lr", {1}, {0.25})
      .Input("p", {2}, {10, 20});
}

TEST(MomentumSGDUpdate, GivesStepMomentumAndParameter) {
  for (const bool in_place : {false, true}) {
    OpTest test = OneStep();
    if (in_place) test.InPlace(0, 0).InPlace(1, 1).InPlace(3, 2);
    test.Gives({2}, {2.25, 3.5}, 0);
    test.Gives({2}, {2.25, 3.5}, 1);
    test.Gives({2}, {7.75, 16.5}, 2);
    test.Arg("nesterov", 1);
    test.Gives({2}, {1.375, 1.25}, 0);
    test.Gives({2}, {2.25, 3.5}, 1);
    test.Gives({2}, {8.625, 18.75}, 2);
  }
}

TEST(MomentumSGDUpdate, RefusesBadInput) {
  const auto run = [](const Shape& momentum, const Tensor& rate) {
    OpTest("MomentumSGDUpdate", 3)
        .Random("g", {2}, 1)
        .Random("m", momentum, 1)
        .Input("lr", rate)
        .Random("p", {2}, 1)
        .Run();
  };
  const Tensor rate = Tensor::Of<float>({1}, {1});
  ExpectError([&] { run({3}, rate); },
              "…MomentumSGDUpdate needs inputs of one shape; g is float [2] and m is float [3]");
  ExpectError(
      [&] {
        run({2}, Tensor::Of<float>({2}, {1, 1}));
      },
      "…MomentumSGDUpdate needs a learning rate of one element; lr is float [2]");
  ExpectError([&] { run({2}, Tensor::Of<std::int32_t>({1}, {1})); },
              "…MomentumSGDUpdate works on float and double; lr is int32 [1]");
}

}  // namespace
}  // namespace stepnet
