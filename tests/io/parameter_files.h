// The tensors of tests/io/files, which NumPy and the safetensors package wrote (its `make` says how).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "stepnet/io/named_tensors.h"

namespace stepnet {

// The path of one of the files.
std::string ParameterFile(const std::string& name);

// Element i of every array is i % 5 - 2: without its sign where the type has none; whether it is even for bool.
void ExpectWritten(const Tensor& tensor);

// Expects that each of `tensors` is there as it was written, and that their names are `names`, in any order.
void ExpectWritten(const NamedTensors& tensors, std::vector<std::string> names);

// Those that every file with tensors of every type has; the one of bfloat16 is "bfloat16".
std::vector<std::string> NamesWritten();

// Writes a file of one tensor, and expects an error of `read` where the file becomes shorter while it is read: the
// place finder that `read` is given cuts it off.
void ExpectNoticesCut(const std::string& name,
                      const std::function<void(const std::string& path, const PlaceFinder& cut_off)>& read);

}  // namespace stepnet
