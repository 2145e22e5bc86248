// RecurrentNetwork forward: shapes, sequences, states. Names of tests cite the rules of docs/caffe2_compatibility.md.
#include "recurrent_case.h"
#include "stepnet/compiler/forward_plan.h"
#include "stepnet/executor/recurrent_record.h"
#include "stepnet/tests/core/filled_memory.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

// h[t] = x[t] + h[t-1], its running sum.
RecurrentCase SumCase() {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Step("h_next = Sum(x_t, h_prev)");
  net.Output("h_all", "h", 1).Output("h_last", "h", -1);
  return net;
}

// h[t] = x[t] * (w h[t-1] + b) with FC.
RecurrentCase FcCase() {
  RecurrentCase net;
  OperatorDef fc = ParseOp("f = FC(h_prev, w, b)");
  AddInt(&fc, "axis", 2);
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Captured("w").Captured("b");
  net.Step(fc).Step("h_next = Mul(x_t, f)").Output("h_all", "h", 1).Output("h_last", "h", -1);
  return net;
}

std::vector<double> FcReference(const Tensor& x, const Tensor& h0, const Tensor& w, const Tensor& b) {
  const std::int64_t steps = x.dim(0), batch = x.dim(1), size = x.dim(2);
  std::vector<double> all, h = Values(h0);
  const std::vector<double> xs = Values(x), ws = Values(w), bs = Values(b);
  for (std::int64_t t = 0; t < steps; ++t) {
    std::vector<double> next(h.size());
    for (std::int64_t n = 0; n < batch; ++n) {
      for (std::int64_t j = 0; j < size; ++j) {
        double sum = bs[j];
        for (std::int64_t k = 0; k < size; ++k) sum += ws[j * size + k] * h[n * size + k];
        next[n * size + j] = xs[(t * batch + n) * size + j] * sum;
      }
    }
    h = next;
    all.insert(all.end(), h.begin(), h.end());
  }
  return all;
}

TEST(RecurrentNetwork, FollowsItsEquationForAnySize) {
  for (const std::int64_t steps : {0, 1, 2, 5}) {
    for (const std::int64_t batch : {0, 1, 3}) {
      const Tensor x = Random({steps, batch, 4}, 1), h0 = Random({batch, 4}, 2), w = Random({4, 4}, 3),
                   b = Random({4}, 4);
      RecurrentCase net = FcCase();
      net.Feed("x", x).Feed("h0", h0).Feed("w", w).Feed("b", b).Run();
      EXPECT_EQ(net.Get("h_all").shape(), Shape({steps, batch, 4}));
      EXPECT_EQ(net.Get("h_last").shape(), Shape({1, batch, 4}));
      const std::vector<double> expected = FcReference(x, h0, w, b);
      const std::vector<double> got = Values(net.Get("h_all"));
      ASSERT_EQ(got.size(), expected.size());
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], expected[i], 1e-12) << "T " << steps << " B " << batch;
    }
  }
}

// Weights of more than one block, which every other step begins to read with the last block, and of which one is not
// full.
TEST(RecurrentNetwork, FollowsItsEquationWithLargeWeights) {
  constexpr std::int64_t kSize = 600;
  const Tensor x = Random({4, 1, kSize}, 1), h0 = Random({1, kSize}, 2), w = Random({kSize, kSize}, 3),
               b = Random({kSize}, 4);
  for (std::int64_t i = 0; i < w.size(); ++i) w.data<double>()[i] /= 20;
  RecurrentCase net = FcCase();
  net.Feed("x", x).Feed("h0", h0).Feed("w", w).Feed("b", b);
  Net::Create(net.Build(), net.workspace(), {.threads = 1})->Run();  // each product as a whole
  const std::vector<double> expected = FcReference(x, h0, w, b), got = Values(net.Get("h_all"));
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-12) << i;
}

TEST(RecurrentNetwork, D1NoStepsGiveTheInitialState) {
  RecurrentCase net = SumCase();
  const Tensor h0 = Random({2, 3}, 1);
  net.Feed("x", Random({0, 2, 3}, 2)).Feed("h0", h0).Run();
  EXPECT_EQ(net.Get("h_all").shape(), Shape({0, 2, 3}));
  EXPECT_EQ(Values(net.Get("h_last")), Values(h0));
}

