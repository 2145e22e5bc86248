// NamedTensors: tensors by their names, as files hold them, and what readers of such files are asked for.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "stepnet/core/tensor.h"

namespace stepnet {

// Tensors stand in the order of the file; no name comes twice.
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;
using NamedInfos = std::vector<std::pair<std::string, TensorInfo>>;

// Which tensors of a file are wanted, by name; others are skipped without being looked at. Empty: all.
using NameFilter = std::function<bool(const std::string& name)>;
inline bool IsWanted(const NameFilter& wanted, const std::string& name) { return !wanted || wanted(name); }

// Where the elements of a tensor go: a tensor of the host with that dtype and shape, which are those that a file says.
// An undefined one: nowhere; the file is read and checked all the same.
using PlaceFinder = std::function<Tensor(const std::string& name, DType dtype, const Shape& shape)>;

// A wanted tensor of a file, and the place that a PlaceFinder gave for it.
struct FoundTensor {
  std::string name;
  TensorInfo info;
  Tensor place;
};
using FoundTensors = std::vector<FoundTensor>;

}  // namespace stepnet
