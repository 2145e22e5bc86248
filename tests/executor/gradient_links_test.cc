// Gradients by way of links: windows that overlap, one blob that is linked to several places. Names of tests cite the
// rules of docs/caffe2_compatibility.md.
#include <limits>

#include "recurrent_case.h"
#include "stepnet/core/operator.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

// [W, B, D] → [1, B, D]: the product over the first dimension, and its gradient.
std::vector<TensorInfo> OneRow(const ShapeQuery& query) {
  return {{.dtype = query.In(0).dtype, .shape = query.In(0).shape.With(0, 1)}};
}
const Registration row_product = Operator("test.RowProduct")
                                     .Input("x", "[W, B, D]")
                                     .Output("y", "[1, B, D]")
                                     .Shapes(OneRow)
                                     .Cpu([](const OperatorCall&) -> RunFn {
                                       return [](const OpRun& run) {
                                         const std::int64_t n = run.Out(0).size();
                                         for (std::int64_t i = 0; i < n; ++i) {
                                           double product = 1;
                                           for (std::int64_t w = 0; w < run.In(0).dim(0); ++w)
                                             product *= run.In(0).As<double>()[w * n + i];
                                           run.Out(0).As<double>()[i] = product;
                                         }
                                       };
                                     });
const Registration row_product_gradient = Operator("test.RowProductGradient")
                                              .Input("x", "[W, B, D]")
                                              .Input("dy", "[1, B, D]")
                                              .Output("dx", "[W, B, D]")
                                              .Shapes(SameAsInput(0))
                                              .Cpu([](const OperatorCall&) -> RunFn {
                                                return [](const OpRun& run) {
                                                  const std::int64_t n = run.In(1).size();
                                                  const std::int64_t window = run.In(0).dim(0);
                                                  for (std::int64_t i = 0; i < n; ++i) {
                                                    for (std::int64_t w = 0; w < window; ++w) {
                                                      double product = run.In(1).As<double>()[i];
                                                      for (std::int64_t k = 0; k < window; ++k) {
                                                        if (k != w) product *= run.In(0).As<double>()[k * n + i];
                                                      }
                                                      run.Out(0).As<double>()[w * n + i] = product;
                                                    }
                                                  }
                                                };
                                              });

TEST(RecurrentGradient, G5WindowsOfStatesAddUpWhereTheyOverlap) {
  // past holds the inputs, two initial ones before them; y[t] = past[t] past[t+1] past[t+2].
  const auto make = [] {
    RecurrentCase net;
    net.Sequence("x", "x_t")
        .State("past", "past0", "", "now", 2)
        .Link("window", "past", 0, 3)
        .State("y", "y0", "", "y_t");
    net.Step("now = Mul(x_t, x_t)")
        .Step("y_t = test.RowProduct(window)")
        .Output("y_all", "y", 1)
        .Output("past_all", "past", 2);
    net.BackwardStep("window_grad = test.RowProductGradient(window, y_t_grad)");
    net.BackwardStep("half = Mul(now_grad, x_t)").BackwardStep("x_t_grad = Sum(half, half)");
    net.BackwardLink("y_t_grad", "y_grad", 1).BackwardLink("window_grad", "past_grad", 0, 3);
    net.BackwardLink("now_grad", "past_grad", 2).BackwardLink("x_t_grad", "x_grad", 0);
    net.OutputGradient("y_all").OutputGradient("past_all").WithGradient();
    return net;
  };
  ExpectGradientsMatch(make, {{"x", Random({5, 2, 2}, 1)}, {"past0", Random({2, 2, 2}, 2)}, {"y0", Random({2, 2}, 3)}},
                       {"y_all", "past_all"});
}

