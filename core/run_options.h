// What whoever runs a net chooses.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "stepnet/core/target.h"

namespace stepnet {

struct StepGraph;
struct StepPlan;

inline constexpr int kMaxOptLevel = 2;

// How products of float are computed.
enum class Math : std::uint8_t {
  kFloat32,  // exactly: products and sums of float
  kTf32,     // factors rounded to 10 bits behind the point, on tensor cores; sums are of float
};
inline constexpr Math kMaths[] = {Math::kFloat32, Math::kTf32};
const char* MathName(Math math);  // "float32", "tf32"

// How nets made from files are to be run; operators that run nets themselves read it.
struct RunOptions {
  std::string executor = "parallel";
  const Target* target = &kCpuTarget;  // the machine that plans are for; operators have kernels for its device
  std::int16_t device_index = 0;       // which of the devices of this kind
  int threads = 0;                     // 0: as many as the machine has cores
  // What passes may do (compiler/passes/passes.h). 0: every operator runs once a step, in the order of the net; what
  // only moves and outputs that nobody reads may go, and a term is added where its sum lies. 1: operators become one,
  // run once or not at all where that changes no bit. 2: also where it changes results within rounding; what need not
  // wait for its turn in the loop runs for many steps at once.
  int opt_level = kMaxOptLevel;
  Math math = Math::kFloat32;  // other than float32: on a GPU alone
  std::uint64_t seed = 0;
  // The folder in which, and below which, operators may open files; empty: none (core/allowed_files.h).
  std::string allow_files = {};
  bool quiet = false;  // operators print nothing
  // Passes that are left out when plans of step nets are made, by name (compiler/passes/passes.h).
  std::set<std::string> disabled_passes = {};
  // Told of every step net after each pass (compiler/step_graph.h).
  std::function<void(const std::string& pass, const StepGraph& graph)> on_pass = {};
  // Told of every plan of a step net when it is made (compiler/step_plan.h).
  std::function<void(const StepPlan& plan)> on_plan = {};

  Device device() const { return {.kind = target->device, .index = device_index}; }
};

// The same options for another device, with its target and the executor that it has where nobody chooses; on the host
// math is float32. Throws kInvalidArgument where this program knows no such devices.
RunOptions OnDevice(const RunOptions& options, Device device);

// The options of a run, made once for all operators on one device.
class SharedOptions {
 public:
  explicit SharedOptions(const RunOptions& options);
  // Returns what OnDevice gives for the device.
  const std::shared_ptr<const RunOptions>& On(Device device);

 private:
  std::vector<std::shared_ptr<const RunOptions>> by_device_;  // the given ones first
};

}  // namespace stepnet
