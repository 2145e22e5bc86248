#include <functional>
#include <limits>
#include <map>
#include <random>

#include "op_test.h"

namespace stepnet {
namespace {

struct Case {
  Shape a;
  Shape b;
  int broadcast = 1;
  int axis = -1;
  // What b is repeated as: a is [before, run, after], b is [run].
  std::int64_t before = 1;
  std::int64_t run = 1;
  std::int64_t after = 1;
};

// Rows, columns, the middle, scalars, and sizes of 1 at either end; lengths around those of vectors.
const std::vector<Case> kCases = {
    {.a = {3, 4}, .b = {3, 4}, .broadcast = 0, .run = 12},
    {.a = {}, .b = {}, .broadcast = 0},
    {.a = {3, 4}, .b = {3, 4}, .run = 12},
    {.a = {2, 3, 4}, .b = {4}, .before = 6, .run = 4},
    {.a = {9, 37}, .b = {37}, .before = 9, .run = 37},
    {.a = {2, 3, 4}, .b = {3, 4}, .before = 2, .run = 12},
    {.a = {2, 3, 4}, .b = {1, 3, 4}, .before = 2, .run = 12},
    {.a = {5, 33}, .b = {5}, .axis = 0, .run = 5, .after = 33},
    {.a = {5, 3}, .b = {5, 1}, .run = 5, .after = 3},
    {.a = {2, 3, 21}, .b = {3}, .axis = 1, .before = 2, .run = 3, .after = 21},
    {.a = {2, 3, 4}, .b = {2, 3}, .axis = 0, .run = 6, .after = 4},
    {.a = {2, 3}, .b = {1}, .after = 6},
    {.a = {2, 3}, .b = {}, .after = 6},
    {.a = {3}, .b = {1, 1, 1}, .after = 3},
    {.a = {1}, .b = {1}},
};

OpTest TestOf(const std::string& type, const Case& c, int num_outputs = 1) {
  OpTest test(type, num_outputs);
  if (c.broadcast != 0) test.Arg("broadcast", 1);
  if (c.axis != -1) test.Arg("axis", c.axis);
  return test;
}

// Calls fn(x, y) for each element x of a with the element y of b that it meets.
void ForPairs(const Case& c, const std::function<void(size_t, size_t)>& fn) {
  for (std::int64_t x = 0; x < c.a.size(); ++x) fn(x, static_cast<size_t>(x / c.after % c.run));
}

const std::map<std::string, double (*)(double, double)> kFormulas = {
    {"Add", [](double a, double b) { return a + b; }},
    {"Sub", [](double a, double b) { return a - b; }},
    {"Mul", [](double a, double b) { return a * b; }},
    {"Div", [](double a, double b) { return a / b; }},
};

TEST(Arithmetic, FollowsItsFormula) {
  for (const auto& [type, formula] : kFormulas) {
    for (const Case& c : kCases) {
      SCOPED_TRACE(StrCat(type, " of ", c.a, " and ", c.b));
      TestOf(type, c).Random("a", c.a, 1).RandomIn("b", c.b, 2, 0.5, 2).Follows([&, formula = formula](const auto& in) {
        std::vector<double> result(in[0].size());
        ForPairs(c, [&](size_t x, size_t y) { result[x] = formula(in[0][x], in[1][y]); });
        return result;
      });
    }
  }
}

TEST(Arithmetic, GradientMatchesDifferences) {
  for (const auto& [type, formula] : kFormulas) {
    for (const Case& c : kCases) {
      if (c.a.size() > 60) continue;
      SCOPED_TRACE(StrCat(type, " of ", c.a, " and ", c.b));
      TestOf(type, c).Random("a", c.a, 1).RandomIn("b", c.b, 2, 0.5, 2).GradientMatches();
    }
  }
}

TEST(Arithmetic, AcceptsNoElements) {
  for (const char* type : {"Add", "Sub", "Mul", "Div"}) {
    OpTest(type).Input("a", {0, 3}, {}).Input("b", {0, 3}, {}).Gives({0, 3}, {});
    OpTest(type).Arg("broadcast", 1).Input("a", {0, 3}, {}).Input("b", {3}, {1, 2, 3}).Gives({0, 3}, {});
    OpTest(type).Arg("broadcast", 1).Input("a", {0, 3}, {}).Input("b", {3}, {1, 2, 3}).GradientMatches();
    OpTest(type).Arg("broadcast", 1).Input("a", {3, 0}, {}).Input("b", {0}, {}).Gives({3, 0}, {});
    OpTest(type).Arg("broadcast", 1).Input("a", {0}, {}).Input("b", {}, {2}).GradientMatches();
  }
}

// Nothing counts to a huge size that comes with a size of 0.
TEST(Arithmetic, AcceptsNoElementsOfHugeShapes) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 50;
  OpTest("Add").Arg("broadcast", 1).Input("a", {kHuge, 0}, {}).Input("b", {0}, {}).Gives({kHuge, 0}, {});
  OpTest("SumReduceLike").Input("a", {kHuge, 0}, {}).Input("b", {0}, {}).Gives({0}, {});
  OpTest("SumReduceLike").Arg("axis", 1).Input("a", {kHuge, 2, 0}, {}).Input("b", {2}, {1, 1}).Gives({2}, {0, 0});
}

TEST(Arithmetic, WorksInPlace) {
  OpTest("Sub").Input("a", {2}, {5, 7}).Input("b", {2}, {1, 2}).InPlace(0, 0).Gives({2}, {4, 5});
  OpTest("Sub").Input("a", {2}, {5, 7}).Input("b", {2}, {1, 2}).InPlace(1, 0).Gives({2}, {4, 5});
  OpTest("Sub").Arg("broadcast", 1).Input("a", {2}, {5, 7}).Input("b", {1}, {1}).InPlace(0, 0).Gives({2}, {4, 6});
  ExpectError(
      [] {
        OpTest("Sub").Arg("broadcast", 1).Input("a", {2}, {5, 7}).Input("b", {1}, {1}).InPlace(1, 0).Run();
      },
      "invalid net: Sub with broadcast can overwrite its first input alone\n"
      "  at op 0 `b = Sub(a, b)`\n"
      "  in net \"test\"");
  ExpectError([] { OpTest("Mul").Input("a", {1}, {1}).Input("b", {1}, {1}).InPlace(1, 0).GradientMatches(); },
              "invalid net: the gradient of Mul needs its input \"b\", and the operator overwrites it");
}

TEST(Arithmetic, WorksOnIntegers) {
  const auto result = [](const char* type, std::int32_t a, std::int32_t b) {
    return OpTest(type)
        .Input("a", Tensor::Of<std::int32_t>({1}, {a}))
        .Input("b", Tensor::Of<std::int32_t>({1}, {b}))
        .Run()[0]
        .data<std::int32_t>()[0];
  };
  constexpr std::int32_t kLowest = std::numeric_limits<std::int32_t>::min();
  EXPECT_EQ(result("Add", 3, -5), -2);
  EXPECT_EQ(result("Sub", kLowest, 1), std::numeric_limits<std::int32_t>::max());
  EXPECT_EQ(result("Mul", -3, 5), -15);
  EXPECT_EQ(result("Div", -7, 2), -3);
  EXPECT_EQ(result("Div", kLowest, -1), kLowest);
  ExpectError([&] { result("Div", 7, 0); },
              "invalid argument: Div of the integer 7 by 0 for element 0 of the output, in a / b\n"
              "  at op 0 `output0 = Div(a, b)` with a int32 [1], b int32 [1]\n"
              "  in net \"test\"");
  OpTest("Mul")
      .Arg("broadcast", 1)
      .Arg("axis", 0)
      .Input("a", Tensor::Of<std::int64_t>({2, 3}, {1, 2, 3, 4, 5, 6}))
      .Input("b", Tensor::Of<std::int64_t>({2}, {10, 100}))
      .GivesExactly(Tensor::Of<std::int64_t>({2, 3}, {10, 20, 30, 400, 500, 600}));
}

TEST(Arithmetic, TakesTheAxisAsALetter) {
  OpTest("Add")
      .Arg("broadcast", 1)
      .Arg("axis_str", "C")
      .Input("a", {1, 2, 1, 2}, {1, 2, 3, 4})
      .Input("b", {2}, {10, 20})
      .Gives({1, 2, 1, 2}, {11, 12, 23, 24});
  OpTest("Add")
      .Arg("broadcast", 1)
      .Arg("axis_str", "C")
      .Arg("order", "NC")
      .Input("a", {1, 2}, {1, 2})
      .Input("b", {2}, {10, 20})
      .Gives({1, 2}, {11, 22});
}

TEST(Arithmetic, RefusesShapesThatDoNotFit) {
  const auto run = [](const char* type, const Shape& a, const Shape& b, int broadcast, int axis) {
    TestOf(type, {.a = a, .b = b, .broadcast = broadcast, .axis = axis}).Random("a", a, 1).Random("b", b, 2).Run();
  };
  ExpectError(
      [&] {
        run("Add", {2, 3}, {2}, 0, -1);
      },
      "shape mismatch: Add needs sizes that are equal or 1, from the last dimension on; a is [2, 3] and b is [2]; "
      "Add(first, second, broadcast=1, axis=0) repeats the second over the first, whose dimensions from 0 on it has\n"
      "  at op 0 `output0 = Add(a, b)` with a float [2, 3], b float [2]\n"
      "  in net \"test\"");
  ExpectError(
      [&] {
        run("Mul", {3}, {2, 3}, 1, -1);
      },
      "…shape mismatch: Mul repeats b over a, which has fewer dimensions; a is [3] and b is [2, 3]\n");
  ExpectError(
      [&] {
        run("Sub", {2, 3}, {3}, 1, 2);
      },
      "…shape mismatch: Sub: axis is 2, from where a has fewer dimensions than b; a is [2, 3] and b is [3]\n");
  ExpectError(
      [&] {
        run("Div", {2, 3}, {2}, 1, -1);
      },
      "…shape mismatch: Div needs b to have the sizes of a from dimension 1 on; a is [2, 3] and b is [2]\n");
  ExpectError(
      [&] {
        run("Add", {2, 3, 4}, {2, 1, 4}, 1, 0);
      },
      "…shape mismatch: Add needs b to have the sizes of a from dimension 0 on; a is [2, 3, 4] and b is "
      "[2, 1, 4]\n");
}

TEST(Arithmetic, RefusesContradictingArguments) {
  const auto add = [] { return OpTest("Add").Input("a", {1}, {1}).Input("b", {1}, {1}); };
  ExpectError([&] { add().Arg("axis", 0).Run(); },
              "invalid net: Add: axis and axis_str mean nothing without broadcast=1\n"
              "  at op 0 `output0 = Add(a, b)`\n"
              "  in net \"test\"");
  ExpectError([&] { add().Arg("broadcast", 1).Arg("axis", 0).Arg("axis_str", "C").Run(); },
              "…invalid net: Add has both axis and axis_str; one of them is needed\n");
  ExpectError([&] { add().Arg("broadcast", 1).Arg("axis_str", "X").Run(); },
              "…invalid net: Add: axis_str is \"X\", must be a letter of order \"NCHW\"\n");
  ExpectError([&] { add().Arg("broadcast", 1).Arg("axis", -2).Run(); }, "…Add: axis is -2, must be between -1 and 8\n");
}

TEST(Arithmetic, RefusesOtherTypes) {
  ExpectError(
      [] { OpTest("Add").Input("a", Tensor::Of<bool>({1}, {true})).Input("b", Tensor::Of<bool>({1}, {true})).Run(); },
      "…type mismatch: Add works on float, double, float16, bfloat16, int32 and int64; a is bool [1]\n");
  ExpectError([] { OpTest("Add").Input("a", {1}, {1}).Input("b", Tensor::Of<std::int32_t>({1}, {1})).Run(); },
              "…type mismatch: Add needs inputs of one type; a is float [1] and b is int32 [1]\n");
}

TEST(SumReduceLike, FollowsItsFormula) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(StrCat(c.a, " to ", c.b));
    TestOf("SumReduceLike", c).Random("a", c.a, 1).Random("b", c.b, 2).Follows([&](const auto& in) {
      std::vector<double> sums(in[1].size());
      ForPairs(c, [&](size_t x, size_t y) { sums[y] += in[0][x]; });
      return sums;
    });
  }
}

