// Counter-based random numbers: a value is a pure function of where it is used, never of what ran before.
// Source: Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011 (Philox4x32-10).
#pragma once

#include <array>
#include <cstdint>

namespace stepnet {

// Four 32-bit words from a 128-bit counter and a 64-bit key.
std::array<std::uint32_t, 4> Philox(std::array<std::uint32_t, 4> counter, std::uint64_t key);

// The random numbers of one operator in one step of one run: the same on every executor, thread count and device, and
// the same again when a backward pass recomputes the operator.
class RandomStream {
 public:
  // `seed` is the operator's or the net's, `op` tells operators apart, `run` counts the runs of the net.
  RandomStream(std::uint64_t seed, std::uint64_t op, std::uint64_t run, std::int64_t step);

  // Block `i` of four words; the stream has 2^64 of them.
  std::array<std::uint32_t, 4> Block(std::uint64_t i) const;
  // Word `element` of the stream.
  std::uint32_t Word(std::uint64_t element) const { return Block(element / 4)[element % 4]; }
  // Uniform in [0, 1), from the upper 24 bits of Word(element).
  float Uniform(std::uint64_t element) const { return static_cast<float>(Word(element) >> 8) * 0x1p-24f; }

 private:
  std::uint64_t key_;
  std::uint32_t counter_high_[2];
};

}  // namespace stepnet