TEST(RecurrentGradient, G5WindowsOfSequencesAddUpWhereTheyOverlap) {
  // y[t] = x[t+1] x[t+2]: a link with an offset and a window; x has three rows more than y has steps.
  const auto make = [] {
    RecurrentCase net;
    net.Sequence("clock", "").Sequence("x", "window", 1, 2).State("y", "y0", "", "y_t");
    net.Step("y_t = test.RowProduct(window)").Output("y_all", "y", 1);
    net.BackwardStep("window_grad = test.RowProductGradient(window, y_t_grad)");
    net.BackwardLink("y_t_grad", "y_grad", 1).BackwardLink("window_grad", "x_grad", 1, 2).Param("x", "window_grad");
    net.OutputGradient("y_all").WithGradient();
    return net;
  };
  ExpectGradientsMatch(make, {{"clock", Random({4, 2, 2}, 1)}, {"x", Random({7, 2, 2}, 2)}, {"y0", Random({2, 2}, 3)}},
                       {"y_all"});
}

TEST(RecurrentGradient, OneBlobMayFeedSeveralGradients) {
  // s_grad goes to the state, to the sequence and to a captured tensor.
  const auto make = [] {
    RecurrentCase net;
    net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Captured("e");
    net.Step("s = Sum(x_t, h_prev, e)").Step("h_next = Mul(s, s)").Output("h_all", "h", 1);
    net.BackwardStep("half = Mul(h_next_grad, s)").BackwardStep("s_grad = Sum(half, half)");
    net.BackwardLink("h_next_grad", "h_grad", 1)
        .BackwardLink("s_grad", "h_grad", 0)
        .BackwardLink("s_grad", "x_grad", 0);
    net.Param("e", "s_grad").OutputGradient("h_all").WithGradient();
    return net;
  };
  ExpectGradientsMatch(make, {{"x", Random({3, 2, 3}, 1)}, {"h0", Random({2, 3}, 2)}, {"e", Random({1, 2, 3}, 3)}},
                       {"h_all"});
}

// What a gradient's blob holds from before.
Tensor Stale(const Shape& shape) {
  return Tensor::Of<double>(
      shape, std::vector<double>(static_cast<size_t>(shape.size()), std::numeric_limits<double>::quiet_NaN()));
}

TEST(RecurrentGradient, BlobsOfOneGradientAreSummed) {
  const auto make = [] {
    RecurrentCase net;
    net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next");
    net.Step("s = Sum(x_t, h_prev)").Step("h_next = Mul(x_t, s)").Output("h_all", "h", 1);
    net.BackwardStep("s_grad = Mul(h_next_grad, x_t)").BackwardStep("dx = Mul(h_next_grad, s)");
    net.BackwardLink("h_next_grad", "h_grad", 1).BackwardLink("s_grad", "h_grad", 0);
    net.BackwardLink("s_grad", "x_grad", 0).BackwardLink("dx", "x_grad", 0);
    net.OutputGradient("h_all").WithGradient().Feed("x_grad", Stale({3, 2, 3}));
    return net;
  };
  ExpectGradientsMatch(make, {{"x", Random({3, 2, 3}, 1)}, {"h0", Random({2, 3}, 2)}}, {"h_all"});
}

TEST(RecurrentGradient, G5RowsThatNoStepSeesHaveAGradientOfZero) {
  // y[t] = x[t+1]²; x has a row before the first that is seen, and one after the last.
  const auto make = [] {
    RecurrentCase net;
    net.Sequence("clock", "").Sequence("x", "x_next", 1).State("y", "y0", "", "y_t");
    net.Step("y_t = Mul(x_next, x_next)").Output("y_all", "y", 1);
    net.BackwardStep("half = Mul(y_t_grad, x_next)").BackwardStep("dx = Sum(half, half)");
    net.BackwardLink("y_t_grad", "y_grad", 1).BackwardLink("dx", "x_grad", 1).Param("x", "x_next_grad");
    net.OutputGradient("y_all").WithGradient().Feed("x_grad", Stale({6, 2, 2}));
    return net;
  };
  ExpectGradientsMatch(make, {{"clock", Random({4, 2, 2}, 1)}, {"x", Random({6, 2, 2}, 2)}, {"y0", Random({2, 2}, 3)}},
                       {"y_all"});
}

