#include <cmath>

#include "op_test.h"

namespace stepnet {
namespace {

Tensor Condition(const Shape& shape, const std::vector<bool>& values) { return Tensor::Of<bool>(shape, values); }

TEST(Where, ChoosesElements) {
  OpTest("Where")
      .Input("condition", Condition({2, 2}, {true, false, false, true}))
      .Input("x", {2, 2}, {1, 2, 3, 4})
      .Input("y", {2, 2}, {5, 6, 7, 8})
      .Gives({2, 2}, {1, 6, 7, 4});
}

TEST(Where, ChoosesRows) {
  OpTest("Where")
      .Arg("broadcast_on_rows", 1)
      .Input("condition", Condition({2}, {true, false}))
      .Input("x", {2, 3}, {1, 2, 3, 4, 5, 6})
      .Input("y", {2, 3}, {-1, -2, -3, -4, -5, -6})
      .Gives({2, 3}, {1, 2, 3, -4, -5, -6});
}

TEST(Where, ChoosesLongRowsAndSplitsTheirGradient) {
  std::vector<double> chosen(100, 3);
  chosen.resize(200, 4);
  OpTest("Where")
      .Arg("broadcast_on_rows", 1)
      .Input("condition", Condition({2}, {true, false}))
      .Input("x", {2, 100}, std::vector<double>(200, 3))
      .Input("y", {2, 100}, std::vector<double>(200, 4))
      .Gives({2, 100}, chosen);
  OpTest("Where")
      .Arg("broadcast_on_rows", 1)
      .Input("condition", Condition({2}, {true, false}))
      .Random("x", {2, 100}, 1)
      .Random("y", {2, 100}, 2)
      .GradientMatches();
}

TEST(Where, ChoosesByAnyFirstDimensions) {
  const auto test = [](const Shape& shape, const std::vector<bool>& values) {
    return OpTest("Where")
        .Arg("broadcast_on_rows", 1)
        .Input("condition", Condition(shape, values))
        .Input("x", {2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8})
        .Input("y", {2, 2, 2}, {-1, -2, -3, -4, -5, -6, -7, -8});
  };
  test({2, 2}, {true, false, false, true}).Gives({2, 2, 2}, {1, 2, -3, -4, -5, -6, 7, 8});
  test({}, {true}).Gives({2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  const std::vector<bool> each = {true, false, true, false, false, true, false, true};
  test({2, 2, 2}, each).Gives({2, 2, 2}, {1, -2, 3, -4, -5, 6, -7, 8});
}

TEST(Where, LetsNoNaNThrough) {
  OpTest("Where")
      .Input("condition", Condition({2}, {true, false}))
      .Input("x", {2}, {1, std::nan("")})
      .Input("y", {2}, {std::nan(""), 2})
      .Gives({2}, {1, 2});
}

TEST(Where, WorksInPlaceAndOnText) {
  const auto test = [] {
    return OpTest("Where")
        .Input("condition", Condition({2}, {true, false}))
        .Input("x", Tensor::Of<std::string>({2}, {"a", "b"}))
        .Input("y", Tensor::Of<std::string>({2}, {"c", "d"}));
  };
  const Tensor expected = Tensor::Of<std::string>({2}, {"a", "d"});
  test().GivesExactly(expected);
  test().InPlace(1, 0).GivesExactly(expected);
  test().InPlace(2, 0).GivesExactly(expected);
}

TEST(Where, GradientMatchesDifferences) {
  OpTest("Where")
      .Input("condition", Condition({2, 2}, {true, false, false, true}))
      .Random("x", {2, 2}, 1)
      .Random("y", {2, 2}, 2)
      .GradientMatches();
  OpTest("Where")
      .Arg("broadcast_on_rows", 1)
      .Input("condition", Condition({3}, {true, false, true}))
      .Random("x", {3, 2}, 1)
      .Random("y", {3, 2}, 2)
      .GradientMatches();
  OpTest("Where")
      .Arg("broadcast_on_rows", 1)
      .Input("condition", Condition({2, 2}, {true, false, false, true}))
      .Random("x", {2, 2, 3}, 1)
      .Random("y", {2, 2, 3}, 2)
      .GradientMatches();
}

TEST(Where, RepeatsItsInputsByShape) {
  const Tensor column = Condition({3, 1}, {true, false, true});
  const auto numbers = [](int first, int count) {
    std::vector<double> values;
    for (int i = 0; i < count; ++i) values.push_back(first + i);
    return values;
  };
  OpTest("Where")
      .Input("condition", column)
      .Input("x", {3, 2}, numbers(1, 6))
      .Input("y", {2}, {-1, -2})
      .Gives({3, 2}, {1, 2, -1, -2, 5, 6});
  OpTest("Where")
      .Input("condition", column)
      .Input("x", {2}, {1, 2})
      .Input("y", {}, {0})
      .Gives({3, 2}, {1, 2, 0, 0, 1, 2});
  OpTest("Where")
      .Input("condition", Condition({}, {false}))
      .Input("x", {2, 1, 2}, numbers(1, 4))
      .Input("y", {3, 1}, {7, 8, 9})
      .Gives({2, 3, 2}, {7, 7, 8, 8, 9, 9, 7, 7, 8, 8, 9, 9});
}

TEST(Where, GradientOfWhatIsRepeatedIsSummed) {
  const auto matches = [](const Tensor& condition, const Shape& x, const Shape& y) {
    OpTest("Where").Input("condition", condition).Random("x", x, 1).Random("y", y, 2).GradientMatches();
  };
  const Tensor column = Condition({3, 1}, {true, false, true});
  matches(column, {3, 2}, {2});
  matches(column, {2}, {});
  matches(Condition({2}, {true, false}), {3, 2}, {3, 1});
  matches(Condition({}, {true}), {2, 1, 2}, {3, 1});
  matches(column, {1, 0}, {3, 0});
}

TEST(Where, RefusesWhatDoesNotRepeat) {
  const auto run = [](const Tensor& condition, const Tensor& x, const Tensor& y) {
    return OpTest("Where").Input("condition", condition).Input("x", x).Input("y", y);
  };
  const Tensor column = Condition({3, 1}, {true, false, true});
  const Tensor words = Tensor::Of<std::string>({2}, {"a", "b"});
  ExpectError(
      [&] { run(column, words, words).Run(); },
      "…type mismatch: Where repeats no string; condition is bool [3, 1], x is string [2] and y is string [2]\n");
  const Tensor row = Tensor::Of<float>({2}, {1, 2});
  ExpectError([&] { run(column, row, row).InPlace(1, 0).Run(); }, "…shape mismatch: ");
}

TEST(Where, AcceptsNoElements) {
  OpTest("Where")
      .Input("condition", Condition({0, 2}, {}))
      .Input("x", {0, 2}, {})
      .Input("y", {0, 2}, {})
      .GradientMatches();
  OpTest("Where")
      .Arg("broadcast_on_rows", 1)
      .Input("condition", Condition({2}, {true, false}))
      .Input("x", {2, 0}, {})
      .Input("y", {2, 0}, {})
      .Gives({2, 0}, {});
}

TEST(Where, RefusesBadInput) {
  const auto run = [](const Tensor& condition, int rows) {
    OpTest("Where")
        .Arg("broadcast_on_rows", rows)
        .Input("condition", condition)
        .Random("x", {2, 3}, 1)
        .Random("y", {2, 3}, 2)
        .Run();
  };
  ExpectError(
      [&] {
        run(Condition({2}, {true, false}), 0);
      },
      "shape mismatch: Where needs sizes that are equal or 1, from the last dimension on; condition is [2] and x is "
      "[2, 3]\n"
      "  at op 0 `output0 = Where(condition, x, y)` with condition bool [2], x float [2, 3], y float [2, 3]\n"
      "  in net \"test\"");
  ExpectError(
      [&] {
        run(Condition({3}, {true, false, true}), 1);
      },
      "…shape mismatch: Where needs a condition of the first dimensions of its other inputs; condition is bool [3] "
      "and x is float [2, 3]\n");
  ExpectError(
      [&] {
        run(Condition({2, 3, 1}, {true, false, true, true, true, true}), 1);
      },
      "…condition is bool [2, 3, 1] and x is float [2, 3]\n");
  ExpectError(
      [&] {
        run(Tensor::Of<std::int32_t>({2}, {1, 0}), 1);
      },
      "…type mismatch: Where needs a condition of type bool; condition is int32 [2]\n");
}

}  // namespace
}  // namespace stepnet
