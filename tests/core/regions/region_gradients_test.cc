// Gradients of gates: instructions of several results.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "dense_region.h"
#include "random_region.h"
#include "stepnet/core/regions/region_program.h"
#include "stepnet/tests/core/for_each_target.h"
#include "stepnet/tests/core/sanitized.h"

namespace stepnet {
namespace {

// Inputs u, the gradient of the result, and a to e.
struct Gradients {
  explicit Gradients(DType dtype = DType::kFloat) : dtype(dtype) {}

  static Expr Slope(const Expr& s) { return MulAdd(-s, s, s); }
  static Expr SlopeOfTanh(const Expr& t) { return MulAdd(-t, t, 1); }

  // The gradient of sigmoid(a) * tanh(b).
  std::vector<Expr> OfGate() const {
    const Expr s = Sigmoid(a), t = Tanh(b);
    return {u * t * Slope(s), u * s * SlopeOfTanh(t)};
  }
  std::vector<Expr> OfGateAndSum() const {
    const Expr s = Sigmoid(a), t = Tanh(b);
    return {u * t * Slope(s), MulAdd(u * s, SlopeOfTanh(t), c)};
  }
  // Gradients of sigmoid(a) * b, and of sigmoid(a + c) * b.
  std::vector<Expr> OfScale() const { return {u * Sigmoid(a), u * b * Slope(Sigmoid(a))}; }
  std::vector<Expr> OfShiftedScale() const { return {u * Sigmoid(a + c), u * b * Slope(Sigmoid(a + c))}; }
  // The gradient of sigmoid(a) * b + (1 - sigmoid(a)) * tanh(c).
  std::vector<Expr> OfBlend() const {
    const Expr s = Sigmoid(a), t = Tanh(c);
    return {u * s, u * (b - t) * Slope(s), u * (1 - s) * SlopeOfTanh(t)};
  }
  // As LSTMUnitGradient: of sigmoid(a) * tanh(b), whose gradient is one result of another gradient of a gate.
  std::vector<Expr> OfGates() const {
    const Expr s = Sigmoid(d), t = Tanh(e);
    const Expr sum = MulAdd(u * s, SlopeOfTanh(t), c);
    const Expr i = Sigmoid(a), g = Tanh(b);
    return {sum * g * Slope(i), sum * i * SlopeOfTanh(g), u * t * Slope(s), sum * Sigmoid(c)};
  }

  Region RegionOf(const std::vector<Expr>& values, const Dense& dense) const {
    Region region{.sizes = dense.Sizes()};
    region.inputs.resize(6, dense.Elements(dtype));
    for (const Expr& value : values)
      region.outputs.push_back({.value = value, .memory = dense.Elements(value.dtype())});
    return region;
  }
  std::string BlockOf(const std::vector<Expr>& values) const {
    const std::string text = RegionProgram(RegionOf(values, {.rows = 1, .columns = 64})).Text();
    return text.substr(text.find("block: "));
  }

  Expr Input(int number, const char* name) const { return Expr::Input(number, name, dtype); }

