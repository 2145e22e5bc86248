#include <functional>
#include <limits>

#include "op_test.h"

namespace stepnet {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

Tensor Int32s(const std::vector<std::int32_t>& values) {
  return Tensor::Of<std::int32_t>(Shape({static_cast<std::int64_t>(values.size())}), values);
}

OpTest Mask(const char* mode, const Shape& x) { return OpTest("SequenceMask").Arg("mode", mode).Random("x", x, 1); }

// What is expected of x [batches, rows, columns, repeats].
using Kept = std::function<bool(std::int64_t row, std::int64_t column)>;
std::vector<double> Masked(const std::vector<double>& x, const Shape& shape, double fill, const Kept& kept) {
  std::vector<double> y;
  for (std::int64_t i = 0; i < shape.size(); ++i) {
    const std::int64_t column = i / shape[3] % shape[2];
    const std::int64_t row = i / shape[3] / shape[2] % shape[1];
    y.push_back(kept(row, column) ? x[static_cast<size_t>(i)] : fill);
  }
  return y;
}

TEST(SequenceMask, KeepsTheBeginningOfEachRow) {
  OpTest("SequenceMask")
      .Arg("mode", "sequence")
      .Input("x", {3, 2}, {1, 2, 3, 4, 5, 6})
      .Input("lengths", Int32s({0, 1, 2}))
      .Gives({3, 2}, {-kInf, -kInf, 3, -kInf, 5, 6});
}

TEST(SequenceMask, FollowsItsModes) {
  const Shape shape({1, 3, 4, 1});
  const std::vector<std::pair<const char*, Kept>> modes = {
      {"upper", [](std::int64_t i, std::int64_t j) { return j <= i; }},
      {"lower", [](std::int64_t i, std::int64_t j) { return j >= i; }},
      {"upperdiag", [](std::int64_t i, std::int64_t j) { return j < i; }},
      {"lowerdiag", [](std::int64_t i, std::int64_t j) { return j > i; }}};
  for (const auto& [mode, kept] : modes) {
    SCOPED_TRACE(mode);
    Mask(mode, {3, 4}).Arg("fill_val", 9.0f).Follows([&, kept = kept](const std::vector<std::vector<double>>& in) {
      return Masked(in[0], shape, 9, kept);
    });
  }
}

TEST(SequenceMask, KeepsWindows) {
  const std::vector<std::int32_t> centres = {0, 3, -7, INT32_MAX, INT32_MIN};
  for (const int radius : {0, 1, 8}) {
    Mask("window", {5, 4})
        .Arg("radius", radius)
        .Input("centres", Int32s(centres))
        .Follows([&](const std::vector<std::vector<double>>& in) {
          return Masked(in[0], {1, 5, 4, 1}, -kInf, [&](std::int64_t i, std::int64_t j) {
            return std::abs(j - static_cast<std::int64_t>(centres[static_cast<size_t>(i)])) <= radius;
          });
        });
  }
}

TEST(SequenceMask, RepeatsOverBatchesAndTrailingDimensions) {
  const std::vector<std::int32_t> lengths = {1, 0, 4};
  const Kept kept = [&](std::int64_t i, std::int64_t j) { return j < lengths[static_cast<size_t>(i)]; };
  const Shape shape({2, 3, 4, 2});
  Mask("sequence", shape)
      .Arg("axis", 2)
      .Arg("batch", 0)
      .Arg("repeat_from_axis", -1)
      .Input("lengths", Int32s(lengths))
      .Follows([&](const std::vector<std::vector<double>>& in) { return Masked(in[0], shape, -kInf, kept); });
}

TEST(SequenceMask, TakesDimensionsBehindTheAxisForColumns) {
  Mask("sequence", {2, 2, 2}).Input("lengths", Int32s({3, 4})).Follows([](const std::vector<std::vector<double>>& in) {
    std::vector<double> y = in[0];
    y[3] = -kInf;
    return y;
  });
}

TEST(SequenceMask, SelectsAndDoesNotMultiply) {
  OpTest("SequenceMask")
      .Arg("mode", "sequence")
      .Arg("grad", 1)
      .Input("dy", {1, 2}, {std::nan(""), std::nan("")})
      .Input("lengths", Int32s({1}))
      .Gives({1, 2}, {std::nan(""), 0});
}

TEST(SequenceMask, GradientMatchesDifferences) {
  // The difference of two infinities says nothing: any other fill does.
  Mask("sequence", {3, 4}).Arg("fill_val", 2.0f).Input("lengths", Int32s({0, 2, 4})).GradientMatches();
  Mask("upper", {3, 4}).Arg("fill_val", 2.0f).GradientMatches();
}

TEST(SequenceMask, AcceptsNoElementsAndWorksInPlace) {
  Mask("sequence", {0, 4}).Input("lengths", Int32s({})).Gives({0, 4}, {});
  Mask("sequence", {2, 0}).Input("lengths", Int32s({0, 0})).Gives({2, 0}, {});
  OpTest("SequenceMask")
      .Arg("mode", "lower")
      .Input("x", {2, 2}, {1, 2, 3, 4})
      .InPlace(0, 0)
      .Gives({2, 2}, {1, 2, -kInf, 4});
}

TEST(SequenceMask, RefusesBadLengths) {
  const auto mask = [](const Tensor& lengths) { Mask("sequence", {2, 3}).Input("n", lengths).Run(); };
  ExpectError(
      [&] {
        mask(Int32s({2, 4}));
      },
      "invalid argument: element 1 of n is 4; lengths here are from 0 to 3\n"
      "  at op 0 `output0 = SequenceMask(x, n)` with x float [2, 3], n int32 [2]\n"
      "  in net \"test\"");
  ExpectError([&] { mask(Int32s({-1, 4})); }, "…element 0 of n is -1; lengths here are from 0 to 3");
  ExpectError([&] { mask(Int32s({2})); }, "…SequenceMask needs lengths int32 [2]; n is int32 [1]");
  ExpectError(
      [&] {
        mask(Tensor::Of<std::int64_t>({2}, {1, 1}));
      },
      "…SequenceMask needs lengths int32 [2]; n is int64 [2]");
}

TEST(SequenceMask, RefusesBadArguments) {
  ExpectError(
      [] {
        Mask("sequence", {2, 3}).Run();
      },
      "…SequenceMask with mode sequence needs lengths or centres as a second input");
  ExpectError(
      [] {
        Mask("middle", {2, 3}).Run();
      },
      "…SequenceMask: mode is \"middle\", must be one of sequence, window, upper, lower, upperdiag, lowerdiag");
  ExpectError([] { OpTest("SequenceMask").Random("x", {2, 3}, 1).Run(); }, "…SequenceMask needs the argument \"mode\"");
  ExpectError([] { Mask("upper", {2, 3}).Arg("axis", 2).Run(); }, "…axis is 2, but the tensor is [2, 3]");
  ExpectError(
      [] {
        Mask("upper", {2, 3}).Arg("batch", 1).Run();
      },
      "…for a tensor [2, 3] axis is 1, batch 1; SequenceMask needs batch < axis <= repeat_from_axis");
  ExpectError(
      [] {
        Mask("upper", {2, 3}).Arg("repeat_from_axis", 0).Run();
      },
      "…for a tensor [2, 3] axis is 1, repeat_from_axis 0; SequenceMask needs batch < axis");
  ExpectError(
      [] {
        Mask("window", {2, 3}).Arg("radius", -1).Input("c", Int32s({1, 1})).Run();
      },
      "…SequenceMask: radius is -1, must be between 0 and");
}

}  // namespace
}  // namespace stepnet
