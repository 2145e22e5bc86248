// Traces of runs in Chrome's format, for Perfetto and chrome://tracing: a lane a thread.
#pragma once

#include <chrono>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "stepnet/core/net.h"
#include "stepnet/tools/rnn_runner/command.h"

namespace stepnet::runner {

// --trace.
FlagUse TraceFlag();

// While it lives, what the net runs is recorded, when --trace asks for it.
class Trace : public Observer {
 public:
  explicit Trace(Net& net);
  ~Trace() override;
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  void Start(const RunEvent& event) override;
  void Stop(const RunEvent& event) override;

  // Writes the file of --trace. Throws kInputOutput.
  void Write() const;

 private:
  struct Span {
    std::string name;
    std::string net;
    std::int64_t step = -1;
    bool backward = false;
    double begin = 0;  // microseconds
    double end = -1;
  };
  struct Lane {
    std::vector<Span> spans;
    std::vector<size_t> open;  // those that have not ended, innermost last
  };

  double Now() const;
  Lane& LaneOfThread() { return lanes_[std::this_thread::get_id()]; }

  Net& net_;
  const bool records_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::mutex mutex_;
  std::map<std::thread::id, Lane> lanes_;
};

}  // namespace stepnet::runner
