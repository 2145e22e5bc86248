#include "stepnet/tools/rnn_runner/trace.h"

#include <nlohmann/json.hpp>

#include "stepnet/core/strings.h"
#include "stepnet/tools/rnn_runner/text.h"

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
  lane.spans.push_back({.kind = event.kind,
                        .backward = event.backward,
                        .name = lane.Keep(NameOf(event)),
                        .net = lane.Keep(*event.net),
                        .of = of,
                        .step = event.step,
                        .part = event.part,
                        .parts = event.parts,
                        .begin = Now()});
}

void Trace::Stopped(const RunEvent& event) {
  if (event.kind == RunEventKind::kWait) return;
  const double now = Now();
  Lane& lane = lanes_.Mine();
  if (lane.open.empty()) return;  // started before this looked
  const std::int64_t span = lane.open.back().span;
  lane.open.pop_back();
  if (span >= 0) lane.spans[static_cast<size_t>(span)].end = now;
}

void Trace::WriteLane(size_t number, const Lane& lane) {
  file_.Write(Line(
      {{"ph", "M"}, {"name", "thread_name"}, {"pid", 1}, {"tid", number}, {"args", {{"name", ThreadName(number)}}}}));
  for (const Span& span : lane.spans) {
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
                      {"tid", number},
                      {"ts", (span.begin - start_) * 1e6},
                      {"dur", (span.end - span.begin) * 1e6},
                      {"args", args}}));
  }
}

void Trace::Write() {
  CheckComplete();
  file_.Write("{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n");
  for (size_t number = 0; number < lanes_.All().size(); ++number) {
    if (number > 0) file_.Write(",\n");
    WriteLane(number, *lanes_.All()[number]);
  }
  file_.Write("\n]}\n");
  file_.Commit();
}

}  // namespace stepnet::runner
