// Training nets against the equations of their optimizers, evaluated in double.
#include "stepnet/nets/training_net.h"

#include <cmath>
#include <map>
#include <numbers>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/observer.h"
#include "stepnet/core/workspace.h"
#include "stepnet/nets/net.h"
#include "stepnet/nets/op_builder.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

using Vector = std::vector<double>;

Vector ValuesOf(const Workspace& workspace, const std::string& blob) {
  const Tensor& tensor = workspace.GetTensor(blob);
  if (tensor.dtype() == DType::kDouble) return {tensor.data<double>(), tensor.data<double>() + tensor.size()};
  return {tensor.data<float>(), tensor.data<float>() + tensor.size()};
}

// loss = sum of (a - 1)² + sum of a b: gradients 2 (a - 1) + b, and a.
NetDef QuadraticNet() {
  NetDef net;
  AddOp(&net, "Sub", {"a", "one"}, {"difference"});
  AddOp(&net, "Mul", {"difference", "difference"}, {"square"});
  AddOp(&net, "Mul", {"a", "b"}, {"product"});
  AddOp(&net, "Add", {"square", "product"}, {"sum"});
  AddOp(&net, "SumElements", {"sum"}, {"loss"});
  return net;
}

struct Gradients {
  Vector a, b;
};
Gradients QuadraticGradients(const Vector& a, const Vector& b) {
  Gradients gradients;
  for (size_t i = 0; i < a.size(); ++i) {
    gradients.a.push_back(2 * (a[i] - 1) + b[i]);
    gradients.b.push_back(a[i]);
  }
  return gradients;
}

const Vector kA = {0.5, -1.5, 3};
const Vector kB = {1, 0.25, -2};

// The net that trains QuadraticNet, in a workspace with its parameters.
std::unique_ptr<Net> TrainsQuadratic(const OptimizerDef& optimizer, Workspace& workspace, bool in_double = false,
                                     const std::string& net_type = "simple") {
  TrainingNet training = MakeTrainingNet(QuadraticNet(), "loss", {"a", "b"}, optimizer, in_double);
  training.net.set_type(net_type);
  training.net.set_num_workers(3);
  workspace.SetTensor("a", Tensor::Of<double>({3}, kA));
  workspace.SetTensor("b", Tensor::Of<double>({3}, kB));
  workspace.SetTensor("one", Tensor::Of<double>({3}, {1, 1, 1}));
  RunNetOnce(training.init_net, workspace);
  return Net::Create(training.net, workspace);
}

// Runs iterations of QuadraticNet; after each, `expect` computes the parameters that it must have left.
void ExpectIterations(const OptimizerDef& optimizer,
                      const std::function<void(int iteration, const Gradients&, Vector* a, Vector* b)>& expect) {
  Workspace workspace;
  const std::unique_ptr<Net> net = TrainsQuadratic(optimizer, workspace);
  Vector a = kA;
  Vector b = kB;
  for (int iteration = 0; iteration < 7; ++iteration) {
    expect(iteration, QuadraticGradients(a, b), &a, &b);
    net->Run();
    for (size_t i = 0; i < a.size(); ++i) {
      ASSERT_NEAR(ValuesOf(workspace, "a")[i], a[i], 1e-9) << "iteration " << iteration;
      ASSERT_NEAR(ValuesOf(workspace, "b")[i], b[i], 1e-9) << "iteration " << iteration;
    }
  }
  EXPECT_EQ(workspace.GetTensor("optimizer/iteration").data<std::int64_t>()[0], 7);
}

// Asks for a stop when an operator of the type starts.
class StopsAt : public Observer {
 public:
  StopsAt(std::string type, Cancellation* cancellation) : type_(std::move(type)), cancellation_(cancellation) {}
  void Start(const RunEvent& event) override {
    if (event.op_type != nullptr && *event.op_type == type_) cancellation_->Cancel();
  }
  void Stop(const RunEvent& /*event*/) override {}

 private:
  const std::string type_;
  Cancellation* const cancellation_;
};

