#include "pass_case.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

TEST(Expand, OperatorsWithAFormulaBecomeRegions) {
  const std::string inputs =
      "  x: float [1, 4] at 0[16 * t]\n"
      "  w: float [4, 4] at 1\n"
      "  b: float [4] at 2\n";
  EXPECT_EQ(After("expand", Step(inputs + "  a.1: float [1, 4] = Gelu(x) @0 {}\n"
                                          "  p.1: float [1, 4] = FC(a.1, w, b) @1 {}\n"
                                          "  m.1: float [1, 4] = Mod(p.1) @2 {arg { name: \"divisor\" i: 3 }}\n"
                                          "  ^y: float [1, 4] at 3[16 * t] = m.1\n")),
            Step(inputs + "  a.1: float [1, 4] = region Gelu(x) @0 {}\n"
                          "  p.1: float [1, 4] = product a.1 [1, 4] * w [4, 4]^T + b by FC(a.1, w, b) @1 {}\n"
                          "  m.1: float [1, 4] = region Mod(p.1) @2 {arg { name: \"divisor\" i: 3 }}\n"
                          "  ^y: float [1, 4] at 3[16 * t] = m.1\n"));
}

std::string Expanded(const std::string& inputs, const std::string& line) {
  const std::string after = After("expand", Step(inputs + line));
  return after.substr(Step(inputs).size() - 2, after.size() - Step(inputs).size());
}

TEST(Expand, ProductsSayWhatIsMultiplied) {
  const std::string inputs =
      "  x: float [1, 2, 4] at 0[32 * t]\n"
      "  w: float [3, 4] at 1\n"
      "  v: float [4, 3] at 2\n"
      "  dy: float [1, 2, 3] at 3[24 * t]\n"
      "  e: float [5, 2, 4] at 4\n"
      "  q: float [5, 3, 4] at 5\n"
      "  k: float [3, 4] at 6\n";
  const auto expect = [&](const std::string& results, const std::string& product, const std::string& call) {
    EXPECT_EQ(Expanded(inputs, StrCat(results, " = ", call)), StrCat(results, " = product ", product, " by ", call));
  };
  const std::string axis = " @0 {arg { name: \"axis\" i: 2 }}\n";
  expect("  y.1: float [1, 2, 3]", "x [2, 4] * w [3, 4]^T", "FC(x, w)" + axis);
  expect("  y.1: float [1, 2, 3]", "x [2, 4] * v [4, 3]", "FCTransposed(x, v)" + axis);
  expect("  dw.1: float [3, 4], db.1: float [3], dx.1: float [1, 2, 4]",
         "dy [2, 3]^T * x [2, 4]; sum dy [2, 3]; dy [2, 3] * w [3, 4]", "FCGradient(x, w, dy)" + axis);
  expect("  dv.1: float [4, 3], dx.1: float [1, 2, 4]", "x [2, 4]^T * dy [2, 3]; dy [2, 3] * v [4, 3]^T",
         "FCTransposedGradient(x, v, dy) @0 {arg { name: \"axis\" i: 2 } arg { name: \"no_bias\" i: 1 }}\n");
  expect("  _, dx.1: float [1, 2, 4]", "_; dy [2, 3] * w [3, 4]",
         "FCGradient(x, w, dy) @0 {arg { name: \"axis\" i: 2 } arg { name: \"no_bias\" i: 1 } "
         "arg { name: \"without\" ints: 0 }}\n");
  expect("  y.1: float [4, 4]", "w [3, 4]^T * k [3, 4]", "MatMul(w, k) @0 {arg { name: \"trans_a\" i: 1 }}\n");
  expect("  y.1: float [5, 2, 3]", "e [5, 2, 4] * q [5, 3, 4]^T",
         "BatchMatMul(e, q) @0 {arg { name: \"trans_b\" i: 1 }}\n");
  expect("  y.1: float [5, 2, 3]", "e [5, 2, 4] * v [4, 3]",
         "BatchMatMul(e, v) @0 {arg { name: \"broadcast\" i: 1 }}\n");
}

TEST(Expand, WhatOnlyCopiesOrFillsIsARegion) {
  const std::string inputs = "  x: float [2, 4] at 0[32 * t]\n  n: int32 [2] at 1\n  s: uint8 [2, 4] at 2\n";
  const auto expect = [&](const std::string& results, const std::string& call, bool is_region) {
    EXPECT_EQ(Expanded(inputs, StrCat(results, " = ", call)), StrCat(results, is_region ? " = region " : " = ", call));
  };
  expect("  a.1: float [2, 2], b.1: float [2, 2]", "Split(x) @0 {}\n", true);
  expect("  y.1: float [2, 8], i.1: int32 [2]", "Concat(x, x) @0 {}\n", true);
  expect("  y.1: float [2, 4]", "ConstantFill(x) @0 {arg { name: \"value\" f: 1 }}\n", true);
  expect("  y.1: int64 [2, 4]", "ConstantFill(x) @0 {arg { name: \"value\" i: 1 }}\n", true);
  // No double holds it.
  expect("  y.1: int64 [2, 4]", "ConstantFill(x) @0 {arg { name: \"value\" i: 9007199254740993 }}\n", false);
  expect("  y.1: float [4, 2]", "Transpose(x) @0 {}\n", true);
  expect("  y.1: float [8]", "FlattenToVec(x) @0 {}\n", true);
  expect("  y.1: float [2, 1, 4]", "ExpandDims(x) @0 {arg { name: \"dims\" ints: 1 }}\n", true);
  expect("  y.1: uint8 [1, 2, 4]", "ExpandDims(s) @0 {arg { name: \"dims\" ints: 0 }}\n", false);
  expect("  y.1: uint8 [2, 8], i.1: int32 [2]", "Concat(s, s) @0 {}\n", false);  // expressions have no uint8
}

TEST(Expand, OperatorsOfUnknownShapeStayCalls) {
  const std::string before = Step(
      "  labels: unknown blob of list 0\n"
      "  y.1: unknown blob = Gelu(labels) by blobs @0 {}\n");
  EXPECT_EQ(After("expand", before), before);
}

}  // namespace
}  // namespace stepnet
