// WithMemoryFor: errors of memory that is not there say what it is for, where no operator says it.
#pragma once

#include <string>
#include <string_view>

#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"

namespace stepnet {

// Returns what `make` does. Where that throws kOutOfMemory, the message begins with what there is no memory for: "a
// copy of the output", and the name of a blob. For what allocates by itself: places of the error are not kept.
template <typename Make>
auto WithMemoryFor(std::string_view what, std::string_view name, const Make& make) {
  try {
    return make();
  } catch (...) {
    const Error error = CurrentError();
    if (error.code() != ErrorCode::kOutOfMemory) throw;
    throw Error(error.code(), StrCat("there is no memory for ", what, " \"", name, "\": ", error.message()));
  }
}

}  // namespace stepnet
