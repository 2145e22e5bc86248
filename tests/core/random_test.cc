#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "for_each_target.h"
#include "stepnet/core/random_words.h"

namespace stepnet {
namespace {

using Words = std::array<std::uint32_t, 4>;

// From the file kat_vectors that comes with the paper's implementation (philox4x32, 10 rounds).
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(Philox({0, 0, 0, 0}, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffffffffffff),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomStream, IsAFunctionOfWhereItIsUsed) {
  const RandomStream stream(1, 2, 3, 4);
  EXPECT_EQ(stream.Block(5), RandomStream(1, 2, 3, 4).Block(5));
  const std::vector<RandomStream> others = {{0, 2, 3, 4}, {1, 0, 3, 4}, {1, 2, 0, 4}, {1, 2, 3, 0}, {1, 2, 4, 3}};
  for (const RandomStream& other : others) EXPECT_NE(stream.Block(5), other.Block(5));
  EXPECT_NE(stream.Block(5), stream.Block(6));
  EXPECT_NE(stream.Block(5), stream.Block(5 + (std::uint64_t{1} << 32)));
}

TEST(RandomStream, WordsAreThoseOfItsBlocks) {
  const RandomStream stream(7, 7, 7, 7);
  for (std::uint64_t i = 0; i < 12; ++i) EXPECT_EQ(stream.Word(i), stream.Block(i / 4)[i % 4]);
}

TEST(RandomStream, ManyWordsAreThoseOfItsBlocksOnEveryTarget) {
  const RandomKeys keys{.seed = 1, .op = 2, .run = 3, .step = 4};
  const RandomStream stream(keys.seed, keys.op, keys.run, keys.step);
  const std::uint64_t carry = (std::uint64_t{1} << 32) - 3;
  ForEachTarget([&] {
    for (const std::uint64_t first : {std::uint64_t{0}, std::uint64_t{5}, carry, ~std::uint64_t{0} - 2}) {
      for (const std::int64_t count : {0, 1, 2, 3, 7, 8, 17}) {
        std::vector<std::uint32_t> words(static_cast<size_t>(4 * count));
        RandomWords(keys, first, count, words.data());
        for (size_t i = 0; i < words.size(); ++i) ASSERT_EQ(words[i], stream.Block(first + i / 4)[i % 4]) << first;
      }
    }
  });
}

TEST(RandomStream, StreamsOfManyPlacesDiffer) {
  std::set<std::uint32_t> first;
  int count = 0;
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    for (std::uint64_t op = 0; op < 5; ++op) {
      for (std::uint64_t run = 0; run < 5; ++run) {
        for (std::int64_t step = 0; step < 20; ++step, ++count) first.insert(RandomStream(seed, op, run, step).Word(0));
      }
    }
  }
  EXPECT_GE(static_cast<int>(first.size()), count - 2);  // 2500 of 2^32 values: a pair is unlikely already
}

TEST(RandomStream, IsUniform) {
  const RandomStream stream(1, 2, 3, 4);
  constexpr int kCount = 20000;
  constexpr int kBins = 10;
  std::array<int, kBins> bins = {};
  double sum = 0;
  for (int i = 0; i < kCount; ++i) {
    const float value = stream.Uniform(static_cast<std::uint64_t>(i));
    ASSERT_GE(value, 0);
    ASSERT_LT(value, 1);
    sum += value;
    ++bins[static_cast<int>(value * kBins)];
  }
  // Within five standard deviations.
  EXPECT_NEAR(sum / kCount, 0.5, 5 * 0.2887 / 141.4);
  for (const int bin : bins) EXPECT_NEAR(bin, kCount / kBins, 5 * 42.4);
}

}  // namespace
}  // namespace stepnet