TEST(RecurrentNetwork, D2AcceptsAnEmptyBatch) {
  RecurrentCase net = SumCase();
  net.Feed("x", Random({4, 0, 3}, 2)).Feed("h0", Random({0, 3}, 1)).Run();
  EXPECT_EQ(net.Get("h_all").shape(), Shape({4, 0, 3}));
  EXPECT_EQ(net.Get("h_last").shape(), Shape({1, 0, 3}));
}

TEST(RecurrentNetwork, D3GivesWhatAFreshNetGivesAsTAndBChange) {
  RecurrentCase lasting = FcCase();
  const Tensor w = Random({4, 4}, 3), b = Random({4}, 4);
  unsigned seed = 10;
  for (const auto& [steps, batch] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {5, 3}, {0, 3}, {1, 3}, {100, 3}, {3, 3}, {0, 2}, {7, 2}, {7, 0}, {2, 5}}) {
    const Tensor x = Random({steps, batch, 4}, ++seed), h0 = Random({batch, 4}, ++seed);
    RecurrentCase fresh = FcCase();
    for (RecurrentCase* net : {&lasting, &fresh}) {
      net->Feed("x", x.Clone()).Feed("h0", h0.Clone()).Feed("w", w).Feed("b", b).Run();
    }
    for (const char* blob : {"h_all", "h_last", "h"}) ExpectSame(lasting.Get(blob), fresh.Get(blob), blob);
  }
}

TEST(RecurrentNetwork, D3WhatAUserHoldsKeepsItsValues) {
  RecurrentCase net = SumCase();
  net.Feed("x", Random({3, 2, 3}, 1)).Feed("h0", Random({2, 3}, 2)).Run();
  const Tensor held = net.Get("h_all");
  const std::vector<double> before = Values(held);
  net.Feed("x", Random({3, 2, 3}, 3)).Run();
  EXPECT_EQ(Values(held), before);
  EXPECT_NE(Values(net.Get("h_all")), before);
}

TEST(RecurrentNetwork, D4RefusesAnotherShapeInALinkedBlob) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "", "h_next").Captured("w").Captured("b");
  OperatorDef fc = ParseOp("h_next = FC(x_t, w, b)");
  AddInt(&fc, "axis", 2);
  net.Step(fc).Output("h_all", "h", 1);
  net.Feed("x", Random({2, 3, 4}, 1))
      .Feed("h0", Random({3, 4}, 2))
      .Feed("w", Random({5, 4}, 3))
      .Feed("b", Random({5}, 4));
  ExpectError(
      [&] { net.Run(); },
      "shape mismatch: \"h_next\" is linked to memory for double [1, 3, 4] a step, as \"h0\" starts it, and FC gives "
      "double [1, 3, 5]\n"
      "  at op 0 `h_next = FC(x_t, w, b)`\n  in net \"step\"\n"
      "  at op 0 `h_all, record = RecurrentNetwork(x, h0, w, b)` with x double [2, 3, 4], h0 double [3, 4], w double "
      "[5, 4], b double [5]\n  in net \"case\"");
}

TEST(RecurrentNetwork, D4RefusesAnotherOrderOfDimensionsInALinkedBlob) {
  RecurrentCase net;
  OperatorDef transpose = ParseOp("h_next = Transpose(x_t)");
  AddInts(&transpose, "axes", {0, 2, 1});
  net.Sequence("x", "x_t").State("h", "h0", "", "h_next").Step(transpose).Output("h_all", "h", 1);
  net.Feed("x", Random({2, 3, 4}, 1)).Feed("h0", Random({3, 4}, 2));
  ExpectError([&] { net.Run(); },
              "…\"h_next\" is linked to memory for double [1, 3, 4] a step, as \"h0\" starts it, and Transpose gives "
              "double [1, 4, 3]");
}

TEST(RecurrentNetwork, D4RefusesAnotherTypeInALinkedBlob) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "", "h_next").Step("h_next = Copy(x_t)").Output("h_all", "h", 1);
  net.Feed("x", Random({2, 3, 4}, 1, DType::kFloat)).Feed("h0", Random({3, 4}, 2));
  ExpectError([&] { net.Run(); },
              "…\"h_next\" is linked to memory for double [1, 3, 4] a step, as \"h0\" starts it, and Copy gives float "
              "[1, 3, 4]");
}

