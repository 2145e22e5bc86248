// Shared libraries of operators, looked at before this process loads them.
#pragma once

#include <string>

namespace stepnet {

// Throws kInputOutput, without running anything of it, unless `path` is a whole shared library of this machine that was
// built for this version of StepNet.
void CheckOperatorLibrary(const std::string& path);

// Loads the library in a process of its own. What goes wrong there, constructors that throw or crash included; "" when
// it loads.
std::string FaultOfLoading(const std::string& path);

}  // namespace stepnet
