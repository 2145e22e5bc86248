// RecurrentNetworkGradient over several runs: which forward run it belongs to, what it keeps from one run to the next,
// what it leaves alone. Names of tests cite the rules of docs/caffe2_compatibility.md.
#include "recurrent_case.h"
#include "stepnet/nets/backward.h"
#include "stepnet/nets/backward_step.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

// h[t] = x[t] h[t-1].
RecurrentCase ProductCase() {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Step("h_next = Mul(x_t, h_prev)");
  net.Output("h_all", "h", 1).Output("h_last", "h", -1);
  net.BackwardStep("x_t_grad = Mul(h_next_grad, h_prev)").BackwardStep("h_prev_grad = Mul(h_next_grad, x_t)");
  net.BackwardLink("h_next_grad", "h_grad", 1).BackwardLink("h_prev_grad", "h_grad", 0);
  net.BackwardLink("x_t_grad", "x_grad", 0).OutputGradient("h_all").WithGradient();
  return net;
}

void Feed(RecurrentCase& net, std::int64_t batch) {
  net.Feed("x", Random({4, batch, 3}, 1)).Feed("h0", Random({batch, 3}, 2));
  net.Feed("h_all_grad", Random({4, batch, 3}, 3));
}

TEST(RecurrentGradient, D3GivesWhatAFreshNetGivesAsBChanges) {
  RecurrentCase lasting = ProductCase();
  for (const std::int64_t batch : {2, 5, 1, 2}) {
    RecurrentCase fresh = ProductCase();
    for (RecurrentCase* net : {&lasting, &fresh}) {
      Feed(*net, batch);
      net->Run();
    }
    for (const char* blob : {"x_grad", "h0_grad", "h_grad"}) ExpectSame(lasting.Get(blob), fresh.Get(blob), blob);
  }
}

TEST(RecurrentGradient, G11AddingLeavesWhatAUserHoldsAsItWas) {
  RecurrentCase net = ProductCase();
  AddStrings(&net.gradient(), "gradient_requests", {"add", "add"});
  Feed(net, 2);
  const Tensor x_grad = Random({4, 2, 3}, 4), h0_grad = Random({2, 3}, 5);
  net.Feed("x_grad", x_grad).Feed("h0_grad", h0_grad);
  const std::vector<double> x_before = Values(x_grad), h0_before = Values(h0_grad);
  net.Run();
  EXPECT_EQ(Values(x_grad), x_before);
  EXPECT_EQ(Values(h0_grad), h0_before);
  EXPECT_NE(Values(net.Get("x_grad")), x_before);
}

TEST(RecurrentGradient, G12CountsItsInputs) {
  NetDef def = ProductCase().Build();
  auto& inputs = *def.mutable_op(1)->mutable_input();  // h_all_grad, x, h0, h_all, h_last, record
  inputs.DeleteSubrange(4, 1);
  RecurrentCase net = ProductCase();
  Feed(net, 2);
  ExpectError([&] { RunNetOnce(def, net.workspace()); },
              "…invalid net: RecurrentNetworkGradient has 5 inputs; with 1 outputs_with_grads, the 2 inputs and the 3 "
              "outputs of the forward operator they should be 6");
}

TEST(RecurrentGradient, RefusesGradientsOfStepOutputsThatAreNoFloats) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Step("h_next = Add(x_t, h_prev)");
  net.Step("p = GT(x_t, h_prev)").Output("h_all", "h", 1);
  net.forward().add_output("p_all");
  AddStrings(&net.forward(), "step_output_src", {"p"});
  AddStrings(&net.forward(), "step_output_dst", {"p_all"});
  NetDef def = net.Build();
  AddBackwardStepNets(&def);
  const NetDef with_gradients = AddGradients(def, {"h_all", "p_all"}, {"x"}).net;
  Workspace workspace;
  workspace.SetTensor("x", Random({2, 1, 3}, 1, DType::kFloat));
  workspace.SetTensor("h0", Random({1, 3}, 2, DType::kFloat));
  ExpectError([&] { RunNetOnce(with_gradients, workspace); },
              "…a gradient of \"p_all\" is given, which is bool; gradients are for float and double");
}

TEST(RecurrentGradient, GradientsFromBeforeTheForwardRunDoNotCount) {
  RecurrentCase plain = ProductCase(), later = ProductCase();
  for (RecurrentCase* net : {&plain, &later}) Feed(*net, 2);
  NetDef def;
  *def.add_op() = ParseOp("h_last_grad = Copy(source)");  // of an earlier step of training
  def.MergeFrom(later.Build());
  later.Feed("source", Random({1, 2, 3}, 4));
  RunNetOnce(def, later.workspace());
  plain.Run();
  for (const char* blob : {"x_grad", "h0_grad"}) ExpectSame(later.Get(blob), plain.Get(blob), blob);
}

TEST(RecurrentGradient, MasksThatAreDrawnAgainAreThoseOfTheForwardRun) {
  RecurrentCase net;
  OperatorDef dropout = ParseOp("y_t, mask = Dropout(x_t)");
  dropout.mutable_device_option()->set_random_seed(5);
  net.Sequence("x", "x_t").State("y", "y0", "", "y_t").Step(dropout).Output("y_all", "y", 1);
  net.BackwardStep(dropout).BackwardStep("x_t_grad = Mul(y_t, y_t_grad)");  // y = dy/dx, as x is 1
  net.BackwardLink("y_t_grad", "y_grad", 1)
      .BackwardLink("x_t_grad", "x_grad", 0)
      .OutputGradient("y_all")
      .WithGradient();
  const Tensor ones = Tensor::Of<double>({4, 1, 64}, std::vector<double>(256, 1.0));
  net.Feed("x", ones).Feed("y_all_grad", ones).Feed("y0", Tensor::Zeros(DType::kDouble, {1, 64}));
  NetDef forward = net.Build(), backward = net.Build();
  forward.mutable_op()->DeleteSubrange(1, 1);
  backward.mutable_op()->DeleteSubrange(0, 1);
  const std::unique_ptr<Net> forward_net = Net::Create(forward, net.workspace());
  const std::unique_ptr<Net> backward_net = Net::Create(backward, net.workspace());
  forward_net->SetRunCounter(3);
  backward_net->SetRunCounter(8);
  forward_net->Run();
  backward_net->Run();
  EXPECT_EQ(Values(net.Get("x_grad")), Values(net.Get("y_all")));
}

}  // namespace
}  // namespace stepnet
