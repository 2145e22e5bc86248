// rnn_runner bench: how long a net takes, and which of its operators.
#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "stepnet/core/recording_times.h"
#include "stepnet/core/tensor.h"
#include "stepnet/nets/model.h"
#include "stepnet/report/text.h"
#include "stepnet/tools/rnn_runner/cell_file.h"
#include "stepnet/tools/rnn_runner/common_flags.h"
#include "stepnet/tools/rnn_runner/gradients.h"
#include "stepnet/tools/rnn_runner/inputs.h"
#include "stepnet/tools/rnn_runner/losses.h"
#include "stepnet/tools/rnn_runner/output_folder.h"
#include "stepnet/tools/rnn_runner/progress.h"
#include "stepnet/tools/rnn_runner/session.h"
#include "stepnet/tools/rnn_runner/stats_text.h"
#include "stepnet/tools/rnn_runner/watch.h"

DEFINE_int32(warmup, 2, "runs before those that are timed");
DEFINE_int32(repetitions, 20, "runs that are timed");
DEFINE_int32(rows, 30, "operators in the table, the longest first; 0: all");
DECLARE_string(output_dir);
DECLARE_string(weights);
DEFINE_bool(json, false, "print JSON, all operators included");

namespace stepnet::runner {
namespace {

struct Times {
  std::vector<double> seconds;  // sorted
  double min() const { return seconds.front(); }
  double median() const {
    const size_t n = seconds.size();
    return n % 2 == 1 ? seconds[n / 2] : (seconds[n / 2 - 1] + seconds[n / 2]) / 2;
  }
  // The smallest time that at least 95 of 100 runs do not exceed.
  double p95() const {
    const auto rank = static_cast<size_t>(std::ceil(0.95 * static_cast<double>(seconds.size())));
    return seconds[std::max<size_t>(rank, 1) - 1];
  }
};

struct OpTime {
  std::string net;
  int number = 0;    // of the operator, in a step net of the instruction, as explain and --stats count them
  int op_index = 0;  // of the operator, also in a step net
  std::string type;
  bool backward = false;  // in a backward step net
  bool in_step_net = false;
  std::int64_t calls = 0;
  double seconds = 0;  // of all calls and threads, step nets within included
  double share = 0;    // of the time of the runs
  double flops = 0;    // of all calls; 0 where they are not known
};

struct Measured {
  Times times;
  Times host;       // of these, until the device had been given everything
  Times on_device;  // of these, by marks in its queue; none on the host
  int observed_runs = 0;
  std::vector<NetStats> nets;     // of the fastest of them
  std::vector<OpTime> operators;  // likewise, the longest first
  std::int64_t peak_bytes = 0;
};

// How many steps the calls of an instruction were for.
double StepsOf(const NetStats& net, int instruction) {
  const StepPlan& plan = *net.plan;
  const auto is_behind = [&](const Stage& stage) { return instruction < stage.end; };
  const auto stage = std::ranges::find_if(plan.stages, is_behind);
  const bool is_once =
      stage != plan.stages.end() && (stage->is_behind || stage - plan.stages.begin() < plan.num_once_stages);
  const bool takes_many = stage != plan.stages.end() && stage->steps_at_once != 1 && !is_once;
  return static_cast<double>(takes_many ? net.steps : net.instructions[instruction].calls);
}

double FlopsInSteps(const NetStats& net, int instruction) {
  return net.plan->instructions[instruction].cost.flops * StepsOf(net, instruction);
}

// What an operator of the net itself computes; 0 where it is not known.
double FlopsOfNet(const Net& net, const InstructionStats& instruction) {
  if (instruction.op_index >= static_cast<int>(net.operators().size())) return 0;
  return net.operators()[instruction.op_index]->LastCost().flops * static_cast<double>(instruction.calls);
}

// What the net itself took; step nets run within it.
double TotalSeconds(const std::vector<NetStats>& nets) {
  double total = 0;
  for (const NetStats& net : nets) total += net.plan == nullptr ? net.seconds : 0;
  return total;
}

std::vector<OpTime> OperatorsOf(const std::vector<NetStats>& nets, const Net& whole) {
  std::vector<OpTime> operators;
  const double total = TotalSeconds(nets);
  for (const NetStats& net : nets) {
    for (int i = 0; i < std::ssize(net.instructions); ++i) {
      const InstructionStats& instruction = net.instructions[i];
      if (instruction.op_index < 0) continue;
      operators.push_back({.net = net.net,
                           .number = i,
                           .op_index = instruction.op_index,
                           .type = instruction.type,
                           .backward = net.backward,
                           .in_step_net = net.plan != nullptr,
                           .calls = instruction.calls,
                           .seconds = instruction.seconds,
                           .share = total > 0 ? std::min(1.0, net.SecondsOf(instruction) / total) : 0,
                           .flops = net.plan != nullptr ? FlopsInSteps(net, i) : FlopsOfNet(whole, instruction)});
    }
  }
  std::ranges::stable_sort(operators, std::ranges::greater(), &OpTime::seconds);
  return operators;
}

// Runs the net and notes its times.
void TimeRun(Net& net, Queue* queue, Measured* measured) {
  const double start = Now();
  std::shared_ptr<const double> begin, end;
  if (queue != nullptr) begin = queue->MarkTime();
  measured->host.seconds.push_back(RunNet(net, [&] { end = queue == nullptr ? nullptr : queue->MarkTime(); }));
  measured->times.seconds.push_back(Now() - start);
  if (begin != nullptr && end != nullptr) measured->on_device.seconds.push_back(*end - *begin);
}

// What the fastest of some runs took: whatever else the machine does makes others longer, at one operator or another.
std::vector<NetStats> StatsOfFastest(Net& net, int runs) {
  std::vector<NetStats> fastest;
  for (int i = 0; i < runs; ++i) {
    RunStats stats;
    net.AttachObserver(&stats);
    RunNet(net);
    net.DetachObserver(&stats);
    std::vector<NetStats> nets = stats.Nets();
    if (i == 0 || TotalSeconds(nets) < TotalSeconds(fastest)) fastest = std::move(nets);
  }
  return fastest;
}

// `after_timed` is called when the runs that are timed are over.
Measured Measure(Net& net, const Device& device, const std::function<void()>& after_timed) {
  Measured measured;
  Queue* const queue = device.IsHost() ? nullptr : &RuntimeOf(device).queue();
  Progress progress("bench");
  ResetPeakTensorMemory();
  for (int i = 0; i < FLAGS_warmup; ++i) RunNet(net);
  for (int i = 0; i < FLAGS_repetitions; ++i) {
    progress.Show(i, FLAGS_repetitions);
    TimeRun(net, queue, &measured);
  }
  for (Times* times : {&measured.times, &measured.host, &measured.on_device}) std::ranges::sort(times->seconds);
  measured.peak_bytes = TensorMemory().peak;
  after_timed();
  // On their own, because looking at every operator costs time.
  measured.observed_runs = std::clamp(FLAGS_repetitions / 4, 1, 10);
  measured.nets = StatsOfFastest(net, measured.observed_runs);
  measured.operators = OperatorsOf(measured.nets, net);
  return measured;
}

// "lstm 3", "rnn 2, each step", "rnn 0, backward": where an operator is.
std::string PlaceOf(const OpTime& time) {
  const char* step = !time.in_step_net ? "" : time.backward ? ", backward steps" : ", steps";
  return StrCat(NameText(time.net), " ", time.number, step);
}

// What a device and the host each took of a run: the device goes on behind the host.
std::string DeviceTimesText(const Measured& measured, const Device& device) {
  if (device.IsHost()) return "";
  std::string text;
  if (const Times& times = measured.on_device; !times.seconds.empty()) {
    text = StrCat(DeviceName(device), " took, by its clock: min ", Milliseconds(times.min()), " ms, median ",
                  Milliseconds(times.median()), " ms, p95 ", Milliseconds(times.p95()), " ms\n");
  }
  if (const RecordingTimes times = RecordingsSoFar(); times.recordings > 0) {
    text += StrCat(Count(times.graphs, "graph"), " of ", Count(times.nodes, "node"), " recorded in ",
                   Milliseconds(times.seconds()), " ms: host code ", Milliseconds(times.host_seconds), " ms, capture ",
                   Milliseconds(times.capture_seconds), " ms, instantiation ", Milliseconds(times.instantiate_seconds),
                   " ms\n");
  }
  return StrCat(text, "the host had given a run to ", DeviceName(device), " after: min ",
                Milliseconds(measured.host.min()), " ms, median ", Milliseconds(measured.host.median()), " ms\n");
}

void PrintText(const Measured& measured, const Net& net, const RunOptions& options) {
  const Times& times = measured.times;
  std::cout << Printable(StrCat("net ", NameText(net.name()), ": ",
                                Count(static_cast<std::int64_t>(net.operators().size()), "operator"), ", executor ",
                                options.executor))
            << "\n"
            << Count(FLAGS_repetitions, "run") << " after " << FLAGS_warmup << ": min " << Milliseconds(times.min())
            << " ms, median " << Milliseconds(times.median()) << " ms, p95 " << Milliseconds(times.p95()) << " ms\n"
            << DeviceTimesText(measured, options.device()) << "tensors took "
            << Bytes(static_cast<double>(measured.peak_bytes)) << " at most" << DevicePeakText(options.device())
            << "\n\noperators in the fastest of " << Count(measured.observed_runs, "further run") << "\n";
  Table table({"operator", "where", "calls", "ms", "share", "GFLOP/s"});
  const size_t rows = FLAGS_rows == 0 ? measured.operators.size() : static_cast<size_t>(FLAGS_rows);
  for (size_t i = 0; i < measured.operators.size() && i < rows; ++i) {
    const OpTime& time = measured.operators[i];
    table.Add({time.type, PlaceOf(time), StrCat(time.calls), Milliseconds(time.seconds),
               StrCat(Number(100 * time.share, 3), "%"),
               time.flops > 0 && time.seconds > 0 ? Number(time.flops / time.seconds / 1e9, 3) : ""});
  }
  std::cout << Printable(table.Text());
  if (measured.operators.size() > rows) {
    std::cerr << Count(static_cast<std::int64_t>(measured.operators.size() - rows), "more operator")
              << " not shown; --rows=0 shows all\n";
  }
  if (std::ranges::any_of(measured.operators, &OpTime::in_step_net)) {
    std::cerr
        << "rows of steps are parts of the row of the operator that runs them, so shares add up to more than 100%\n";
  }
  if (FLAGS_stats) std::cout << "\n" << Printable(StatsText(measured.nets) + DeviceText(options.device()));
}

void PrintJson(const Measured& measured, const Net& net, const RunOptions& options) {
  const Times& times = measured.times;
  nlohmann::ordered_json json = {{"net", net.name()},
                                 {"executor", options.executor},
                                 {"threads", options.threads},
                                 {"opt_level", options.opt_level},
                                 {"warmup", FLAGS_warmup},
                                 {"repetitions", FLAGS_repetitions},
                                 {"min_ms", times.min() * 1e3},
                                 {"median_ms", times.median() * 1e3},
                                 {"p95_ms", times.p95() * 1e3},
                                 {"device", DeviceName(options.device())},
                                 {"math", MathName(options.math)},
                                 {"weights", FLAGS_weights},
                                 {"peak_tensor_bytes", measured.peak_bytes},
                                 {"operators", nlohmann::ordered_json::array()}};
  for (const OpTime& time : measured.operators) {
    nlohmann::ordered_json item = {{"type", time.type},
                                   {"net", time.net},
                                   {"number", time.number},
                                   {"op_index", time.op_index},
                                   {"in_step_net", time.in_step_net},
                                   {"backward", time.backward},
                                   {"calls", time.calls},
                                   {"ms", time.seconds * 1e3}};
    if (time.flops > 0) item["flops"] = time.flops;
    json["operators"].push_back(std::move(item));
  }
  if (!options.device().IsHost()) {
    json["host_median_ms"] = measured.host.median() * 1e3;
    if (const Times& times = measured.on_device; !times.seconds.empty()) {
      json["device_min_ms"] = times.min() * 1e3;
      json["device_median_ms"] = times.median() * 1e3;
      json["device_p95_ms"] = times.p95() * 1e3;
    }
    const RecordingTimes recorded = RecordingsSoFar();
    json["recorded"] = {{"recordings", recorded.recordings},
                        {"graphs", recorded.graphs},
                        {"nodes", recorded.nodes},
                        {"host_ms", recorded.host_seconds * 1e3},
                        {"capture_ms", recorded.capture_seconds * 1e3},
                        {"instantiate_ms", recorded.instantiate_seconds * 1e3}};
    json["peak_device_bytes"] = RuntimeOf(options.device()).memory().peak;
  }
  if (FLAGS_stats) json["stats"] = StatsJson(measured.nets);
  std::cout << json.dump(2, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace) << "\n";
}

// Where a device tells of runs that are played, runs until one is.
void WriteTrace(Net& net) {
  TraceOfRuns trace(net);
  constexpr int kMaxLaunched = 10;
  const double made = RecordingsSoFar().instantiate_seconds;
  const auto is_played = [&] { return RecordingsSoFar().instantiate_seconds > made; };
  for (int run = 0; trace.LetsPlay() && !is_played() && run < kMaxLaunched; ++run) RunNet(net);
  RunNet(net);
  trace.Write();
}

int Bench(const std::vector<std::string>&) {
  if (FLAGS_json && IsGiven("rows")) throw UsageError("--rows is of the table, and --json prints all operators");
  RunOptions options = RunOptionsFromFlags();
  options.quiet = true;
  Session session = OpenSession(options, {.with_gradients = true});
  // A model that serves is run so. Each iteration of one that trains changes them.
  if (!HasGradients(session.def)) SetConstant(session.parameters, session.def, *session.workspace);
  const std::unique_ptr<Net> net = CreateNet(session.def, *session.workspace, options);
  std::optional<OutputFolder> folder;
  if (!FLAGS_output_dir.empty()) folder.emplace(FLAGS_output_dir, session.outputs);
  const Measured measured = Measure(*net, options.device(), [&] {
    if (folder) folder->Write(*session.workspace, /*must_be_tensors=*/false);
  });
  WriteTrace(*net);
  (FLAGS_json ? PrintJson : PrintText)(measured, *net, options);
  return kOk;
}

std::vector<FlagUse> BenchFlags() {
  std::vector<FlagUse> flags = {{.name = "warmup", .value = "N", .min = 0},
                                {.name = "repetitions", .value = "N", .min = 1},
                                {.name = "json"},
                                {.name = "rows", .value = "N", .min = 0},
                                LossFlag(),
                                OutputDirFlag(),
                                TraceFlag(),
                                StatsFlag()};
  std::vector<FlagUse> session = SessionFlags();
  session.insert(session.end(), flags.begin(), flags.end());
  return WithCommonFlags(std::move(session));
}

}  // namespace

const Command kBench = {
    .name = "bench",
    .operands = "F",
    .doc = "times a net and its operators",
    .details =
        "F is a NetDef, a MetaNetDef, a minidb model or a cell, binary or text.\n"
        "Wall-clock time of whole runs, and of a GPU its own, then, from the fastest of further runs, the time of "
        "each\n"
        "operator; an operator with step nets includes them, and theirs are counted over all steps, by the numbers "
        "that\n"
        "explain has for them. GFLOP/s\n"
        "where the operator states its work, all threads together.\n"
        "Parameters of a net without gradients count as constant, as where a model serves: what the runs compute of "
        "them\n"
        "alone is computed once, in the runs before those that are timed.\n"
        "--stats tells more of the same run as the table of operators, --trace writes one run more,\n"
        "of a GPU those until one is played as a graph. --output_dir has what the last run gave that was timed.",
    .example = "rnn_runner bench net.pb --shape=x=100x32x256,lengths=32:int32=100 --repetitions=50 --json",
    .flags = BenchFlags(),
    .min_operands = 0,
    .max_operands = 0,
    .unknown_flag = AdviceOnOptions,
    .run = Bench,
};

}  // namespace stepnet::runner
