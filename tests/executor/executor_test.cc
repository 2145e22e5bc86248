#include "stepnet/executor/executor.h"

#include <atomic>

#include "../operators/op_test.h"
#include "recurrent_case.h"

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
const ExecutorRegistration once("test.twice", DeviceKind::kCpu, MakeCounted);
const ExecutorRegistration twice("test.twice", DeviceKind::kCpu, MakeCounted);
const ExecutorRegistration elsewhere("test.elsewhere", DeviceKind::kCuda, MakeCounted);

TEST(ExecutorRegistration, MakesOneThatNetsRunOn) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Step("h_next = Add(x_t, h_prev)");
  net.Output("all", "h", 1).Feed("x", Column({1, 2, 3})).Feed("h0", One(10));
  runs = 0;
  Net::Create(net.Build(), net.workspace(), {.executor = "test.counted"})->Run();
  EXPECT_EQ(Values(net.Get("all")), (std::vector<double>{11, 13, 16}));
  EXPECT_EQ(runs, 1);
}

constexpr Target kElsewhere = {.device = DeviceKind::kCuda};

TEST(ExecutorRegistration, RefusesNamesThatAreNotRegisteredForTheDeviceOrTwice) {
  ExpectError([] { MakeExecutor({.executor = "test.elsewhere"}); },
              "invalid argument: no executor \"test.elsewhere\" for cpu; there is parallel, serial, test.counted, "
              "test.twice; cuda has one");
  ExpectError([] { MakeExecutor({.executor = "seral"}); },
              "invalid argument: no executor \"seral\" for cpu; there is parallel, serial, test.counted, test.twice; "
              "did you mean \"serial\"?");
  ExpectError([] { MakeExecutor({.executor = "serial", .target = &kElsewhere}); },
              "invalid argument: no executor \"serial\" for cuda; there is test.elsewhere; cpu has one");
  ExpectError([] { MakeExecutor({.executor = "test.twice"}); },
              "invalid argument: the executor \"test.twice\" of the device cpu is registered twice");
  EXPECT_NE(MakeExecutor({.executor = "test.elsewhere", .target = &kElsewhere}), nullptr);
}

}  // namespace
}  // namespace stepnet
