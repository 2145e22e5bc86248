#include "every_stored.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "stepnet/core/expressions/expr_evaluate.h"
#include "stepnet/core/expressions/expr_text.h"
#include "stepnet/core/stored_float.h"
#include "stepnet/core/strings.h"
#include "stepnet/tests/core/expressions/random_exprs.h"

namespace stepnet {

std::vector<std::uint64_t> EveryStored(DType /*stored*/) {
  std::vector<std::uint64_t> all(1 << 16);
  for (size_t bits = 0; bits < all.size(); ++bits) all[bits] = bits;
  return all;
}

std::vector<std::uint64_t> NumbersAround(DType stored, DType from) {
  std::vector<double> numbers = {65519, 65520, 65536, 1e5, 1e19, 1e300, std::numeric_limits<double>::denorm_min()};
  for (const float x : {std::numeric_limits<float>::max(), std::numeric_limits<float>::denorm_min(),
                        std::numeric_limits<float>::min()}) {
    numbers.push_back(x);
  }
  for (const std::uint64_t bits : EveryStored(stored)) {
    const float x = Loaded({.dtype = stored, .bits = bits});
    numbers.push_back(x);
    // The middle between this one and the next; of bfloat16 one more bit of the same float.
    const float next = Loaded({.dtype = stored, .bits = bits + 1});
    if (std::isfinite(x) && std::isfinite(next)) numbers.push_back((double{x} + double{next}) / 2);
  }
  std::vector<std::uint64_t> values;
  ForExprType(from, [&](auto zero) {
    using T = decltype(zero);
    for (const double number : numbers) {
      const T x = scalar::Cast<T>(number);
      if constexpr (scalar::kIsFloat<T>) {
        constexpr T kInfinity = std::numeric_limits<T>::infinity();
        for (const T near : {std::nextafter(x, -kInfinity), x, std::nextafter(x, kInfinity), -x}) {
          values.push_back(ScalarOf(near).bits);
        }
      } else if constexpr (!std::is_same_v<T, bool>) {
        for (const T near : {scalar::Subtract(x, T{1}), x, scalar::Add(x, T{1})}) values.push_back(ScalarOf(near).bits);
      }
    }
  });
  return values;
}

std::vector<std::byte> Packed(const std::vector<std::uint64_t>& bits, DType dtype) {
  const auto bytes = static_cast<size_t>(DTypeBytes(dtype));
  std::vector<std::byte> memory(bytes * bits.size());
  for (size_t i = 0; i < bits.size(); ++i) std::memcpy(&memory[i * bytes], &bits[i], bytes);
  return memory;
}

std::string WrongConversion(const Region& region, const std::vector<std::uint64_t>& values, const void* results) {
  const DType from = region.inputs[0].dtype, to = region.outputs[0].memory.dtype;
  const auto bytes = static_cast<size_t>(DTypeBytes(to));
  for (size_t i = 0; i < values.size(); ++i) {
    const ExprScalar value{.dtype = from, .bits = values[i]};
    const ExprScalar want = EvaluatePrimitive(ExprOp::kCast, to, {&value, 1});
    ExprScalar got{.dtype = to};
    std::memcpy(&got.bits, static_cast<const char*>(results) + i * bytes, bytes);
    if (SameScalar(got, want)) continue;
    return StrCat(from, " ", ScalarText(value), " became ", to, " ", ScalarText(got), ", not ", ScalarText(want));
  }
  return "";
}

}  // namespace stepnet
