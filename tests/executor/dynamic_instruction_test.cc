// Operators of a step net whose shapes are known only when they run, with blobs whose memory is laid out before.
#include "recurrent_case.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

// y = x, `times` times one after the other along the first dimension.
const Registration repeat = Operator("test.Repeat")
                                .Input("x", "any dtype [N, …]")
                                .Output("y", "[times * N, …]")
                                .Arg("times", 1, "how often")
                                .Cpu({.make = [](const OperatorCall& op) -> RunFn {
                                        return [times = op.Int("times")](const OpRun& run) {
                                          const Tensor x = run.host().Input(0).GetTensor();
                                          const std::int64_t n = x.dim(0);
                                          const Tensor y(x.dtype(), x.shape().With(0, times * n));
                                          for (std::int64_t i = 0; i < times; ++i) {
                                            CopyElements(x.View(), y.Slice(i * n, (i + 1) * n).View());
                                          }
                                          run.host().Output(0).SetTensor(y);
                                        };
                                      },
                                      .takes_blobs = true});

OperatorDef Repeat(const std::string& text, std::int64_t times) {
  OperatorDef op = ParseOp(text);
  AddInt(&op, "times", times);
  return op;
}

TEST(DynamicOperators, GiveRowsOfStates) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Step(Repeat("d = test.Repeat(x_t)", 1));
  net.Step("h_next = Sum(d, h_prev)").Output("h_all", "h", 1);
  net.Feed("x", Tensor::Of<double>({3, 1, 2}, {1, 2, 3, 4, 5, 6})).Feed("h0", Tensor::Of<double>({1, 2}, {10, 20}));
  EXPECT_EQ(Values(net.Run().Get("h_all")), (std::vector<double>{11, 22, 14, 26, 19, 32}));
}

TEST(DynamicOperators, GiveRowsThatOthersReadInTheSameStep) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "", "h_next").State("g", "h0", "", "g_next");
  net.Step(Repeat("h_next = test.Repeat(x_t)", 1)).Step("g_next = Mul(h_next, h_next)");
  net.Output("h_all", "h", 1).Output("g_all", "g", 1);
  net.Feed("x", Tensor::Of<double>({2, 1, 2}, {1, 2, 3, 4})).Feed("h0", Tensor::Of<double>({1, 2}, {0, 0})).Run();
  EXPECT_EQ(Values(net.Get("h_all")), (std::vector<double>{1, 2, 3, 4}));
  EXPECT_EQ(Values(net.Get("g_all")), (std::vector<double>{1, 4, 9, 16}));
}

TEST(DynamicOperators, WorkInPlaceOnRowsOfStates) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "", "h_next").Step(Repeat("d = test.Repeat(x_t)", 1));
  net.Step("h_next = Copy(x_t)").Step("h_next = Sum(h_next, d)").Output("h_all", "h", 1);
  net.Feed("x", Tensor::Of<double>({2, 1, 2}, {1, 2, 3, 4})).Feed("h0", Tensor::Of<double>({1, 2}, {0, 0}));
  EXPECT_EQ(Values(net.Run().Get("h_all")), (std::vector<double>{2, 4, 6, 8}));
}

TEST(DynamicOperators, AreNoStepOutputs) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "", "h_next").Step(Repeat("d = test.Repeat(x_t)", 1));
  net.Step("h_next = Copy(d)").Output("h_all", "h", 1);
  net.forward().add_output("d_all");
  AddStrings(&net.forward(), "step_output_src", {"d"});
  AddStrings(&net.forward(), "step_output_dst", {"d_all"});
  net.Feed("x", Random({3, 2, 3}, 1)).Feed("h0", Random({2, 3}, 2));
  ExpectError([&] { net.Run(); },
              "…step_output_src names \"d\", whose shape is known only when a step has run; make it the new row of a "
              "state, which says what shape it has");
}

TEST(DynamicOperators, D4RefusesAnotherSizeInALinkedBlob) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "", "h_next").Step(Repeat("h_next = test.Repeat(x_t)", 0));
  net.Output("h_all", "h", 1).Feed("x", Random({3, 2, 3}, 1)).Feed("h0", Random({2, 3}, 2));
  ExpectError([&] { net.Run(); },
              "…\"h_next\" is linked to memory for double [1, 2, 3] a step, and test.Repeat gives double [0, 2, 3]");
}

// Others read the row as the link says: a shape that differs in sizes of 1 alone would show them another one.
TEST(DynamicOperators, D4RefusesAnotherShapeOfTheSameSizeInALinkedBlob) {
  RecurrentCase net;
  net.Sequence("x", "x_t").Captured("sizes").State("h", "h0", "", "h_next");
  net.Step(Repeat("late = test.Repeat(sizes)", 1)).Step("h_next, old = Reshape(x_t, late)").Output("h_all", "h", 1);
  net.Feed("x", Random({3, 2, 3}, 1))
      .Feed("h0", Random({2, 3}, 2))
      .Feed("sizes", Tensor::Of<std::int64_t>({2}, {2, 3}));
  ExpectError([&] { net.Run(); },
              "…\"h_next\" is linked to memory for double [1, 2, 3] a step, and Reshape gives double [2, 3]\n"
              "  at op 1 `h_next, old = Reshape(x_t, late)`\n");
  net.Feed("sizes", Tensor::Of<std::int64_t>({3}, {1, 2, 3})).Run();
  EXPECT_EQ(Values(net.Get("h_all")), Values(net.Get("x")));
}

TEST(DynamicOperators, D4RefusesAnotherTypeOfTheSameSizeInALinkedBlob) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "", "h_next").Step(Repeat("h_next = test.Repeat(x_t)", 2));
  net.Output("h_all", "h", 1).Feed("x", Random({3, 2, 3}, 1, DType::kFloat)).Feed("h0", Random({2, 3}, 2));
  ExpectError([&] { net.Run(); },
              "…\"h_next\" is linked to memory for double [1, 2, 3] a step, and test.Repeat gives float [2, 2, 3]");
}

TEST(DynamicOperators, D4RefusesAnotherSizeInABlobOfTwoStates) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("a", "a0", "", "v").State("b", "b0", "", "v").Step(Repeat("v = test.Repeat(x_t)", 2));
  net.Output("a_all", "a", 1).Feed("x", Random({3, 2, 3}, 1));
  net.Feed("a0", Random({2, 3}, 2)).Feed("b0", Random({2, 3}, 3));
  ExpectError([&] { net.Run(); },
              "…\"v\" is double [2, 2, 3]; it belongs to \"a\", where a step has room for double [1, 2, 3]");
}

}  // namespace
}  // namespace stepnet
