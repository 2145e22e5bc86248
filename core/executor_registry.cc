#include "stepnet/core/executor_registry.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

using Key = std::pair<std::string, DeviceKind>;

struct Entry {
  ExecutorFactory make;
  ExecutorProperties properties;
  bool is_duplicate = false;
};

struct Registry {
  std::mutex mutex;
  std::map<Key, Entry> entries;
};

Registry& TheRegistry() {
  static Registry registry;
  return registry;
}

std::optional<Entry> Find(const RunOptions& options) {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  const auto found = registry.entries.find(Key(options.executor, options.target->device));
  return found == registry.entries.end() ? std::nullopt : std::optional(found->second);
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

ExecutorRegistration::ExecutorRegistration(std::string name, DeviceKind device, ExecutorFactory make,
                                           ExecutorProperties properties) {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  const auto [entry, is_new] =
      registry.entries.try_emplace(Key(std::move(name), device), Entry{std::move(make), properties});
  if (!is_new) entry->second.is_duplicate = true;
}

std::shared_ptr<const Executor> MakeExecutor(const RunOptions& options) {
  const DeviceKind device = options.target->device;
  const std::optional<Entry> found = Find(options);
  if (!found) throw Error(ErrorCode::kInvalidArgument, NoExecutor(options.executor, device));
  if (found->is_duplicate) {
    throw Error(ErrorCode::kInvalidArgument, StrCat("the executor \"", options.executor, "\" of the device ",
                                                    DeviceKindName(device), " is registered twice"));
  }
  return found->make();
}

ExecutorProperties ExecutorPropertiesOf(const RunOptions& options) {
  const std::optional<Entry> found = Find(options);
  return found ? found->properties : ExecutorProperties();
}

std::vector<std::string> ExecutorNames(DeviceKind device) {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  std::vector<std::string> names;
  for (const auto& [key, entry] : registry.entries) {
    if (key.second == device) names.push_back(key.first);
  }
  return names;
}

}  // namespace stepnet
