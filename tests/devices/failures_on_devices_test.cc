// What fails on a device: the error says where, nothing that outlives the run has changed, and the next run works
// (F1-F5 of docs/caffe2_compatibility.md).
#include <optional>

#include "small_training.h"
#include "stepnet/core/strings.h"
#include "stepnet/tests/core/error_of.h"
#include "stepnet/tests/executor/failing_operator.h"
#include "stepnet/tests/executor/recurrent_case.h"

namespace stepnet {
namespace {

void ExpectSameTensors(const NamedInputs& found, const NamedInputs& expected, const std::string& what) {
  for (const auto& [name, tensor] : expected) ExpectSame(found.at(name), tensor, StrCat(name, ", ", what));
}

class BadValues : public OnEveryDevice {};
INSTANTIATE_ON_EVERY_DEVICE(BadValues);

TEST_P(BadValues, FailTheIterationAndChangeNothingThatIsKept) {
  SmallTraining training(Options());
  training.Iterate();
  const NamedInputs before = training.Kept();
  training.Iterate();
  const NamedInputs after = training.Kept();
  for (const std::int32_t row : {-1, 5, 1'000'000'000}) {
    training.SetKept(before);
    training.SetRows(row);
    const std::string error = ErrorOf([&] { training.Iterate(); });
    EXPECT_TRUE(error.starts_with(StrCat("invalid argument: Gather: element 5 of the indices is ", row,
                                         "; the data have 5 rows\n  at op 0 `embedded = Gather(table, rows)`")))
        << error;
    ExpectSameTensors(training.Kept(), before, "after a bad row");
    training.SetRows();
    training.Iterate();
    ExpectSameTensors(training.Kept(), after, "after the next iteration");
  }
}

TEST_P(BadValues, InAStepNetNameOperatorAndStep) {
  RecurrentCase net;
  net.Sequence("a", "a_t").Sequence("b", "b_t").State("h", "h0", "h_prev", "h_next");
  net.Step("q = Div(a_t, b_t)").Step("h_next = Add(q, h_prev)").Output("h_all", "h", 1);
  const auto feed = [&](std::int64_t divisor) {
    net.Feed("a", Tensor::Of<std::int64_t>({3, 1, 2}, {8, 6, 4, 7, 2, 9}));
    net.Feed("b", Tensor::Of<std::int64_t>({3, 1, 2}, {1, 2, 2, divisor, 1, 3}));
    net.Feed("h0", Tensor::Of<std::int64_t>({1, 2}, {1, 4}));
  };
  feed(7);
  const auto running = Net::Create(net.Build(), net.workspace(), Options());
  for (int run = 0; run < 4; ++run) {
    feed(0);
    const std::string error = ErrorOf([&] {
      running->Run();
      running->Wait();
    });
    EXPECT_TRUE(
        error.starts_with("invalid argument: Div of the integer 7 by 0 for element 1 of the output, in a / b\n  at op "
                          "0 `q = Div(a_t, b_t)` with "
                          "a_t int64 [1, 1, 2], b_t int64 [1, 1, 2]\n  in net \"step\""))
        << error;
    EXPECT_NE(error.find("step 1"), std::string::npos) << error;
    feed(7);
    running->Run();
    ExpectSame(net.Get("h_all").To({}), Tensor::Of<std::int64_t>({3, 1, 2}, {9, 7, 11, 8, 13, 11}), "h_all");
  }
}

// A recurrent network with its gradient, and an operator of a user in the step net of one of the two.
RecurrentCase WithFailingOperator(bool is_backward) {
  const auto type = [&](bool fails) { return fails ? "test.FailsInStep" : "Copy"; };
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next");
  net.Step("s = Sum(x_t, h_prev)").Step(StrCat("f = ", type(!is_backward), "(s)")).Step("h_next = Mul(f, x_t)");
  net.Output("h_all", "h", 1);
  net.BackwardStep("df = Mul(h_next_grad, x_t)").BackwardStep(StrCat("s_grad = ", type(is_backward), "(df)"));
  net.BackwardLink("h_next_grad", "h_grad", 1).BackwardLink("s_grad", "h_grad", 0).BackwardLink("s_grad", "x_grad", 0);
  net.OutputGradient("h_all").WithGradient();
  net.Feed("x", Random({5, 2, 3}, 1)).Feed("h0", Random({2, 3}, 2)).Feed("h_all_grad", Random({5, 2, 3}, 3));
  return net;
}

class ThrowingOperators : public OnEveryDevice {
 protected:
  void TearDown() override {
    fails_at = -1;
    fails_with = Thrown::kRuntimeError;
  }

  // The net has run so often before: its first run is launched, the second watched, the third recorded.
  void ExpectFailure(bool is_backward, const std::string& executor, int runs_before, const std::string& what,
                     const std::string& error_begins) {
    RecurrentCase fresh = WithFailingOperator(is_backward), net = WithFailingOperator(is_backward);
    const RunOptions options = Options(kMaxOptLevel, executor);
    const std::int64_t step = fails_at.exchange(-1);
    const auto running = Net::Create(net.Build(), net.workspace(), options);
    for (int run = 0; run < runs_before; ++run) running->Run();
    fails_at = step;
    const std::string error = ErrorOf([&] {
      running->Run();
      running->Wait();
    });
    fails_at = -1;
    EXPECT_TRUE(error.starts_with(error_begins)) << what << ": " << error;
    RunNetOnce(fresh.Build(), fresh.workspace(), options);
    for (int run = 0; run < 4; ++run) {
      running->Run();
      for (const char* blob : {"h_all", "x_grad", "h0_grad"}) {
        ExpectSame(net.Get(blob).To({}), fresh.Get(blob).To({}), StrCat(blob, ", ", what));
      }
    }
    fails_at = step;
  }
};
INSTANTIATE_ON_EVERY_DEVICE(ThrowingOperators);

TEST_P(ThrowingOperators, F1F2F3F4FailTheRunAndTheNextOneGivesWhatAFreshNetGives) {
  const std::pair<Thrown, std::string> kinds[] = {
      {Thrown::kError, "invalid argument: as asked"},
      {Thrown::kRuntimeError, "operator failed: as asked"},
      {Thrown::kBadAlloc, "out of memory: the system has no more memory to give"},
      {Thrown::kInt, "operator failed: an exception that is no std::exception"}};
  for (const std::string& executor : Executors()) {
    for (const auto& [kind, message] : kinds) {
      for (const bool is_backward : {false, true}) {
        const std::string op =
            is_backward ? "s_grad = test.FailsInStep(df)` with df" : "f = test.FailsInStep(s)` with s";
        for (const std::int64_t step : {0, 2, 4}) {
          for (const int runs_before : {0, 1, 2}) {
            fails_with = kind;
            fails_at = step;
            ExpectFailure(is_backward, executor, runs_before,
                          StrCat(executor, ", ", message, ", step ", step, ", ", runs_before, " runs before"),
                          StrCat(message, "\n  at op 1 `", op, " double [1, 2, 3]\n  in net \"",
                                 is_backward ? "backward_step" : "step", "\", step ", step));
            if (HasFailure()) return;
          }
        }
      }
    }
  }
}

class PoisonFailures : public testing::TestWithParam<PoisonFault> {};
INSTANTIATE_TEST_SUITE_P(, PoisonFailures,
                         testing::Values(PoisonFault::kAllocation, PoisonFault::kLaunch, PoisonFault::kWork),
                         [](const auto& info) {
                           return info.param == PoisonFault::kAllocation ? "Allocation"
                                  : info.param == PoisonFault::kLaunch   ? "Launch"
                                                                         : "Work";
                         });

// The number of the operator of the training net in which an error was met; nothing where it does not say.
std::optional<int> OperatorOf(const Error& error) {
  for (const Place& place : error.places()) {
    if (place.net == "training" && place.op_index >= 0) return place.op_index;
  }
  return {};
}

bool HasStep(const Error& error) {
  return std::ranges::any_of(error.places(), [](const Place& place) { return place.step >= 0; });
}

// One after the other: whatever the first iteration of a net, or a later one, asks the device for fails.
TEST_P(PoisonFailures, NameTheOperatorAndChangeNothingThatIsKept) {
  const RunOptions options = OnDevice({}, kPoisonDevice);
  const std::int64_t bytes = CountsOfPoisonDevice().bytes;
  for (const bool is_first : {true, false}) {
    SmallTraining reference(options);
    if (!is_first) reference.Iterate();
    const NamedInputs before = reference.Kept();
    reference.Iterate();
    const NamedInputs after = reference.Kept();
    int in_steps = 0, happened = 0;
    for (std::int64_t k = 0;; ++k) {
      SmallTraining training(options);
      if (!is_first) training.Iterate();
      std::optional<Error> error;
      {
        const PoisonFailure failing(GetParam(), k);
        try {
          training.Iterate();
        } catch (const Error& thrown) {
          error = thrown;
        }
        if (!failing.has_happened()) break;
      }
      ++happened;
      ASSERT_TRUE(error) << "of failure " << k;
      EXPECT_EQ(error->code(), GetParam() == PoisonFault::kAllocation ? ErrorCode::kOutOfMemory : ErrorCode::kFailed);
      in_steps += HasStep(*error) ? 1 : 0;
      if (GetParam() == PoisonFault::kWork) {
        // Met by whoever waits. What was put in behind it, copies of what the net reads too, is not done.
        SmallTraining fresh(options);
        fresh.SetKept(before);
        fresh.Iterate();
        ExpectSameTensors(fresh.Kept(), after, StrCat("after failure ", k));
      } else {
        const std::optional<int> op = OperatorOf(*error);
        ASSERT_TRUE(op) << error->what();
        // Memory is taken before the first update; a launch may fail between two.
        const bool takes_memory = GetParam() == PoisonFault::kAllocation;
        if (takes_memory || *op < training.first_update()) ExpectSameTensors(training.Kept(), before, error->what());
        training.SetKept(before);
        training.Iterate();
        ExpectSameTensors(training.Kept(), after, StrCat("after failure ", k));
      }
      if (HasFailure()) return;
    }
    // Later iterations find all memory there.
    EXPECT_GE(happened, is_first || GetParam() != PoisonFault::kAllocation ? 30 : 0);
    EXPECT_GE(in_steps, GetParam() == PoisonFault::kLaunch ? 20 : 0);
  }
  EXPECT_EQ(CountsOfPoisonDevice().bytes, bytes) << "all memory is given back";
}

// Two devices whose queues know nothing of each other, and the host between them.
TEST(PoisonDevices, GiveTheBitsOfTheCpuInWhateverOrderTheirQueuesGoOn) {
  const auto net_of = [](const std::string& text) {
    NetDef net;
    for (const std::string& op : {StrCat("m = Tanh(", text, ")"), std::string("n = Mul(m, m)")}) {
      *net.add_op() = ParseOp(op);
    }
    return net;
  };
  NetDef first = net_of("x"), second = net_of("n"), third = net_of("n");
  const Tensor x = Random({3, 4}, 1, DType::kFloat);
  Workspace expected;
  expected.SetTensor("x", x);
  for (int k = 0; k < 3; ++k) {
    RunNetOnce(first, expected);
    RunNetOnce(second, expected);
    RunNetOnce(third, expected);
  }
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::optional<PoisonOrder> order;
    if (seed > 0) order.emplace(seed);
    Workspace workspace;
    workspace.SetTensor("x", x.Clone());
    std::vector<std::unique_ptr<Net>> nets;
    std::int16_t device = 0;
    for (const NetDef* net : {&first, &second, &third}) {
      const Device there = {.kind = DeviceKind::kPrivate, .index = static_cast<std::int16_t>(device++ % 2)};
      nets.push_back(Net::Create(*net, workspace, OnDevice({}, there)));
    }
    for (int k = 0; k < 3; ++k) {
      for (const auto& net : nets) net->Run();
    }
    for (const char* blob : {"x", "m", "n"}) {
      ExpectSame(workspace.GetTensor(blob).To({}), expected.GetTensor(blob), StrCat(blob, ", order ", seed));
    }
  }
}

TEST(PoisonDevices, TrainInWhateverOrderTheirQueuesGoOn) {
  constexpr int kIterations = 6;  // of which the last ones are played
  SmallTraining cpu(Reference());
  for (int k = 0; k < kIterations; ++k) cpu.Iterate();
  const NamedInputs expected = cpu.Kept();
  for (unsigned seed = 1; seed < 20; ++seed) {
    const PoisonOrder order(seed);
    SmallTraining there(OnDevice({}, kPoisonDevice));
    for (int k = 0; k < kIterations; ++k) there.Iterate();
    ExpectSameTensors(there.Kept(), expected, StrCat("order ", seed));
  }
}

}  // namespace
}  // namespace stepnet