TEST(RecurrentNetwork, RefusesToReadARowThatTheStepHasNotWritten) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "", "h_next").Step("s = Sum(x_t, h_next)").Step("h_next = Copy(s)");
  net.Output("h_all", "h", 1).Feed("x", Random({2, 1, 1}, 1)).Feed("h0", Random({1, 1}, 2));
  ExpectError([&] { net.Run(); }, "…invalid net: \"h_next\" is read before anything writes it");
}

TEST(RecurrentNetwork, D5RefusesLinksBeyondTheSequence) {
  RecurrentCase net = SumCase();
  net.Sequence("y", "y_t", /*offset=*/1, /*window=*/2).Step("seen = Copy(y_t)");
  net.Feed("x", Random({4, 1, 1}, 1)).Feed("h0", Random({1, 1}, 2)).Feed("y", Random({5, 1, 1}, 3));
  ExpectError(
      [&] { net.Run(); },
      "…shape mismatch: step 3 of 4 would see rows [4, 6) of \"y\" as \"y_t\" (link offset 1, window 2), which has 5 "
      "rows");
  net.Feed("y", Random({6, 1, 1}, 3)).Run();
}

TEST(RecurrentNetwork, D5RefusesLinksBeyondTheState) {
  RecurrentCase net = SumCase();
  net.Link("far", "h", 2).Step("far = Copy(x_t)");
  net.Feed("x", Random({4, 1, 1}, 1)).Feed("h0", Random({1, 1}, 2));
  ExpectError(
      [&] { net.Run(); },
      "…step t would see rows [t + 2, t + 3) of \"h\" as \"far\" (link offset 2, window 1), and the last row that "
      "there is then is t + 1; the state must start with 2 rows, as [2, B, …]");
}

TEST(RecurrentNetwork, D6LinksSequencesOfAnyType) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Sequence("ids", "id_t");
  OperatorDef cast = ParseOp("number = Cast(id_t)");
  AddString(&cast, "to", "double");
  net.Step(cast).Step("s = Mul(x_t, number)").Step("h_next = Sum(s, h_prev)").Output("h_all", "h", 1);
  const Tensor ids = Tensor::Of<std::int64_t>({3, 1, 2}, {1, 2, 3, 4, 5, 6});
  net.Feed("x", Tensor::Of<double>({3, 1, 2}, {1, 1, 1, 1, 1, 1})).Feed("h0", Tensor::Of<double>({1, 2}, {0, 0}));
  net.Feed("ids", ids).Run();
  EXPECT_EQ(Values(net.Get("h_all")), (std::vector<double>{1, 2, 4, 6, 9, 12}));
  EXPECT_EQ(net.Get("ids").dtype(), DType::kInt64);
}

TEST(RecurrentNetwork, D7StatesHaveAnyRank) {
  RecurrentCase net = SumCase();
  net.Feed("x", Random({3, 2, 4, 5, 6}, 1)).Feed("h0", Random({1, 2, 4, 5, 6}, 2)).Run();
  EXPECT_EQ(net.Get("h_all").shape(), Shape({3, 2, 4, 5, 6}));
  RecurrentCase flat = SumCase();
  flat.Feed("x", Random({3, 2}, 1)).Feed("h0", Random({1, 2, 1}, 2));
  ExpectError([&] { flat.Run(); }, "…shape mismatch");
}

TEST(RecurrentNetwork, D8AllSequencesMustAgreeOnT) {
  RecurrentCase net = SumCase();
  net.Sequence("y", "y_t").Step("seen = Copy(y_t)");
  net.Feed("x", Random({4, 1, 1}, 1)).Feed("h0", Random({1, 1}, 2)).Feed("y", Random({5, 1, 1}, 3));
  ExpectError([&] { net.Run(); },
              "…shape mismatch: the sequence \"y\" is double [5, 1, 1] and has 5 steps where the first input has 4");
}

TEST(RecurrentNetwork, D9RepeatsInitialStatesOverTheBatch) {
  const Tensor x = Random({2, 3, 2}, 1);
  const std::vector<double> row = {0.5, -1};
  std::vector<Tensor> results;
  for (const Tensor& h0 :
       {Tensor::Of<double>({2}, row), Tensor::Of<double>({1, 2}, row), Tensor::Of<double>({1, 1, 2}, row),
        Tensor::Of<double>({3, 2}, {0.5, -1, 0.5, -1, 0.5, -1})}) {
    RecurrentCase net = SumCase();
    results.push_back(net.Feed("x", x).Feed("h0", h0).Run().Get("h_all"));
  }
  for (const Tensor& result : results) ExpectSame(result, results.back(), "h_all");
}

