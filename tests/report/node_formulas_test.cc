#include "stepnet/report/node_formulas.h"

#include <gtest/gtest.h>

#include "stepnet/compiler/graph_text.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

using Lines = std::vector<std::string>;

// What the last node of a graph of these lines computes.
Lines FormulasOfLast(const std::string& lines) {
  const StepGraph graph = ParseGraph("step step {\n" + lines + "}\n");
  return NodeFormulas(graph, graph.nodes.back());
}

constexpr char kUnitInputs[] =
    "  h_prev: float [1, 2, 3] at 0[24 * t]\n"
    "  c_prev: float [1, 2, 3] at 1[24 * t]\n"
    "  gates: float [1, 2, 12] at 2[96 * t]\n"
    "  lengths: int32 [2] at 3\n"
    "  timestep: int32 [1] at 4[4 * t]\n";

TEST(NodeFormulas, AreOfTheInputsThatAnOperatorHas) {
  const Lines with_lengths = FormulasOfLast(
      StrCat(kUnitInputs, "  h.1: float [1, 2, 3], c.1: float [1, 2, 3] = region LSTMUnit(h_prev, c_prev, gates, ",
             "lengths, timestep) @0 {}\n"));
  EXPECT_EQ(with_lengths.front(), "$0 = lengths <= timestep");
  const Lines without = FormulasOfLast(
      StrCat(kUnitInputs, "  h.1: float [1, 2, 3], c.1: float [1, 2, 3] = region LSTMUnit(h_prev, c_prev, gates, ",
             "timestep) @0 {arg { name: \"sequence_lengths\" i: 0 }}\n"));
  EXPECT_EQ(without, Lines({"c = mul_add(sigmoid(gates[1]), c_prev, sigmoid(gates[0]) * tanh(gates[3]))",
                            "h = sigmoid(gates[2]) * tanh(c)"}));
}

TEST(NodeFormulas, HaveTheArgumentsOfTheOperator) {
  const Lines unit = FormulasOfLast(
      StrCat(kUnitInputs, "  h.1: float [1, 2, 3], c.1: float [1, 2, 3] = region LSTMUnit(h_prev, c_prev, gates, ",
             "timestep) @0 {arg { name: \"forget_bias\" f: 0.5 } arg { name: \"sequence_lengths\" i: 0 }}\n"));
  EXPECT_EQ(unit.front(), "c = mul_add(sigmoid(gates[1] + 0.5), c_prev, sigmoid(gates[0]) * tanh(gates[3]))");
  EXPECT_EQ(FormulasOfLast("  x: float [2, 3] at 0[24 * t]\n"
                           "  y.1: float [2, 3] = region Sum(x, x, x) @0 {}\n"),
            Lines({"y = x + x + x"}));
}

TEST(NodeFormulas, LeaveOutWhatTheOperatorDoesNotGive) {
  const std::string inputs = StrCat(kUnitInputs,
                                    "  h: float [1, 2, 3] at 5[24 * t]\n"
                                    "  c: float [1, 2, 3] at 6[24 * t]\n"
                                    "  dh: float [1, 2, 3] at 7[24 * t]\n"
                                    "  dc: float [1, 2, 3] at 8[24 * t]\n");
  const Lines lines = FormulasOfLast(StrCat(
      inputs, "  _, dc_prev.1: float [1, 2, 3], _ = region LSTMUnitGradient(h_prev, c_prev, gates, timestep, h, ",
      "c, dh, dc) @0 {arg { name: \"sequence_lengths\" i: 0 }}\n"));
  ASSERT_FALSE(lines.empty());
  EXPECT_TRUE(lines.back().starts_with("dc_prev = ")) << lines.back();
  const std::string all = Join(lines, "\n");
  EXPECT_EQ(all.find("timestep"), std::string::npos) << all;
  EXPECT_NE(all.find("dh"), std::string::npos) << all;
}

TEST(NodeFormulas, OfARegionNameWhatIsUsedAgainAndNothingElse) {
  EXPECT_EQ(FormulasOfLast("  x: float [1, 4] at 0[16 * t]\n"
                           "  h: float [1, 4] at 1[16 * t]\n"
                           "  region {\n"
                           "    z.1: float [1, 4] local = Sigmoid(x) @0 {}\n"
                           "    one.1: float [1, 4] local = ConstantFill(z.1) @1 {arg { name: \"value\" f: 1 }}\n"
                           "    r.1: float [1, 4] local = Sub(one.1, z.1) @2 {}\n"
                           "    y.1: float [1, 4] = Mul(r.1, h) @3 {}\n"
                           "    u.1: float [1, 4] = Mul(z.1, h) @4 {}\n"
                           "  }\n"),
            Lines({"z = sigmoid(x)", "y = (1 - z) * h", "u = z * h"}));
}

TEST(NodeFormulas, SayWhichColumnsAreReadAndWritten) {
  const std::string split =
      "  x: float [2, 8] at 0[64 * t]\n"
      "  region {\n"
      "    a.1: float [2, 5] local, b.1: float [2, 3] local = Split(x) @0 "
      "{arg { name: \"axis\" i: 1 } arg { name: \"split\" ints: 5 ints: 3 }}\n"
      "    y.1: float [2, 3] = Tanh(b.1) @1 {}\n"
      "  }\n";
  EXPECT_EQ(FormulasOfLast(split), Lines({"y = tanh(x[5:8])"}));
  EXPECT_EQ(FormulasOfLast("  x: float [2, 8] at 0[64 * t]\n"
                           "  y.1: float [2, 5], z.1: float [2, 3] = region Split(x) @0 "
                           "{arg { name: \"axis\" i: 1 } arg { name: \"split\" ints: 5 ints: 3 }}\n"),
            Lines({"y, z = Split(x, axis=1, split=[5, 3])"}));
}

TEST(NodeFormulas, NameOperatorsThatMixPlaces) {
  EXPECT_EQ(FormulasOfLast("  x: float [2, 3] at 0[24 * t]\n"
                           "  region {\n"
                           "    a.1: float [3, 2] local = Transpose(x) @0 {}\n"
                           "    y.1: float [3, 2] = Tanh(a.1) @1 {}\n"
                           "  }\n"),
            Lines({"a = Transpose(x)", "y = tanh(a)"}));
}

TEST(NodeFormulas, TellValuesOfOneNameApart) {
  EXPECT_EQ(FormulasOfLast("  x: float [1, 4] at 0[16 * t]\n"
                           "  region {\n"
                           "    x.1: float [1, 4] = Tanh(x) @0 {}\n"
                           "    y.1: float [1, 4] = Mul(x, x.1) @1 {}\n"
                           "  }\n"),
            Lines({"x.1 = tanh(x)", "y = x * x.1"}));
  EXPECT_EQ(FormulasOfLast("  x: float [1, 4] at 0[16 * t]\n"
                           "  ^x: float [1, 4] at 1[16 * t] = x\n"),
            Lines({"x outside = x"}));
}

TEST(NodeFormulas, OfProductsAreNoProductsOfElements) {
  EXPECT_EQ(FormulasOfLast("  x: float [1, 4] at 0[16 * t]\n"
                           "  w: float [4, 4] at 1\n"
                           "  b: float [4] at 2\n"
                           "  y.1: float [1, 4] = product x [1, 4] * w [4, 4]^T + b by FC(x, w, b) @0 {}\n"),
            Lines({"y = x @ w^T + b"}));
}

}  // namespace
}  // namespace stepnet
