#include "stepnet/tools/rnn_runner/trace.h"

#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "stepnet/core/device.h"
#include "stepnet/core/device_report.h"
#include "stepnet/core/error.h"
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

// Behind another line. `begin` and `duration` in seconds.
std::string SpanLine(size_t lane, const std::string& name, const char* category, double begin, double duration,
                     const nlohmann::ordered_json& args) {
  return StrCat(",\n", Line({{"ph", "X"},
                             {"name", name},
                             {"cat", category},
                             {"pid", 1},
                             {"tid", lane},
                             {"ts", begin * 1e6},
                             {"dur", duration * 1e6},
                             {"args", args}}));
}

}  // namespace

nlohmann::ordered_json Trace::PlaceOf(const Span& span) {
  nlohmann::ordered_json place = {{"net", *span.net}};
  if (span.step >= 0) place["step"] = span.step;
  if (span.of != nullptr) place["run by"] = *span.of;
  if (span.of != nullptr) place["direction"] = span.backward ? "backward" : "forward";
  if (span.parts > 1) place["part"] = StrCat(span.part + 1, " of ", span.parts);
  return place;
}

DeviceLog OpenDeviceLog(const Net& net) {
  const auto on_device = [](const std::unique_ptr<NetOperator>& op) { return !op->device().IsHost(); };
  const auto first = std::ranges::find_if(net.operators(), on_device);
  if (first == net.operators().end()) return {};
  const Device device = (*first)->device();
  DeviceLog opened{.device = DeviceName(device), .log = nullptr, .why_none = "it tells no more"};
  try {
    auto* const report = dynamic_cast<DeviceReport*>(&RuntimeOf(device));
    if (report != nullptr) opened.log = report->LogActivities();
  } catch (const Error& error) {
    opened.why_none = error.message();
  }
  return opened;
}

Trace::Trace(const std::string& path, std::int64_t max_events, DeviceLog device)
    : file_(path), max_events_(max_events), start_(Now()), device_(std::move(device)) {}

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
  const std::int64_t number = events_.fetch_add(1);
  if (number >= max_events_) return;
  lane.open.back().span = static_cast<std::int64_t>(lane.spans.size());
  const bool has_mark = event.queue != nullptr && device_.log == nullptr;
  const std::shared_ptr<const double> mark = has_mark ? event.queue->MarkTime() : nullptr;
  lane.spans.push_back({.number = number,
                        .kind = event.kind,
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
  TagDevice(lane);
}

void Trace::Stopped(const RunEvent& event) {
  if (event.kind == RunEventKind::kWait) return;
  const double now = Now();
  Lane& lane = lanes_.Mine();
  if (lane.open.empty()) return;  // started before this looked
  const std::int64_t span = lane.open.back().span;
  lane.open.pop_back();
  if (span < 0) return;
  TagDevice(lane);
  Span& ended = lane.spans[static_cast<size_t>(span)];
  ended.end = now;
  if (ended.queue != nullptr) ended.device_end = ended.queue->MarkTime();
}

void Trace::TagDevice(const Lane& lane) const {
  if (device_.log == nullptr) return;
  const std::int64_t span = lane.open.empty() ? -1 : lane.open.back().span;
  device_.log->SetTag(span < 0 ? DeviceActivity::kNoTag : lane.spans[static_cast<size_t>(span)].number);
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
  const nlohmann::ordered_json args = PlaceOf(span);
  file_.Write(SpanLine(lane, *span.name, Category(span.kind), begin - start_, end - begin, args));
}

void Trace::WriteActivity(size_t lane, const DeviceActivity& activity, const Span* span) {
  nlohmann::ordered_json args = span == nullptr ? nlohmann::ordered_json::object() : PlaceOf(*span);
  if (span != nullptr && span->kind != RunEventKind::kNet) args["part of"] = *span->name;
  if (activity.bytes > 0) args["bytes"] = activity.bytes;
  if (activity.is_played) args["played"] = true;
  const char* category = activity.bytes > 0 ? "copy" : "kernel";
  file_.Write(SpanLine(lane, activity.name, category, activity.begin - start_, activity.end - activity.begin, args));
}

void Trace::WriteQueues(size_t lane) {
  std::vector<Queue*> queues = Queues();
  std::erase_if(queues, [](Queue* queue) {
    try {
      queue->Wait();
      return false;
    } catch (...) {  // the device has ended the run, which told so
      return true;
    }
  });
  for (const Queue* queue : queues) {
    WriteName(lane, DeviceName(queue->device()));
    for (const std::unique_ptr<Lane>& of_thread : lanes_.All()) {
      for (const Span& span : of_thread->spans) {
        if (span.queue != queue || span.device_end == nullptr) continue;
        WriteSpan(lane, span, *span.device_begin, *span.device_end);
      }
    }
    ++lane;
  }
}

void Trace::WriteActivities(size_t lane) {
  std::unordered_map<std::int64_t, const Span*> spans;
  for (const std::unique_ptr<Lane>& of_thread : lanes_.All()) {
    for (const Span& span : of_thread->spans) spans.emplace(span.number, &span);
  }
  std::vector<DeviceActivity> activities = device_.log->Take();
  left_out_on_device_ = device_.log->left_out();
  if (std::ssize(activities) > max_events_) {
    left_out_on_device_ += std::ssize(activities) - max_events_;
    activities.resize(static_cast<size_t>(max_events_));
  }
  std::map<std::pair<std::string, std::uint32_t>, std::vector<const DeviceActivity*>> streams;
  for (const DeviceActivity& activity : activities) {
    streams[{DeviceName(activity.device), activity.stream}].push_back(&activity);
  }
  for (const auto& [stream, done] : streams) {
    WriteName(lane, StrCat(stream.first, ", stream ", stream.second));
    for (const DeviceActivity* activity : done) {
      const auto found = spans.find(activity->tag);
      WriteActivity(lane, *activity, found == spans.end() ? nullptr : found->second);
    }
    ++lane;
  }
}

void Trace::WriteLines() {
  size_t number = 0;
  for (; number < lanes_.All().size(); ++number) {
    WriteName(number, ThreadName(number));
    for (const Span& span : lanes_.All()[number]->spans) WriteSpan(number, span, span.begin, span.end);
  }
  device_.log == nullptr ? WriteQueues(number) : WriteActivities(number);
}

std::string Trace::DeviceLanes() const {
  if (device_.log != nullptr) return "kernels and copies, as the device tells";
  return device_.device.empty() ? "" : StrCat("operators, by marks between them: ", device_.why_none);
}

void Trace::Write() {
  CheckComplete();
  file_.Write("{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n");
  WriteLines();
  file_.Write("\n]");
  if (!device_.device.empty()) file_.Write(StrCat(", \"otherData\": ", Line({{device_.device, DeviceLanes()}})));
  file_.Write("}\n");
  file_.Commit();
}

}  // namespace stepnet::runner