// Longer than what a string keeps in itself.
TEST(RecurrentNetwork, StatesOfStringsHaveStringsOfTheirOwn) {
  const std::string first = "what the first of the batch starts from", second = "what the second one starts from";
  const Tensor x = Tensor::Zeros(DType::kFloat, {2, 2, 1});
  for (const bool repeated : {false, true}) {
    RecurrentCase net;
    net.Captured("x").State("s", "s0", "s_prev", "s_next").Step("s_next = Copy(s_prev)").Output("all", "s", 0);
    const Tensor initial =
        repeated ? Tensor::Of<std::string>({1, 1, 1}, {first}) : Tensor::Of<std::string>({1, 2, 1}, {first, second});
    net.Feed("x", x).Feed("s0", initial).Run();
    const Tensor all = net.Get("all");
    ASSERT_EQ(all.shape(), Shape({3, 2, 1}));
    for (int i = 0; i < 6; ++i) EXPECT_EQ(all.data<std::string>()[i], repeated || i % 2 == 0 ? first : second);
  }
}

TEST(RecurrentNetwork, D9RefusesAnotherBatch) {
  RecurrentCase net = SumCase();
  net.Feed("x", Random({2, 3, 2}, 1)).Feed("h0", Random({2, 2}, 2));
  ExpectError(
      [&] { net.Run(); },
      "…shape mismatch: the initial state \"h0\" is double [2, 2] with a batch of 2; the first input \"x\" is double "
      "[2, 3, 2] with a batch of 3");
}

TEST(RecurrentNetwork, D9RefusesScalarInitialStates) {
  RecurrentCase net = SumCase();
  net.Feed("x", Random({2, 3, 2}, 1)).Feed("h0", Random(Shape(), 2));
  ExpectError([&] { net.Run(); },
              "…shape mismatch: the initial state \"h0\" is double []; it must be [D], [B, D] or [L, B, …]");
}

TEST(RecurrentNetwork, D10NeedsAStepNet) {
  RecurrentCase net = SumCase();
  NetDef def = net.Build();
  auto& args = *def.mutable_op(0)->mutable_arg();
  for (int i = 0; i < args.size(); ++i) {
    if (args[i].name() == "step_net") args.DeleteSubrange(i--, 1);
  }
  Workspace workspace;
  ExpectError([&] { Net::Create(def, workspace); },
              "invalid net: RecurrentNetwork needs the argument \"step_net\": the net of one step\n"
              "  at op 0 `h_all, h_last, record = RecurrentNetwork(x, h0)`\n  in net \"case\"");
}

TEST(RecurrentNetwork, D11RefusesUnknownArguments) {
  RecurrentCase net = SumCase();
  AddInt(&net.forward(), "rnn_executor.num_thread", 2);
  ExpectError(
      [&] { net.net(); },
      "…RecurrentNetwork has no argument \"rnn_executor.num_thread\"; did you mean \"rnn_executor.num_threads\"?");
}

TEST(RecurrentNetwork, D12CountsBeyond32Bits) {
  RecurrentCase net = SumCase();
  const std::int64_t steps = 70000;
  net.Feed("x", Tensor::Of<double>({steps, 1, 1}, std::vector<double>(steps, 1.0)))
      .Feed("h0", Tensor::Of<double>({1, 1}, {0}));
  EXPECT_EQ(Values(net.Run().Get("h_last")), std::vector<double>{70000});
  // What does not fit into memory is still counted, not wrapped.
  StepPlan plan;
  plan.arena = {{.base = 0, .row_bytes = std::int64_t{1} << 20, .rows = 0}};
  EXPECT_EQ(plan.ArenaBytes(std::int64_t{1} << 32), std::int64_t{1} << 52);
  ExpectError([&] { plan.ArenaBytes(std::int64_t{1} << 45); }, "…out of memory");
}

