#include <random>

#include "op_test.h"

namespace stepnet {
namespace {

Tensor Int64s(const std::vector<std::int64_t>& values) {
  return Tensor::Of<std::int64_t>(Shape({static_cast<std::int64_t>(values.size())}), values);
}

// Elements of a tensor [A, B, C] within the given ranges, one by one.
std::vector<double> Cut(const std::vector<double>& x, const Shape& shape, const std::vector<std::int64_t>& starts,
                        const std::vector<std::int64_t>& ends) {
  std::vector<double> out;
  for (std::int64_t i = 0; i < shape.size(); ++i) {
    std::int64_t rest = i;
    bool inside = true;
    for (int d = shape.rank() - 1; d >= 0; --d) {
      const std::int64_t at = rest % shape[d];
      rest /= shape[d];
      if (d < static_cast<int>(starts.size())) inside = inside && at >= starts[d] && at < ends[d];
    }
    if (inside) out.push_back(x[static_cast<size_t>(i)]);
  }
  return out;
}

TEST(Slice, CutsAnyNumberOfDimensions) {
  std::mt19937 rng(3);
  for (int trial = 0; trial < 60; ++trial) {
    const int rank = 1 + static_cast<int>(rng() % 4);
    std::vector<std::int64_t> sizes, starts, ends;
    for (int d = 0; d < rank; ++d) {
      sizes.push_back(1 + static_cast<std::int64_t>(rng() % 4));
      const std::int64_t start = static_cast<std::int64_t>(rng()) % (sizes[d] + 1);
      starts.push_back(start);
      ends.push_back(start + static_cast<std::int64_t>(rng()) % (sizes[d] + 1 - start));
    }
    const Shape shape(sizes);
    OpTest("Slice")
        .Ints("starts", starts)
        .Ints("ends", ends)
        .Random("x", shape, trial)
        .Follows([&](const std::vector<std::vector<double>>& in) { return Cut(in[0], shape, starts, ends); });
  }
}

TEST(Slice, CountsNegativeBoundsFromBehindTheEnd) {
  const auto slice = [](std::int64_t start, std::int64_t end) {
    return OpTest("Slice").Ints("starts", {start}).Ints("ends", {end}).Input("x", {4}, {1, 2, 3, 4});
  };
  slice(0, -1).Gives({4}, {1, 2, 3, 4});
  slice(1, -2).Gives({2}, {2, 3});
  slice(-3, -1).Gives({2}, {3, 4});
  slice(2, 100).Gives({2}, {3, 4});
  slice(100, 200).Gives({0}, {});
}

// What a slice with steps takes of 0, 1, …, size - 1, as ONNX says it: i, i + k, i + 2k, … until j is reached, where i
// and j are moved into the sequence first.
std::vector<double> Taken(std::int64_t size, std::int64_t i, std::int64_t j, std::int64_t k) {
  if (size == 0) return {};
  const auto moved = [&](std::int64_t at, std::int64_t before_all) {
    if (at < 0) at += size;
    if (at < 0) return before_all;
    if (at >= size) return k > 0 ? size : size - 1;
    return at;
  };
  const std::int64_t past = moved(j, k > 0 ? 0 : -1);
  std::vector<double> taken;
  for (std::int64_t at = moved(i, 0); k > 0 ? at < past : at > past; at += k) {
    taken.push_back(static_cast<double>(at));
  }
  return taken;
}

TEST(Slice, WithStepsTakesWhatOnnxTakes) {
  for (std::int64_t size = 0; size <= 4; ++size) {
    std::vector<double> numbers;
    for (std::int64_t i = 0; i < size; ++i) numbers.push_back(static_cast<double>(i));
    for (std::int64_t start = -6; start <= 6; ++start) {
      for (std::int64_t end = -6; end <= 6; ++end) {
        for (const std::int64_t step : {-3, -2, -1, 1, 2, 3}) {
          const std::vector<double> taken = Taken(size, start, end, step);
          SCOPED_TRACE(StrCat("[", start, ":", end, ":", step, "] of ", size));
          OpTest("Slice")
              .Ints("starts", {start})
              .Ints("ends", {end})
              .Ints("steps", {step})
              .Input("x", {size}, numbers)
              .Gives({std::ssize(taken)}, taken);
        }
      }
    }
  }
  const auto slice = [](std::int64_t start, std::int64_t end, std::int64_t step) {
    return OpTest("Slice").Ints("starts", {start}).Ints("ends", {end}).Ints("steps", {step}).Input("x", {3}, {1, 2, 3});
  };
  slice(INT64_MIN, INT64_MAX, INT64_MAX).Gives({1}, {1});
  slice(INT64_MAX, INT64_MIN, INT64_MIN).Gives({1}, {3});
  slice(INT64_MAX, INT64_MIN, -1).Gives({3}, {3, 2, 1});
}

TEST(Slice, WithStepsCutsAnyNumberOfDimensions) {
  OpTest("Slice")
      .Ints("starts", {0, -1, 1})
      .Ints("ends", {9, -9, 9})
      .Ints("steps", {1, -2, 2})
      .Input("x", {2, 3, 4}, {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11,  //
                              12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23})
      .Gives({2, 2, 2}, {9, 11, 1, 3, 21, 23, 13, 15});
  OpTest("Slice")
      .Ints("steps", {-1, 2})
      .Input("x", {2, 3}, {1, 2, 3, 4, 5, 6})
      .Input("starts", Int64s({9, 0}))
      .Input("ends", Int64s({-9, 9}))
      .Gives({2, 2}, {4, 6, 1, 3});
}

TEST(Slice, TakesBoundsFromInputs) {
  OpTest("Slice")
      .Input("x", {2, 3}, {1, 2, 3, 4, 5, 6})
      .Input("starts", Int64s({0, 1}))
      .Input("ends", Int64s({-1, 2}))
      .Gives({2, 1}, {2, 5});
}

TEST(Slice, AcceptsScalarsStringsAndNoElements) {
  OpTest("Slice").Ints("starts", {}).Ints("ends", {}).Input("x", {}, {7}).Gives({}, {7});
  OpTest("Slice").Ints("starts", {-3}).Ints("ends", {2}).Random("x", {0, 3}, 1).Gives({0, 3}, {});
  OpTest("Slice")
      .Ints("starts", {1})
      .Ints("ends", {-1})
      .Input("x", Tensor::Of<std::string>({2}, {"a", "b"}))
      .GivesExactly(Tensor::Of<std::string>({1}, {"b"}));
}

TEST(Slice, PassesOnWhatIsKnown) {
  OperatorDef def;
  def.set_type("Slice");
  def.add_input("x");
  for (const auto& [name, value] : {std::pair{"starts", 1}, {"ends", 2}}) {
    def.add_arg()->set_name(name);
    def.mutable_arg(def.arg_size() - 1)->add_ints(value);
  }
  const OperatorCall op(def);
  const TensorInfo x{.dtype = DType::kInt64, .shape = {3}, .value = Int64s({4, 5, 6})};
  const std::vector<TensorInfo> y = op.schema().shapes(ShapeQuery(op, std::vector{x}));
  EXPECT_EQ(ToDoubles(y[0].value), std::vector<double>{5});
}

TEST(Slice, GradientMatchesDifferences) {
  OpTest("Slice").Ints("starts", {0, 1}).Ints("ends", {-1, 2}).Random("x", {2, 3, 2}, 1).GradientMatches();
  OpTest("Slice").Ints("starts", {1}).Ints("ends", {-2}).Random("x", {4, 2}, 1).GradientMatches();
  OpTest("Slice")
      .Random("x", {3, 2, 4}, 1)
      .Input("starts", Int64s({1, 0, 1}))
      .Input("ends", Int64s({3, 1, 3}))
      .GradientMatches();
  OpTest("Slice")
      .Ints("starts", {9, 0})
      .Ints("ends", {-9, 9})
      .Ints("steps", {-2, 2})
      .Random("x", {4, 3, 2}, 1)
      .GradientMatches();
  OpTest("Slice")
      .Ints("steps", {-1})
      .Random("x", {3, 2}, 1)
      .Input("starts", Int64s({-1}))
      .Input("ends", Int64s({-9}))
      .GradientMatches();
}

TEST(Slice, RefusesWhatIsNoRange) {
  const auto slice = [](const std::vector<std::int64_t>& starts, const std::vector<std::int64_t>& ends) {
    OpTest("Slice").Ints("starts", starts).Ints("ends", ends).Random("x", {2, 3}, 1).Run();
  };
  ExpectError([&] { slice({2}, {1}); },
              "shape mismatch: Slice from 2 to 1 along dimension 0 of a tensor [2, 3] is no range\n"
              "  at op 0 `output0 = Slice(x)` with x float [2, 3]\n"
              "  in net \"test\"");
  ExpectError([&] { slice({-4}, {1}); }, "…Slice from -4 to 1 along dimension 0 of a tensor [2, 3] is no range");
  ExpectError([&] { slice({INT64_MIN}, {1}); }, "…along dimension 0 of a tensor [2, 3] is no range");
  ExpectError(
      [&] {
        slice({0, 0, 0}, {1, 1, 1});
      },
      "…Slice is given 3 starts and 3 ends for a tensor [2, 3]; needs as many ends as starts, one a dimension");
  ExpectError([&] { slice({0}, {1, 1}); }, "…Slice is given 1 starts and 2 ends for a tensor [2, 3]");
  const auto with_steps = [](const std::vector<std::int64_t>& steps) {
    OpTest("Slice").Ints("starts", {0}).Ints("ends", {1}).Ints("steps", steps).Random("x", {2, 3}, 1).Run();
  };
  ExpectError([&] { with_steps({1, 1}); }, "…Slice is given 1 starts and 2 steps; needs a step for each start");
  ExpectError([&] { with_steps({0}); }, "…Slice has a step of 0");
  ExpectError([] { OpTest("Slice").Random("x", {2}, 1).Run(); },
              "…Slice needs starts and ends, either both as arguments or both as inputs");
  ExpectError([] { OpTest("Slice").Random("x", {2}, 1).Input("starts", Int64s({0})).Run(); },
              "…Slice needs starts and ends, either both as arguments or both as inputs");
}

TEST(SliceGradient, RefusesAGradientOfAnotherShape) {
  ExpectError(
      [] {
        OpTest("SliceGradient").Ints("starts", {0}).Ints("ends", {1}).Random("x", {3}, 1).Random("dy", {2}, 2).Run();
      },
      "…dy is float [2]; the slice of x, which is float [3], is [1]");
  ExpectError(
      [] {
        OpTest("SliceGradient")
            .Random("x", {3}, 1)
            .Input("starts", Int64s({0}))
            .Input("ends", Int64s({1}))
            .Random("dy", {2}, 2)
            .Run();
      },
      "…Slice from 0 to 1 along dimension 0 of a tensor [3] is not what dy [2] is the gradient of");
  ExpectError(
      [] {
        const Tensor ends = Int64s(std::vector<std::int64_t>(9, 0));
        OpTest("SliceGradient").Random("x", {3}, 1).Input("s", ends).Input("e", ends).Random("dy", {2}, 2).Run();
      },
      "…Slice is given 9 starts and 9 ends for a tensor [3]; needs as many ends as starts, one a dimension at most");
  const auto of_rows = [](const Shape& dy) {
    OpTest("SliceGradient")
        .Random("x", {3, 4}, 1)
        .Input("starts", Int64s({2}))
        .Input("ends", Int64s({1}))
        .Random("dy", dy, 2)
        .Run();
  };
  ExpectError([&] { of_rows({1, 4}); }, "…Slice from 2 to 1 along dimension 0 of a tensor [3, 4] is no range");
  ExpectError(
      [&] {
        of_rows({1, 3});
      },
      "…dy is float [1, 3]; no slice of x, which is float [3, 4], along the first 1 dimensions is of this shape");
  ExpectError([&] { of_rows({1}); }, "…dy is float [1]; no slice of x, which is float [3, 4]");
  ExpectError([] { OpTest("SliceGradient").Random("x", {3}, 1).Run(); }, "…SliceGradient takes 2 or 4 inputs, has 1");
}

}  // namespace
}  // namespace stepnet
