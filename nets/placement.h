// Placement: which device each operator of a net runs on, and the copies that follow.
//
// An operator runs where its device_option says, or that of the net, otherwise on the device of the run; and on the
// CPU where the device has no kernel for it. What one device computes and another reads is copied by operators, which
// are there to be seen: EnsureCPUOutput to the CPU, CopyFromCPUInput to another device.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "stepnet/core/operator.h"

namespace stepnet {

// What files call devices (DeviceOption::device_type), by Caffe2's numbers.
inline constexpr int kCpuType = 0;
inline constexpr int kCudaType = 1;

// What its option says, if it says one: an option may be there for the seed alone. Throws kInvalidArgument for a type
// of device that this library does not know, and for a number that no GPU has.
std::optional<Device> DeviceAskedFor(const OperatorDef& op, const NetDef& net);
// Throws kInvalidArgument for devices that this program does not know, kInvalidNet for an unknown type of operator.
Device PlaceOf(const OperatorDef& op, const NetDef& net, const RunOptions& options);

// A net with the copies between devices, of which every operator has the device_option that holds for it; the same net
// where nothing is to be added.
struct PlacedNet {
  std::shared_ptr<const NetDef> net;
  std::vector<Device> devices;  // of each operator
  std::vector<int> origins;     // of each operator its index in the net before; of a copy that of the one it is for
  std::vector<int> entries;  // operators that bring an input of the net to the device, which any time before would do
};
// A blob that is in memory before the net runs goes to the device that reads it first and stays there, under its name;
// where it lay nobody knows before.
// REQUIRES: the net has been checked.
PlacedNet Place(std::shared_ptr<const NetDef> net, const RunOptions& options);

}  // namespace stepnet