TEST(RecurrentNetwork, AliasesStartWhereTheirOffsetSays) {
  RecurrentCase net = SumCase();
  net.Output("from_start", "h", 0).Output("last_two", "h", -2).Output("nothing", "h", 4);
  net.Feed("x", Tensor::Of<double>({3, 1, 1}, {1, 2, 3})).Feed("h0", Tensor::Of<double>({1, 1}, {10})).Run();
  EXPECT_EQ(Values(net.Get("from_start")), (std::vector<double>{10, 11, 13, 16}));
  EXPECT_EQ(Values(net.Get("last_two")), (std::vector<double>{13, 16}));
  EXPECT_EQ(net.Get("nothing").shape(), Shape({0, 1, 1}));
}

TEST(RecurrentNetwork, RefusesAliasesBeyondTheState) {
  RecurrentCase net = SumCase();
  net.Output("beyond", "h", -5);
  net.Feed("x", Random({2, 1, 1}, 1)).Feed("h0", Random({1, 1}, 2));
  ExpectError([&] { net.Run(); },
              "…shape mismatch: alias \"beyond\" starts at row -2 of \"h\" (offset -5), which has 3 rows for T = 2");
}

TEST(RecurrentNetwork, StatesCanBeOutputs) {
  RecurrentCase net = SumCase();
  net.forward().add_output("h");
  net.Feed("x", Random({2, 1, 1}, 1)).Feed("h0", Random({1, 1}, 2)).Run();
  EXPECT_EQ(net.Get("h").shape(), Shape({3, 1, 1}));
}

TEST(RecurrentNetwork, WindowsSeeSeveralSteps) {
  // A causal convolution as a cell: y[t] = Σ_k f[k] x[t-2+k], from a state that holds the last inputs.
  RecurrentCase net;
  net.Sequence("x", "x_t").State("past", "past0", "", "now", 2).Link("window", "past", 0, 3);
  net.State("y", "y0", "", "y_t").Captured("f");
  OperatorDef mul = ParseOp("weighted = Mul(window, f)");
  AddInt(&mul, "broadcast", 1);
  AddInt(&mul, "axis", 0);
  net.Step("now = Copy(x_t)").Step(mul).Step("y_t = test.SumRows(weighted)").Output("y_all", "y", 1);
  net.Feed("x", Tensor::Of<double>({4, 1, 1}, {1, 2, 3, 4})).Feed("past0", Tensor::Of<double>({2, 1, 1}, {10, 20}));
  net.Feed("y0", Tensor::Of<double>({1, 1}, {0})).Feed("f", Tensor::Of<double>({3}, {100, 10, 1})).Run();
  EXPECT_EQ(Values(net.Get("y_all")), (std::vector<double>{1201, 2012, 123, 234}));
}

// [W, B, D] → [1, B, D], the sum over the first dimension.
const Registration sum_rows =
    Operator("test.SumRows")
        .Input("x", "[W, B, D]")
        .Output("y", "[1, B, D]")
        .Shapes([](const ShapeQuery& query) {
          return std::vector<TensorInfo>{{.dtype = query.In(0).dtype, .shape = query.In(0).shape.With(0, 1)}};
        })
        .Cpu([](const OperatorCall&) -> RunFn {
          return [](const OpRun& run) {
            const double* x = run.In(0).As<double>();
            double* y = run.Out(0).As<double>();
            const std::int64_t n = run.Out(0).size();
            for (std::int64_t i = 0; i < n; ++i) {
              y[i] = 0;
              for (std::int64_t w = 0; w < run.In(0).dim(0); ++w) y[i] += x[w * n + i];
            }
          };
        });

TEST(RecurrentNetwork, ABlobCanGoToSeveralStates) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("a", "a0", "a_prev", "next").State("b", "b0", "b_prev", "next");
  net.Step("s = Sum(x_t, a_prev)").Step("next = Sum(s, b_prev)").Output("a_all", "a", 1).Output("b_all", "b", 1);
  net.Feed("x", Tensor::Of<double>({3, 1, 1}, {1, 1, 1})).Feed("a0", Tensor::Of<double>({1, 1}, {0}));
  net.Feed("b0", Tensor::Of<double>({1, 1}, {10})).Run();
  EXPECT_EQ(Values(net.Get("a_all")), (std::vector<double>{11, 23, 47}));
  EXPECT_EQ(Values(net.Get("b_all")), (std::vector<double>{11, 23, 47}));
}

