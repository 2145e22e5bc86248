// Bad values that kernels find in a loop: which of them becomes the error, and what is done after it.
#include <algorithm>
#include <atomic>
#include <span>
#include <stdexcept>

#include "recurrent_case.h"
#include "stepnet/compiler/find_stages.h"
#include "stepnet/core/strings.h"
#include "stepnet/nets/op_builder.h"
#include "stepnet/tests/compiler/needs_usual_plans.h"
#include "stepnet/tests/core/error_of.h"
#include "stepnet/tests/operators/op_test.h"
#include "stepnet/tests/poison_device/poison_device.h"

namespace stepnet {
namespace {

// y = x, where x is at least 0.
RunFn CheckedCopy(const OperatorCall& op) {
  return [name = op.inputs()[0]](const OpRun& run) {
    const auto* x = run.In(0).As<double>();
    auto* y = run.Out(0).As<double>();
    for (std::int64_t i = 0; i < run.In(0).size(); ++i) {
      y[i] = x[i];
      if (x[i] >= 0) continue;
      run.Fault(0, i, [&](std::int64_t element) {
        return Error(ErrorCode::kInvalidArgument, StrCat(name, " [", element, "] is ", x[i]));
      });
      y[i] = 0;
    }
  };
}

const Registration checked = Operator("test.NotNegative")
                                 .Input("x", "any shape")
                                 .Output("y", "the shape of x")
                                 .Elementwise()
                                 .Shapes(SameAsInput(0))
                                 .Cpu({.make = CheckedCopy, .checks_values = true});

std::atomic<int> effects = 0;

const Registration effect = Operator("test.Effect")
                                .Input("x", "any shape")
                                .HasSideEffects()
                                .Shapes([](const ShapeQuery&) { return std::vector<TensorInfo>(); })
                                .Cpu([](const OperatorCall&) -> RunFn { return [](const OpRun&) { ++effects; }; });

const Registration refuses = Operator("test.Refuses")
                                 .Input("x", "any shape, without 0")
                                 .Output("y", "the shape of x")
                                 .Shapes(SameAsInput(0))
                                 .Cpu([](const OperatorCall&) -> RunFn {
                                   return [](const OpRun& run) {
                                     CopyElements(run.In(0), run.Out(0));
                                     const std::span all(run.In(0).As<double>(), static_cast<size_t>(run.In(0).size()));
                                     if (std::ranges::count(all, 99)) throw Error(ErrorCode::kCancelled, "enough");
                                     if (std::ranges::count(all, 0)) throw std::runtime_error("there is a 0");
                                   };
                                 });

constexpr std::int64_t kSteps = 100;
constexpr std::int64_t kBatch = 2;
constexpr std::int64_t kSize = 8;

OperatorDef Product(const std::string& text) {
  OperatorDef op = ParseOp(text);
  AddInt(&op, "axis", 2);
  return op;
}

Tensor Ones(const Shape& shape) {
  Tensor tensor(DType::kDouble, shape);
  std::fill_n(tensor.data<double>(), tensor.size(), 1);
  return tensor;
}

Tensor Identity(std::int64_t size) {
  Tensor tensor = Tensor::Zeros(DType::kDouble, Shape({size, size}));
  for (std::int64_t i = 0; i < size; ++i) tensor.data<double>()[i * size + i] = 1;
  return tensor;
}

// Layer after layer, so that c is checked for many steps at once and before any step of the loop, where d is.
RecurrentCase CheckedCase(std::int64_t size = kSize) {
  RecurrentCase net;
  net.Sequence("x", "x_t").Sequence("z", "z_t").State("h", "h0", "h_prev", "h_next").Captured("w");
  net.Step("d = test.NotNegative(z_t)").Step("s = Mul(d, h_prev)");
  net.Step(Product("p = FC(x_t, w, b)")).Captured("b").Step("c = test.NotNegative(p)");
  net.Step(Product("r = FC(c, w, b)")).Step("h_next = Add(s, r)").Output("h_all", "h", 1);
  net.Feed("x", Ones({kSteps, kBatch, size})).Feed("z", Ones({kSteps, kBatch, size}));
  net.Feed("h0", Ones({kBatch, size}))
      .Feed("w", Identity(size))
      .Feed("b", Tensor::Zeros(DType::kDouble, Shape({size})));
  return net;
}

struct BadValue {
  std::string blob;
  std::int64_t step;
  std::int64_t element;
};

void SetBad(Workspace& workspace, const std::vector<BadValue>& values, std::int64_t size, double to) {
  for (const BadValue& bad : values) {
    workspace.GetTensor(bad.blob).data<double>()[bad.step * kBatch * size + bad.element] = to;
  }
}

std::vector<RunOptions> AllOptions() {
  std::vector<RunOptions> all;
  for (const int opt_level : {0, 1, 2}) {
    all.push_back({.executor = "serial", .opt_level = opt_level});
    for (const int threads : {1, 2, 4, 7}) {
      all.push_back({.executor = "parallel", .threads = threads, .opt_level = opt_level});
    }
  }
  return all;
}

std::string Where(const std::string& what, int op, const std::string& text, const std::string& blobs,
                  std::int64_t step) {
  return StrCat("invalid argument: ", what, "\n  at op ", op, " `", text, "` with ", blobs,
                "\n  in net \"step\", step ", step);
}

struct FaultCase {
  std::vector<BadValue> bad;
  std::string error;
};

const std::vector<FaultCase> kCases = {
    // In one batch of steps the first step counts, and the first element in it.
    {{{"x", 70, 3}, {"x", 9, 11}, {"x", 9, 5}, {"x", 63, 0}},
     Where("p [5] is -2", 3, "c = test.NotNegative(p)", "p double [1, 2, 8]", 9)},
    // What is found last.
    {{{"x", 70, 3}, {"z", 69, 4}}, Where("z_t [4] is -2", 0, "d = test.NotNegative(z_t)", "z_t double [1, 2, 8]", 69)},
    {{{"x", 70, 3}, {"z", 71, 4}}, Where("p [3] is -2", 3, "c = test.NotNegative(p)", "p double [1, 2, 8]", 70)},
    // In one step the first operator counts, whatever the elements are.
    {{{"x", 70, 3}, {"z", 70, 15}},
     Where("z_t [15] is -2", 0, "d = test.NotNegative(z_t)", "z_t double [1, 2, 8]", 70)},
    {{{"z", 99, 15}}, Where("z_t [15] is -2", 0, "d = test.NotNegative(z_t)", "z_t double [1, 2, 8]", 99)}};

TEST(Faults, TheFirstByStepOperatorAndElementBecomesTheErrorOnEveryExecutor) {
  for (const RunOptions& options : AllOptions()) {
    RecurrentCase net = CheckedCase();
    const std::unique_ptr<Net> made = Net::Create(net.Build(), net.workspace(), options);
    made->Run();
    const Tensor right = net.Get("h_all").Clone();
    for (const FaultCase& fault : kCases) {
      SetBad(net.workspace(), fault.bad, kSize, -2);
      for (int run = 0; run < 10; ++run) {
        EXPECT_TRUE(ErrorOf([&] { made->Run(); }).starts_with(fault.error))
            << options.executor << " " << options.threads << " " << options.opt_level << "\n"
            << ErrorOf([&] { made->Run(); });
      }
      SetBad(net.workspace(), fault.bad, kSize, 1);
      made->Run();  // the record is empty again
      ExpectSame(net.Get("h_all"), right, "after a fault");
    }
  }
}

// Kernels of a device note what they find; the host asks once, when the run is over.
TEST(Faults, OfADeviceAreTheSameAndCostOneWait) {
  for (const int opt_level : {0, 1, 2}) {
    RecurrentCase net = CheckedCase();
    const NetDef def = net.Build();
    const std::unique_ptr<Net> made =
        Net::Create(def, net.workspace(), OnDevice({.opt_level = opt_level}, kPoisonDevice));
    const auto run = [&](const std::vector<BadValue>& bad) {
      for (const char* input : {"x", "z"}) net.workspace().SetTensor(input, Ones({kSteps, kBatch, kSize}));
      SetBad(net.workspace(), bad, kSize, -2);
      const std::int64_t before = CountsOfPoisonDevice().host_waits;
      const std::string error = ErrorOf([&] { made->Run(); });
      EXPECT_EQ(CountsOfPoisonDevice().host_waits, before + 1);
      return error;
    };
    EXPECT_EQ(run({}), "no error");
    const Tensor right = net.Get("h_all").To({});
    for (const FaultCase& fault : kCases) {
      const std::string error = run(fault.bad);
      EXPECT_TRUE(error.starts_with(fault.error)) << opt_level << "\n" << error;
      EXPECT_EQ(run({}), "no error") << "the record is empty again";
      ExpectSame(net.Get("h_all").To({}), right, "after a fault");
    }
  }
}

// Plans compute one of several equal blobs, and the first of equal operators; errors are those of the net as written.
TEST(Faults, NameWhatTheOperatorReadsByItsTextWhereEqualBlobsAreOne) {
  for (const RunOptions& options : AllOptions()) {
    RecurrentCase net;
    net.Sequence("z", "z_t").Sequence("k", "k_t").State("h", "h0", "h_prev", "h_next");
    net.Step("i = Negative(k_t)").Step("j = Negative(k_t)").Step("q = Div(i, j)").Step("r = Div(j, i)");
    net.Step("a = Softsign(z_t)").Step("b = Softsign(z_t)");
    net.Step("c = test.NotNegative(b)").Step("d = test.NotNegative(a)");
    OperatorDef cast = ParseOp("n = Cast(s)");
    AddString(&cast, "to", "double");
    net.Step("s = Add(q, r)").Step(cast).Step("e = Add(n, d)").Step("f = Add(e, c)").Step("h_next = Add(f, h_prev)");
    net.Output("h_all", "h", 1).Feed("z", Ones({kSteps, kBatch, kSize})).Feed("h0", Ones({kBatch, kSize}));
    Tensor whole(DType::kInt64, {kSteps, kBatch, kSize});
    std::fill_n(whole.data<std::int64_t>(), whole.size(), 1);
    net.Feed("k", whole);
    const std::unique_ptr<Net> made = Net::Create(net.Build(), net.workspace(), options);
    made->Run();
    const auto expect = [&](const std::string& expected) {
      const std::string error = ErrorOf([&] { made->Run(); });
      EXPECT_TRUE(error.starts_with(expected)) << options.executor << " " << options.opt_level << "\n" << error;
    };
    SetBad(net.workspace(), {{"z", 70, 4}}, kSize, -1);
    expect(Where("b [4] is -0.5", 6, "c = test.NotNegative(b)", "b double [1, 2, 8]", 70));
    net.workspace().GetTensor("k").data<std::int64_t>()[7 * kBatch * kSize + 3] = 0;
    expect(Where("Div of the integer 0 by 0 for element 3 of the output, in a / b", 2, "q = Div(i, j)",
                 "i int64 [1, 2, 8], j int64 [1, 2, 8]", 7));
  }
}

// For how many steps the instruction with this text runs at once, at the default level.
std::int64_t StepsAtOnce(const NetDef& net, Workspace& workspace, const std::string& text) {
  std::int64_t steps = -1;
  const auto note = [&](const StepPlan& plan) {
    for (const Instruction& instruction : plan.instructions) {
      if (instruction.text == text) steps = instruction.steps_at_once;
    }
  };
  Net::Create(net, workspace, {.executor = "serial", .on_plan = note})->Run();
  return steps;
}

TEST(Faults, AreFoundInManyStepsAtOnce) {
  NEEDS_USUAL_PLANS();
  RecurrentCase net = CheckedCase();
  EXPECT_EQ(StepsAtOnce(net.Build(), net.workspace(), "c = test.NotNegative(p)"), 32) << "the test above is about this";
}

// Each thread has a part of the elements.
TEST(Faults, TheFirstElementCountsInWhateverPartItIs) {
  constexpr std::int64_t kWide = 40'000;
  for (const RunOptions& options : AllOptions()) {
    RecurrentCase net;
    net.Sequence("z", "z_t").State("h", "h0", "h_prev", "h_next");
    net.Step("s = Add(z_t, h_prev)").Step("h_next = test.NotNegative(s)").Output("h_all", "h", 1);
    net.Feed("z", Ones({3, kBatch, kWide})).Feed("h0", Ones({kBatch, kWide}));
    const std::unique_ptr<Net> made = Net::Create(net.Build(), net.workspace(), options);
    SetBad(net.workspace(), {{"z", 1, 70'000}, {"z", 1, 33'333}, {"z", 1, 79'999}, {"z", 2, 1}}, kWide, -7);
    for (int run = 0; run < 10; ++run) {
      const std::string error = ErrorOf([&] { made->Run(); });
      EXPECT_TRUE(
          error.starts_with(Where("s [33333] is -5", 1, "h_next = test.NotNegative(s)", "s double [1, 2, 40000]", 1)))
          << error;
    }
  }
}

// From the last step to the first, as a backward pass goes.
TEST(Faults, OfABackwardPassTheLastStepComesFirst) {
  NEEDS_USUAL_PLANS();
  for (const RunOptions& options : AllOptions()) {
    RecurrentCase net;
    net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Captured("w").Step("s = Mul(x_t, h_prev)");
    net.Step("h_next = Copy(s)").Output("h_all", "h", 1);
    net.BackwardStep("s_grad = Copy(h_next_grad)").BackwardStep("h_prev_grad = Mul(s_grad, x_t)");
    net.BackwardStep(Product("q = FC(x_t, w, b)")).Captured("b").BackwardStep("e = test.NotNegative(q)");
    net.BackwardStep(Product("x_t_grad = FC(e, w, b)"));
    net.BackwardLink("h_next_grad", "h_grad", 1).BackwardLink("h_prev_grad", "h_grad", 0);
    net.BackwardLink("x_t_grad", "x_grad", 0).OutputGradient("h_all").WithGradient();
    net.Feed("x", Ones({kSteps, kBatch, kSize})).Feed("h0", Ones({kBatch, kSize})).Feed("w", Identity(kSize));
    net.Feed("b", Tensor::Zeros(DType::kDouble, Shape({kSize}))).Feed("h_all_grad", Ones({kSteps, kBatch, kSize}));
    const std::unique_ptr<Net> made = Net::Create(net.Build(), net.workspace(), options);
    EXPECT_GT(StepsAtOnce(net.Build(), net.workspace(), "e = test.NotNegative(q)"), 10);
    SetBad(net.workspace(), {{"x", 3, 1}, {"x", 90, 9}, {"x", 90, 2}, {"x", 60, 0}}, kSize, -2);
    const std::string error = ErrorOf([&] { made->Run(); });
    EXPECT_NE(error.find("q [2] is -2\n  at op 3 `e = test.NotNegative(q)` with q double [1, 2, 8]\n  in net "),
              std::string::npos)
        << error;
    EXPECT_NE(error.find("step 90"), std::string::npos) << error;
  }
}

// How often test.Effect runs when a value of `blob` is bad in step 7.
void ExpectEffects(RecurrentCase& net, const std::string& blob, int expected) {
  for (const RunOptions& options : AllOptions()) {
    const std::unique_ptr<Net> made = Net::Create(net.Build(), net.workspace(), options);
    effects = 0;
    made->Run();
    EXPECT_EQ(effects, kSteps);
    SetBad(net.workspace(), {{blob, 7, 0}}, kSize, -2);
    for (int run = 0; run < 10; ++run) {
      effects = 0;
      EXPECT_NE(ErrorOf([&] { made->Run(); }).find("step 7"), std::string::npos);
      EXPECT_EQ(effects, expected) << options.executor << " " << options.threads << " " << options.opt_level;
    }
    SetBad(net.workspace(), {{blob, 7, 0}}, kSize, 1);
  }
}

// On any number of threads and in any stages, and whatever the operator itself waits for.
TEST(Faults, SideEffectsBeforeThemAreDoneAndThoseBehindAreNot) {
  for (const char* read : {"z_t", "d", "h_prev", "w"}) {
    RecurrentCase net = CheckedCase();
    net.Step(StrCat("test.Effect(", read, ")"));
    ExpectEffects(net, "z", 7);
    ExpectEffects(net, "x", 7);
  }
  RecurrentCase first = CheckedCase();
  *first.step_net().add_op() = ParseOp("test.Effect(z_t)");
  std::ranges::rotate(*first.step_net().mutable_op(), first.step_net().mutable_op()->end() - 1);
  ExpectEffects(first, "x", 8);
}

// A file that a nested step net writes, too.
TEST(Faults, SideEffectsOfNestedNetsWaitAsWell) {
  NetDef inner;
  AddOp(&inner, "Copy", {"x_t"}, {"h_t"});
  AddOp(&inner, "test.Effect", {"h_t"}, {});
  for (const char* name : {"x_t", "h_p"}) inner.add_external_input(name);
  NetDef nested;
  AddOp(&nested, "RecurrentNetwork", {"s", "s0"}, {"n_h", "n_record"})
      .Net("step_net", inner)
      .Strings("recurrent_states", {"n_hs"})
      .Ints("initial_recurrent_state_ids", {1})
      .Strings("link_internal", {"x_t", "h_t"})
      .Strings("link_external", {"s", "n_hs"})
      .Ints("link_offset", {0, 1})
      .Strings("alias_src", {"n_hs"})
      .Strings("alias_dst", {"n_h"})
      .Ints("alias_offset", {1});
  RecurrentCase net = CheckedCase();
  net.Captured("s0").Feed("s0", Ones({kBatch, kSize})).Step(nested.op(0));
  ExpectEffects(net, "x", 7);
}

TEST(Faults, CountMoreThanWhatIsThrownForTheValueThatAKernelWentOnWith) {
  for (const RunOptions& options : AllOptions()) {
    RecurrentCase net = CheckedCase();
    net.Step("t = test.Refuses(d)").State("t_all", "h0", "", "t");
    const std::unique_ptr<Net> made = Net::Create(net.Build(), net.workspace(), options);
    made->Run();
    SetBad(net.workspace(), {{"z", 7, 3}}, kSize, -2);
    const std::string error = ErrorOf([&] { made->Run(); });
    EXPECT_TRUE(error.starts_with(Where("z_t [3] is -2", 0, "d = test.NotNegative(z_t)", "z_t double [1, 2, 8]", 7)))
        << error;
    SetBad(net.workspace(), {{"z", 7, 3}}, kSize, 0);
    EXPECT_TRUE(ErrorOf([&] { made->Run(); }).starts_with("operator failed: there is a 0"))
        << "which the fault had led to";
  }
}

// Two loops, of which either may be ahead, throw; or one throws and a kernel notes a value.
TEST(Faults, WhatIsThrownIsTheFirstByStepAndOperatorToo) {
  for (const RunOptions& options : AllOptions()) {
    RecurrentCase net = CheckedCase();
    net.Step("t = test.Refuses(d)").State("t_all", "h0", "", "t");
    net.Step("u = test.Refuses(c)").State("u_all", "h0", "", "u");
    const std::unique_ptr<Net> made = Net::Create(net.Build(), net.workspace(), options);
    const auto expect = [&](const BadValue& a, double to_a, const BadValue& b, double to_b, const std::string& where) {
      SetBad(net.workspace(), {a}, kSize, to_a);
      SetBad(net.workspace(), {b}, kSize, to_b);
      for (int run = 0; run < 10; ++run) {
        const std::string error = ErrorOf([&] { made->Run(); });
        EXPECT_NE(error.find(where), std::string::npos)
            << options.executor << " " << options.threads << " " << options.opt_level << "\n"
            << error;
      }
      SetBad(net.workspace(), {a, b}, kSize, 1);
    };
    const std::string t = "test.Refuses(d)` with d double [1, 2, 8]\n  in net \"step\", step ";
    const std::string u = "test.Refuses(c)` with c double [1, 2, 8]\n  in net \"step\", step ";
    expect({"z", 30, 0}, 0, {"x", 70, 0}, 0, t + "30");
    expect({"z", 70, 0}, 0, {"x", 30, 0}, 0, u + "30");
    expect({"z", 30, 0}, 0, {"x", 30, 0}, 0, t + "30");
    expect({"z", 30, 0}, 0, {"x", 29, 0}, -2, "step 29");
    expect({"z", 30, 0}, 0, {"x", 31, 0}, -2, t + "30");
    expect({"z", 31, 0}, -2, {"x", 30, 0}, 0, u + "30");
    made->Run();
  }
}

TEST(Faults, AreForgottenWhereTheRunWasCancelled) {
  for (const RunOptions& options : AllOptions()) {
    RecurrentCase net = CheckedCase();
    net.Step("t = test.Refuses(d)").State("t_all", "h0", "", "t");
    const std::unique_ptr<Net> made = Net::Create(net.Build(), net.workspace(), options);
    SetBad(net.workspace(), {{"z", 5, 3}}, kSize, -2);  // found before the loop, or not at all
    SetBad(net.workspace(), {{"z", 0, 4}}, kSize, 99);
    EXPECT_TRUE(ErrorOf([&] { made->Run(); }).starts_with("cancelled: enough"));
    SetBad(net.workspace(), {{"z", 5, 3}, {"z", 0, 4}}, kSize, 1);
    EXPECT_EQ(ErrorOf([&] { made->Run(); }), "no error");
  }
}

// Integers are divided element by element, in many steps at once where that is worth it.
TEST(Faults, DivisionOfIntegersByZeroIsOne) {
  for (const RunOptions& options : AllOptions()) {
    RecurrentCase net;
    net.Sequence("a", "a_t").Sequence("b", "b_t").State("h", "h0", "h_prev", "h_next");
    net.Step("q = Div(a_t, b_t)").Step("h_next = Div(q, h_prev)").Output("h_all", "h", 1);
    net.Feed("a", Tensor::Of<std::int64_t>({3, 1, 2}, {8, 6, 4, 7, 2, 9}));
    net.Feed("b", Tensor::Of<std::int64_t>({3, 1, 2}, {1, 2, 2, 1, 0, 0}));
    net.Feed("h0", Tensor::Of<std::int64_t>({1, 2}, {1, 4}));
    const std::unique_ptr<Net> made = Net::Create(net.Build(), net.workspace(), options);
    // h: 8 / 1, 3 / 4 = 0; then 2 / 8, 7 / 0.
    const std::string error = ErrorOf([&] { made->Run(); });
    const std::string expected =
        "invalid argument: Div of the integer 7 by 0 for element 1 of the output, in a / b\n"
        "  at op 1 `h_next = Div(q, h_prev)` with q int64 [1, 1, 2]";
    EXPECT_TRUE(error.starts_with(expected)) << error;
    EXPECT_NE(error.find("step 1"), std::string::npos) << error;
  }
}

}  // namespace
}  // namespace stepnet
