#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "op_test.h"

namespace stepnet {
namespace {

Tensor Indices(const Shape& shape, const std::vector<std::int64_t>& values) {
  return Tensor::Of<std::int64_t>(shape, values);
}

TEST(ScatterElements, TheLastUpdateStays) {
  OpTest("ScatterElements")
      .Input("data", {3}, {0, 1, 2})
      .Input("indices", Indices({3}, {2, 2, 2}))
      .Input("updates", {3}, {100, 101, 102})
      .Gives({3}, {0, 1, 102});
  OpTest("ScatterElements")
      .Input("data", Tensor::Of<std::string>({2}, {"a", "b"}))
      .Input("indices", Tensor::Of<std::int32_t>({2}, {-1, 1}))
      .Input("updates", Tensor::Of<std::string>({2}, {"c", "d"}))
      .GivesExactly(Tensor::Of<std::string>({2}, {"a", "d"}));
}

TEST(ScatterElements, AlongEachDimensionOfPartOfTheOthers) {
  const auto scatter = [](int axis) {
    OpTest op("ScatterElements");
    op.Arg("axis", axis).Input("data", {2, 3}, {0, 1, 2, 3, 4, 5});
    return op;
  };
  scatter(0).Input("i", Indices({1, 2}, {1, -2})).Input("u", {1, 2}, {8, 9}).Gives({2, 3}, {0, 9, 2, 8, 4, 5});
  scatter(-1)
      .Input("i", Indices({2, 2}, {2, 0, -3, 0}))
      .Input("u", {2, 2}, {6, 7, 8, 9})
      .Gives({2, 3}, {7, 1, 6, 9, 4, 5});
  scatter(1)
      .Input("i", Indices({1, 4}, {0, 0, 1, 1}))
      .Input("u", {1, 4}, {6, 7, 8, 9})
      .Gives({2, 3}, {7, 9, 2, 3, 4, 5});
}

TEST(ScatterElements, ReducesAllUpdatesOfAnElement) {
  const std::map<std::string, std::vector<double>> results = {
      {"add", {10, 2 + 3 - 4, 30}}, {"mul", {10, 2.0 * 3 * -4, 30}}, {"max", {10, 3, 30}}, {"min", {10, -4, 30}}};
  for (const auto& [reduction, y] : results) {
    SCOPED_TRACE(reduction);
    OpTest("ScatterElements")
        .Arg("reduction", reduction.c_str())
        .Input("data", {3}, {10, 2, 30})
        .Input("indices", Indices({2}, {1, -2}))
        .Input("updates", {2}, {3, -4})
        .Gives({3}, y);
  }
  OpTest("ScatterElements")
      .Arg("reduction", "mul")
      .Input("data", Indices({2}, {INT64_MAX, 3}))
      .Input("indices", Indices({2}, {0, 1}))
      .Input("updates", Indices({2}, {2, -5}))
      .GivesExactly(Indices({2}, {-2, -15}));  // wraps around
}

TEST(ScatterElements, KeepsNaN) {
  for (const char* reduction : {"max", "min"}) {
    const std::vector<Tensor> y = OpTest("ScatterElements")
                                      .Arg("reduction", reduction)
                                      .Input("data", {2}, {1, NAN})
                                      .Input("indices", Indices({3}, {0, 0, 1}))
                                      .Input("updates", {3}, {NAN, 1, 1})
                                      .Run();
    EXPECT_TRUE(std::isnan(y[0].data<float>()[0]) && std::isnan(y[0].data<float>()[1])) << reduction;
  }
}

TEST(ScatterElements, AcceptsNoElements) {
  OpTest("ScatterElements").Random("data", {3, 2}, 1).Input("i", Indices({0, 2}, {})).Random("u", {0, 2}, 2).Run();
  OpTest("ScatterElements")
      .Input("data", {0, 2}, {})
      .Input("i", Indices({0, 1}, {}))
      .Input("u", {0, 1}, {})
      .Gives({0, 2}, {});
  OpTest("ScatterElements")
      .Input("data", {2}, {1, 2})
      .Input("i", Indices({0}, {}))
      .Input("u", {0}, {})
      .Gives({2}, {1, 2});
}

TEST(ScatterElements, GradientMatchesDifferences) {
  for (const char* reduction : {"none", "add", "mul", "max", "min"}) {
    SCOPED_TRACE(reduction);
    OpTest("ScatterElements")
        .Arg("axis", 1)
        .Arg("reduction", reduction)
        .Random("data", {2, 3}, 1)
        .Input("indices", Indices({2, 4}, {0, 2, 0, -3, 1, 1, 2, -1}))
        .Random("updates", {2, 4}, 2)
        .GradientMatches();
  }
}

TEST(ScatterElements, RefusesWhatDoesNotFit) {
  const auto scatter = [](const Shape& data, const Tensor& indices, const Shape& updates) {
    OpTest("ScatterElements").Random("data", data, 1).Input("i", indices).Random("u", updates, 2).Run();
  };
  ExpectError(
      [&] {
        scatter({3, 2}, Indices({2, 1}, {0, 3}), {2, 1});
      },
      "invalid argument: ScatterElements: element 1 of the indices is 3; dimension 0 of the data has size 3\n"
      "  at op 0 `output0 = ScatterElements(data, i, u)` with data float [3, 2], i int64 [2, 1], u float [2, 1]\n"
      "  in net \"test\"");
  ExpectError([&] { scatter({3}, Indices({1}, {-4}), {1}); }, "…element 0 of the indices is -4; dimension 0");
  const std::string needs =
      "…ScatterElements needs indices and updates of one shape, whose sizes beside that of the axis are at most those "
      "of "
      "data; ";
  ExpectError(
      [&] {
        scatter({3}, Indices({2}, {0, 1}), {1});
      },
      needs + "data is float [3], i is int64 [2] and u is float [1]");
  ExpectError([&] { scatter({3, 1}, Indices({1, 2}, {0, 1}), {1, 2}); }, needs);
  ExpectError([&] { scatter({3, 1}, Indices({1}, {0}), {1}); }, needs);
  ExpectError([&] { scatter({}, Indices({}, {0}), {}); }, needs);
  ExpectError([&] { scatter({3}, Tensor::Of<float>({1}, {0}), {1}); },
              "…ScatterElements works on int32 and int64; i is");
  const auto reduce = [](const Tensor& data) {
    OpTest("ScatterElements")
        .Arg("reduction", "add")
        .Input("d", data)
        .Input("i", Indices({1}, {0}))
        .Input("u", data)
        .Run();
  };
  ExpectError([&] { reduce(Tensor::Of<bool>({1}, {true})); },
              "…ScatterElements works on float, double, int32 and int64; d is bool [1]");
}

}  // namespace
}  // namespace stepnet