TEST(RecurrentNetwork, AStepWithoutOperatorsCopiesItsInput) {
  RecurrentCase net;
  net.Sequence("x", "v").State("h", "h0", "", "v").Output("h_all", "h", 1);
  const Tensor x = Random({3, 2, 2}, 1);
  net.Feed("x", x).Feed("h0", Random({2, 2}, 2)).Run();
  EXPECT_EQ(Values(net.Get("h_all")), Values(x));
}

TEST(RecurrentNetwork, AStepWithoutOperatorsCopiesItsInputWhateverTheOrderOfLinks) {
  RecurrentCase net;
  net.Sequence("clock", "").State("h", "h0", "", "v").Sequence("x", "v").Output("h_all", "h", 1);
  const Tensor x = Random({3, 2, 2}, 1);
  net.Feed("clock", Random({3, 2, 2}, 2)).Feed("x", x).Feed("h0", Random({2, 2}, 3)).Run();
  EXPECT_EQ(Values(net.Get("h_all")), Values(x));
}

TEST(RecurrentNetwork, RefusesABlobThatComesFromTwoSequences) {
  RecurrentCase net = SumCase();
  net.Sequence("y", "x_t");
  net.Feed("x", Random({3, 2, 2}, 1)).Feed("y", Random({3, 2, 2}, 2)).Feed("h0", Random({2, 2}, 3));
  ExpectError([&] { net.Run(); },
              "…invalid net: \"x_t\" is linked to 2 blobs that all have a value before the step; it can have one");
}

TEST(RecurrentNetwork, D3ASequenceThatIsReadWholeTooIsReadAtItsOwnLength) {
  // h[t] = x[t] Σ_s x[s].
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "", "h_next").Step("sum = test.SumRows(x)").Step("h_next = Mul(x_t, sum)");
  net.Output("h_all", "h", 1).Feed("h0", Tensor::Of<double>({1, 1}, {0}));
  net.Feed("x", Tensor::Of<double>({2, 1, 1}, {1, 2})).Run();
  EXPECT_EQ(Values(net.Get("h_all")), (std::vector<double>{3, 6}));
  net.Feed("x", Tensor::Of<double>({3, 1, 1}, {1, 2, 3})).Run();
  EXPECT_EQ(Values(net.Get("h_all")), (std::vector<double>{6, 12, 18}));
}

TEST(RecurrentNetwork, M10AnyBlobOfTheStepCanBeAnOutput) {
  RecurrentCase net = FcCase();
  net.forward().add_output("f_all");
  AddStrings(&net.forward(), "step_output_src", {"f"});
  AddStrings(&net.forward(), "step_output_dst", {"f_all"});
  const Tensor x = Random({3, 2, 4}, 1);
  net.Feed("x", x).Feed("h0", Random({2, 4}, 2)).Feed("w", Random({4, 4}, 3)).Feed("b", Random({4}, 4)).Run();
  const std::vector<double> f = Values(net.Get("f_all")), h = Values(net.Get("h_all")), xs = Values(x);
  ASSERT_EQ(net.Get("f_all").shape(), Shape({3, 2, 4}));
  for (size_t i = 0; i < f.size(); ++i) EXPECT_DOUBLE_EQ(f[i] * xs[i], h[i]);
}

TEST(RecurrentNetwork, AnOutputShowsARowThatTheStepWritesByAnotherName) {
  const FilledMemory filled(kFills[0]);
  // An operator gives the row, or a link hands it on.
  for (const std::string next : {"h_next", "x_t"}) {
    RecurrentCase net;
    net.Sequence("x", "x_t").State("h", "h0", "h_prev", next).Link("row", "h", 1).Link("rows", "h", 0, 2);
    net.Step("first = Sum(h_prev, h_prev)").Step("h_next = Tanh(x_t)").Step("last = Sum(first, h_next)");
    for (const char* output : {"all", "row_out", "rows_out"}) net.forward().add_output(output);
    AddStrings(&net.forward(), "step_output_src", {next, "row", "rows"});
    AddStrings(&net.forward(), "step_output_dst", {"all", "row_out", "rows_out"});
    net.Feed("x", Random({3, 2, 4}, 1)).Feed("h0", Random({1, 2, 4}, 2)).Run();
    ExpectSame(net.Get("row_out"), net.Get("all"), "row, " + next);
    const Tensor rows = net.Get("rows_out").Reshaped({6, 2, 4});
    for (int t = 0; t < 3; ++t) {
      ExpectSame(rows.Slice(2 * t + 1, 2 * t + 2), net.Get("all").Slice(t, t + 1), "rows, " + next);
    }
  }
}

