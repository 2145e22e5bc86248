// What observers are told by every executor: rules M8 and M9 of docs/caffe2_compatibility.md.
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <thread>

#include "layers.h"
#include "probe.h"
#include "recurrent_case.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

constexpr std::int64_t kSteps = 4;

// Notes what starts and stops, on which thread.
class Recorder : public Observer {
 public:
  void Start(const RunEvent& event) override {
    const std::lock_guard lock(mutex_);
    under_way_[std::this_thread::get_id()].push_back(Text(event));
    if (event.kind != RunEventKind::kNet && event.kind != RunEventKind::kOperator) return;
    ++events_[Text(event)];
    num_backward_ += event.kind == RunEventKind::kOperator && event.backward ? 1 : 0;
  }
  void Stop(const RunEvent& event) override {
    const std::lock_guard lock(mutex_);
    std::vector<std::string>& stack = under_way_[std::this_thread::get_id()];
    if (stack.empty() || stack.back() != Text(event)) {
      ADD_FAILURE() << Text(event) << " stops, and is not what has started last on its thread";
    } else {
      stack.pop_back();
    }
  }

  // How often each net and operator started; these and all else must have stopped.
  std::map<std::string, int> Take() {
    const std::lock_guard lock(mutex_);
    for (const auto& [thread, stack] : under_way_) {
      EXPECT_TRUE(stack.empty()) << (stack.empty() ? "" : stack.back()) << " has not stopped";
    }
    under_way_.clear();
    num_backward_ = 0;
    return std::exchange(events_, {});
  }
  int num_backward() const { return num_backward_; }

 private:
  static std::string Text(const RunEvent& event) {
    const std::string place = StrCat("kind ", static_cast<int>(event.kind), " of ", *event.net);
    return event.op_text == nullptr ? place : StrCat(place, ": ", *event.op_text, " step ", event.step);
  }

  std::mutex mutex_;
  std::map<std::thread::id, std::vector<std::string>> under_way_;
  std::map<std::string, int> events_;
  int num_backward_ = 0;
};

class ParallelObservers : public testing::TestWithParam<int> {
 protected:
  ParallelObservers() {
    FeedLayers(2, kSteps, 1, workspace_);
    const int threads = GetParam();
    net_ = Net::Create(Probed(Layers(2, /*training=*/true)), workspace_,
                       {.executor = threads == 1 ? "serial" : "parallel", .threads = threads, .opt_level = 0});
    net_->AttachObserver(&recorder_);
  }

  Workspace workspace_;
  std::unique_ptr<Net> net_;
  Recorder recorder_;
};
INSTANTIATE_TEST_SUITE_P(Threads, ParallelObservers, testing::Values(1, 2, 3, 4));

TEST_P(ParallelObservers, M9EveryOperatorOfEveryStepStartsAndStopsOnce) {
  const std::set<ProbePlace> places = PlacesOf([this] { net_->Run(); });
  EXPECT_EQ(recorder_.num_backward(), static_cast<int>(places.size()) - kSteps * 8);
  const std::map<std::string, int> events = recorder_.Take();
  const int outside = 1 + static_cast<int>(net_->operators().size());
  EXPECT_EQ(events.size(), places.size() + outside);
  for (const auto& [event, count] : events) EXPECT_EQ(count, 1) << event;
  for (const ProbePlace& place : places) {
    const std::string text = StrCat(" ", place.op, " step ", place.step);
    EXPECT_TRUE(std::ranges::any_of(events, [&](const auto& event) { return event.first.ends_with(text); })) << text;
  }
}

TEST_P(ParallelObservers, M9StartsAndStopsAreBalancedWhereverAnOperatorFails) {
  for (const ProbePlace& place : PlacesOf([this] { net_->Run(); })) {
    recorder_.Take();
    const Probe probe([&](const ProbePlace& now) {
      if (now == place) throw std::runtime_error("broken");
    });
    EXPECT_THROW(net_->Run(), Error);
    const std::map<std::string, int> events = recorder_.Take();
    EXPECT_TRUE(
        std::ranges::any_of(events, [&](const auto& event) { return event.first.find(place.op) != event.first.npos; }));
    if (HasFailure()) return;
  }
}

TEST_P(ParallelObservers, M9ObserversComeAndGoBetweenRuns) {
  Recorder second;
  net_->Run();
  const std::map<std::string, int> all = recorder_.Take();
  EXPECT_TRUE(second.Take().empty());
  net_->AttachObserver(&second);
  net_->Run();
  EXPECT_EQ(recorder_.Take(), all);
  EXPECT_EQ(second.Take(), all);
  net_->DetachObserver(&recorder_);
  net_->Run();
  EXPECT_TRUE(recorder_.Take().empty());
  EXPECT_EQ(second.Take(), all);
  net_->DetachObserver(&second);
  net_->Run();
  EXPECT_TRUE(second.Take().empty());
}

// Caffe2 printed it when the executor was destroyed, and not for every device.
TEST(Observers, M8TheScheduleIsPrintedWhenItIsMade) {
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").Step("h_next = Sum(x_t, h_prev)");
  net.Output("h_all", "h", 1).Feed("x", Random({3, 2, 3}, 1)).Feed("h0", Random({2, 3}, 2));
  AddInt(&net.forward(), "rnn_executor_debug", 1);
  testing::internal::CaptureStderr();
  net.Run();
  const std::string printed = testing::internal::GetCapturedStderr();
  EXPECT_NE(printed.find("h_next = Sum(x_t, h_prev)"), std::string::npos) << printed;
}

}  // namespace
}  // namespace stepnet
