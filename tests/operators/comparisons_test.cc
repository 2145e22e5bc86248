#include <cmath>
#include <limits>

#include "op_test.h"

namespace stepnet {
namespace {

using Bools = std::vector<bool>;

// What comparing 1, 2, 3 with 2, 2, 2 gives.
const std::vector<std::pair<std::string, Bools>> kCases = {
    {"EQ", {false, true, false}}, {"NE", {true, false, true}},  {"LT", {true, false, false}},
    {"LE", {true, true, false}},  {"GT", {false, false, true}}, {"GE", {false, true, true}},
};

template <typename T>
void CheckType(const std::string& type, const Bools& expected) {
  OpTest(type)
      .Input("a", Tensor::Of<T>({3}, {1, 2, 3}))
      .Input("b", Tensor::Of<T>({3}, {2, 2, 2}))
      .GivesExactly(Tensor::Of<bool>({3}, expected));
  OpTest(type)
      .Arg("broadcast", 1)
      .Arg("axis", 0)
      .Input("a", Tensor::Of<T>({3, 1}, {1, 2, 3}))
      .Input("b", Tensor::Of<T>({}, {2}))
      .GivesExactly(Tensor::Of<bool>({3, 1}, expected));
}

TEST(Comparisons, FollowTheirFormula) {
  for (const auto& [type, expected] : kCases) {
    CheckType<float>(type, expected);
    CheckType<double>(type, expected);
    CheckType<std::int32_t>(type, expected);
    CheckType<std::int64_t>(type, expected);
  }
}

TEST(Comparisons, RepeatRowsAndColumns) {
  OpTest("GT")
      .Arg("broadcast", 1)
      .Input("a", {2, 3}, {1, 2, 3, 4, 5, 6})
      .Input("b", {3}, {0, 3, 5})
      .GivesExactly(Tensor::Of<bool>({2, 3}, {true, false, false, true, true, true}));
  OpTest("GT")
      .Arg("broadcast", 1)
      .Arg("axis", 0)
      .Input("a", {2, 3}, {1, 2, 3, 4, 5, 6})
      .Input("b", {2}, {1, 5})
      .GivesExactly(Tensor::Of<bool>({2, 3}, {false, true, true, false, false, true}));
}

TEST(Comparisons, OfNaNAreFalse) {
  for (const auto& [type, unused] : kCases) {
    OpTest(type)
        .Input("a", {2}, {std::nan(""), 1})
        .Input("b", {2}, {std::nan(""), std::nan("")})
        .GivesExactly(Tensor::Of<bool>({2}, Bools(2, type == "NE")));
  }
}

TEST(Comparisons, OfBools) {
  const Tensor a = Tensor::Of<bool>({4}, {false, false, true, true});
  const Tensor b = Tensor::Of<bool>({4}, {false, true, false, true});
  OpTest("EQ").Input("a", a).Input("b", b).GivesExactly(Tensor::Of<bool>({4}, {true, false, false, true}));
  OpTest("NE").Input("a", a).Input("b", b).GivesExactly(Tensor::Of<bool>({4}, {false, true, true, false}));
  ExpectError([&] { OpTest("LT").Input("a", a).Input("b", b).Run(); },
              "type mismatch: LT works on float, double, float16, bfloat16, int32 and int64; a is bool [4]\n"
              "  at op 0 `output0 = LT(a, b)` with a bool [4], b bool [4]\n"
              "  in net \"test\"");
}

TEST(Comparisons, AcceptNoElements) {
  for (const auto& [type, unused] : kCases) {
    OpTest(type).Input("a", {0}, {}).Input("b", {0}, {}).GivesExactly(Tensor::Of<bool>({0}, Bools{}));
  }
}

TEST(Comparisons, RefuseShapesThatDoNotFit) {
  ExpectError(
      [] {
        OpTest("LE").Input("a", {2}, {1, 2}).Input("b", {3}, {1, 2, 3}).Run();
      },
      "…shape mismatch: LE needs sizes that are equal or 1, from the last dimension on; a is [2] and b is [3]\n");
}

}  // namespace
}  // namespace stepnet
