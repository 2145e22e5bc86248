#include "stepnet/tools/rnn_runner/trace.h"

#include <gflags/gflags.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "stepnet/core/file.h"
#include "stepnet/tools/rnn_runner/text.h"

DEFINE_string(trace, "", "file to write what ran when, on which thread: Chrome's trace format, for ui.perfetto.dev");

namespace stepnet::runner {

FlagUse TraceFlag() { return {.name = "trace", .value = "F.json"}; }

Trace::Trace(Net& net) : net_(net), records_(!FLAGS_trace.empty()) {
  if (records_) net_.AttachObserver(this);
}

Trace::~Trace() {
  if (records_) net_.DetachObserver(this);
}

double Trace::Now() const {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start_).count();
}

void Trace::Start(const RunEvent& event) {
  const std::lock_guard lock(mutex_);
  Lane& lane = LaneOfThread();
  lane.open.push_back(lane.spans.size());
  lane.spans.push_back({.name = event.op_text != nullptr ? *event.op_text : *event.net,
                        .net = *event.net,
                        .step = event.step,
                        .backward = event.backward,
                        .begin = Now()});
}

void Trace::Stop(const RunEvent&) {
  const std::lock_guard lock(mutex_);
  Lane& lane = LaneOfThread();
  lane.spans[lane.open.back()].end = Now();
  lane.open.pop_back();
}

void Trace::Write() const {
  if (!records_) return;
  nlohmann::json events = nlohmann::json::array();
  int number = 0;
  for (const auto& [thread, lane] : lanes_) {
    events.push_back({{"ph", "M"},
                      {"name", "thread_name"},
                      {"pid", 1},
                      {"tid", number},
                      {"args", {{"name", StrCat("thread ", number)}}}});
    for (const Span& span : lane.spans) {
      nlohmann::json args = {{"net", span.net}};
      if (span.step >= 0) args["step"] = span.step;
      if (span.backward) args["backward"] = true;
      events.push_back({{"ph", "X"},
                        {"name", span.name},
                        {"pid", 1},
                        {"tid", number},
                        {"ts", span.begin},
                        {"dur", span.end - span.begin},
                        {"args", args}});
    }
    ++number;
  }
  const nlohmann::json trace = {{"traceEvents", events}, {"displayTimeUnit", "ms"}};
  WriteFile(FLAGS_trace, trace.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  std::cerr << Printable(StrCat("wrote ", FLAGS_trace)) << "\n";
}

}  // namespace stepnet::runner
