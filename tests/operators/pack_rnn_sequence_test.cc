#include "op_test.h"

namespace stepnet {
namespace {

Tensor LengthsOf(const std::vector<std::int32_t>& values) {
  return Tensor::Of<std::int32_t>(Shape({static_cast<std::int64_t>(values.size())}), values);
}

TEST(PackRNNSequence, LaysSequencesSideBySide) {
  OpTest("PackRNNSequence")
      .Input("x", {4, 2}, {1, 2, 3, 4, 5, 6, 7, 8})
      .Input("lengths", LengthsOf({1, 0, 3}))
      .Gives({3, 3, 2}, {1, 2, 0, 0, 3, 4, 0, 0, 0, 0, 5, 6, 0, 0, 0, 0, 7, 8});
  OpTest("PackRNNSequence")
      .Input("x", Tensor::Of<std::string>({3}, {"a", "b", "c"}))
      .Input("lengths", LengthsOf({2, 1}))
      .GivesExactly(Tensor::Of<std::string>({2, 2}, {"a", "c", "b", ""}));
}

TEST(PackRNNSequence, AcceptsNoSequencesAndNoSteps) {
  OpTest("PackRNNSequence").Input("x", {0, 2}, {}).Input("lengths", LengthsOf({})).Gives({0, 0, 2}, {});
  OpTest("PackRNNSequence").Input("x", {0, 2}, {}).Input("lengths", LengthsOf({0, 0})).Gives({0, 2, 2}, {});
}

TEST(PackRNNSequence, GradientMatchesDifferences) {
  OpTest("PackRNNSequence").Random("x", {4, 2}, 1).Input("lengths", LengthsOf({1, 0, 3})).GradientMatches();
}

TEST(PackRNNSequence, RefusesBadLengths) {
  const auto pack = [](const Tensor& lengths) {
    OpTest("PackRNNSequence").Random("x", {4, 2}, 1).Input("n", lengths).Run();
  };
  ExpectError(
      [&] {
        pack(LengthsOf({1, 2}));
      },
      "shape mismatch: x is float [4, 2] and the lengths in n add up to 3; PackRNNSequence needs x [sum of the "
      "lengths, …]\n"
      "  at op 0 `output0 = PackRNNSequence(x, n)` with x float [4, 2], n int32 [2]\n"
      "  in net \"test\"");
  ExpectError([&] { pack(LengthsOf({5, -1})); }, "…element 1 of n is -1");
  ExpectError([&] { pack(Tensor::Of<std::int64_t>({1}, {4})); },
              "…PackRNNSequence needs lengths int32 [number of sequences]; n is int64 [1]");
  ExpectError(
      [] {
        OpTest("PackRNNSequence")
            .Random("x", {4, 2}, 1)
            .Input("n", LengthsOf({1, 3}))
            .Random("like", {2, 2, 2}, 2)
            .Run();
      },
      "…element 1 of n is 3; lengths here are from 0 to 2");
  ExpectError(
      [] {
        OpTest("PackRNNSequence")
            .Random("x", {4, 2}, 1)
            .Input("n", LengthsOf({1, 2}))
            .Random("like", {3, 2, 2}, 2)
            .Run();
      },
      "…the lengths in n add up to 3, the data have 4 rows");
  ExpectError(
      [] {
        OpTest("PackRNNSequence")
            .Random("x", {4, 2}, 1)
            .Input("n", LengthsOf({1, 3}))
            .Random("like", {3, 1, 2}, 2)
            .Run();
      },
      "…like is [3, 1, 2]; PackRNNSequence needs a shape [T, 2] and then that of a row of x, which is [4, 2]");
}

TEST(UnpackRNNSequence, PutsSequencesOneBehindTheOther) {
  OpTest("UnpackRNNSequence")
      .Input("x", {3, 3, 1}, {1, 0, 3, 0, 0, 5, 0, 0, 7})
      .Input("lengths", LengthsOf({1, 0, 3}))
      .Gives({4, 1}, {1, 3, 5, 7});
  OpTest("UnpackRNNSequence").Input("x", {0, 2}, {}).Input("lengths", LengthsOf({0, 0})).Gives({0}, {});
}

TEST(UnpackRNNSequence, GradientMatchesDifferences) {
  // The longest sequence is shorter than x.
  OpTest("UnpackRNNSequence").Random("x", {4, 3, 2}, 1).Input("lengths", LengthsOf({1, 0, 3})).GradientMatches();
}

TEST(UnpackRNNSequence, RefusesBadLengths) {
  const auto unpack = [](const Tensor& lengths) {
    OpTest("UnpackRNNSequence").Random("x", {3, 2}, 1).Input("n", lengths).Run();
  };
  ExpectError(
      [&] {
        unpack(LengthsOf({1, 4}));
      },
      "invalid argument: element 1 of n is 4; lengths here are from 0 to 3\n"
      "  at op 0 `output0 = UnpackRNNSequence(x, n)` with x float [3, 2], n int32 [2]\n"
      "  in net \"test\"");
  ExpectError([&] { unpack(LengthsOf({1, -1})); }, "…element 1 of n is -1");
  ExpectError([&] { unpack(LengthsOf({1})); }, "…UnpackRNNSequence needs lengths int32 [2]; n is int32 [1]");
  ExpectError([] { OpTest("UnpackRNNSequence").Random("x", {3}, 1).Input("n", LengthsOf({1})).Run(); },
              "…UnpackRNNSequence needs x [T, B, …]; x is float [3]");
}

}  // namespace
}  // namespace stepnet
