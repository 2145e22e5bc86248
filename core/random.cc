#include "stepnet/core/random.h"

namespace stepnet {
namespace {

// A bijective 64-bit mixer (Stafford's variant 13, the finaliser of SplitMix64).
std::uint64_t Mix(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

std::array<std::uint32_t, 4> Philox(std::array<std::uint32_t, 4> counter, std::uint64_t key) {
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ k0, static_cast<std::uint32_t>(p1),
               static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ k1, static_cast<std::uint32_t>(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return counter;
}

RandomStream::RandomStream(std::uint64_t seed, std::uint64_t op, std::uint64_t run, std::int64_t step)
    : key_(Mix(seed + 0x9e3779b97f4a7c15u * (op + 1))) {
  const std::uint64_t where = Mix(run * 0xd1342543de82ef95u + 1) ^ Mix(static_cast<std::uint64_t>(step) + 0x632be5abu);
  counter_high_[0] = static_cast<std::uint32_t>(where);
  counter_high_[1] = static_cast<std::uint32_t>(where >> 32);
}

std::array<std::uint32_t, 4> RandomStream::Block(std::uint64_t i) const {
  return Philox(
      {static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(i >> 32), counter_high_[0], counter_high_[1]}, key_);
}

}  // namespace stepnet