TEST(RecurrentNetwork, StringsCanBeHandedOnAsTheyAre) {
  const FilledMemory filled(kFills[0]);
  RecurrentCase net;
  net.Captured("x").State("s", "s0", "row", "row").Output("all", "s", 0);
  net.Feed("x", Tensor::Zeros(DType::kFloat, {2, 1}));
  net.Feed("s0", Tensor::Of<std::string>({1, 1}, {"longer than what a string keeps in itself"})).Run();
  const Tensor all = net.Get("all");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(all.data<std::string>()[i], "longer than what a string keeps in itself");
}

// Filling memory leaves strings alone.
TEST(RecurrentNetwork, StringsOfASequenceCanBeOutputs) {
  const FilledMemory filled(kFills[0]);
  const std::vector<std::string> words = {"longer than what a string keeps", "in itself, so that it has memory"};
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Step("h_next = Copy(h_prev)");
  net.forward().add_output("x_out");
  AddStrings(&net.forward(), "step_output_src", {"x_t"});
  AddStrings(&net.forward(), "step_output_dst", {"x_out"});
  net.Feed("x", Tensor::Of<std::string>({2, 1}, words)).Feed("h0", Random({1, 1}, 2)).Run();
  const Tensor shown = net.Get("x_out");
  for (int i = 0; i < 2; ++i) EXPECT_EQ(shown.data<std::string>()[i], words[i]);
}

TEST(RecurrentNetwork, TheStepNetReadsTheTimestep) {
  RecurrentCase net;
  OperatorDef cast = ParseOp("number = Cast(timestep)");
  AddString(&cast, "to", "double");
  OperatorDef mul = ParseOp("h_next = Mul(x_t, number)");
  AddInt(&mul, "broadcast", 1);
  net.Sequence("x", "x_t").State("h", "h0", "", "h_next").Step(cast).Step(mul).Output("h_all", "h", 1);
  net.Feed("x", Tensor::Of<double>({3, 1, 1}, {5, 6, 7})).Feed("h0", Tensor::Of<double>({1, 1}, {0})).Run();
  EXPECT_EQ(Values(net.Get("h_all")), (std::vector<double>{0, 6, 14}));
}

TEST(RecurrentNetwork, NestsInItself) {
  // The step of the outer net runs an inner net over its slice: h[t] = last of the running sum over the slice's rows.
  RecurrentCase inner;
  inner.Sequence("slice", "s_t").State("inner_h", "h_prev", "p", "n").Step("n = Sum(s_t, p)");
  inner.Output("h_next", "inner_h", -1);
  const OperatorDef nested = inner.Build().op(0);
  RecurrentCase outer;
  OperatorDef squeeze = ParseOp("slice = Squeeze(x_t)");
  AddInts(&squeeze, "dims", {0});
  outer.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Step(squeeze).Step(nested).Output("h_all", "h", 1);
  // x [T, S, B, D]; the state is [1, B=S?…]: the outer batch is dimension 1 of x, so S = B = 2.
  outer.Feed("x", Tensor::Of<double>({2, 2, 2, 1}, {1, 2, 3, 4, 5, 6, 7, 8}))
      .Feed("h0", Tensor::Of<double>({1, 2, 1}, {0, 0}));
  outer.Run();
  EXPECT_EQ(Values(outer.Get("h_all")), (std::vector<double>{4, 6, 16, 20}));
}

// Issue 12, line 1: without initial rows the row that a step reads is the one that it is to give.
TEST(UnwrittenRows, OfAStateWithoutInitialRowsAreZeros) {
  for (const std::uint8_t fill : kFills) {
    const FilledMemory filled(fill);
    RecurrentCase net;
    net.Sequence("x", "x_t").State("h", "h0", "h_prev", "").Link("h_next", "h", 0).Step("h_next = Sum(x_t, h_prev)");
    net.Output("h_all", "h", 0);
    net.Feed("x", Random({3, 2, 4}, 1)).Feed("h0", Tensor(DType::kDouble, {0, 2, 4})).Run();
    ExpectSame(net.Get("h_all"), Random({3, 2, 4}, 1), "h_all");
  }
}

}  // namespace
}  // namespace stepnet
