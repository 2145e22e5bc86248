#include "stepnet/core/abi.h"

#include "stepnet/core/strings.h"

namespace stepnet {

std::string Abi::Text() const {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (int shift = 28; shift >= 0; shift -= 4) hex += kDigits[layout >> shift & 15];
  return StrCat(version, " (layout ", hex, ")");
}

}  // namespace stepnet
