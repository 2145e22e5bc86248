#include "stepnet/tools/rnn_runner/common_flags.h"

#include <glog/logging.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <set>
#include <string_view>
#include <utility>

#include "stepnet/core/system_memory.h"
#include "stepnet/core/thread_pool.h"
#include "stepnet/executor/executor.h"
#include "stepnet/io/operator_library.h"
#include "stepnet/report/text.h"
#include "stepnet/tools/rnn_runner/pass_dump.h"
#include "stepnet/tools/rnn_runner/status_line.h"

DEFINE_string(net, "", "file of the net");
DEFINE_string(
    init_net, "",
    "file of a net to run once before, which fills parameters, or of the parameters themselves: safetensors, .npz,\n"
    "TensorProtos or minidb, whichever the file is");
DEFINE_string(output, "", "blobs, separated by commas");
DEFINE_string(format, "text", "how to print");
DEFINE_string(executor, "parallel", "what runs the step nets (serial is the reference for the others)");
DEFINE_string(device, "cpu", "where nets run: cpu, cuda or, of several GPUs, cuda:N");
DEFINE_string(max_device_memory, "",
              "most memory that tensors may take on the GPU, with K, M or G behind it; without the flag, all it has");
DEFINE_string(math, "float32",
              "how a GPU computes products of float: float32, exactly, or tf32, on tensor cores, with factors rounded\n"
              "to 10 bits behind the point");
DEFINE_string(cuda_graph, "on",
              "whether a GPU plays the kernels of a whole run as one graph, or is given each of them: off is what\n"
              "--executor=serial says, on --executor=cuda");
DEFINE_int32(threads, 0, "threads to use; 0: as many as are worth having, at most one a core");
DEFINE_int32(opt_level, stepnet::kMaxOptLevel,
             "0: every operator of a step net runs step by step, in the order of the net; 1: operators become one,\n"
             "run once or not at all, where that changes no bit; 2: what need not wait runs for many steps at once,\n"
             "the same within rounding");
DEFINE_uint64(seed, 0, "seed of random numbers, those of --input_fill included");
DEFINE_string(max_memory, "",
              "most memory that tensors may take, with K, M or G behind it, and 512M more for all else;\n"
              "without the flag, what the machine, the control groups and ulimit -v allow");
DEFINE_double(time_limit, 0, "seconds after which the command gives up; 0 or inf: never");
DEFINE_string(op_library, "", "shared libraries with operators of your own, separated by commas");
DEFINE_int32(verbose, 0, "log to standard error: 0 errors, 1 what is being done, 2 and above more");

