// What a build with sanitizers does less of: each trial takes it many times as long.
#pragma once

#include <cstdint>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define STEPNET_IS_SANITIZED 1
#elif defined(__has_feature)
#define STEPNET_IS_SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define STEPNET_IS_SANITIZED 0
#endif

namespace stepnet {

inline constexpr bool kIsSanitized = STEPNET_IS_SANITIZED;

// How many trials a build makes of so many: a third with sanitizers, all without.
constexpr int FewerIfSanitized(int usual) { return kIsSanitized ? (usual + 2) / 3 : usual; }

// Whether a build makes trial number `trial`, from 0, of many: each third with sanitizers, all without.
constexpr bool IsTried(std::int64_t trial) { return !kIsSanitized || trial % 3 == 0; }

}  // namespace stepnet
