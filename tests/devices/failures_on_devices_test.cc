// What fails on a device: the error says where, nothing that outlives the run has changed, and the next run works
// (F1-F5 of docs/caffe2_compatibility.md).
#include <optional>

#include "small_training.h"
#include "stepnet/core/strings.h"
#include "stepnet/tests/core/error_of.h"
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