namespace stepnet::runner {
std::vector<FlagUse> WithCommonFlags(std::vector<FlagUse> own) {
  own.push_back({.name = "op_library", .value = "A.so,B.so", .is_list = true, .kind = ValueKind::kInputFile});
  own.push_back({.name = "max_memory", .value = "BYTES"});
  own.push_back({.name = "time_limit", .value = "SECONDS", .min = 0, .max = std::numeric_limits<double>::infinity()});
  own.push_back({.name = "verbose", .value = "LEVEL", .min = 0});
  return own;
}

namespace {

// Those of all devices, sorted.
std::vector<std::string> Executors() {
  std::set<std::string> names;
  for (const DeviceKind device : kDeviceKinds) {
    for (std::string& name : ExecutorNames(device)) names.insert(std::move(name));
  }
  return {names.begin(), names.end()};
}

}  // namespace

FlagUse DeviceFlag() { return {.name = "device", .value = "cpu|cuda[:N]"}; }

std::vector<FlagUse> ExecutorFlags() {
  std::vector<FlagUse> flags = {DeviceFlag(),
                                {.name = "max_device_memory", .value = "BYTES"},
                                {.name = "math", .value = "float32|tf32"},
                                {.name = "cuda_graph", .value = "on|off"},
                                {.name = "executor", .value = "NAME", .choices = Executors},
                                {.name = "threads", .value = "N", .min = 0, .max = kMaxThreads},
                                {.name = "opt_level", .value = "N", .min = 0, .max = kMaxOptLevel}};
  for (FlagUse& flag : PassFlags()) flags.push_back(std::move(flag));
  return flags;
}

void ApplyCommonFlags() {
  FLAGS_logtostderr = true;
  FLAGS_minloglevel = FLAGS_verbose > 0 ? google::GLOG_INFO : google::GLOG_ERROR;
  FLAGS_v = std::max(0, FLAGS_verbose - 1);
  if (FLAGS_verbose > 0) StatusLine::TurnOff();
  if (!FLAGS_max_memory.empty()) {
    // Messages, operators, stacks of threads and characters of strings are no tensors.
    constexpr std::int64_t kBeside = std::int64_t{512} << 20;
    const std::int64_t limit = ParseBytes("max_memory", FLAGS_max_memory);
    SetTensorMemoryLimit(limit);
    if (limit <= std::numeric_limits<std::int64_t>::max() - kBeside) LimitProcessMemory(limit + kBeside);
  }
  for (const std::string& path : SplitList(FLAGS_op_library)) {
    const size_t before = OperatorTypes().size();
    LoadOperatorLibrary(path);
    LOG(INFO) << path << " adds " << OperatorTypes().size() - before << " operators";
  }
}

std::chrono::duration<double> TimeLimitFromFlags() {
  return std::chrono::duration<double>(FLAGS_time_limit > 0 ? FLAGS_time_limit
                                                            : std::numeric_limits<double>::infinity());
}

namespace {

Math MathFromFlags() {
  std::vector<std::string> names;
  for (const Math math : kMaths) {
    if (FLAGS_math == MathName(math)) return math;
    names.emplace_back(MathName(math));
  }
  throw UsageError(
      StrCat("no math \"", FLAGS_math, "\", must be ", Join(names, " or "), DidYouMean(FLAGS_math, names)));
}

bool PlaysGraphs() {
  if (FLAGS_cuda_graph == "on" || FLAGS_cuda_graph == "off") return FLAGS_cuda_graph == "on";
  throw UsageError(StrCat("--cuda_graph is \"", FLAGS_cuda_graph, "\", must be on or off"));
}

// What says how a GPU works says nothing of the CPU, unless it says what is so without the flag.
void RefuseWithoutDevice(const Device& device) {
  if (!device.IsHost()) return;
  const std::pair<const char*, bool> flags[] = {{"max_device_memory", !FLAGS_max_device_memory.empty()},
                                                {"math", MathFromFlags() != Math::kFloat32},
                                                {"cuda_graph", !PlaysGraphs()}};
  for (const auto& [flag, is_of_gpus] : flags) {
    if (!is_of_gpus) continue;
    throw UsageError(StrCat("--", flag, " is of GPUs, and this runs on the CPU (--device=cuda runs on a GPU)"));
  }
}

// The executor that the flags ask for on another device than the CPU; "" for the one of the device.
std::string ExecutorFromFlags(const Device& device) {
  const std::string named = IsGiven("executor") ? FLAGS_executor : "";
  if (device.IsHost() || !IsGiven("cuda_graph")) return named;
  const std::string asked = PlaysGraphs() ? GetDeviceSpec(device.kind).executor : "serial";
  if (named.empty() || named == asked) return asked;
  throw UsageError(StrCat("--cuda_graph=", FLAGS_cuda_graph, " means --executor=", asked, ", and --executor=", named,
                          " says something else"));
}

// One that can be used here, with the limit of its memory.
Device DeviceFromFlags() {
  const Device device = DeviceNamedByFlags();
  RefuseWithoutDevice(device);
  try {
    if (device.IsHost()) return device;
    DeviceRuntime& runtime = RuntimeOf(device);
    if (IsGiven("max_device_memory")) runtime.SetMemoryLimit(ParseBytes("max_device_memory", FLAGS_max_device_memory));
  } catch (const Error& error) {
    throw UsageError(StrCat("--device=", FLAGS_device, ": ", error.message()));
  }
  return device;
}

}  // namespace

Device DeviceNamedByFlags() {
  try {
    const Device device = ParseDevice(FLAGS_device);
    if (!device.IsHost()) static_cast<void>(GetDeviceSpec(device.kind));
    return device;
  } catch (const Error& error) {
    throw UsageError(StrCat("--device=", FLAGS_device, ": ", error.message()));
  }
}

std::string DevicePeakText(const Device& device) {
  if (device.IsHost()) return "";
  return StrCat(", ", Bytes(static_cast<double>(RuntimeOf(device).memory().peak)), " on ", device);
}

RunOptions RunOptionsFromFlags() { return RunOptionsOn(DeviceFromFlags()); }

RunOptions RunOptionsOn(const Device& device) {
  RunOptions options = OnDevice({.threads = FLAGS_threads, .opt_level = FLAGS_opt_level, .seed = FLAGS_seed}, device);
  options.math = MathFromFlags();
  const std::vector<std::string> executors = ExecutorNames(device.kind);
  if (const std::string executor = ExecutorFromFlags(device); !executor.empty()) options.executor = executor;
  if (std::ranges::find(executors, options.executor) == executors.end()) {
    throw UsageError(StrCat("no executor \"", options.executor, "\" for ", device, ", must be ",
                            Join(executors, " or "), DidYouMean(options.executor, executors)));
  }
  // On a GPU operators that run on the host still do.
  if (device.IsHost() && FLAGS_threads > 1 && !ExecutorPropertiesOf(options).uses_threads) {
    throw UsageError(
        StrCat("--threads is ", FLAGS_threads, ", and --executor=", options.executor, " runs on one thread"));
  }
  ApplyPassFlags(&options);
  return options;
}

std::vector<std::string> SplitList(const std::string& text, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::vector<std::string> SplitNames(const std::string& flag, const std::string& value) {
  std::vector<std::string> names = SplitList(value);
  std::set<std::string_view> seen;
  for (const std::string& name : names) {
    if (!seen.insert(name).second) throw UsageError(StrCat("--", flag, " has ", Quoted(name), " twice"));
  }
  return names;
}

std::int64_t ParseBytes(const std::string& flag, const std::string& text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, fault] = std::from_chars(text.data(), end, number);
  const std::string suffix(rest, end);
  const std::string_view units = "KMG";
  double unit = 1;
  if (suffix.size() == 1) {
    const size_t power = units.find(static_cast<char>(suffix[0] & ~0x20));
    unit = power == std::string_view::npos ? 0 : 1024.0 * (power > 0 ? 1024 : 1) * (power > 1 ? 1024 : 1);
  } else if (!suffix.empty()) {
    unit = 0;
  }
  const double bytes = number * unit;
  if (fault != std::errc() || !(bytes >= 1) || bytes > 9e18) {
    throw UsageError(StrCat("--", flag, " is \"", text, "\", must be a number of bytes, as 500M or 2G"));
  }
  return static_cast<std::int64_t>(bytes);
}

FlagUse FormatFlag(const std::vector<std::string>& formats, std::string doc) {
  return {.name = "format", .value = Join(formats, "|"), .doc = std::move(doc)};
}

void CheckFormat(const std::vector<std::string>& formats) {
  if (std::ranges::find(formats, FLAGS_format) == formats.end()) {
    throw UsageError(
        StrCat("no format \"", FLAGS_format, "\", must be ", Join(formats, " or "), DidYouMean(FLAGS_format, formats)));
  }
}

}  // namespace stepnet::runner
