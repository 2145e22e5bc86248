// Numbers in messages.
#pragma once

#include <string>

namespace stepnet {

// A whole number with all its digits, "4294967295" and not "4.29497e+09"; any other as streams print it.
std::string NumberText(double value);

}  // namespace stepnet
