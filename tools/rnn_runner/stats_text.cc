#include "stepnet/tools/rnn_runner/stats_text.h"

#include <nlohmann/json.hpp>

#include "stepnet/compiler/schedule.h"
#include "stepnet/compiler/schedule_text.h"
#include "stepnet/core/device_report.h"
#include "stepnet/core/strings.h"
#include "stepnet/report/text.h"

namespace stepnet::runner {
namespace {

double Microseconds(double seconds, std::int64_t of) { return of > 0 ? 1e6 * seconds / static_cast<double>(of) : 0; }

std::string Percent(double part, double of) { return StrCat(Number(of > 0 ? 100 * part / of : 0, 3), "%"); }

constexpr size_t kMaxTextWidth = 72;  // operators may have many inputs; tables shall stay readable

std::string ScheduleOf(const NetStats& stats) {
  if (!stats.plan->IsScheduled()) return "one thread (executor serial)";
  return stats.max_steps < 2 ? "one thread (a single step)" : ThreadsText(InRunsOf(stats.max_steps, *stats.plan));
}

std::string InstructionTable(const NetStats& stats) {
  Table table({"", stats.plan ? "instruction" : "operator", "calls", "us a call", "ms", "share"});
  for (size_t i = 0; i < stats.instructions.size(); ++i) {
    const InstructionStats& instruction = stats.instructions[i];
    if (instruction.calls == 0) continue;
    table.Add({StrCat(i), Shortened(PrintableLine(instruction.text), kMaxTextWidth), StrCat(instruction.calls),
               Number(Microseconds(instruction.seconds, instruction.calls), 3), Milliseconds(instruction.seconds),
               Percent(instruction.seconds, stats.busy())});
  }
  return table.Text("  ");
}

std::string ThreadTable(const NetStats& stats) {
  Table table({"thread", "started", "busy ms", "idle ms", "overhead ms", "busy"});
  for (const ThreadStats& thread : stats.threads) {
    table.Add({thread.name, StrCat(thread.starts), Milliseconds(thread.busy), Milliseconds(thread.idle),
               Milliseconds(thread.overhead), Percent(thread.busy, stats.seconds)});
  }
  return table.Text("  ");
}

// What an operator does beside its steps: figures of a first run are hardly anything else.
std::string PreparationText(const NetStats& stats) {
  if (stats.preparation <= 0) return "";
  return StrCat("  preparation: ", Milliseconds(stats.preparation), " ms beside the steps",
                stats.runs > 1 ? StrCat(", ", Milliseconds(stats.first_preparation), " of them in the first run") : "",
                stats.preparation > stats.seconds ? "; a first run makes the plan and takes memory\n" : "\n");
}

// What a device made of the steps, and the host beside it.
std::string OnDeviceText(const NetStats& stats) {
  return StrCat("  on ", stats.device, ": busy ", Milliseconds(stats.busy()), " ms of ", Milliseconds(stats.seconds),
                ", ", Percent(stats.busy(), stats.seconds), "; the host gave it the work in ",
                Milliseconds(stats.host_seconds), " ms\n");
}

std::string ThreadsAndOverheadText(const NetStats& stats, double looking) {
  const Parallelism parallelism = ParallelismOf(stats);
  const double instruction = Microseconds(stats.overhead(), stats.starts());
  return StrCat("  schedule: ", ScheduleOf(stats), "; ",
                Count(static_cast<std::int64_t>(stats.threads.size()), "thread"), " took part\n", ThreadTable(stats),
                "  overhead: ", Number(instruction, 2), " us an instruction, about ", Number(1e6 * looking, 2),
                " of them from measuring\n", "  threads busy at a time: ", Number(parallelism.achieved, 3),
                "; the schedule admits ", Number(parallelism.achievable, 3), ", with any number of threads ",
                Number(parallelism.unlimited, 3), "\n");
}

std::string StepNetText(const NetStats& stats, double looking) {
  return StrCat(stats.backward ? "backward " : "", "step net ", NameText(stats.net), ", run by ", stats.of, ": ",
                Count(stats.runs, "run"), ", ", Count(stats.steps, "step"), ", ",
                Number(Microseconds(stats.seconds, stats.steps), 3), " us a step\n", PreparationText(stats),
                InstructionTable(stats),
                stats.device.empty() ? ThreadsAndOverheadText(stats, looking) : OnDeviceText(stats),
                "  arena: ", Bytes(static_cast<double>(stats.plan->ArenaBytes(stats.max_steps))), " for ",
                Count(stats.max_steps, "step"), "\n");
}

nlohmann::ordered_json StepNetJson(const NetStats& stats, double looking) {
  if (!stats.device.empty()) {
    return {{"run_by", stats.of},
            {"steps", stats.steps},
            {"us_a_step", Microseconds(stats.seconds, stats.steps)},
            {"device", stats.device},
            {"busy_ms", stats.busy() * 1e3},
            {"host_ms", stats.host_seconds * 1e3},
            {"arena_bytes", stats.plan->ArenaBytes(stats.max_steps)}};
  }
  const Parallelism parallelism = ParallelismOf(stats);
  nlohmann::ordered_json threads = nlohmann::ordered_json::array();
  for (const ThreadStats& thread : stats.threads) {
    threads.push_back({{"name", thread.name},
                       {"started", thread.starts},
                       {"busy_ms", thread.busy * 1e3},
                       {"idle_ms", thread.idle * 1e3},
                       {"overhead_ms", thread.overhead * 1e3}});
  }
  return {{"run_by", stats.of},
          {"steps", stats.steps},
          {"us_a_step", Microseconds(stats.seconds, stats.steps)},
          {"preparation_ms", stats.preparation * 1e3},
          {"schedule", ScheduleOf(stats)},
          {"threads", threads},
          {"overhead_us", Microseconds(stats.overhead(), stats.starts())},
          {"measuring_us", looking * 1e6},
          {"parallelism",
           {{"achieved", parallelism.achieved},
            {"achievable", parallelism.achievable},
            {"unlimited", parallelism.unlimited}}},
          {"arena_bytes", stats.plan->ArenaBytes(stats.max_steps)}};
}

}  // namespace

std::string StatsText(const std::vector<NetStats>& nets) {
  const double looking = RunStats::SecondsOfLooking();
  std::string text;
  for (const NetStats& stats : nets) {
    text += text.empty() ? "" : "\n";
    if (stats.plan != nullptr && stats.steps > 0) {
      text += StepNetText(stats, looking);
    } else {
      text += StrCat(stats.plan ? "step net " : "net ", NameText(stats.net), ": ", Count(stats.runs, "run"), ", ",
                     Milliseconds(stats.seconds), " ms\n", InstructionTable(stats));
    }
  }
  return text;
}

std::string DeviceText(const Device& device) {
  if (device.IsHost()) return "";
  const DeviceRuntime& runtime = RuntimeOf(device);
  const MemoryUse use = runtime.memory();
  const auto bytes = [](std::int64_t number) { return Bytes(static_cast<double>(number)); };
  std::string text = StrCat("memory of ", device, ": ", bytes(use.current), " in use, ", bytes(use.peak),
                            " at its peak, ", bytes(use.cached), " kept for reuse; at most ", bytes(use.limit),
                            "\nthe host waited ", Count(runtime.num_host_waits(), "time"), " for ", device, "\n");
  if (const auto* report = dynamic_cast<const DeviceReport*>(&runtime)) {
    const CodeUse code = report->code();
    text += StrCat("code of ", device, ": ", Count(code.in_use, "module"), " in use, ", code.unused,
                   " kept for reuse; ", code.loaded, " loaded so far\n");
  }
  for (const std::string& choice : runtime.Choices()) text += StrCat(choice, "\n");
  return text;
}

nlohmann::ordered_json StatsJson(const std::vector<NetStats>& nets) {
  const double looking = RunStats::SecondsOfLooking();
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const NetStats& stats : nets) {
    nlohmann::ordered_json json = {{"net", stats.net},           {"in_step_net", stats.plan != nullptr},
                                   {"backward", stats.backward}, {"runs", stats.runs},
                                   {"ms", stats.seconds * 1e3},  {"instructions", nlohmann::ordered_json::array()}};
    for (const InstructionStats& instruction : stats.instructions) {
      json["instructions"].push_back({{"text", instruction.text},
                                      {"type", instruction.type},
                                      {"op_index", instruction.op_index},
                                      {"calls", instruction.calls},
                                      {"ms", instruction.seconds * 1e3}});
    }
    if (stats.plan != nullptr && stats.steps > 0) json.update(StepNetJson(stats, looking));
    all.push_back(std::move(json));
  }
  return all;
}

}  // namespace stepnet::runner
