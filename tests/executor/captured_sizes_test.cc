// Shapes in a step that follow from tensors outside, and from what a step computes of sizes: they are known before the
// first step, so that such blobs may be outputs of all steps.
#include <algorithm>

#include "recurrent_case.h"
#include "stepnet/executor/recurrent_record.h"

namespace stepnet {
namespace {

Tensor Ints(const std::vector<std::int64_t>& values) {
  return Tensor::Of<std::int64_t>({static_cast<std::int64_t>(values.size())}, values);
}

OperatorDef Zeros(const std::string& text) {
  OperatorDef op = ParseOp(text);
  AddInt(&op, "input_as_shape", 1);
  AddInt(&op, "dtype", 13);
  return op;
}

// A net whose step gives `blob`, of all steps, as blob_all.
RecurrentCase Giving(const std::string& blob) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Step("h_next = Sum(x_t, h_prev)");
  net.forward().add_output(blob + "_all");
  AddStrings(&net.forward(), "step_output_src", {blob});
  AddStrings(&net.forward(), "step_output_dst", {blob + "_all"});
  net.Feed("x", Random({3, 2, 4}, 1)).Feed("h0", Random({2, 4}, 2));
  return net;
}

TEST(CapturedSizes, SayShapesOfOutputs) {
  RecurrentCase net = Giving("y");
  net.Captured("sizes").Step(Zeros("y = ConstantFill(sizes)"));
  net.Feed("sizes", Ints({5, 2})).Run();
  EXPECT_EQ(net.Get("y_all").shape(), Shape({3, 5, 2}));
}

TEST(CapturedSizes, MayBeOthersInTheNextRun) {
  RecurrentCase net = Giving("y");
  net.Captured("sizes").Step(Zeros("y = ConstantFill(sizes)"));
  for (const std::int64_t size : {2, 7, 2, 0}) {
    net.Feed("sizes", Ints({4, size})).Run();
    EXPECT_EQ(net.Get("y_all").shape(), Shape({3, 4, size}));
  }
}

// Each has a plan, of which those used last are kept, with those of their gradients.
TEST(CapturedSizes, ThatAreOthersInEachRunTakeNoEverMoreMemory) {
  RecurrentCase net = Giving("y");
  net.Captured("sizes").Step(Zeros("y = ConstantFill(sizes)")).Output("h_all", "h", 1);
  net.OutputGradient("h_all").WithGradient().Feed("h_all_grad", Random({3, 2, 4}, 3));
  std::vector<std::weak_ptr<const ForwardPlan>> plans;
  for (std::int64_t size = 0; size < 200; ++size) {
    net.Feed("sizes", Ints({4, size})).Run();
    plans.push_back(net.workspace().FindBlob("record")->GetObject<RecurrentRecord>()->plan);
  }
  EXPECT_EQ(plans[198].expired(), false);
  EXPECT_LE(std::ranges::count(plans, false, [](const auto& plan) { return plan.expired(); }), 140);
}

TEST(CapturedSizes, MayChangeWhereTheyLie) {
  RecurrentCase net = Giving("y");
  const Tensor sizes = Ints({2, 2});
  net.Captured("sizes").Step(Zeros("y = ConstantFill(sizes)")).Feed("sizes", sizes).Run();
  sizes.data<std::int64_t>()[1] = 5;
  net.Run();
  EXPECT_EQ(net.Get("y_all").shape(), Shape({3, 2, 5}));
}

TEST(CapturedSizes, AreComputedWith) {
  RecurrentCase net = Giving("y");
  OperatorDef rows = ParseOp("rows = Slice(s)");
  AddInts(&rows, "starts", {1});
  AddInts(&rows, "ends", {3});
  net.Captured("two").Step("s = Shape(x_t)").Step(rows).Step("doubled = Mul(rows, two)");
  net.Step("is_small = LT(doubled, limit)").Step("shape = Where(is_small, doubled, limit)").Captured("limit");
  net.Step(Zeros("y = ConstantFill(shape)")).Feed("two", Ints({2})).Feed("limit", Ints({5, 5})).Run();
  EXPECT_EQ(net.Get("y_all").shape(), Shape({3, 4, 5}));
}

// Where a step cannot be planned for them, it works as for sizes that it computes itself.
TEST(CapturedSizes, OfOtherKindsAreReadInEachStep) {
  RecurrentCase net;
  net.Sequence("x", "x_t").Captured("flat").State("h", "h0", "", "h_next");
  OperatorDef few = ParseOp("few = Slice(flat)");
  AddInts(&few, "starts", {0});
  AddInts(&few, "ends", {3});
  net.Step(few).Step("h_next, old = Reshape(x_t, few)").Output("h_all", "h", 1);
  std::vector<std::int64_t> many(100, 2);
  many[0] = 1;
  net.Feed("x", Random({3, 2, 2}, 1)).Feed("h0", Random({2, 2}, 2)).Feed("flat", Ints(many)).Run();
  EXPECT_EQ(Values(net.Get("h_all")), Values(net.Get("x")));
}

TEST(CapturedSizes, ThatDoNotFitAreAnErrorOfTheirOperator) {
  RecurrentCase net = Giving("y");
  net.Captured("sizes").Step("y, old = Reshape(x_t, sizes)");
  net.Feed("sizes", Ints({2, 4})).Run();
  EXPECT_EQ(net.Get("y_all").shape(), Shape({3, 2, 4}));
  net.Feed("sizes", Ints({3, 3}));
  EXPECT_THROW(net.Run(), Error);
}

}  // namespace
}  // namespace stepnet
