#include "stepnet/operators/dtypes.h"

#include <algorithm>
#include <cstring>

namespace stepnet {

DType DTypeOfCode(std::int64_t code, const std::string& argument) {
  switch (code) {
    case 1: return DType::kFloat;
    case 2: return DType::kInt32;
    case 3:  // "byte"
    case 6: return DType::kUInt8;
    case 4: return DType::kString;
    case 5: return DType::kBool;
    case 7: return DType::kInt8;
    case 8: return DType::kUInt16;
    case 9: return DType::kInt16;
    case 10: return DType::kInt64;
    case 12: return DType::kFloat16;
    case 13: return DType::kDouble;
    case 1000: return DType::kBFloat16;
    default: break;
  }
  throw Error(ErrorCode::kInvalidArgument,
              StrCat(argument, " is ", code,
                     ", which is no dtype; dtypes are 1 float, 2 int32, 4 string, 5 bool, 6 uint8, 7 int8, 8 uint16, "
                     "9 int16, 10 int64, 12 float16, 13 double, 1000 bfloat16"));
}

void CopyRuns(DType dtype, const std::byte* from, std::int64_t from_step, std::byte* to, std::int64_t to_step,
              std::int64_t length, std::int64_t rows) {
  if (length == 0) return;
  if (from_step == length && to_step == length) {
    length *= rows;
    rows = std::min<std::int64_t>(rows, 1);
  }
  if (dtype == DType::kString) {
    const auto* source = reinterpret_cast<const std::string*>(from);
    auto* target = reinterpret_cast<std::string*>(to);
    for (std::int64_t r = 0; r < rows; ++r) {
      std::copy(source + r * from_step, source + r * from_step + length, target + r * to_step);
    }
    return;
  }
  const std::int64_t bytes = DTypeBytes(dtype);
  for (std::int64_t r = 0; r < rows; ++r) {
    std::memcpy(to + r * to_step * bytes, from + r * from_step * bytes, static_cast<size_t>(length * bytes));
  }
}

void ClearElements(DType dtype, std::byte* to, std::int64_t n) {
  if (dtype == DType::kString) {
    auto* target = reinterpret_cast<std::string*>(to);
    std::fill(target, target + n, std::string());
  } else {
    std::memset(to, 0, static_cast<size_t>(n * DTypeBytes(dtype)));
  }
}

}  // namespace stepnet