// Either nothing has changed, or everything has, and the iteration is counted.
TEST(TrainingNet, AnIterationIsDoneOrNot) {
  for (const std::string net_type : {"simple", "dag"}) {
    for (const std::string type : {"Mul", "LearningRate", "MomentumSGDUpdate", "Iter"}) {
      const std::string what = net_type + ", " + type;
      OptimizerDef optimizer;
      optimizer.set_method(OptimizerDef::SGD);
      Workspace workspace;
      const std::unique_ptr<Net> net = TrainsQuadratic(optimizer, workspace, /*in_double=*/false, net_type);
      Cancellation cancellation;
      StopsAt observer(type, &cancellation);
      net->AttachObserver(&observer);
      bool is_done = true;
      try {
        net->Run(&cancellation);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kCancelled);
        is_done = false;
      }
      EXPECT_EQ(ValuesOf(workspace, "a") != kA, is_done) << what;
      EXPECT_EQ(ValuesOf(workspace, "b") != kB, is_done) << what;
      EXPECT_EQ(workspace.GetTensor("optimizer/iteration").data<std::int64_t>()[0], is_done ? 1 : 0) << what;
      EXPECT_EQ(is_done, type == "MomentumSGDUpdate" || type == "Iter") << what;
    }
  }
}

// Configs hold floats.
double F(float value) { return value; }

TEST(TrainingNet, DescendsAlongTheGradient) {
  OptimizerDef optimizer;
  optimizer.set_method(OptimizerDef::SGD);
  optimizer.set_learning_rate(0.0625);
  ExpectIterations(optimizer, [](int, const Gradients& gradients, Vector* a, Vector* b) {
    for (size_t i = 0; i < a->size(); ++i) {
      (*a)[i] -= 0.0625 * gradients.a[i];
      (*b)[i] -= 0.0625 * gradients.b[i];
    }
  });
}

TEST(TrainingNet, KeepsMomentumAndDecaysWeights) {
  OptimizerDef optimizer;
  optimizer.set_method(OptimizerDef::SGD);
  optimizer.set_learning_rate(0.0625);
  optimizer.set_momentum(0.5);
  optimizer.set_nesterov(true);
  optimizer.set_weight_decay(0.125);
  optimizer.set_schedule(OptimizerDef::STEP);
  optimizer.set_gamma(0.5);
  optimizer.set_decay_every(2);
  std::map<Vector*, Vector> momenta;
  ExpectIterations(optimizer, [&](int iteration, const Gradients& gradients, Vector* a, Vector* b) {
    const double rate = 0.0625 * std::pow(0.5, iteration / 2);
    const auto update = [&](Vector* parameter, const Vector& gradient) {
      Vector& momentum = momenta[parameter];
      momentum.resize(3);
      for (size_t i = 0; i < 3; ++i) {
        const double before = momentum[i];
        momentum[i] = 0.5 * before + rate * (gradient[i] + 0.125 * (*parameter)[i]);
        (*parameter)[i] -= 1.5 * momentum[i] - 0.5 * before;
      }
    };
    update(a, gradients.a);
    update(b, gradients.b);
  });
}

