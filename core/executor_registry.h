// The executors that there are, and what has to be known of one before it runs: what an Executor does is said in
// executor/executor.h.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "stepnet/core/device.h"
#include "stepnet/core/run_options.h"

namespace stepnet {

class Executor;
using ExecutorFactory = std::function<std::shared_ptr<const Executor>()>;

// What plans and nets have to know of the executor that they are for.
struct ExecutorProperties {
  // It may use RunOptions::threads threads. Operators outside of step nets then run in parts on as many.
  bool uses_threads = false;
  // It starts instructions when the schedules of a plan allow it, those of several steps at a time. Plans for it have
  // schedules, and rows for the temporaries of several steps.
  bool follows_schedules = false;
  // Runs on a device that has a Recorder are recorded and played: those of nets, and else those of step nets.
  bool records_runs = false;
};

// Makes an executor known, as a variable at namespace scope. On the CPU there are "serial": steps in order, operators
// in order, the reference for every other executor; and "parallel": every instruction of every step as soon as what it
// depends on is done, on threads of the process (docs/design.md); the same values, bit for bit.
class ExecutorRegistration {
 public:
  ExecutorRegistration(std::string name, DeviceKind device, ExecutorFactory make, ExecutorProperties properties = {});
};

// Gives the executor that `options` names. Throws kInvalidArgument for a name that is not registered, or twice, for the
// device of its target; the message lists those that are, and the devices that have one of this name.
std::shared_ptr<const Executor> MakeExecutor(const RunOptions& options);
// The properties of that executor; those of one that is not registered, which MakeExecutor refuses, are all false.
ExecutorProperties ExecutorPropertiesOf(const RunOptions& options);
std::vector<std::string> ExecutorNames(DeviceKind device);  // sorted

}  // namespace stepnet
