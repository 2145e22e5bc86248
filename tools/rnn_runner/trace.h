// Traces of runs in Chrome's format, for Perfetto and chrome://tracing: a lane a thread, and one for each queue of a
// device.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "stepnet/io/file.h"
#include "stepnet/tools/rnn_runner/per_thread.h"
#include "stepnet/tools/rnn_runner/run_recorder.h"

namespace stepnet::runner {

// Observer of one or more runs: nets, operators, moves and loops with when and on which thread they ran. To be made
// by the thread that runs the net.
class Trace : public RunRecorder {
 public:
  // What a trace holds at most unless told otherwise; some 30 MB of memory, 100 MB of file.
  static constexpr std::int64_t kMaxEvents = 500'000;

  // Throws kInputOutput when the file cannot be made.
  explicit Trace(const std::string& path, std::int64_t max_events = kMaxEvents);

  // Writes the file, once, not while a net runs. Throws kInputOutput, and what kept it from recording everything.
  void Write();
  // That found no room any more.
  std::int64_t left_out() const { return std::max<std::int64_t>(0, events_ - max_events_); }

 private:
  void Started(const RunEvent& event) override;
  void Stopped(const RunEvent& event) override;

  struct Span {
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
  void WriteName(size_t lane, const std::string& name);
  void WriteSpan(size_t lane, const Span& span, double begin, double end);
  void WriteLines();

  FileWriter file_;
  bool has_lines_ = false;
  const std::int64_t max_events_;
  const double start_;
  std::atomic<std::int64_t> events_ = 0;
  std::mutex mutex_;
  std::map<const std::string*, std::string> operators_;  // that run the loop of a plan, by RunEvent::net
  PerThread<Lane> lanes_;
};

}  // namespace stepnet::runner
