#include "stepnet/core/memory_fill.h"

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

std::optional<std::uint8_t> FromEnvironment() {
  const char* text = std::getenv("STEPNET_FILL_MEMORY");
  if (text == nullptr || *text == '\0') return std::nullopt;
  const std::string_view digits(text);
  std::uint8_t byte = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), byte);
  if (error != std::errc() || end != digits.data() + digits.size()) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("the environment variable STEPNET_FILL_MEMORY is \"", digits, "\"; it must be 0 to 255"));
  }
  return byte;
}

std::optional<std::uint8_t>& Fill() {
  static std::optional<std::uint8_t> fill = FromEnvironment();
  return fill;
}

}  // namespace

void SetMemoryFill(std::optional<std::uint8_t> byte) { Fill() = byte; }
std::optional<std::uint8_t> MemoryFill() { return Fill(); }

void FillUnwritten(void* data, std::int64_t bytes) {
  if (const std::optional<std::uint8_t> fill = Fill(); fill && bytes > 0) {
    std::memset(data, *fill, static_cast<size_t>(bytes));
  }
}

}  // namespace stepnet
