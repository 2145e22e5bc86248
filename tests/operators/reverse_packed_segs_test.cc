#include <random>

#include "op_test.h"

namespace stepnet {
namespace {

template <typename T>
Tensor LengthsOf(const std::vector<T>& values) {
  return Tensor::Of<T>(Shape({static_cast<std::int64_t>(values.size())}), values);
}

TEST(ReversePackedSegs, ReversesEachSequence) {
  std::mt19937 rng(5);
  for (int trial = 0; trial < 20; ++trial) {
    const std::int64_t num_steps = static_cast<std::int64_t>(rng() % 6);
    const std::int64_t batch = static_cast<std::int64_t>(rng() % 4);
    const Shape shape({num_steps, batch, 2});
    std::vector<std::int64_t> lengths;
    for (std::int64_t b = 0; b < batch; ++b) lengths.push_back(static_cast<std::int64_t>(rng()) % (num_steps + 1));
    OpTest("ReversePackedSegs")
        .Random("x", shape, trial)
        .Input("lengths", LengthsOf(lengths))
        .Follows([&](const std::vector<std::vector<double>>& in) {
          std::vector<double> y;
          for (std::int64_t t = 0; t < num_steps; ++t) {
            for (std::int64_t b = 0; b < batch; ++b) {
              const std::int64_t length = lengths[static_cast<size_t>(b)];
              const std::int64_t from = t < length ? length - 1 - t : t;
              for (int k = 0; k < 2; ++k) y.push_back(in[0][static_cast<size_t>((from * batch + b) * 2 + k)]);
            }
          }
          return y;
        });
  }
}

TEST(ReversePackedSegs, ReversesWholeSequencesWithoutLengths) {
  OpTest("ReversePackedSegs")
      .Input("x", {3, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})
      .Gives({3, 2, 2}, {9, 10, 11, 12, 5, 6, 7, 8, 1, 2, 3, 4});
  OpTest("ReversePackedSegs").Input("x", {0, 2, 2}, {}).Gives({0, 2, 2}, {});
  OpTest("ReversePackedSegs").Input("x", {2, 0, 2}, {}).Gives({2, 0, 2}, {});
  OpTest("ReversePackedSegs").Random("x", {4, 3, 2}, 1).GradientMatches();
}

TEST(ReversePackedSegs, MovesAnyDType) {
  OpTest("ReversePackedSegs")
      .Input("x", Tensor::Of<std::string>({3, 1}, {"a", "b", "c"}))
      .Input("lengths", LengthsOf<std::int32_t>({2}))
      .GivesExactly(Tensor::Of<std::string>({3, 1}, {"b", "a", "c"}));
}

TEST(ReversePackedSegs, GradientMatchesDifferences) {
  OpTest("ReversePackedSegs")
      .Random("x", {4, 3, 2}, 1)
      .Input("lengths", LengthsOf<std::int32_t>({0, 3, 4}))
      .GradientMatches();
}

TEST(ReversePackedSegs, RefusesBadLengths) {
  const auto reverse = [](const Tensor& lengths) {
    OpTest("ReversePackedSegs").Random("x", {3, 2}, 1).Input("n", lengths).Run();
  };
  ExpectError(
      [&] {
        reverse(LengthsOf<std::int32_t>({3, 4}));
      },
      "invalid argument: element 1 of n is 4; lengths here are from 0 to 3\n"
      "  at op 0 `output0 = ReversePackedSegs(x, n)` with x float [3, 2], n int32 [2]\n"
      "  in net \"test\"");
  ExpectError([&] { reverse(LengthsOf<std::int64_t>({INT64_MIN, 1})); }, "…element 0 of n is -9223372036854775808");
  ExpectError([&] { reverse(LengthsOf<std::int32_t>({1})); },
              "…ReversePackedSegs needs lengths int32 or int64 [2]; n is int32 [1]");
  ExpectError(
      [&] {
        reverse(LengthsOf<float>({1, 1}));
      },
      "…ReversePackedSegs needs lengths int32 or int64 [2]; n is float [2]");
  ExpectError([] { OpTest("ReversePackedSegs").Random("x", {3}, 1).Random("n", {3}, 1).Run(); },
              "…ReversePackedSegs needs x [T, B, …]; x is float [3]");
}

}  // namespace
}  // namespace stepnet
