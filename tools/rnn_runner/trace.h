// Traces of runs in Chrome's format, for Perfetto and chrome://tracing: a lane a thread, and for a device one a stream
// with what it did by its own account, or, without that, one a queue with the operators whose marks it passed.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <unordered_set>
#include <vector>

#include "stepnet/core/activity_log.h"
#include "stepnet/io/file.h"
#include "stepnet/nets/net.h"
#include "stepnet/tools/rnn_runner/per_thread.h"
#include "stepnet/tools/rnn_runner/run_recorder.h"

namespace stepnet::runner {

// What the device of a net tells.
struct DeviceLog {
  std::string device;                // its name; "" of a net that is on the host alone
  std::unique_ptr<ActivityLog> log;  // null: it tells nothing
  std::string why_none;
};
// Begins a log of the first device of the net's operators.
DeviceLog OpenDeviceLog(const Net& net);

// Observer of one or more runs: nets, operators, moves and loops with when and on which thread they ran. To be made
// by the thread that runs the net.
class Trace : public RunRecorder {
 public:
  // What a trace holds at most unless told otherwise; some 30 MB of memory, 100 MB of file.
  static constexpr std::int64_t kMaxEvents = 500'000;

  // Throws kInputOutput when the file cannot be made.
  explicit Trace(const std::string& path, std::int64_t max_events = kMaxEvents, DeviceLog device = {});

  // What the device tells, it tells of runs that are played, too.
  bool LetsPlay() const override { return device_.log != nullptr; }
  // Writes the file, once, not while a net runs; what devices were given has been done (Net::Wait). Throws
  // kInputOutput, and what kept it from recording everything.
  void Write();
  // What lanes of the device show, and why they show no more; "" of a net that is on the host alone.
  std::string DeviceLanes() const;
  // That found no room any more; after Write also of what a device did.
  std::int64_t left_out() const { return left_out_on_device_ + std::max<std::int64_t>(0, events_ - max_events_); }

 private:
  void Started(const RunEvent& event) override;
  void Stopped(const RunEvent& event) override;

  struct Span {
    std::int64_t number = 0;  // of all spans: the tag of what is put in meanwhile
    RunEventKind kind = RunEventKind::kNet;
    bool backward = false;
    const std::string* name = nullptr;  // of the lane's texts, as the other two
    const std::string* net = nullptr;
    const std::string* of = nullptr;  // in step nets: the operator that runs the loop
    std::int64_t step = -1;
    int part = 0;
    int parts = 1;
    double begin = 0;  // seconds
    double end = 0;
    // The queue that the work was put into, which does it later.
    Queue* queue = nullptr;
    std::shared_ptr<const double> device_begin = nullptr;
    std::shared_ptr<const double> device_end = nullptr;
  };
  struct Open {
    std::int64_t span = -1;  // -1: it is left out
    const std::string* net = nullptr;
    int op_index = -1;
    const std::string* of = nullptr;  // as in Span
  };
  struct Lane {
    std::vector<Span> spans;
    std::vector<Open> open;  // innermost last
    std::unordered_set<std::string> texts;
    const std::string* Keep(const std::string& text) { return &*texts.insert(text).first; }
  };

  // What runs the step net that the event is in; null outside.
  const std::string* OperatorOf(const RunEvent& event, Lane* lane);
  // The queues in which something was done, the work put in by whichever thread.
  std::vector<Queue*> Queues() const;
  // Where the span is, for who reads the trace.
  static nlohmann::ordered_json PlaceOf(const Span& span);
  // What the thread puts in from now on is of the innermost span that is open.
  void TagDevice(const Lane& lane) const;
  void WriteName(size_t lane, const std::string& name);
  void WriteSpan(size_t lane, const Span& span, double begin, double end);
  void WriteActivity(size_t lane, const DeviceActivity& activity, const Span* span);
  // In lanes from this number on.
  void WriteQueues(size_t lane);
  void WriteActivities(size_t lane);
  void WriteLines();

  FileWriter file_;
  bool has_lines_ = false;
  const std::int64_t max_events_;
  const double start_;
  const DeviceLog device_;
  std::int64_t left_out_on_device_ = 0;
  std::atomic<std::int64_t> events_ = 0;
  std::mutex mutex_;
  std::map<const std::string*, std::string> operators_;  // that run the loop of a plan, by RunEvent::net
  PerThread<Lane> lanes_;
};

}  // namespace stepnet::runner
