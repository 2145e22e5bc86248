#include "tested_devices.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "stepnet/core/executor_registry.h"
#include "stepnet/core/operator.h"
#include "stepnet/core/strings.h"
#include "stepnet/nets/net.h"
#include "stepnet/nets/net_check.h"
#include "stepnet/tests/executor/recurrent_case.h"

namespace stepnet {
namespace {

template <typename T>
void ExpectNearElements(const Tensor& found, const Tensor& expected, double tolerance, bool where_finite,
                        const std::string& what) {
  // Smaller ones may be what is left of terms that are larger.
  constexpr double kLeast = 0.1;
  const T *a = found.data<T>(), *b = expected.data<T>();
  double largest = kLeast;
  for (std::int64_t i = 0; i < expected.size(); ++i) {
    if (std::isfinite(b[i])) largest = std::max<double>(largest, std::abs(b[i]));
  }
  for (std::int64_t i = 0; i < expected.size(); ++i) {
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i])) || (where_finite && !std::isfinite(b[i]))) continue;
    ASSERT_LE(std::abs(static_cast<double>(a[i]) - b[i]), tolerance * largest)
        << "element " << i << " of " << what << " is " << a[i] << ", not " << b[i] << "; the largest is " << largest;
  }
}

Tensor As(DType dtype, const Tensor& tensor) {
  const bool is_floating = tensor.dtype() == DType::kFloat || tensor.dtype() == DType::kDouble;
  if (!is_floating || tensor.dtype() == dtype) return tensor.Clone();
  const std::vector<double> values = Values(tensor);
  if (dtype == DType::kDouble) return Tensor::Of<double>(tensor.shape(), values);
  return Tensor::Of<float>(tensor.shape(), std::vector<float>(values.begin(), values.end()));
}

// What the run threw. Work that was put into a queue is done when it returns.
std::optional<Error> Refusal(const NetDef& def, Workspace& workspace, const RunOptions& options) {
  try {
    const auto net = Net::Create(def, workspace, options);
    net->Run();
    net->Wait();
    return {};
  } catch (const Error& error) {
    return error;
  }
}

// By which refusals on two devices are compared: each has memory of its own to speak of.
std::string KindOf(const std::optional<Error>& refusal) {
  if (!refusal) return "no error";
  return refusal->code() == ErrorCode::kOutOfMemory ? ErrorCodeName(refusal->code()) : refusal->message();
}

bool HoldsStrings(const Workspace& workspace) {
  return std::ranges::any_of(workspace.LocalBlobs(), [&](const std::string& name) {
    const Blob* blob = workspace.FindBlob(name);
    return blob->HasTensor() && blob->GetTensor().dtype() == DType::kString;
  });
}

bool HasSideEffects(const NetDef& net) {
  return std::ranges::any_of(net.op(), [](const OperatorDef& op) { return GetOperator(op.type()).has_side_effects; });
}

// Kernels of the CPU alone read packed weights, and add up in another order then.
const std::set<std::string> kUnlikeOtherDevices = {"pack_weights"};

}  // namespace

std::string TestedDeviceName(Device device) {
  return device.kind == DeviceKind::kPrivate ? "poison" : DeviceKindName(device.kind);
}

std::string WhyNoDeviceHere(Device device) {
  if (device.IsHost()) return "";
  try {
    RuntimeOf(device);
    return "";
  } catch (const Error& error) {
    return error.message();
  }
}

const std::vector<Device>& OtherDevices() {
  static const std::vector<Device> others = [] {
    std::vector<Device> found;
    for (const Device device : kTestedDevices) {
      if (!device.IsHost() && WhyNoDeviceHere(device).empty()) found.push_back(device);
    }
    return found;
  }();
  return others;
}

RunOptions OnEveryDevice::Options(int opt_level, const std::string& executor) const {
  RunOptions options{.opt_level = opt_level, .disabled_passes = kUnlikeOtherDevices};
  if (!GetParam().IsHost()) options = OnDevice(options, GetParam());
  if (!executor.empty()) options.executor = executor;
  return options;
}

std::vector<std::string> OnEveryDevice::Executors() const {
  std::vector<std::string> names = ExecutorNames(GetParam().kind);
  std::erase_if(names, [](const std::string& name) { return name.starts_with("test."); });
  return names;
}

RunOptions Reference(int opt_level) {
  return {.executor = "serial", .opt_level = opt_level, .disabled_passes = kUnlikeOtherDevices};
}

std::string WhyRefused(const NetDef& net, Device device) {
  if (device.IsHost()) return "";
  const std::vector<NetProblem> problems =
      CheckNet(net, {.run = OnDevice({}, device), .blob_exists = [](const std::string&) { return true; }});
  return problems.empty() ? "" : problems[0].Text();
}