TEST(SumReduceLike, SumsOfNoElementsAreZero) {
  OpTest("SumReduceLike").Input("a", {0, 2}, {}).Input("b", {2}, {7, 7}).Gives({2}, {0, 0});
  OpTest("SumReduceLike").Arg("axis", 0).Input("a", {2, 0}, {}).Input("b", {2}, {7, 7}).Gives({2}, {0, 0});
  OpTest("SumReduceLike").Input("a", {0}, {}).Input("b", {1}, {7}).Gives({1}, {0});
  OpTest("SumReduceLike").Input("a", {2, 0}, {}).Input("b", {0}, {}).Gives({0}, {});
}

TEST(SumReduceLike, RefusesBadInput) {
  ExpectError(
      [] {
        OpTest("SumReduceLike").Random("a", {2, 3}, 1).Random("b", {2}, 2).Run();
      },
      "shape mismatch: SumReduceLike needs b to have the sizes of a from dimension 1 on; a is [2, 3] and b is "
      "[2]\n"
      "  at op 0 `output0 = SumReduceLike(a, b)` with a float [2, 3], b float [2]\n"
      "  in net \"test\"");
  ExpectError([] { OpTest("SumReduceLike").Input("a", Tensor::Of<std::int32_t>({1}, {1})).Input("b", {1}, {1}).Run(); },
              "…type mismatch: SumReduceLike works on float, double, float16 and bfloat16; a is int32 [1]\n");
}

