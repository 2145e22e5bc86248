#include "stepnet/executor/executor.h"

#include <algorithm>
#include <atomic>

#include "recurrent_case.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

std::atomic<int> runs = 0;

// Runs as the serial one does, and counts that.
class CountedExecutor : public Executor {
 public:
  void RunSteps(RunState& state, RunContext& context) const override {
    ++runs;
    for (const Stage& stage : state.plan().stages) RunSerially(state, stage, 0, state.num_steps(), context);
  }
};

std::shared_ptr<const Executor> MakeCounted() { return std::make_shared<CountedExecutor>(); }

const ExecutorRegistration counted("test.counted", DeviceKind::kCpu, MakeCounted);
const ExecutorRegistration scheduled("test.scheduled", DeviceKind::kCpu, MakeCounted, {.follows_schedules = true});
const ExecutorRegistration threaded("test.threaded", DeviceKind::kCpu, MakeCounted, {.uses_threads = true});
const ExecutorRegistration once("test.twice", DeviceKind::kCpu, MakeCounted);
const ExecutorRegistration twice("test.twice", DeviceKind::kCpu, MakeCounted);
const ExecutorRegistration elsewhere("test.elsewhere", DeviceKind::kPrivate, MakeCounted);

constexpr Target kElsewhere = {.device = DeviceKind::kPrivate};

TEST(ExecutorRegistration, MakesOneThatNetsRunOn) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Step("h_next = Add(x_t, h_prev)");
  net.Output("all", "h", 1).Feed("x", Column({1, 2, 3})).Feed("h0", One(10));
  runs = 0;
  Net::Create(net.Build(), net.workspace(), {.executor = "test.counted"})->Run();
  EXPECT_EQ(Values(net.Get("all")), (std::vector<double>{11, 13, 16}));
  EXPECT_EQ(runs, 1);
}

// What plans know of an executor is what it was registered with, whatever its name is.
TEST(ExecutorRegistration, SaysWhetherPlansHaveSchedules) {
  const auto plan_for = [](const char* executor) {
    RecurrentCase net;
    net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next");
    net.Step("a = Tanh(x_t)").Step("h_next = Add(a, h_prev)");
    net.Output("all", "h", 1).Feed("x", Column({1, 2, 3})).Feed("h0", One(10));
    StepPlan made;
    Net::Create(net.Build(), net.workspace(),
                {.executor = executor, .opt_level = 0, .on_plan = [&](const StepPlan& plan) { made = plan; }})
        ->Run();
    return made;
  };
  const auto has_rings = [](const StepPlan& plan) {
    return std::ranges::any_of(plan.slots, [](const Slot& slot) { return slot.ring_rows > 1; });
  };
  for (const char* executor : {"parallel", "test.scheduled"}) {
    const StepPlan plan = plan_for(executor);
    EXPECT_TRUE(plan.IsScheduled()) << executor;
    EXPECT_TRUE(has_rings(plan)) << executor;
  }
  for (const char* executor : {"serial", "test.counted", "test.threaded"}) {
    const StepPlan plan = plan_for(executor);
    EXPECT_FALSE(plan.IsScheduled()) << executor;
    EXPECT_FALSE(has_rings(plan)) << executor;
  }
}

TEST(ExecutorRegistration, HasNoPropertiesWhereThereIsNone) {
  EXPECT_TRUE(ExecutorPropertiesOf({.executor = "parallel"}).uses_threads);
  EXPECT_FALSE(ExecutorPropertiesOf({.executor = "seral"}).uses_threads);
  EXPECT_FALSE(ExecutorPropertiesOf({.executor = "parallel", .target = &kElsewhere}).follows_schedules);
}

TEST(ExecutorRegistration, RefusesNamesThatAreNotRegisteredForTheDeviceOrTwice) {
  ExpectError([] { MakeExecutor({.executor = "test.elsewhere"}); },
              "invalid argument: no executor \"test.elsewhere\" for cpu; there is parallel, serial, test.counted, "
              "test.scheduled, test.threaded, test.twice; private has one");
  ExpectError([] { MakeExecutor({.executor = "seral"}); },
              "invalid argument: no executor \"seral\" for cpu; there is parallel, serial, test.counted, "
              "test.scheduled, test.threaded, test.twice; "
              "did you mean \"serial\"?");
  ExpectError(
      [] { MakeExecutor({.executor = "parallel", .target = &kElsewhere}); },
      "invalid argument: no executor \"parallel\" for private; there is recorded, serial, test.elsewhere; cpu has one");
  ExpectError([] { MakeExecutor({.executor = "test.twice"}); },
              "invalid argument: the executor \"test.twice\" of the device cpu is registered twice");
  EXPECT_NE(MakeExecutor({.executor = "test.elsewhere", .target = &kElsewhere}), nullptr);
}

}  // namespace
}  // namespace stepnet