// I. Loshchilov, F. Hutter: Decoupled Weight Decay Regularization, 2019, algorithm 2, with a clipped gradient.
TEST(TrainingNet, FollowsAdamWWithClippingWarmUpAndCosine) {
  OptimizerDef optimizer;
  optimizer.set_learning_rate(0.125);
  optimizer.set_weight_decay(0.25);
  optimizer.set_clip_norm(0.5);
  optimizer.set_epsilon(0.0625);
  optimizer.set_schedule(OptimizerDef::COSINE);
  optimizer.set_decay_over(6);
  optimizer.set_final_fraction(0.25);
  optimizer.set_warmup(2);
  const double beta1 = F(0.9F);
  const double beta2 = F(0.999F);
  std::map<Vector*, std::pair<Vector, Vector>> moments;
  ExpectIterations(optimizer, [&](int iteration, const Gradients& gradients, Vector* a, Vector* b) {
    const double fraction =
        iteration < 2 ? iteration / 2.0 : 0.25 + 0.75 * (1 + std::cos(std::numbers::pi * (iteration - 2) / 6)) / 2;
    const double rate = F(static_cast<float>(0.125 * fraction));
    double squares = 0;
    for (size_t i = 0; i < 3; ++i) squares += std::pow(gradients.a[i], 2) + std::pow(gradients.b[i], 2);
    const double scale = std::min(1.0, 0.5 / (std::sqrt(squares) + 1e-6));
    const auto update = [&](Vector* parameter, const Vector& gradient) {
      auto& [first, second] = moments[parameter];
      first.resize(3);
      second.resize(3);
      for (size_t i = 0; i < 3; ++i) {
        const double g = scale * gradient[i];
        first[i] = beta1 * first[i] + (1 - beta1) * g;
        second[i] = beta2 * second[i] + (1 - beta2) * g * g;
        const double m = first[i] / (1 - std::pow(beta1, iteration + 1));
        const double v = second[i] / (1 - std::pow(beta2, iteration + 1));
        (*parameter)[i] -= rate * (m / (std::sqrt(v) + 0.0625) + 0.25 * (*parameter)[i]);
      }
    };
    update(a, gradients.a);
    update(b, gradients.b);
  });
}

OptimizerDef Descent(float rate) {
  OptimizerDef optimizer;
  optimizer.set_method(OptimizerDef::SGD);
  optimizer.set_learning_rate(rate);
  return optimizer;
}

// The decimals of a config, which holds floats, are its numbers.
TEST(TrainingNet, ComputesInDoubleWithTheNumbersThatWereWritten) {
  OptimizerDef optimizer = Descent(0.1f);
  optimizer.set_momentum(0.9f);
  optimizer.set_weight_decay(0.01f);
  Workspace workspace;
  const std::unique_ptr<Net> net = TrainsQuadratic(optimizer, workspace, /*in_double=*/true);
  Vector b = kB, momentum(3);
  for (int iteration = 0; iteration < 2; ++iteration) {
    const Vector gradient = ValuesOf(workspace, "a");  // of b
    net->Run();
    for (size_t i = 0; i < b.size(); ++i) {
      momentum[i] = 0.9 * momentum[i] + 0.1 * (gradient[i] + 0.01 * b[i]);
      b[i] -= momentum[i];
      EXPECT_NEAR(ValuesOf(workspace, "b")[i], b[i], 1e-15 * std::abs(b[i])) << "iteration " << iteration;
    }
  }
}

TEST(TrainingNet, AddsUpGradientsByRows) {
  NetDef net;
  AddOp(&net, "Gather", {"table", "rows"}, {"picked"});
  AddOp(&net, "SumElements", {"picked"}, {"loss"});
  const TrainingNet training = MakeTrainingNet(net, "loss", {"table"}, Descent(1));
  Workspace workspace;
  workspace.SetTensor("table", Tensor::Of<float>({3, 2}, {10, 20, 30, 40, 50, 60}));
  workspace.SetTensor("rows", Tensor::Of<std::int32_t>({3}, {2, 0, 2}));
  RunNetOnce(training.init_net, workspace);
  RunNetOnce(training.net, workspace);
  EXPECT_EQ(ValuesOf(workspace, "table"), (Vector{9, 19, 30, 40, 48, 58}));
}

TEST(TrainingNet, ParametersMayShareAGradient) {
  NetDef net;
  AddOp(&net, "Add", {"a", "b"}, {"sum"});
  AddOp(&net, "SumElements", {"sum"}, {"loss"});
  OptimizerDef optimizer = Descent(0.5);
  optimizer.set_momentum(0.5);
  const TrainingNet training = MakeTrainingNet(net, "loss", {"a", "b"}, optimizer);
  Workspace workspace;
  workspace.SetTensor("a", Tensor::Of<float>({2}, {0, 1}));
  workspace.SetTensor("b", Tensor::Of<float>({2}, {2, 3}));
  RunNetOnce(training.init_net, workspace);
  const auto step = Net::Create(training.net, workspace);
  step->Run();
  step->Run();
  EXPECT_EQ(ValuesOf(workspace, "a"), (Vector{-1.25, -0.25}));
  EXPECT_EQ(ValuesOf(workspace, "b"), (Vector{0.75, 1.75}));
}

