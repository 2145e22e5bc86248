#include "every_stored.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "random_exprs.h"
#include "stepnet/core/expr_evaluate.h"
#include "stepnet/core/expr_text.h"
#include "stepnet/core/stored_float.h"
#include "stepnet/core/strings.h"

namespace stepnet {

std::vector<std::uint64_t> EveryStored(DType /*stored*/) {
  std::vector<std::uint64_t> all(1 << 16);
  for (size_t bits = 0; bits < all.size(); ++bits) all[bits] = bits;
  return all;
}

std::vector<std::uint64_t> FloatsAround(DType stored) {
  using Limits = std::numeric_limits<float>;
  std::vector<std::uint64_t> floats;
  const auto add = [&](float x) {
    for (const float near : {std::nextafter(x, -Limits::infinity()), x, std::nextafter(x, Limits::infinity())}) {
      floats.push_back(std::bit_cast<std::uint32_t>(near));
    }
  };
  for (const std::uint64_t bits : EveryStored(stored)) {
    const float x = Loaded({.dtype = stored, .bits = bits});
    add(x);
    // The middle between this one and the next; of bfloat16 one more bit of the same float.
    const float next = Loaded({.dtype = stored, .bits = bits + 1});
    if (std::isfinite(x) && std::isfinite(next)) add(static_cast<float>((double{x} + double{next}) / 2));
  }
  for (const float x : {65519.0f, 65520.0f, 65536.0f, 1e5f, Limits::max(), Limits::denorm_min(), Limits::min()}) {
    add(x);
    add(-x);
  }
  return floats;
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
