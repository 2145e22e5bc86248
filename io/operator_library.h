// Shared libraries of operators.
#pragma once

#include <string>

namespace stepnet {

// Loads a shared library whose registrations add operators. It finds StepNet's symbols in the program or shared library
// that this function is in, however that was opened. It is loaded in a process of its own first, so that a library
// which fails while it is loaded, or registers something wrongly, leaves nothing in this one. Throws kInputOutput for a file that is no whole library, one that
// was built for another version (core/abi.h), and one that cannot be loaded; kInvalidNet for a type that is registered
// already. No other thread may be loading libraries at the same time.
void LoadOperatorLibrary(const std::string& path);

}  // namespace stepnet