TEST(DivGradient, FollowsItsFormula) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(StrCat(c.a, " by ", c.b));
    OpTest test = TestOf("DivGradient", c, 2);
    test.RandomIn("b", c.b, 1, 0.5, 2).Random("c", c.a, 2).Random("dc", c.a, 3);
    test.Follows([&](const auto& in) {
      std::vector<double> da(in[2].size());
      ForPairs(c, [&](size_t x, size_t y) { da[x] = in[2][x] / in[0][y]; });
      return da;
    });
    const auto db_of = [&](const auto& in) {
      std::vector<double> db(in[0].size());
      ForPairs(c, [&](size_t x, size_t y) { db[y] -= in[2][x] * in[1][x] / in[0][y]; });
      return db;
    };
    test.Follows(db_of, 1);
  }
}

TEST(DivGradient, SumsOfNoElementsAreZero) {
  const auto test = [](const Shape& b, const Shape& c) {
    return OpTest("DivGradient", 2)
        .Input("b", b, std::vector<double>(static_cast<size_t>(b.size()), 3))
        .Input("c", c, {})
        .Input("dc", c, {});
  };
  test({2}, {0, 2}).Gives({2}, {0, 0}, 1);
  test({2, 1}, {2, 0}).Gives({2, 1}, {0, 0}, 1);
  test({}, {0, 2}).Gives({}, {0}, 1);
  test({0}, {2, 0}).Gives({0}, {}, 1);
}