Tolerance ToleranceOf(Device device) {
  return device.kind == DeviceKind::kCuda ? Tolerance{.of_float = 1e-5, .of_double = 1e-12} : Tolerance{};
}

void ExpectNearTensor(const Tensor& found_there, const Tensor& expected_there, Tolerance tolerance,
                      const std::string& what) {
  const Tensor found = found_there.To({}), expected = expected_there.To({});
  ASSERT_EQ(found.Description(), expected.Description()) << what;
  if (expected.dtype() == DType::kFloat && tolerance.of_float > 0) {
    ExpectNearElements<float>(found, expected, tolerance.of_float, tolerance.where_finite, what);
  } else if (expected.dtype() == DType::kDouble && tolerance.of_double > 0) {
    ExpectNearElements<double>(found, expected, tolerance.of_double, tolerance.where_finite, what);
  } else {
    ExpectSame(found, expected, what);
  }
}

void ExpectNearBlobs(const Workspace& found, const Workspace& expected, Tolerance tolerance, const std::string& what) {
  for (const std::string& name : expected.LocalBlobs()) {
    const Blob* blob = found.FindBlob(name);
    ASSERT_NE(blob, nullptr) << name << ", " << what;
    ASSERT_EQ(expected.FindBlob(name)->HasTensor(), blob->HasTensor()) << name << ", " << what;
    if (!blob->HasTensor()) continue;
    ExpectNearTensor(blob->GetTensor(), expected.GetTensor(name), tolerance, StrCat(name, ", ", what));
    if (testing::Test::HasFatalFailure()) return;
  }
}

void ExpectSameValues(const Workspace& found, const Workspace& expected, const std::string& what) {
  ExpectNearBlobs(found, expected, {}, what);
}

void FeedAs(DType dtype, const NamedInputs& inputs, Workspace& workspace) {
  for (const auto& [name, tensor] : inputs) workspace.SetTensor(name, As(dtype, tensor));
}

void Feed(const NamedInputs& inputs, Workspace& workspace) {
  for (const auto& [name, tensor] : inputs) workspace.SetTensor(name, tensor.Clone());
}

// Whether an operator has no kernel for the CPU.
static bool RunsOnDevicesAlone(const NetDef& net) {
  return std::ranges::any_of(net.op(), [](const OperatorDef& op) {
    const OperatorSchema* schema = FindOperator(op.type());
    return schema != nullptr && schema->FindKernel(DeviceKind::kCpu) == nullptr;
  });
}

// Plans that are cut as for a GPU, on the CPU: so machines without one see them too. Sums may round otherwise.
static void ExpectSameAtOnce(const NetDef& net, const std::function<void(Workspace&)>& feed,
                             const Workspace& expected) {
  const bool has_steps =
      std::ranges::any_of(net.op(), [](const OperatorDef& op) { return op.type().starts_with("RecurrentNetwork"); });
  if (!has_steps || HoldsStrings(expected) || HasSideEffects(net)) return;
  static constexpr Target kAtOnce = {.chunk_rows = 1024, .takes_all_over_time = true};
  Workspace workspace;
  feed(workspace);
  RunNetOnce(net, workspace, {.target = &kAtOnce});
  ExpectNearBlobs(workspace, expected, {.of_float = 1e-5, .of_double = 1e-12},
                  StrCat("many steps at once: ", net.ShortDebugString()));
}

void RunOnEveryDevice(const NetDef& net, const std::function<void(Workspace&)>& feed, Workspace& on_cpu) {
  feed(on_cpu);
  const std::optional<Error> refusal = Refusal(net, on_cpu, {});
  for (const Device device : OtherDevices()) {
    if (HoldsStrings(on_cpu) || HasSideEffects(net)) break;  // strings lie nowhere else; effects are wanted once
    if (refusal && RunsOnDevicesAlone(net)) continue;
    const std::string what = StrCat("on ", device, ": ", net.ShortDebugString());
    Workspace there;
    feed(there);
    const std::optional<Error> refusal_there = Refusal(net, there, OnDevice({}, device));
    if (refusal_there && !WhyRefused(net, device).empty()) continue;
    // Integers of 8 and 16 bits stay on the CPU, and what has very many operands.
    if (refusal_there && refusal_there->message().ends_with("; device_option places it on the CPU")) continue;
    EXPECT_EQ(KindOf(refusal_there), KindOf(refusal)) << what;
    if (!refusal && !refusal_there) ExpectNearBlobs(there, on_cpu, ToleranceOf(device), what);
  }
  if (!refusal) ExpectSameAtOnce(net, feed, on_cpu);
  if (refusal) throw Error(*refusal);
}

}  // namespace stepnet
