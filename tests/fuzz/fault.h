// What libFuzzer's targets do with a fault.
#pragma once

#include <cstdlib>
#include <iostream>

#include "trials.h"

namespace stepnet {

inline void AbortAtFault(const TrialResult& result) {
  if (result.fault.empty()) return;
  std::cerr << result.fault << "\n";
  std::abort();
}

}  // namespace stepnet
