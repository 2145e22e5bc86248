// Traces: what is in them, and that steps and layers are seen to overlap.
#include "stepnet/tools/rnn_runner/trace.h"

#include <array>
#include <chrono>
#include <condition_variable>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "stepnet/tests/core/temp_dir.h"
#include "stepnet/tests/executor/recurrent_case.h"
#include "stepnet/tests/operators/op_test.h"
#include "stepnet/tests/poison_device/poison_device.h"
#include "training_case.h"

namespace stepnet::runner {
namespace {

constexpr std::int64_t kSteps = 6;

// Where the upper layer in step t and the lower one in step t + 1 wait for each other.
class MeetingPoints {
 public:
  void Arrive(std::int64_t number) {
    if (number < 0 || number >= kSteps - 1) return;  // the first step below and the last one above meet nobody
    std::unique_lock lock(mutex_);
    ++arrived_[static_cast<size_t>(number)];
    changed_.notify_all();
    // So long only where nobody ever comes.
    const bool met =
        changed_.wait_for(lock, std::chrono::seconds(60), [&] { return arrived_[static_cast<size_t>(number)] == 2; });
    if (!met) throw Error(ErrorCode::kFailed, "nobody came");
  }
  void Clear() { arrived_ = {}; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::array<int, kSteps> arrived_ = {};
};
MeetingPoints meeting_points;

Registration MeetingOperator(const char* type, std::int64_t steps_ahead) {
  return Operator(type)
      .Input("x", "any shape")
      .Output("y", "the shape of x")
      .Shapes(SameAsInput(0))
      .Cpu([steps_ahead](const OperatorCall&) -> RunFn {
        return [steps_ahead](const OpRun& run) {
          meeting_points.Arrive(run.step() - steps_ahead);
          CopyElements(run.In(0), run.Out(0));
        };
      });
}
const Registration below = MeetingOperator("test.MeetBelow", 1);
const Registration above = MeetingOperator("test.MeetAbove", 0);

const Registration failing = Operator("test.FailInStep3")
                                 .Input("x", "any shape")
                                 .Output("y", "the shape of x")
                                 .Shapes(SameAsInput(0))
                                 .Cpu([](const OperatorCall&) -> RunFn {
                                   return [](const OpRun& run) {
                                     if (run.step() == 3) throw Error(ErrorCode::kInvalidArgument, "made to fail");
                                     CopyElements(run.In(0), run.Out(0));
                                   };
                                 });

struct Event {
  std::string name;
  std::string category;
  std::string lane;
  nlohmann::json args;
  std::int64_t step = -1;
  double begin = 0;
  double end = 0;
};

// The spans of a trace file, which must be JSON. Lanes have their names.
std::vector<Event> Read(const std::string& path) {
  const nlohmann::json trace = nlohmann::json::parse(ReadFile(path));
  std::map<int, std::string> lanes;
  std::vector<Event> events;
  for (const nlohmann::json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "M") {
      EXPECT_EQ(event.at("name"), "thread_name");
      lanes[event.at("tid")] = event.at("args").at("name");
    }
  }
  for (const nlohmann::json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "M") continue;
    EXPECT_EQ(event.at("ph"), "X");
    events.push_back({.name = event.at("name"),
                      .category = event.at("cat"),
                      .lane = lanes.at(event.at("tid")),
                      .args = event.at("args"),
                      .step = event.at("args").value("step", std::int64_t{-1}),
                      .begin = event.at("ts"),
                      .end = event.at("ts").get<double>() + event.at("dur").get<double>()});
  }
  return events;
}

// Runs the net, operators one by one, while it is traced.
std::vector<Event> TraceOf(RecurrentCase& net, RunOptions options) {
  options.disabled_passes = {"fuse_regions"};
  const TempDir dir;
  const std::unique_ptr<Net> made = Net::Create(net.Build(), net.workspace(), options);
  Trace trace(dir.Path("trace.json"));
  made->AttachObserver(&trace);
  made->Run();
  made->DetachObserver(&trace);
  EXPECT_EQ(trace.left_out(), 0);
  trace.Write();
  return Read(dir.Path("trace.json"));
}

bool Within(const Event& inner, const Event& outer) {
  return inner.lane == outer.lane && inner.begin >= outer.begin && inner.end <= outer.end;
}

TEST(Trace, HoldsEveryInstructionOfEveryStepOnceInTheLoopOfItsDirection) {
  for (const int threads : {1, 2}) {
    RecurrentCase net = TrainingCase(kSteps);
    const std::vector<Event> events = TraceOf(net, {.threads = threads});
    std::map<std::string, std::set<std::int64_t>> steps;  // direction, category and name → steps
    for (const Event& event : events) {
      EXPECT_LE(event.begin, event.end) << event.name;
      if (event.step < 0) continue;
      const std::string direction = event.args.at("direction");
      const bool is_new = steps[direction + " " + event.category + " " + event.name].insert(event.step).second;
      EXPECT_TRUE(is_new) << event.name;
      // The loop around it tells the operator that runs it.
      const auto around = std::ranges::find_if(
          events, [&](const Event& outer) { return outer.category == "loop" && Within(event, outer); });
      ASSERT_NE(around, events.end()) << event.name;
      EXPECT_EQ(around->args.at("direction"), direction);
      EXPECT_EQ(around->args.at("run by"), event.args.at("run by"));
      EXPECT_EQ(event.args.at("run by"), direction == "forward" ? "op 0 of case" : "op 1 of case");
      EXPECT_EQ(around->name, direction == "forward" ? "steps of step" : "backward steps of backward_step");
    }
    std::set<std::int64_t> all;
    for (std::int64_t t = 0; t < kSteps; ++t) all.insert(t);
    for (const char* what : {"forward operator s = Sum(x_t, h_prev)", "forward operator h_next = Mul(s, w)",
                             "backward operator s_grad = Mul(h_next_grad, w)",
                             "backward operator w_step = Mul(h_next_grad, s)", "backward move w_grad += w_step"}) {
      EXPECT_EQ(steps[what], all) << what;
    }
  }
}

// What the host puts in is done later: both are shown.
TEST(Trace, HasALaneForTheQueueOfADevice) {
  RecurrentCase net = TrainingCase(kSteps);
  const std::vector<Event> events = TraceOf(net, OnDevice({}, kPoisonDevice));
  std::map<std::string, std::vector<Event>> lanes;
  for (const Event& event : events) {
    EXPECT_LE(event.begin, event.end) << event.name;
    lanes[event.lane].push_back(event);
  }
  ASSERT_EQ(lanes.size(), 2U);
  std::vector<Event>& host = lanes["caller"];
  const std::vector<Event>& device = lanes["private:0"];
  std::erase_if(host, [](const Event& event) { return event.category == "net"; });
  ASSERT_EQ(device.size(), host.size());
  for (size_t i = 0; i < device.size(); ++i) {
    EXPECT_EQ(device[i].name, host[i].name);
    EXPECT_EQ(device[i].args, host[i].args);
    EXPECT_GE(device[i].end, host[i].begin) << "on one clock";
    if (device[i].step < 0) continue;
    const auto is_around = [&](const Event& outer) { return outer.category == "loop" && Within(device[i], outer); };
    EXPECT_TRUE(std::ranges::any_of(device, is_around)) << device[i].name;
  }
}

// What a device tells, given the tags that were set when the work was put in.
class ToldLog : public ActivityLog {
 public:
  explicit ToldLog(std::vector<std::int64_t>* tags) : tags_(*tags) {}
  void SetTag(std::int64_t tag) override { tags_.push_back(tag); }
  std::vector<DeviceActivity> Take() override { return told; }
  std::int64_t left_out() const override { return 7; }
  std::vector<DeviceActivity> told;