TEST(DivGradient, OverwritesADivisorOfEachElement) {
  OpTest("DivGradient", 2)
      .Input("b", {2}, {2, 4})
      .Input("c", {2}, {3, 5})
      .Input("dc", {2}, {1, 2})
      .InPlace(0, 0)
      .Gives({2}, {0.5, 0.5});
}

TEST(DivGradient, RefusesBadInput) {
  ExpectError(
      [] {
        OpTest("DivGradient", 2).Random("b", {3}, 1).Random("c", {2, 3}, 2).Random("dc", {3}, 3).Run();
      },
      "…shape mismatch: DivGradient needs inputs of one shape; c is float [2, 3] and dc is float [3]\n");
  ExpectError(
      [] {
        OpTest("DivGradient", 2).Random("b", {2}, 1).Random("c", {2, 3}, 2).Random("dc", {2, 3}, 3).Run();
      },
      "…shape mismatch: DivGradient needs b to have the sizes of c from dimension 1 on; c is [2, 3] and b is [2]\n");
}

TEST(Power, RaisesEachElementToItsOwn) {
  OpTest("Power").Input("a", {4}, {-2, 0, 9, 4}).Input("b", {4}, {3, 0, 0.5, -1}).Gives({4}, {-8, 1, 3, 0.25});
  OpTest("Power").Input("a", {2, 1}, {2, 3}).Input("b", {1, 2}, {1, 2}).Gives({2, 2}, {2, 4, 3, 9});
}

TEST(Power, GradientMatchesDifferences) {
  const std::vector<std::pair<Shape, Shape>> shapes = {
      {{2, 3}, {2, 3}}, {{2, 3}, {}}, {{2, 3}, {3}}, {{2, 1, 3}, {4, 1}}, {{3}, {2, 3}}};
  for (const auto& [a, b] : shapes) {
    OpTest("Power").RandomIn("a", a, 1, 0.2, 3).RandomIn("b", b, 2, -2, 2).GradientMatches();
  }
  const OpTest by_rows = OpTest("Power").Arg("broadcast", 1).Arg("axis", 0);
  OpTest(by_rows).RandomIn("a", {3, 2}, 1, 0.2, 3).RandomIn("b", {3}, 2, -2, 2).GradientMatches();
}

TEST(Power, GradientIs0WhereItsFactorsHaveNone) {
  const auto gives = [](int output, double a, double b, double gradient) {
    OpTest test("PowerGradient", 2);
    test.Input("a", {1}, {a}).Input("b", {1}, {b}).Input("c", {1}, {std::pow(a, b)}).Input("dc", {1}, {2});
    test.Gives({1}, {gradient}, output);
  };
  gives(0, /*a=*/0, /*b=*/0, 0);
  gives(1, /*a=*/0, /*b=*/0, 0);
  gives(1, /*a=*/0, /*b=*/2, 0);
  gives(0, /*a=*/-3, /*b=*/2, -12);
}

}  // namespace
}  // namespace stepnet
