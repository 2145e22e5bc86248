// Regions that run as one kernel, each group through all of them, against what they give one after the other.
#pragma once

#include <string>

#include "region_runner.h"

namespace stepnet {

// "", or what a runner gives otherwise, with the kernels: of rows, gates of rows, elements, and rows of parts of rows,
// for few and many, short and long ones.
std::string FirstWrongJoined(RegionRunner& runner);

}  // namespace stepnet
