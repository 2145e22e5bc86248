// What a reduction over dimensions is given, and the shapes that it gives.
#pragma once

#include <cstdint>
#include <vector>

#include "stepnet/core/shape.h"

namespace stepnet {

struct ReductionCase {
  Shape x;
  std::vector<std::int64_t> axes;
  Shape kept;      // with keepdims
  Shape squeezed;  // without
};

}  // namespace stepnet
