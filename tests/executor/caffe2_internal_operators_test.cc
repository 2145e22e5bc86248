#include "recurrent_case.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

NetDef NetOf(OperatorDef op, std::int64_t offset, std::int64_t window = 0) {
  AddInt(&op, "offset", offset);
  if (window > 0) AddInt(&op, "window", window);
  NetDef net;
  net.set_name("internal");
  *net.add_op() = op;
  return net;
}

TEST(ApplyLink, SharesTheRowsOfTheStep) {
  const NetDef net = NetOf(ParseOp("h_prev, states = rnn_internal_apply_link(t, states)"), 1, 2);
  Workspace workspace;
  workspace.SetTensor("t", Tensor::Of<std::int32_t>({1}, {2}));
  workspace.SetTensor("states", Random({6, 2, 3}, 1));
  RunNetOnce(net, workspace);
  const Tensor states = workspace.GetTensor("states"), rows = workspace.GetTensor("h_prev");
  EXPECT_TRUE(rows.SharesStorageWith(states));
  EXPECT_EQ(rows.shape(), Shape({2, 2, 3}));
  EXPECT_EQ(Values(rows), Values(states.Slice(3, 5)));
}

TEST(ApplyLink, RefusesRowsBeyondTheEnd) {
  const NetDef net = NetOf(ParseOp("h_prev, states = rnn_internal_apply_link(t, states)"), 1, 2);
  Workspace workspace;
  workspace.SetTensor("t", Tensor::Of<std::int32_t>({1}, {4}));
  workspace.SetTensor("states", Random({6, 2, 3}, 1));
  ExpectError([&] { RunNetOnce(net, workspace); }, "…shape mismatch: rows [5, 7) of a tensor double [6, 2, 3]");
  workspace.SetTensor("t", Random({1}, 2));
  ExpectError([&] { RunNetOnce(net, workspace); },
              "…type mismatch: the timestep \"t\" is double [1]; it must be int32 [1]");
}

TEST(AccumulateGradient, AddsAStepToItsRow) {
  const NetDef net = NetOf(ParseOp("g = rnn_internal_accumulate_gradient_input(t, dy, g)"), 1);
  Workspace workspace;
  workspace.SetTensor("t", Tensor::Of<std::int32_t>({1}, {1}));
  workspace.SetTensor("dy", Tensor::Of<double>({3, 1, 2}, {1, 2, 3, 4, 5, 6}));
  workspace.SetTensor("g", Tensor::Of<double>({4, 1, 2}, {10, 10, 20, 20, 30, 30, 40, 40}));
  RunNetOnce(net, workspace);
  EXPECT_EQ(Values(workspace.GetTensor("g")), (std::vector<double>{10, 10, 20, 20, 33, 34, 40, 40}));
}

TEST(AccumulateGradient, RefusesOtherSizes) {
  const NetDef net = NetOf(ParseOp("g = rnn_internal_accumulate_gradient_input(t, dy, g)"), 1);
  Workspace workspace;
  workspace.SetTensor("t", Tensor::Of<std::int32_t>({1}, {1}));
  workspace.SetTensor("dy", Random({3, 1, 2}, 1));
  workspace.SetTensor("g", Random({4, 1, 3}, 2));
  ExpectError([&] { RunNetOnce(net, workspace); },
              "…shape mismatch: a step of the output's gradient is double [1, 1, 2], of the state's double [1, 1, 3]");
}

TEST(InternalOperators, WorkInPlace) {
  const NetDef net = NetOf(ParseOp("h_prev, other = rnn_internal_apply_link(t, states)"), 1, 2);
  Workspace workspace;
  ExpectError([&] { Net::Create(net, workspace); },
              "…rnn_internal_apply_link works in place: output 1 must be \"states\", is \"other\"");
}

}  // namespace
}  // namespace stepnet