TEST(RecurrentGradient, G2ASequenceThatIsReadWholeTooGetsTheSum) {
  // y[t] = x[t] Π_s x[s]; both gradients go to one output.
  const auto make = [] {
    RecurrentCase net;
    net.Sequence("x", "x_t").State("y", "y0", "", "y_t").Step("p = test.RowProduct(x)").Step("y_t = Mul(x_t, p)");
    net.Output("y_all", "y", 1).BackwardStep("x_t_grad = Mul(y_t_grad, p)").BackwardStep("dp = Mul(y_t_grad, x_t)");
    net.BackwardStep("x_whole_grad = test.RowProductGradient(x, dp)").Param("x", "x_whole_grad");
    net.BackwardLink("y_t_grad", "y_grad", 1).BackwardLink("x_t_grad", "x_grad", 0);
    net.OutputGradient("y_all").WithGradient({"x_grad", "x_grad", "y0_grad"}).Feed("x_grad", Stale({3, 2, 2}));
    return net;
  };
  ExpectGradientsMatch(make, {{"x", Random({3, 2, 2}, 1)}, {"y0", Random({2, 2}, 2)}}, {"y_all"});
}

// h[t] = x[t] (x[t] + h[t-2]).
RecurrentCase TwoStepsBackCase() {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next", 2);
  net.Step("s = Sum(x_t, h_prev)").Step("h_next = Mul(x_t, s)").Output("h_all", "h", 2);
  net.BackwardStep("dx = Mul(h_next_grad, s)").BackwardStep("s_grad = Mul(h_next_grad, x_t)");
  net.BackwardStep("x_t_grad = Sum(dx, s_grad)").BackwardLink("h_next_grad", "h_grad", 2);
  net.BackwardLink("s_grad", "h_grad", 0).BackwardLink("x_t_grad", "x_grad", 0);
  net.OutputGradient("h_all").WithGradient();
  return net;
}

TEST(RecurrentGradient, D9EachInitialRowThatIsRepeatedGetsItsOwnSum) {
  ExpectGradientsMatch(TwoStepsBackCase, {{"x", Random({5, 2, 3}, 1)}, {"h0", Random({2, 1, 3}, 2)}}, {"h_all"});
}

TEST(RecurrentGradient, D5RefusesBackwardLinksBeyondTheState) {
  RecurrentCase net = TwoStepsBackCase();
  net.BackwardLink("s_grad", "h_grad", 3);
  net.Feed("x", Random({4, 0, 3}, 1)).Feed("h0", Random({2, 0, 3}, 2)).Feed("h_all_grad", Random({4, 0, 3}, 3));
  ExpectError(
      [&] { net.Run(); },
      "…step t would see rows [t + 3, t + 4) of \"h_grad\" as \"s_grad\" (link offset 3, window 1), and the last row "
      "that there is then is t + 2; the state must start with 3 rows, as [3, B, …]");
}

TEST(RecurrentGradient, D5RefusesBackwardLinksBeyondAnInputsGradient) {
  RecurrentCase first = TwoStepsBackCase();
  first.BackwardLink("x_t_grad", "x_grad", 1);
  ExpectError(
      [&] { first.net(); },
      "…\"x_t_grad\" is linked to \"x_grad\" with offset 1 and window 1; the first input has a row for each step "
      "and no more: offset 0 and window 1");
  RecurrentCase other = TwoStepsBackCase();
  other.Sequence("z", "z_t").Step("unused = Tanh(z_t)").Param("z", "x_t_grad").BackwardLink("x_t_grad", "z_grad", 1);
  other.WithGradient({"x_grad", "z_grad", "h0_grad"});
  for (const char* blob : {"x", "z", "h_all_grad"}) other.Feed(blob, Random({4, 2, 3}, 1));
  other.Feed("h0", Random({2, 2, 3}, 2));
  ExpectError([&] { other.Run(); },
              "…step 3 of 4 would see rows [4, 5) of \"z_grad\" as \"x_t_grad\" (link offset 1, window 1), which has 4 "
              "rows");
}

