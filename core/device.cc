#include "stepnet/core/device.h"

#include <charconv>
#include <map>
#include <mutex>
#include <ostream>

#include "stepnet/core/error.h"
#include "stepnet/core/fault_record.h"
#include "stepnet/core/strings.h"
#include "stepnet/core/tensor.h"

namespace stepnet {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<DeviceKind, DeviceSpec> specs;
};

Registry& TheRegistry() {
  static Registry& registry = *new Registry;  // tensors at namespace scope give memory back late
  return registry;
}

}  // namespace

void Queue::CopyToEach(const void* from, void* to, std::int64_t bytes, std::int64_t count) {
  for (std::int64_t k = 0; k < count; ++k) Copy(from, static_cast<std::byte*>(to) + k * bytes, bytes);
}

void Queue::AddEach(const void* from, void* to, DType dtype, std::int64_t size, std::int64_t count) {
  const std::int64_t bytes = size * DTypeBytes(dtype);
  for (std::int64_t k = 0; k < count; ++k) Add(static_cast<const std::byte*>(from) + k * bytes, to, dtype, size);
}

const char* DeviceKindName(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kCpu: return "cpu";
    case DeviceKind::kCuda: return "cuda";
    case DeviceKind::kPrivate: return "private";
  }
  return "unknown";
}

std::string DeviceName(const Device& device) {
  return device.IsHost() ? DeviceKindName(device.kind) : StrCat(DeviceKindName(device.kind), ":", device.index);
}

std::ostream& operator<<(std::ostream& out, const Device& device) { return out << DeviceName(device); }

Device ParseDevice(const std::string& text) {
  const size_t colon = text.find(':');
  for (const DeviceKind kind : kDeviceKinds) {
    if (text.substr(0, colon) != DeviceKindName(kind)) continue;
    if (colon == std::string::npos) return {.kind = kind};
    std::int16_t index = -1;
    const char* const end = text.data() + text.size();
    const auto [last, failed] = std::from_chars(text.data() + colon + 1, end, index);
    if (kind == DeviceKind::kCpu || failed != std::errc() || last != end || index < 0) break;
    return {.kind = kind, .index = index};
  }
  throw Error(ErrorCode::kInvalidArgument,
              StrCat("\"", text, "\" is no device; there is cpu, cuda, and cuda:N for one of several"));
}

DeviceRegistration::DeviceRegistration(DeviceKind kind, DeviceSpec spec) {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  registry.specs[kind] = std::move(spec);
}

const DeviceSpec* FindDeviceSpec(DeviceKind kind) {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  const auto found = registry.specs.find(kind);
  return found == registry.specs.end() ? nullptr : &found->second;
}

const DeviceSpec& GetDeviceSpec(DeviceKind kind) {
  if (const DeviceSpec* spec = FindDeviceSpec(kind)) return *spec;
  throw Error(ErrorCode::kInvalidArgument, StrCat("this program was built without ", DeviceKindName(kind)));
}

std::unique_ptr<LateFaults> DeviceRuntime::MakeLateFaults() { return nullptr; }

void DeviceRuntime::WhenDone(std::function<void()> then) noexcept {
  try {
    queue().Wait();
  } catch (...) {  // what failed does nothing any more
  }
  then();
}

DeviceRuntime& RuntimeOf(const Device& device) { return GetDeviceSpec(device.kind).open(device.index); }

}  // namespace stepnet
