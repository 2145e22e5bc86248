// DeviceArray: what a call leaves on a device, or what NumPy has no dtype for, for Python. Other libraries take it by
// DLPack, without a copy.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <string>

#include "stepnet/core/tensor.h"

namespace stepnet::python {

class DeviceArray {
 public:
  // `ready_on`: a stream that need not wait for it any more.
  DeviceArray(Tensor tensor, std::optional<StreamId> ready_on) : tensor_(std::move(tensor)), ready_on_(ready_on) {}

  nanobind::tuple shape() const;
  std::string dtype() const;
  std::string device() const { return DeviceName(tensor_.device()); }
  std::string Description() const;

  // A copy in the host's memory, for which the caller waits; of bfloat16 the floats that it holds. Needs the GIL.
  nanobind::object Numpy() const;
  // The same where the array is on the host, as `dtype` where that is no None; throws kTypeMismatch elsewhere, and
  // kInvalidArgument where there shall be no copy.
  nanobind::object AsNumpy(nanobind::handle dtype, nanobind::handle copy) const;
  // Gives the device as DLPack has it, a pair of numbers.
  nanobind::tuple DlpackDevice() const;
  // A capsule over the memory, which `stream` uses behind the work that fills it: None is the device's default stream,
  // -1 none. The memory is used for something else when whoever took it has let go of it, and that stream has done what
  // it was given before. Throws kInvalidArgument and kTypeMismatch for what is no stream, and raises BufferError for
  // another device. Needs the GIL.
  nanobind::object Dlpack(nanobind::handle stream, nanobind::handle max_version, nanobind::handle dl_device,
                          nanobind::handle copy) const;

 private:
  std::optional<StreamId> StreamOf(nanobind::handle stream) const;

  Tensor tensor_;
  std::optional<StreamId> ready_on_;
};

}  // namespace stepnet::python