 private:
  std::vector<std::int64_t>& tags_;
};

TEST(Trace, HasALaneForEachStreamOfADeviceThatTellsWhatItDoes) {
  RecurrentCase net = TrainingCase(kSteps);
  RunOptions options = OnDevice({}, kPoisonDevice);
  options.disabled_passes = {"fuse_regions", "join_regions"};  // operators one by one
  const std::unique_ptr<Net> made = Net::Create(net.Build(), net.workspace(), options);
  std::vector<std::int64_t> tags;
  auto log = std::make_unique<ToldLog>(&tags);
  std::vector<DeviceActivity>& told = log->told;
  const TempDir dir;
  Trace trace(dir.Path("trace.json"), /*max_events=*/100'000,
              {.device = "private:0", .log = std::move(log), .why_none = ""});
  made->AttachObserver(&trace);
  made->Run();
  made->Wait();
  made->DetachObserver(&trace);
  ASSERT_GT(tags.size(), 50U);
  EXPECT_EQ(tags.back(), DeviceActivity::kNoTag);
  const double now = 1e-6 + std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  // A kernel for each span as it begins and as those within have ended, in two streams; a copy that nobody tagged.
  for (size_t i = 0; i < tags.size(); ++i) {
    told.push_back({.name = "kernel",
                    .tag = tags[i],
                    .is_played = true,
                    .device = kPoisonDevice,
                    .stream = static_cast<std::uint32_t>(i % 2),
                    .begin = now,
                    .end = now + 1e-6});
  }
  told.push_back({.name = "copy", .bytes = 12, .device = kPoisonDevice, .stream = 1, .begin = now, .end = now});
  trace.Write();
  EXPECT_EQ(trace.left_out(), 7);

  std::set<std::string> lanes;
  std::map<std::string, std::set<std::int64_t>> steps;  // direction and operator → steps
  for (const Event& event : Read(dir.Path("trace.json"))) {
    lanes.insert(event.lane);
    if (event.category == "copy") {
      EXPECT_EQ(event.args, (nlohmann::json{{"bytes", 12}}));
    } else if (event.category == "kernel") {
      EXPECT_EQ(event.args.at("played"), true);
      if (event.step >= 0) {
        steps[StrCat(event.args.at("direction").get<std::string>(), " ", event.args.at("part of").get<std::string>())]
            .insert(event.step);
      }
    }
  }
  EXPECT_EQ(lanes, (std::set<std::string>{"caller", "private:0, stream 0", "private:0, stream 1"}));
  EXPECT_EQ(steps["forward h_next = Mul(s, w)"].size(), static_cast<size_t>(kSteps));
  EXPECT_EQ(steps["backward w_grad += w_step"].size(), static_cast<size_t>(kSteps));
  const nlohmann::json written = nlohmann::json::parse(ReadFile(dir.Path("trace.json")));
  EXPECT_EQ(written.at("otherData").at("private:0"), "kernels and copies, as the device tells");
}

// The poison device tells nothing of what it does.
TEST(Trace, SaysWhyADeviceShowsOperatorsAlone) {
  RecurrentCase net = TrainingCase(kSteps);
  const std::unique_ptr<Net> made = Net::Create(net.Build(), net.workspace(), OnDevice({}, kPoisonDevice));
  const TempDir dir;
  Trace trace(dir.Path("trace.json"), Trace::kMaxEvents, OpenDeviceLog(*made));
  EXPECT_FALSE(trace.LetsPlay());
  trace.Write();
  const nlohmann::json written = nlohmann::json::parse(ReadFile(dir.Path("trace.json")));
  EXPECT_EQ(written.at("otherData").at("private:0"), "operators, by marks between them: it tells no more");
}

TEST(Trace, NamesTheCallerFirst) {
  RecurrentCase net = TrainingCase(kSteps);
  const std::vector<Event> events = TraceOf(net, {.threads = 1});
  for (const Event& event : events) EXPECT_EQ(event.lane, "caller");
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.front().name, "case");
  EXPECT_EQ(events.front().category, "net");
}

