// What observers are told of step nets: every instruction once, loops and waiting around them, in balance on each
// thread.
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>

#include "recurrent_case.h"
#include "stepnet/compiler/passes/passes.h"
#include "stepnet/compiler/step_plan.h"
#include "stepnet/core/observer.h"

namespace stepnet {
namespace {

constexpr std::int64_t kSteps = 7;

struct Record {
  bool starts = false;
  RunEvent event;
};

// Keeps what it is told, for each thread; what starts last must stop first.
class Recorder : public Observer {
 public:
  void Start(const RunEvent& event) override {
    const std::lock_guard lock(mutex_);
    records_[std::this_thread::get_id()].push_back({.starts = true, .event = event});
    open_[std::this_thread::get_id()].push_back(event);
  }
  void Stop(const RunEvent& event) override {
    const std::lock_guard lock(mutex_);
    records_[std::this_thread::get_id()].push_back({.starts = false, .event = event});
    std::vector<RunEvent>& open = open_[std::this_thread::get_id()];
    ASSERT_FALSE(open.empty());
    EXPECT_EQ(open.back().kind, event.kind);
    EXPECT_EQ(open.back().net, event.net);
    EXPECT_EQ(open.back().instruction, event.instruction);
    EXPECT_EQ(open.back().step, event.step);
    open.pop_back();
  }
  void ExpectBalance() const {
    for (const auto& [thread, open] : open_) EXPECT_TRUE(open.empty());
  }
  const std::map<std::thread::id, std::vector<Record>>& records() const { return records_; }

 private:
  std::mutex mutex_;
  std::map<std::thread::id, std::vector<Record>> records_;
  std::map<std::thread::id, std::vector<RunEvent>> open_;
};

// h = x + w·h_prev, whose product is cut up, and g = tanh(g_prev) beside it.
RecurrentCase TwoChains() {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").State("g", "g0", "g_prev", "g_next").Captured("w");
  OperatorDef product = ParseOp("s = FC(h_prev, w)");
  AddInt(&product, "axis", 2);
  net.Step(product).Step("h_next = Sum(x_t, s)").Step("g_next = Tanh(g_prev)");
  net.Output("h_all", "h", 1).Output("g_all", "g", 1);
  net.Feed("x", Random({kSteps, 2, 1024}, 1, DType::kFloat)).Feed("h0", Random({2, 1024}, 2, DType::kFloat));
  net.Feed("g0", Random({2, 3}, 3)).Feed("w", Random({1024, 1024}, 4, DType::kFloat));
  return net;
}

TEST(StepNetObservers, M9EveryInstructionStartsOnceInALoopOfItsThread) {
  constexpr Target kTwoCuts = {.max_cuts_of_part = 2, .min_cut_microseconds = 1e-3};
  for (RunOptions options :
       std::vector<RunOptions>{{.executor = "serial"}, {.threads = 1}, {.threads = 2}, {.threads = 3}}) {
    options.target = &kTwoCuts;
    RecurrentCase net = TwoChains();
    const std::unique_ptr<Net> made = Net::Create(net.Build(), net.workspace(), options);
    Recorder recorder;
    made->AttachObserver(&recorder);
    made->Run();
    recorder.ExpectBalance();
    std::map<std::tuple<int, std::int64_t>, std::set<int>> parts;  // instruction, step → parts
    std::map<int, int> parts_of;
    int product = -1;
    for (const auto& [thread, records] : recorder.records()) {
      int loops = 0;
      bool in_loop = false;
      for (const Record& record : records) {
        const RunEvent& event = record.event;
        if (event.kind == RunEventKind::kLoop) {
          loops += record.starts ? 1 : 0;
          in_loop = record.starts;
          EXPECT_EQ(event.num_steps, kSteps);
        }
        if (event.plan == nullptr || event.kind == RunEventKind::kLoop) continue;
        EXPECT_TRUE(in_loop);
        if (event.kind == RunEventKind::kWait || !record.starts) continue;
        const bool is_new = parts[{event.instruction, event.step}].insert(event.part).second;
        EXPECT_TRUE(is_new) << *event.op_text << " of step " << event.step;
        const StepPlan& plan = **event.plan;
        const auto number = static_cast<size_t>(event.instruction), in_loop_count = plan.instructions.size();
        const std::string& text =
            number < in_loop_count ? plan.instructions[number].text : plan.before[number - in_loop_count].text;
        EXPECT_EQ(*event.op_text, text);
        parts_of[event.instruction] = event.parts;
        if (text == "s = FC(h_prev, w)") product = event.instruction;
      }
      EXPECT_GE(loops, 1);  // a helper may come, find nothing to do, and come again
    }
    EXPECT_EQ(parts.size(), 3 * static_cast<size_t>(kSteps) + 2);  // two initial states
    for (const auto& [where, seen] : parts) {
      EXPECT_EQ(static_cast<int>(seen.size()), parts_of[std::get<0>(where)]);
    }
    if (TestedOptLevel() == kMaxOptLevel) {
      EXPECT_EQ(parts_of[product], options.threads < 2 ? 1 : 2 * options.threads);
    }
  }
}

TEST(StepNetObservers, TheCallerWaitsUntilOthersHaveLeft) {
  RecurrentCase net = TwoChains();
  const std::unique_ptr<Net> made = Net::Create(net.Build(), net.workspace(), {.threads = 2});
  Recorder recorder;
  made->AttachObserver(&recorder);
  made->Run();
  // … wait, /wait, /loop, /RecurrentNetwork, /net
  const std::vector<Record>& caller = recorder.records().at(std::this_thread::get_id());
  ASSERT_GT(caller.size(), 5U);
  const Record* last = &caller.back();
  EXPECT_EQ(last[-2].event.kind, RunEventKind::kLoop);
  EXPECT_EQ(last[-3].event.kind, RunEventKind::kWait);
  EXPECT_EQ(last[-4].event.kind, RunEventKind::kWait);
  EXPECT_TRUE(last[-4].starts);
}

}  // namespace
}  // namespace stepnet
