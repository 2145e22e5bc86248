// Trains a cell to add up the numbers of a sequence, then uses it: the public API in one screen.
#include <cstdio>
#include <random>

#include "stepnet/cells/cell_expand.h"
#include "stepnet/nets/net.h"
#include "stepnet/nets/op_builder.h"
#include "stepnet/nets/training_net.h"

using namespace stepnet;

int main(int argc, char** argv) try {
  // The cell of a file, over sequences of single numbers; "h_last" [1, B, H] is what it remembers at the end.
  const CellNet cell = ExpandCell(ReadCell(argc > 1 ? argv[1] : "gru.cell"), {.sizes = {{"D", 1}, {"H", 16}}});
  NetDef model = cell.net, init = cell.init_net;
  AddOp(&init, "XavierFill", {}, {"out_w"}).Ints("shape", {1, 16});
  AddOp(&model, "FC", {"h_last", "out_w"}, {"sum"}).Int("axis", -1);
  // The model with a loss, gradients and an optimizer.
  NetDef loss = model;
  AddOp(&loss, "SquaredL2Distance", {"sum", "target"}, {"distance"});
  AddOp(&loss, "AveragedLoss", {"distance"}, {"loss"});
  std::vector<std::string> parameters = cell.parameters;
  parameters.push_back("out_w");
  OptimizerDef optimizer;
  optimizer.set_learning_rate(0.01f);
  const TrainingNet training = MakeTrainingNet(loss, "loss", parameters, optimizer);

  Workspace shared;  // holds the parameters and nothing else
  RunNetOnce(init, shared);
  Workspace workspace(&shared);
  RunNetOnce(training.init_net, workspace);
  std::mt19937 random(1);
  std::unique_ptr<Net> step;
  for (int iteration = 0; iteration <= 3000; ++iteration) {
    const Tensor x(DType::kFloat, {1 + iteration % 10, 32, 1});  // [T, B, D]: 32 sequences of 1 to 10 numbers
    const Tensor target = Tensor::Zeros(DType::kFloat, {1, 32, 1});
    for (int i = 0; i < x.size(); ++i) {
      x.data<float>()[i] = static_cast<float>(random() % 2001) / 1000.0f - 1;
      target.data<float>()[i % 32] += x.data<float>()[i];
    }
    workspace.SetTensor("x", x);
    workspace.SetTensor("target", target);
    if (step == nullptr) step = Net::Create(training.net, workspace);
    step->Run();
    if (iteration % 500 == 9) std::printf("%4d  loss %.4f\n", iteration, *workspace.GetTensor("loss").data<float>());
  }
  // Any number of threads may use the model at once, each with a net and a workspace of its own.
  Workspace request(&shared);
  request.SetTensor("x", Tensor::Of<float>({3, 1, 1}, {0.5f, -0.25f, 0.75f}));
  RunNetOnce(model, request);
  std::printf("0.5 - 0.25 + 0.75 = %.2f\n", *request.GetTensor("sum").data<float>());
  return 0;
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
