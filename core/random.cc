// Blocks on vectors: lane i of four vectors has the words of counter i, each in the lower half of 64 bits. The upper
// halves hold what multiplications leave there, and nothing reads them.
#include "stepnet/core/random_words.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stepnet/core/random.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <algorithm>

#ifndef STEPNET_CORE_RANDOM_CONSTANTS  // this file is read once a target
#define STEPNET_CORE_RANDOM_CONSTANTS
namespace stepnet {
namespace {

constexpr int kPhiloxRounds = 10;
constexpr std::uint64_t kPhiloxFactors[] = {0xD2511F53u, 0xCD9E8D57u};
constexpr std::uint32_t kPhiloxSteps[] = {0x9E3779B9u, 0xBB67AE85u};

}  // namespace
}  // namespace stepnet
#endif

HWY_BEFORE_NAMESPACE();
namespace stepnet {
namespace HWY_NAMESPACE {

// Returns how many blocks it has computed: whole vectors of them.
std::int64_t PhiloxBlocksForTarget(std::uint64_t key, std::uint64_t first, std::uint64_t high, std::int64_t count,
                                   std::uint32_t* words) {
#if HWY_TARGET == HWY_SCALAR  // which multiplies no halves
  static_cast<void>(key), static_cast<void>(first), static_cast<void>(high), static_cast<void>(count);
  static_cast<void>(words);
  return 0;
#else
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<std::uint64_t> d;
  const hn::Repartition<std::uint32_t, decltype(d)> halves;
  const hn::Rebind<std::uint32_t, decltype(d)> words_of;
  using V = hn::Vec<decltype(d)>;
  const auto multiply = [&](V a, V b) HWY_ATTR { return hn::MulEven(hn::BitCast(halves, a), hn::BitCast(halves, b)); };
  const V first_factor = hn::Set(d, kPhiloxFactors[0]), second_factor = hn::Set(d, kPhiloxFactors[1]);
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    V c0 = hn::Iota(d, first + static_cast<std::uint64_t>(i));
    V c1 = hn::ShiftRight<32>(c0);
    V c2 = hn::Set(d, high);
    V c3 = hn::ShiftRight<32>(c2);
    auto k0 = static_cast<std::uint32_t>(key);
    auto k1 = static_cast<std::uint32_t>(key >> 32);
    for (int round = 0; round < kPhiloxRounds; ++round) {
      const V p0 = multiply(first_factor, c0);
      const V p1 = multiply(second_factor, c2);
      c0 = hn::Xor3(hn::ShiftRight<32>(p1), c1, hn::Set(d, std::uint64_t{k0}));
      c1 = p1;
      c2 = hn::Xor3(hn::ShiftRight<32>(p0), c3, hn::Set(d, std::uint64_t{k1}));
      c3 = p0;
      k0 += kPhiloxSteps[0];
      k1 += kPhiloxSteps[1];
    }
    hn::StoreInterleaved4(hn::TruncateTo(words_of, c0), hn::TruncateTo(words_of, c1), hn::TruncateTo(words_of, c2),
                          hn::TruncateTo(words_of, c3), words_of, words + 4 * i);
  }
  return i;
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace stepnet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stepnet {

HWY_EXPORT(PhiloxBlocksForTarget);

namespace {

// A bijective 64-bit mixer (Stafford's variant 13, the finaliser of SplitMix64).
std::uint64_t Mix(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

std::uint64_t KeyOf(std::uint64_t seed, std::uint64_t op) { return Mix(seed + 0x9e3779b97f4a7c15u * (op + 1)); }

// The upper half of counters.
std::uint64_t HighOf(std::uint64_t run, std::int64_t step) {
  return Mix(run * 0xd1342543de82ef95u + 1) ^ Mix(static_cast<std::uint64_t>(step) + 0x632be5abu);
}

}  // namespace

std::array<std::uint32_t, 4> Philox(std::array<std::uint32_t, 4> counter, std::uint64_t key) {
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const std::uint64_t p0 = kPhiloxFactors[0] * counter[0];
    const std::uint64_t p1 = kPhiloxFactors[1] * counter[2];
    counter = {static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ k0, static_cast<std::uint32_t>(p1),
               static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ k1, static_cast<std::uint32_t>(p0)};
    k0 += kPhiloxSteps[0];
    k1 += kPhiloxSteps[1];
  }
  return counter;
}

RandomStream::RandomStream(std::uint64_t seed, std::uint64_t op, std::uint64_t run, std::int64_t step)
    : key_(KeyOf(seed, op)) {
  const std::uint64_t where = HighOf(run, step);
  counter_high_[0] = static_cast<std::uint32_t>(where);
  counter_high_[1] = static_cast<std::uint32_t>(where >> 32);
}

std::array<std::uint32_t, 4> RandomStream::Block(std::uint64_t i) const {
  return Philox(
      {static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(i >> 32), counter_high_[0], counter_high_[1]}, key_);
}

void RandomWords(const RandomKeys& keys, std::uint64_t first, std::int64_t count, std::uint32_t* words) {
  const std::int64_t done = HWY_DYNAMIC_DISPATCH(PhiloxBlocksForTarget)(KeyOf(keys.seed, keys.op), first,
                                                                        HighOf(keys.run, keys.step), count, words);
  if (done == count) return;
  const RandomStream stream(keys.seed, keys.op, keys.run, keys.step);
  for (std::int64_t i = done; i < count; ++i) {
    std::ranges::copy(stream.Block(first + static_cast<std::uint64_t>(i)), words + 4 * i);
  }
}

}  // namespace stepnet
#endif  // HWY_ONCE
