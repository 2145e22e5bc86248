#include "stepnet/executor/executor.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

using Key = std::pair<std::string, DeviceKind>;

struct Registry {
  std::mutex mutex;
  std::map<Key, ExecutorFactory> factories;
  std::set<Key> duplicates;
};

Registry& TheRegistry() {
  static Registry registry;
  return registry;
}

// Says of a name that is not registered for a device what is.
std::string NoExecutor(const std::string& name, DeviceKind device) {
  const std::vector<std::string> names = ExecutorNames(device);
  std::string text = StrCat("no executor \"", name, "\" for ", DeviceKindName(device));
  text += names.empty() ? ", which has none" : StrCat("; there is ", Join(names, ", "), DidYouMean(name, names));
  for (const DeviceKind other : kDeviceKinds) {
    const std::vector<std::string> of_other = ExecutorNames(other);
    if (std::ranges::find(of_other, name) != of_other.end()) text += StrCat("; ", DeviceKindName(other), " has one");
  }
  return text;
}

}  // namespace

void Executor::Run(RunState& state, RunContext& context) const {
  const StepPlan& plan = state.plan();
  const ObservedScope scope(context.observers, state.LoopEvent(RunEventKind::kLoop));
  context.UseDevice(state.device());
  state.RunMovesBefore(context);
  try {
    if (!plan.does_nothing) RunSteps(state, context);
  } catch (const Error& error) {
    // What was thrown may come of the value with which a kernel went on.
    if (error.code() == ErrorCode::kCancelled || !state.faults().any()) throw;
  }
  state.faults().Throw();
  state.RunMovesAfter(context);
}

ExecutorRegistration::ExecutorRegistration(std::string name, DeviceKind device, ExecutorFactory make) {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  const Key key(std::move(name), device);
  if (!registry.factories.emplace(key, std::move(make)).second) registry.duplicates.insert(key);
}

std::shared_ptr<const Executor> MakeExecutor(const RunOptions& options) {
  const DeviceKind device = options.target->device;
  ExecutorFactory make;
  {
    Registry& registry = TheRegistry();
    const std::lock_guard lock(registry.mutex);
    const Key key(options.executor, device);
    const auto found = registry.factories.find(key);
    if (found != registry.factories.end()) {
      if (registry.duplicates.contains(key)) {
        throw Error(ErrorCode::kInvalidArgument, StrCat("the executor \"", options.executor, "\" of the device ",
                                                        DeviceKindName(device), " is registered twice"));
      }
      make = found->second;
    }
  }
  if (make) return make();
  throw Error(ErrorCode::kInvalidArgument, NoExecutor(options.executor, device));
}

std::vector<std::string> ExecutorNames(DeviceKind device) {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  std::vector<std::string> names;
  for (const auto& [key, make] : registry.factories) {
    if (key.second == device) names.push_back(key.first);
  }
  return names;
}

}  // namespace stepnet
