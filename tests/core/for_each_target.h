// ForEachTarget: runs a test with the code for each instruction set, as HWY_DYNAMIC_DISPATCH would choose it on
// machines that have no better one.
#pragma once

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cstdint>

namespace stepnet {

// Calls fn once for every instruction set of this machine that the library has code for.
template <typename Fn>
void ForEachTarget(Fn fn) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    fn();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace stepnet
