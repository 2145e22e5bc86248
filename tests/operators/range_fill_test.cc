#include <cmath>

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

template <typename T>
std::vector<Tensor> RangeOf(const std::vector<T>& numbers) {
  OpTest op("Range");
  for (size_t i = 0; i < numbers.size(); ++i) op.Input(StrCat("x", i), Tensor::Of<T>({}, {numbers[i]}));
  return op.Run();
}

template <typename T>
void ExpectRange(const std::vector<T>& numbers, const std::vector<T>& expected) {
  const Tensor y = RangeOf(numbers)[0];
  EXPECT_EQ(y.dtype(), kDTypeOf<T>);
  EXPECT_EQ(std::vector<T>(y.data<T>(), y.data<T>() + y.size()), expected);
}

TEST(Range, GoesUpAndDownBeforeTheStop) {
  ExpectRange<std::int32_t>({3}, {0, 1, 2});
  ExpectRange<std::int64_t>({2, 5}, {2, 3, 4});
  ExpectRange<std::int32_t>({2, 9, 3}, {2, 5, 8});
  ExpectRange<std::int32_t>({2, 8, 3}, {2, 5});
  ExpectRange<std::int64_t>({2, -3, -2}, {2, 0, -2});
  ExpectRange<std::int64_t>({2, 2, -2}, {});
  ExpectRange<std::int64_t>({2, 5, -1}, {});
  ExpectRange<float>({0.5f, 2, 0.5f}, {0.5f, 1, 1.5f});
  ExpectRange<double>({1, 0, -0.25}, {1, 0.75, 0.5, 0.25});
  ExpectRange<double>({0, 5, INFINITY}, {});
}

TEST(Range, CountsWholeNumbersThatNoDoubleHolds) {
  ExpectRange<std::int64_t>({(1LL << 53) + 1, (1LL << 53) + 4, 2}, {(1LL << 53) + 1, (1LL << 53) + 3});
  ExpectRange<std::int64_t>({INT64_MIN, INT64_MAX, INT64_MAX}, {INT64_MIN, -1, INT64_MAX - 1});
  ExpectRange<std::int64_t>({INT64_MAX, INT64_MIN, INT64_MIN}, {INT64_MAX, -1});
}

TEST(Range, RefusesWhatHasNoEnd) {
  const std::string needs = "; both must be finite, and a step must be a number other than 0\n";
  ExpectError(
      [] {
        RangeOf<std::int32_t>({0, 5, 0});
      },
      "…invalid argument: Range goes from 0 to 5 in steps of 0" + needs);
  ExpectError([] { RangeOf<float>({0, INFINITY, 1}); }, "…Range goes from 0 to inf in steps of 1" + needs);
  ExpectError([] { RangeOf<double>({NAN, 1, 1}); }, "…Range goes from nan to 1 in steps of 1" + needs);
  ExpectError([] { RangeOf<float>({0, 1, NAN}); }, "…Range goes from 0 to 1 in steps of nan" + needs);
  ExpectError([] { RangeOf<double>({0, 1e300, 1}); }, "…out of memory");
  ExpectError([] { RangeOf<std::int64_t>({INT64_MIN, INT64_MAX}); }, "…out of memory");
  ExpectError([] { OpTest("Range").Input("x", Int32s({1, 2})).Run(); }, "…");
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