TEST(TrainingNet, TellsTheNormBeforeClipping) {
  OptimizerDef optimizer = Descent(1);
  optimizer.set_clip_norm(1);
  NetDef net;
  AddOp(&net, "Mul", {"a", "b"}, {"product"});
  AddOp(&net, "SumElements", {"product"}, {"loss"});
  const TrainingNet training = MakeTrainingNet(net, "loss", {"a"}, optimizer);
  Workspace workspace;
  workspace.SetTensor("a", Tensor::Of<float>({2}, {0, 0}));
  workspace.SetTensor("b", Tensor::Of<float>({2}, {3, 4}));
  RunNetOnce(training.init_net, workspace);
  RunNetOnce(training.net, workspace);
  EXPECT_EQ(ValuesOf(workspace, training.gradient_norm), Vector{5});
  EXPECT_NEAR(ValuesOf(workspace, "a")[1], -0.8, 1e-6);
}

TEST(TrainingNet, RefusesParametersThatChangeNothing) {
  ExpectError(
      [] {
        MakeTrainingNet(QuadraticNet(), "loss", {"a", "c"}, Descent(1));
      },
      "invalid net: the loss does not depend on the parameter \"c\"");
}

TEST(TrainingNet, KeepsItsNamesForItself) {
  NetDef net;
  AddOp(&net, "SumElements", {"optimizer/x"}, {"loss"});
  ExpectError([&] { MakeTrainingNet(net, "loss", {"optimizer/x"}, Descent(1)); },
              "invalid net: the net has a blob \"optimizer/x\"; names that start with optimizer/ are the optimizer's");
}

TEST(TrainingNet, RefusesValuesThatMakeNoSense) {
  ExpectError([] { CheckOptimizer(Descent(-1)); }, "invalid argument: optimizer.learning_rate is -1, must be above 0");
  OptimizerDef optimizer;
  optimizer.set_beta2(1);
  ExpectError([&] { CheckOptimizer(optimizer); },
              "invalid argument: optimizer.beta2 is 1, must be at least 0 and below 1");
  optimizer = {};
  optimizer.set_schedule(OptimizerDef::COSINE);
  ExpectError([&] { CheckOptimizer(optimizer); },
              "invalid argument: optimizer.decay_over is 0, must be above 0 for the schedules POLY and COSINE");
  optimizer.set_decay_over(5);
  optimizer.set_final_fraction(2);
  ExpectError([&] { CheckOptimizer(optimizer); },
              "invalid argument: optimizer.final_fraction is 2, must be from 0 to 1");
}

TEST(TrainingNet, SaysWhatAScheduleLacks) {
  for (const auto schedule : {OptimizerDef::STEP, OptimizerDef::EXP, OptimizerDef::INV}) {
    OptimizerDef optimizer;
    optimizer.set_schedule(schedule);
    ExpectError([&] { CheckOptimizer(optimizer); },
                "invalid argument: optimizer.gamma is 0, must be above 0 for the schedules STEP, EXP and INV");
  }
  for (const auto schedule : {OptimizerDef::INV, OptimizerDef::POLY}) {
    OptimizerDef optimizer;
    optimizer.set_schedule(schedule);
    if (schedule == OptimizerDef::INV) optimizer.set_gamma(0.5);
    optimizer.set_power(0);
    ExpectError([&] { CheckOptimizer(optimizer); },
                "invalid argument: optimizer.power is 0, must be above 0 for the schedules INV and POLY");
  }
}

}  // namespace
}  // namespace stepnet
