#include "stepnet/nets/placement.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "stepnet/core/index_of.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

// Caffe2 has other numbers, too.
constexpr int kMkldnnType = 2;  // back ends of the CPU; ours chooses for itself
constexpr int kIdeepType = 5;

class Placer {
 public:
  Placer(const NetDef& net, const RunOptions& options) : net_(net), options_(options) {
    for (const OperatorDef& op : net.op()) {
      names_.insert(op.input().begin(), op.input().end());
      names_.insert(op.output().begin(), op.output().end());
    }
  }

  PlacedNet Run() {
    placed_ = net_;
    placed_.clear_op();
    for (const OperatorDef& op : net_.op()) {
      if (const Device device = PlaceOf(op, net_, options_); !device.IsHost()) other_ = device;
    }
    for (origin_ = 0; origin_ < net_.op_size(); ++origin_) AddOperator(net_.op(origin_));
    result_.net = std::make_shared<const NetDef>(std::move(placed_));
    return std::move(result_);
  }

 private:
  struct Version {
    std::optional<Device> device = {};  // nothing: what the net finds, wherever it lies
    std::string on_host = {};           // the blob that holds a copy of it there
  };

  void AddOperator(const OperatorDef& op) {
    const Device device = PlaceOf(op, net_, options_);
    const Kernel& kernel = *GetOperator(op.type()).FindKernel(device.kind);
    OperatorDef placed = op;
    std::map<std::string, std::string> written_on_host;  // in place of which blob
    for (int i = 0; i < op.input_size(); ++i) {
      if (IndexOf(kernel.host_inputs, i) >= 0) continue;
      const std::string& blob = op.input(i);
      if (!device.IsHost()) {
        BringTo(device, blob);
      } else if (const Version& version = versions_[blob]; !version.device) {
        Copy("EnsureCPUOutput", blob, blob, other_);
        versions_[blob] = {.device = device};
      } else if (!version.device->IsHost()) {
        placed.set_input(i, HostCopyOf(blob));
        written_on_host[blob] = placed.input(i);
      }
    }
    // What works in place of a copy gives its value back.
    std::vector<std::string> give_back;
    for (int o = 0; o < op.output_size(); ++o) {
      const auto copy = written_on_host.find(op.output(o));
      if (copy == written_on_host.end()) continue;
      placed.set_output(o, copy->second);
      give_back.push_back(op.output(o));
    }
    Append(std::move(placed), device);
    for (int o = 0; o < op.output_size(); ++o) {
      const bool on_host = IndexOf(kernel.host_outputs, o) >= 0;
      if (std::ranges::find(give_back, op.output(o)) != give_back.end()) continue;
      versions_[op.output(o)] = {.device = on_host ? Device{} : device};
    }
    for (const std::string& blob : give_back) {
      const Device home = *versions_[blob].device;
      Copy("CopyFromCPUInput", written_on_host.at(blob), blob, home);
      versions_[blob] = {.device = home, .on_host = written_on_host.at(blob)};
    }
  }

  void BringTo(Device device, const std::string& blob) {
    Version& version = versions_[blob];
    if (version.device == device) return;
    if (!version.device) result_.entries.push_back(placed_.op_size());
    Copy("CopyFromCPUInput", blob, blob, device);
    version = {.device = device};
  }

  const std::string& HostCopyOf(const std::string& blob) {
    Version& version = versions_[blob];
    if (version.on_host.empty()) {
      version.on_host = blob + "_cpu";
      while (!names_.insert(version.on_host).second) version.on_host += "_";
      Copy("EnsureCPUOutput", blob, version.on_host, *version.device);
    }
    return version.on_host;
  }

  void Copy(const char* type, const std::string& from, const std::string& to, Device device) {
    OperatorDef copy;
    copy.set_type(type);
    copy.add_input(from);
    copy.add_output(to);
    Append(std::move(copy), device);
  }

  void Append(OperatorDef op, Device device) {
    if (device.kind != DeviceKind::kPrivate) {
      DeviceOption* option = op.mutable_device_option();
      option->set_device_type(device.IsHost() ? kCpuType : kCudaType);
      if (!device.IsHost()) option->set_cuda_gpu_id(device.index);
    }
    *placed_.add_op() = std::move(op);
    result_.devices.push_back(device);
    result_.origins.push_back(origin_);
  }

  const NetDef& net_;
  const RunOptions& options_;
  Device other_;  // one of those that are not the CPU
  std::set<std::string> names_;
  std::map<std::string, Version> versions_;
  int origin_ = 0;
  NetDef placed_;
  PlacedNet result_;
};

// That of the net holds for operators that have none.
std::shared_ptr<const NetDef> WithDeviceOptions(const NetDef& net) {
  auto with = std::make_shared<NetDef>(net);
  for (OperatorDef& op : *with->mutable_op()) {
    if (!op.has_device_option()) *op.mutable_device_option() = net.device_option();
  }
  return with;
}

}  // namespace

static std::int16_t GpuNumber(std::int64_t number) {
  constexpr std::int64_t kMax = std::numeric_limits<std::int16_t>::max();
  if (number >= 0 && number <= kMax) return static_cast<std::int16_t>(number);
  throw Error(ErrorCode::kInvalidArgument, StrCat("cuda_gpu_id is ", number, ", must be from 0 to ", kMax));
}

std::optional<Device> DeviceAskedFor(const OperatorDef& op, const NetDef& net) {
  const DeviceOption& option = op.has_device_option() ? op.device_option() : net.device_option();
  if (!option.has_device_type()) return {};
  switch (option.device_type()) {
    case kCpuType:
    case kMkldnnType:
    case kIdeepType: return Device{};
    case kCudaType: return Device{.kind = DeviceKind::kCuda, .index = GpuNumber(option.cuda_gpu_id())};
    default:
      throw Error(ErrorCode::kInvalidArgument, StrCat("the net places ", op.type(), " on device type ",
                                                      option.device_type(), ", which is unknown here"));
  }
}

Device PlaceOf(const OperatorDef& op, const NetDef& net, const RunOptions& options) {
  const std::optional<Device> asked = DeviceAskedFor(op, net);
  const Device device = asked.value_or(options.device());
  if (device.IsHost()) return device;  // whether or not the type has a kernel there
  static_cast<void>(GetDeviceSpec(device.kind));
  return GetOperator(op.type()).FindKernel(device.kind) != nullptr ? device : Device{};
}

PlacedNet Place(std::shared_ptr<const NetDef> net, const RunOptions& options) {
  if (net->has_device_option()) net = WithDeviceOptions(*net);
  const auto is_on_host = [&](const OperatorDef& op) { return PlaceOf(op, *net, options).IsHost(); };
  if (!std::ranges::all_of(net->op(), is_on_host)) return Placer(*net, options).Run();
  PlacedNet placed{
      .net = net, .devices = std::vector<Device>(net->op_size()), .origins = std::vector<int>(net->op_size())};
  std::iota(placed.origins.begin(), placed.origins.end(), 0);
  return placed;
}

}  // namespace stepnet
