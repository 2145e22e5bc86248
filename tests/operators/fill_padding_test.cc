#include <algorithm>
#include <limits>

#include "op_test.h"

namespace stepnet {
namespace {

Tensor MaskOf(const Shape& shape, const std::vector<bool>& values) {
  Tensor mask(DType::kBool, shape);
  std::copy(values.begin(), values.end(), mask.data<bool>());
  return mask;
}

TEST(FillPadding, TakesTheFirstRowThatCounts) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  OpTest("FillPadding")
      .Input("x", {3, 2, 2}, {nan, nan, 3, 4, 5, 6, nan, nan, nan, nan, 11, 12})
      .Input("mask", MaskOf({3, 2}, {false, true, true, false, false, true}))
      .Gives({3, 2, 2}, {5, 6, 3, 4, 5, 6, 3, 4, 5, 6, 11, 12});
}

TEST(FillPadding, TakesThatOfAnotherSequenceWhereThereIsNone) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  OpTest("FillPadding")
      .Input("x", {2, 3, 1}, {nan, nan, 3, nan, 5, 6})
      .Input("mask", MaskOf({2, 3}, {false, false, true, false, true, true}))
      .Gives({2, 3, 1}, {5, 5, 3, 5, 5, 6});
  OpTest("FillPadding")
      .Input("x", {2, 2}, {nan, nan, nan, nan})
      .Input("mask", MaskOf({2, 2}, std::vector<bool>(4, false)))
      .Gives({2, 2}, {0, 0, 0, 0});
}

TEST(FillPadding, AcceptsNoStepsAndNoSequences) {
  OpTest("FillPadding").Input("x", {0, 2, 3}, {}).Input("mask", MaskOf({0, 2}, {})).Gives({0, 2, 3}, {});
  OpTest("FillPadding").Input("x", {2, 0, 3}, {}).Input("mask", MaskOf({2, 0}, {})).Gives({2, 0, 3}, {});
  OpTest("FillPadding").Input("x", {2, 1, 0}, {}).Input("mask", MaskOf({2, 1}, {true, false})).Gives({2, 1, 0}, {});
}

TEST(FillPadding, MovesAnyDType) {
  OpTest("FillPadding")
      .Input("x", Tensor::Of<std::string>({3, 1}, {"a", "b", "c"}))
      .Input("mask", MaskOf({3, 1}, {false, true, false}))
      .GivesExactly(Tensor::Of<std::string>({3, 1}, {"b", "b", "b"}));
}

TEST(FillPadding, GradientMatchesDifferences) {
  for (const std::vector<bool>& mask : {std::vector<bool>{false, true, false, true, true, false, false, true, false},
                                        {true, true, true, true, true, true, true, true, true},
                                        {false, false, false, false, false, false, false, false, true},
                                        std::vector<bool>(9, false)}) {
    OpTest("FillPadding").Random("x", {3, 3, 2}, 1).Input("mask", MaskOf({3, 3}, mask)).GradientMatches();
  }
}

TEST(FillPadding, RefusesBadInput) {
  const auto run = [](const Shape& x, const Tensor& mask) {
    return [=] { OpTest("FillPadding").Random("x", x, 1).Input("m", mask).Run(); };
  };
  ExpectError(run({3, 2}, MaskOf({3, 1}, {true, true, true})),
              "shape mismatch: FillPadding needs a mask bool [3, 2]; x is float [3, 2] and m is bool [3, 1]\n"
              "  at op 0 `output0 = FillPadding(x, m)` with x float [3, 2], m bool [3, 1]\n"
              "  in net \"test\"");
  ExpectError(run({3, 2}, Tensor::Of<float>({3, 2}, {1, 1, 1, 1, 1, 1})),
              "…FillPadding needs a mask bool [3, 2]; x is float [3, 2] and m is float [3, 2]");
  ExpectError(run({3}, MaskOf({3}, {true, true, true})), "…FillPadding needs x [T, B, …]; x is float [3]");
}

}  // namespace
}  // namespace stepnet
