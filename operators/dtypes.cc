#include "stepnet/operators/dtypes.h"

#include <algorithm>
#include <cstring>

#include "stepnet/core/cancellation.h"

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
      InBlocks(length, kWorkOfString, [&](std::int64_t begin, std::int64_t end) {
        std::copy(source + r * from_step + begin, source + r * from_step + end, target + r * to_step + begin);
      });
    }
    return;
  }
  const std::int64_t bytes = DTypeBytes(dtype);
  for (std::int64_t r = 0; r < rows; ++r) {
    InBlocks(length, 1, [&](std::int64_t begin, std::int64_t end) {
      std::memcpy(to + (r * to_step + begin) * bytes, from + (r * from_step + begin) * bytes,
                  static_cast<size_t>((end - begin) * bytes));
    });
  }
}

void ClearElements(DType dtype, std::byte* to, std::int64_t n) {
  if (dtype == DType::kString) {
    auto* target = reinterpret_cast<std::string*>(to);
    InBlocks(n, kWorkOfString,
             [&](std::int64_t begin, std::int64_t end) { std::fill(target + begin, target + end, std::string()); });
  } else {
    const std::int64_t bytes = DTypeBytes(dtype);
    InBlocks(n, 1, [&](std::int64_t begin, std::int64_t end) {
      std::memset(to + begin * bytes, 0, static_cast<size_t>((end - begin) * bytes));
    });
  }
}

}  // namespace stepnet