// The lower layer in step t + 1 does not end before the upper one in step t has begun, nor the other way round: where
// the run ends at all, the two overlap.
TEST(Trace, ShowsLayersOfDifferentStepsSideBySide) {
  meeting_points.Clear();
  RecurrentCase net;
  net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next").State("g", "g0", "g_prev", "g_next");
  net.Step("s = Sum(x_t, h_prev)").Step("h_next = test.MeetBelow(s)");
  net.Step("r = Sum(h_next, g_prev)").Step("g_next = test.MeetAbove(r)").Output("g_all", "g", 1);
  net.Feed("x", Random({kSteps, 2, 3}, 1)).Feed("h0", Random({2, 3}, 2)).Feed("g0", Random({2, 3}, 3));
  std::map<std::pair<std::string, std::int64_t>, Event> spans;
  for (const Event& event : TraceOf(net, {.threads = 2})) {
    if (event.step >= 0) spans[{event.name, event.step}] = event;
  }
  for (std::int64_t t = 0; t + 1 < kSteps; ++t) {
    const Event& lower = spans.at({"h_next = test.MeetBelow(s)", t + 1});
    const Event& upper = spans.at({"g_next = test.MeetAbove(r)", t});
    EXPECT_NE(lower.lane, upper.lane) << t;
    for (const Event& event : {lower, upper}) EXPECT_EQ(event.args.value("run by", ""), "op 0 of case") << event.lane;
    EXPECT_LT(lower.begin, upper.end) << t;
    EXPECT_LT(upper.begin, lower.end) << t;
    EXPECT_TRUE(lower.lane == "helper 1" || upper.lane == "helper 1") << lower.lane << ", " << upper.lane;
  }
}

