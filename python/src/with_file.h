// The file of a net in the errors of what is done with it.
#pragma once

#include <algorithm>
#include <string>

#include "stepnet/core/error.h"

namespace stepnet::python {

// Calls `work`. What it throws says that the net is of `file`, unless it names a file itself; "" for a net of no file.
template <typename Work>
auto WithFile(const std::string& file, const Work& work) {
  try {
    return work();
  } catch (Error& error) {
    const bool names_file = std::ranges::any_of(error.places(), [](const Place& place) { return !place.file.empty(); });
    if (file.empty() || names_file || error.message().find(file) != std::string::npos) throw;
    throw error.At({.file = file});
  }
}

}  // namespace stepnet::python
