// Outputs of composed regions in the memory of inputs.
#pragma once

#include "stepnet/core/regions/region_composition.h"

namespace stepnet {

// Puts what is written of tensor `written` in place of what is read of tensor `read`, which are one memory: each block
// is to be read where it is written, and by none of the other blocks. False where it is not.
bool ShareMemory(int read, int written, ComposedRegion* composed);

}  // namespace stepnet
