#include "stepnet/tools/rnn_runner/op_times.h"

#include <algorithm>

#include "stepnet/tools/rnn_runner/text.h"

namespace stepnet::runner {
namespace {

// Starts that wait for their stop; a thread stops what it has started, the latest first.
thread_local std::vector<double> open_starts;

}  // namespace

void OpTimes::Start(const RunEvent& event) {
  if (event.op_index >= 0) open_starts.push_back(Now());
}

void OpTimes::Stop(const RunEvent& event) {
  if (event.op_index < 0 || open_starts.empty()) return;
  const double seconds = Now() - open_starts.back();
  open_starts.pop_back();
  const bool in_step_net = event.step >= 0;
  const std::lock_guard lock(mutex_);
  OpTime& time = times_[{event.backward, in_step_net, *event.net, event.op_index}];
  if (time.calls == 0) {
    time.net = *event.net;
    time.op_index = event.op_index;
    time.type = *event.op_type;
    time.backward = event.backward;
    time.in_step_net = in_step_net;
  }
  ++time.calls;
  time.seconds += seconds;
}

std::vector<OpTime> OpTimes::Sorted() const {
  std::vector<OpTime> sorted;
  for (const auto& [key, time] : times_) sorted.push_back(time);
  std::ranges::stable_sort(sorted, std::ranges::greater(), &OpTime::seconds);
  return sorted;
}

}  // namespace stepnet::runner