// The two operators are two messages of a file: what is checked of the one may differ in the other.
TEST(RecurrentGradient, D5RefusesLinksThatItsForwardOperatorDoesNotHave) {
  const auto expect = [](const std::vector<std::int64_t>& offsets, const std::string& error) {
    SCOPED_TRACE(error);
    NetDef def = TwoStepsBackCase().BackwardStep("unused = Tanh(h_prev)").Build();
    for (Argument& argument : *def.mutable_op(1)->mutable_arg()) {
      if (argument.name() == "link_offset") argument.mutable_ints()->Assign(offsets.begin(), offsets.end());
    }
    Workspace workspace;
    workspace.SetTensor("x", Random({4, 2, 3}, 1));
    workspace.SetTensor("h0", Random({2, 2, 3}, 2));
    workspace.SetTensor("h_all_grad", Random({4, 2, 3}, 3));
    ExpectError([&] { Net::Create(def, workspace)->Run(); }, error);
  };
  expect(
      {0, 3, 2},
      "…link 1 of RecurrentNetworkGradient is another one than that of its forward operator: \"h_prev\" is linked to "
      "\"h\" with offset 3 and window 1, and there \"h_prev\" is linked to \"h\" with offset 0 and window 1");
  expect({1, 0, 2}, "…link 0 of RecurrentNetworkGradient is another one than that of its forward operator: \"x_t\" is");
}

TEST(RecurrentGradient, D5RefusesIndicesThatTheForwardOperatorDoesNotHave) {
  const auto expect = [](const std::string& argument, std::int64_t index, const std::string& error) {
    NetDef def = TwoStepsBackCase().Build();
    for (Argument& arg : *def.mutable_op(1)->mutable_arg()) {
      if (arg.name() == argument) arg.mutable_ints()->Assign(&index, &index + 1);
    }
    if (argument == "param") def.mutable_op(1)->add_output("more_grad");
    Workspace workspace;
    workspace.SetTensor("x", Random({4, 2, 3}, 1));
    workspace.SetTensor("h0", Random({2, 2, 3}, 2));
    workspace.SetTensor("h_all_grad", Random({4, 2, 3}, 3));
    ExpectError([&] { Net::Create(def, workspace)->Run(); }, error);
  };
  expect("initial_recurrent_state_ids", 2, "…names input 2 for state 0 of RecurrentNetworkGradient, and 1 for that of");
  expect("param", 2, "…param names input 2; the forward operator has 2");
}

// dx[t] = dy[t] + the sum of x over all steps: the backward step reads a sequence whole, the forward step by rows.
TEST(RecurrentGradient, D5ASequenceThatTheBackwardStepReadsWholeMayChangeItsLength) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Step("h_next = Sum(x_t, h_prev)");
  net.Output("h_all", "h", 1).OutputGradient("h_all");
  net.BackwardStep("all = SumReduceLike(x, h0)").BackwardStep("x_t_grad = Sum(h_next_grad, all)");
  net.BackwardLink("h_next_grad", "h_grad", 1).BackwardLink("x_t_grad", "x_grad", 0).WithGradient();
  net.Feed("h0", Random({1, 2, 3}, 2));
  for (const std::int64_t num_steps : {3, 5, 2}) {
    SCOPED_TRACE(num_steps);
    const Tensor x = Random({num_steps, 2, 3}, 1);
    const Tensor dy = Tensor::Zeros(DType::kDouble, {num_steps, 2, 3});
    net.Feed("x", x).Feed("h_all_grad", dy).Run();
    const std::vector<double> values = Values(x), gradients = Values(net.Get("x_grad"));
    for (size_t i = 0; i < values.size(); ++i) {
      double sum = 0;
      for (size_t j = i % 6; j < values.size(); j += 6) sum += values[j];
      EXPECT_NEAR(gradients[i], sum, 1e-6);
    }
  }
}

// The step writes rows [B, H] of a state whose rows are [1, B, H]: axis 1 is H.
TEST(RecurrentGradient, SeesRowsWithTheDimensionsThatTheStepGaveThem) {
  RecurrentCase net;
  OperatorDef squeeze = ParseOp("s = Squeeze(pre)");
  AddInts(&squeeze, "dims", {0});
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Step("pre = Add(x_t, h_prev)").Step(squeeze);
  net.Step("h_next = LogSoftmax(s)").Output("h_all", "h", 1);
  ExpectMadeGradientsMatch(net.Build(), {"h_all"}, {{"x", Random({3, 5, 4}, 1)}, {"h0", Random({1, 5, 4}, 2)}});
}

}  // namespace
}  // namespace stepnet