  const DType dtype;
  const Expr u = Input(0, "u"), a = Input(1, "a"), b = Input(2, "b"), c = Input(3, "c"), d = Input(4, "d"),
             e = Input(5, "e");
};

TEST(RegionGradients, OfGatesAreOneInstruction) {
  const Gradients of;
  EXPECT_EQ(of.BlockOf(of.OfGate()), "block: s3, s4 = gradient of gate s0, s1, s2\n");
  EXPECT_EQ(of.BlockOf(of.OfGateAndSum()), "block: s4, s5 = gradient of gate + s0, s1, s2, s3\n");
  EXPECT_EQ(of.BlockOf(of.OfScale()), "block: s3, s4 = gradient of scale s0, s1, s2\n");
  EXPECT_EQ(of.BlockOf(of.OfShiftedScale()), "block: s4, s5 = gradient of scale + s0, s1, s2, s3\n");
  EXPECT_EQ(of.BlockOf(of.OfBlend()), "block: s4, s5, s6 = gradient of blend s0, s1, s2, s3\n");
}

// On every target, with tails of vectors and rows that are joined, with results in place of operands and without.
TEST(RegionGradients, AreWhatIsDefinedOnEveryTarget) {
  std::int64_t trial = 0;
  ForEachTarget([&] {
    for (const DType dtype : {DType::kFloat, DType::kDouble}) {
      const Gradients of(dtype);
      for (const std::vector<Expr>& values :
           {of.OfGate(), of.OfGateAndSum(), of.OfScale(), of.OfShiftedScale(), of.OfBlend(), of.OfGates()}) {
        for (const auto& [rows, columns] : {std::pair(1, 67), {5, 10}, {3, 300}, {1, 3000}}) {
          for (const int input : {-1, 0, 1, 2, 3}) {
            if (!IsTried(trial++)) continue;
            Region region = of.RegionOf(values, {.rows = rows, .columns = columns});
            const int last = static_cast<int>(values.size()) - 1;
            if (input >= 0) region.in_place = {{.input = input, .output = last}};
            if (input == 1) region.in_place.push_back({.input = 0, .output = 0});
            ASSERT_EQ(DifferenceFromDefinition(region, 11), "") << RegionProgram(region).Text();
            region.in_place.clear();
            region.outputs[last].kind = RegionOutputKind::kSums;
            region.outputs[last].memory.strides = {0, 0, 0, 1};
            ASSERT_EQ(DifferenceFromDefinition(region, 12), "") << RegionProgram(region).Text();
          }
        }
      }
    }
  });
}

// What something else reads as well is in an array.
TEST(RegionGradients, LeaveWhatOthersRead) {
  const Gradients of;
  const Expr s = Sigmoid(of.a), t = Tanh(of.b);
  const auto expect_none = [&](std::vector<Expr> values, const std::vector<Expr>& others) {
    values.insert(values.end(), others.begin(), others.end());
    EXPECT_EQ(of.BlockOf(values).find("gradient of"), std::string::npos) << of.BlockOf(values);
    EXPECT_EQ(DifferenceFromDefinition(of.RegionOf(values, {.rows = 2, .columns = 70}), 12), "");
  };
  expect_none(of.OfGate(), {s});
  expect_none(of.OfGate(), {t});
  expect_none(of.OfGate(), {of.c / t});
  expect_none(of.OfScale(), {s});
  expect_none(of.OfBlend(), {of.d - s});
  // Another gradient, and a gradient that is another value.
  expect_none({of.u * t * Gradients::Slope(s), of.d * s * Gradients::SlopeOfTanh(t)}, {});
  expect_none({of.u * s, of.d * of.b * Gradients::Slope(s)}, {});
  // Results are one instruction with others between them.
  std::vector<Expr> values = of.OfGate();
  values.push_back(of.c / values[0]);
  values.push_back(values[1] - values[0]);
  EXPECT_NE(of.BlockOf(values).find("gradient of gate"), std::string::npos) << of.BlockOf(values);
  EXPECT_EQ(DifferenceFromDefinition(of.RegionOf(values, {.rows = 2, .columns = 70}), 13), "");
}

// A share that is a sigmoid of no other use is computed with the blend.
TEST(RegionGradients, BlendsComputeTheirSigmoid) {
  const Gradients of;
  const Expr s = Sigmoid(of.b);
  const Expr blend = MulAdd(of.a, s, (1 - s) * Tanh(of.c));
  EXPECT_EQ(of.BlockOf({blend}), "block: s3 = blend sigmoid tanh s0, s1, s2\n");
  EXPECT_NE(of.BlockOf({blend, s * of.u}).find(" = blend tanh "), std::string::npos);
  ForEachTarget([&] {
    for (const auto& [rows, columns] : {std::pair(1, 67), {5, 10}, {3, 300}}) {
      const Dense dense{.rows = rows, .columns = columns};
      ASSERT_EQ(DifferenceFromDefinition(of.RegionOf({blend}, dense), 14), "");
      ASSERT_EQ(DifferenceFromDefinition(of.RegionOf({blend, s}, dense), 15), "");
    }
  });
}

}  // namespace
}  // namespace stepnet