TEST(Trace, KeepsTheFirstEventsAndCountsTheOthers) {
  const TempDir dir;
  RecurrentCase net = TrainingCase(kSteps);
  Trace whole(dir.Path("whole.json"));
  Trace some(dir.Path("some.json"), /*max_events=*/9);
  for (Trace* trace : {&whole, &some}) net.net().AttachObserver(trace);
  net.Run().Run();
  whole.Write();
  some.Write();
  const std::vector<Event> all = Read(dir.Path("whole.json"));
  const std::vector<Event> first = Read(dir.Path("some.json"));
  EXPECT_EQ(first.size(), 9U);
  EXPECT_EQ(some.left_out(), static_cast<std::int64_t>(all.size()) - 9);
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(first[i].name, all[i].name);
    EXPECT_EQ(first[i].args, all[i].args);
    EXPECT_LE(first[i].begin, first[i].end);
  }
}

// F5: what had started has ended when the run fails.
TEST(Trace, F5HoldsWhatRanBeforeAFailure) {
  for (const int threads : {1, 2}) {
    const TempDir dir;
    RecurrentCase net;
    net.Sequence("x", "x_t").State("h", "h0", "h_prev", "h_next");
    net.Step("s = Sum(x_t, h_prev)").Step("h_next = test.FailInStep3(s)").Output("h_all", "h", 1);
    net.Feed("x", Random({kSteps, 2, 3}, 1)).Feed("h0", Random({2, 3}, 2));
    const std::unique_ptr<Net> made = Net::Create(net.Build(), net.workspace(), {.threads = threads});
    Trace trace(dir.Path("trace.json"));
    made->AttachObserver(&trace);
    EXPECT_THROW(made->Run(), Error);
    trace.Write();
    std::set<std::int64_t> steps;
    for (const Event& event : Read(dir.Path("trace.json"))) {
      EXPECT_LE(event.begin, event.end) << event.name;
      if (event.name == "h_next = test.FailInStep3(s)") steps.insert(event.step);
    }
    EXPECT_EQ(steps, (std::set<std::int64_t>{0, 1, 2, 3}));
  }
}

TEST(Trace, SaysAtOnceThatItsFileCannotBeMade) {
  const TempDir dir;
  ExpectError([&] { Trace trace(dir.Path("nowhere/trace.json")); }, "…No such file or directory");
}

}  // namespace
}  // namespace stepnet::runner
