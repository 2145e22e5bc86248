// One test body for every device: the CPU, the poison device, and a GPU where there is one.
//
//   class Sums : public OnEveryDevice {};
//   INSTANTIATE_ON_EVERY_DEVICE(Sums);
//   TEST_P(Sums, AreThoseOfTheCpu) { … Net::Create(net, workspace, Options()) … }
//
// What the CPU's serial executor computes is what others are compared with.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "stepnet/core/run_options.h"
#include "stepnet/core/workspace.h"
#include "stepnet/proto/net.pb.h"
#include "stepnet/tests/poison_device/poison_device.h"

namespace stepnet {

inline constexpr Device kCuda = {.kind = DeviceKind::kCuda};
inline constexpr Device kTestedDevices[] = {Device{}, kPoisonDevice, kCuda};

// "cpu", "poison", "cuda": in names of tests.
std::string TestedDeviceName(Device device);
// "" or why there is no such device here.
std::string WhyNoDeviceHere(Device device);
// Those that there are here, without the CPU.
const std::vector<Device>& OtherDevices();

class OnEveryDevice : public testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNoDeviceHere(GetParam()); !why.empty()) GTEST_SKIP() << why;
  }
  // Where nobody chooses the executor, it is the one that the device has then.
  RunOptions Options(int opt_level = kMaxOptLevel, const std::string& executor = "") const;
  // The executors of the device, without those of other tests.
  std::vector<std::string> Executors() const;
};
#define INSTANTIATE_ON_EVERY_DEVICE(suite)                                        \
  INSTANTIATE_TEST_SUITE_P(, suite, testing::ValuesIn(::stepnet::kTestedDevices), \
                           [](const auto& info) { return ::stepnet::TestedDeviceName(info.param); })

// How a run on the serial executor of the CPU is asked for, whose products add up as those of other devices do.
RunOptions Reference(int opt_level = kMaxOptLevel);

// "" or the first reason why the device does not run the net: a step net with an operator for which it has no kernel.
// Needs no such device.
std::string WhyRefused(const NetDef& net, Device device);

// How far from what the CPU computed a device may be, as parts of the largest finite element, or of 0.1 where all are
// less. Where both are 0 the bits are the same.
struct Tolerance {
  double of_float = 0;
  double of_double = 0;
  bool where_finite = false;  // numbers that grow may end in infinity, where rounding decides when
};
// Devices that run the kernels of the CPU have its bits. Functions and sums of a GPU round differently.
Tolerance ToleranceOf(Device device);

// Tensors on any device. Elements that are no floating-point numbers are the same, whatever the tolerance.
void ExpectNearTensor(const Tensor& found, const Tensor& expected, Tolerance tolerance, const std::string& what);
// Every tensor that `expected` holds is in `found` too. What placement adds there is not looked at.
void ExpectNearBlobs(const Workspace& found, const Workspace& expected, Tolerance tolerance, const std::string& what);
// The same, bit for bit.
void ExpectSameValues(const Workspace& found, const Workspace& expected, const std::string& what);

using NamedInputs = std::map<std::string, Tensor>;
// Copies of the tensors, floating-point ones as this dtype.
void FeedAs(DType dtype, const NamedInputs& inputs, Workspace& workspace);
void Feed(const NamedInputs& inputs, Workspace& workspace);

// Runs the net on the CPU, in `on_cpu`, and on each of OtherDevices, in workspaces of their own, which have to compute
// the same, or to refuse it with the same message, unless there are strings, side effects or step nets without kernels
// there. `feed` puts in what the net reads. Throws what the CPU throws.
void RunOnEveryDevice(const NetDef& net, const std::function<void(Workspace&)>& feed, Workspace& on_cpu);

}  // namespace stepnet
