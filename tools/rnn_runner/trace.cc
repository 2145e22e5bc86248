#include "stepnet/tools/rnn_runner/trace.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "stepnet/core/device.h"
#include "stepnet/core/strings.h"
#include "stepnet/report/text.h"
#include "stepnet/tools/rnn_runner/progress.h"

namespace stepnet::runner {
namespace {

const char* Category(RunEventKind kind) {
  switch (kind) {
    case RunEventKind::kNet: return "net";
    case RunEventKind::kOperator: return "operator";
    case RunEventKind::kMove: return "move";
    case RunEventKind::kLoop: return "loop";
    case RunEventKind::kWait: break;
  }
  return "";
}

std::string NameOf(const RunEvent& event) {
  if (event.op_text != nullptr) return *event.op_text;
  return event.kind == RunEventKind::kNet ? *event.net
                                          : StrCat(event.backward ? "backward steps of " : "steps of ", *event.net);
}

std::string Line(const nlohmann::ordered_json& json) {
  // Names come from files: nothing in them shall drive a terminal, or be hidden from who reads the trace.
  return json.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
}

}  // namespace

Trace::Trace(const std::string& path, std::int64_t max_events) : file_(path), max_events_(max_events), start_(Now()) {}

const std::string* Trace::OperatorOf(const RunEvent& event, Lane* lane) {
  if (event.plan == nullptr) return nullptr;
  if (event.kind != RunEventKind::kLoop) return lane->open.empty() ? nullptr : lane->open.back().of;
  const std::lock_guard lock(mutex_);
  std::string& text = operators_[event.net];
  // The thread that asks for a loop is in an operator; helpers come from nowhere, and later.
  if (!lane->open.empty()) text = StrCat("op ", lane->open.back().op_index, " of ", *lane->open.back().net);
  return lane->Keep(text);
}

void Trace::Started(const RunEvent& event) {
  if (event.kind == RunEventKind::kWait) return;  // shows as a gap
  Lane& lane = lanes_.Mine();
  const std::string* of = OperatorOf(event, &lane);
  lane.open.push_back({.span = -1, .net = event.net, .op_index = event.op_index, .of = of});
  if (events_.fetch_add(1) >= max_events_) return;
  lane.open.back().span = static_cast<std::int64_t>(lane.spans.size());
  const std::shared_ptr<const double> mark = event.queue == nullptr ? nullptr : event.queue->MarkTime();
  lane.spans.push_back({.kind = event.kind,
                        .backward = event.backward,
                        .name = lane.Keep(NameOf(event)),
                        .net = lane.Keep(*event.net),
                        .of = of,
                        .step = event.step,
                        .part = event.part,
                        .parts = event.parts,
                        .begin = Now(),
                        .queue = mark == nullptr ? nullptr : event.queue,
                        .device_begin = mark});
}

void Trace::Stopped(const RunEvent& event) {
  if (event.kind == RunEventKind::kWait) return;
  const double now = Now();
  Lane& lane = lanes_.Mine();
  if (lane.open.empty()) return;  // started before this looked
  const std::int64_t span = lane.open.back().span;
  lane.open.pop_back();
  if (span < 0) return;
  Span& ended = lane.spans[static_cast<size_t>(span)];
  ended.end = now;
  if (ended.queue != nullptr) ended.device_end = ended.queue->MarkTime();
}

std::vector<Queue*> Trace::Queues() const {
  std::vector<Queue*> queues;
  for (const std::unique_ptr<Lane>& lane : lanes_.All()) {
    for (const Span& span : lane->spans) {
      if (span.device_end == nullptr || std::ranges::find(queues, span.queue) != queues.end()) continue;
      queues.push_back(span.queue);
    }
  }
  return queues;
}

void Trace::WriteName(size_t lane, const std::string& name) {
  if (std::exchange(has_lines_, true)) file_.Write(",\n");
  file_.Write(Line({{"ph", "M"}, {"name", "thread_name"}, {"pid", 1}, {"tid", lane}, {"args", {{"name", name}}}}));
}

void Trace::WriteSpan(size_t lane, const Span& span, double begin, double end) {
  nlohmann::ordered_json args = {{"net", *span.net}};
  if (span.step >= 0) args["step"] = span.step;
  if (span.of != nullptr) args["run by"] = *span.of;
  if (span.of != nullptr) args["direction"] = span.backward ? "backward" : "forward";
  if (span.parts > 1) args["part"] = StrCat(span.part + 1, " of ", span.parts);
  file_.Write(",\n");
  file_.Write(Line({{"ph", "X"},
                    {"name", *span.name},
                    {"cat", Category(span.kind)},
                    {"pid", 1},
                    {"tid", lane},
                    {"ts", (begin - start_) * 1e6},
                    {"dur", (end - begin) * 1e6},
                    {"args", args}}));
}

void Trace::WriteLines() {
  std::vector<Queue*> queues = Queues();
  std::erase_if(queues, [](Queue* queue) {
    try {
      queue->Wait();
      return false;
    } catch (...) {  // the device has ended the run, which told so
      return true;
    }
  });
  size_t number = 0;
  for (; number < lanes_.All().size(); ++number) {
    WriteName(number, ThreadName(number));
    for (const Span& span : lanes_.All()[number]->spans) WriteSpan(number, span, span.begin, span.end);
  }
  for (const Queue* queue : queues) {
    WriteName(number, DeviceName(queue->device()));
    for (const std::unique_ptr<Lane>& lane : lanes_.All()) {
      for (const Span& span : lane->spans) {
        if (span.queue != queue || span.device_end == nullptr) continue;
        WriteSpan(number, span, *span.device_begin, *span.device_end);
      }
    }
    ++number;
  }
}

void Trace::Write() {
  CheckComplete();
  file_.Write("{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n");
  WriteLines();
  file_.Write("\n]}\n");
  file_.Commit();
}

}  // namespace stepnet::runner
