// What losses of labels mean by a class, on every device.
#pragma once

#include <cstdint>

namespace stepnet {

inline constexpr std::int64_t kNoClass = -1;  // of a row whose label is none
// As in Caffe2, smaller probabilities have the logarithm of this one.
inline constexpr double kLeastProbability = 1e-20;

}  // namespace stepnet
