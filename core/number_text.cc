#include "stepnet/core/number_text.h"

#include <cmath>
#include <cstdint>

#include "stepnet/core/strings.h"

namespace stepnet {

std::string NumberText(double value) {
  constexpr double kMaxWhole = 0x1p53;  // beyond it not every whole number has a double
  const bool is_whole = std::abs(value) <= kMaxWhole && value == std::trunc(value);
  return is_whole ? StrCat(static_cast<std::int64_t>(value)) : StrCat(value);
}

}  // namespace stepnet
