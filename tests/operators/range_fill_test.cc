#include "op_test.h"

namespace stepnet {
namespace {

Tensor Int32s(const std::vector<std::int32_t>& values) {
  return Tensor::Of<std::int32_t>(Shape({static_cast<std::int64_t>(values.size())}), values);
}

TEST(RangeFill, Counts) {
  OpTest("RangeFill").Ints("shape", {2, 2}).GivesExactly(Tensor::Of<float>({2, 2}, {0, 1, 2, 3}));
  OpTest("RangeFill").Random("x", {3}, 1).Gives({3}, {0, 1, 2});
  OpTest("RangeFill").Ints("shape", {0}).GivesExactly(Tensor::Of<float>({0}, {}));
  ExpectError([] { OpTest("RangeFill").Arg("dtype", 2).Run(); }, "…RangeFill makes float or double, not int32");
}

TEST(LengthsRangeFill, CountsAnewForEachLength) {
  OpTest("LengthsRangeFill").Input("lengths", Int32s({3, 0, 1, 2})).GivesExactly(Int32s({0, 1, 2, 0, 0, 1}));
  OpTest("LengthsRangeFill").Input("lengths", Int32s({})).GivesExactly(Int32s({}));
}

TEST(LengthsRangeFill, RefusesBadLengths) {
  const auto fill = [](const Tensor& lengths) { OpTest("LengthsRangeFill").Input("n", lengths).Run(); };
  ExpectError(
      [&] {
        fill(Int32s({2, -1}));
      },
      "invalid argument: element 1 of n is -1; lengths here are from 0 to 2147483647\n"
      "  at op 0 `output0 = LengthsRangeFill(n)` with n int32 [2]\n"
      "  in net \"test\"");
  ExpectError([&] { fill(Tensor::Of<std::int64_t>({1}, {2})); },
              "…type mismatch: LengthsRangeFill needs lengths int32 [number of sequences]; n is int64 [1]");
  ExpectError(
      [&] {
        fill(Tensor::Of<std::int32_t>({1, 1}, {2}));
      },
      "…shape mismatch: LengthsRangeFill needs lengths int32 [number of sequences]; n is int32 [1, 1]");
}

}  // namespace
}  // namespace stepnet
