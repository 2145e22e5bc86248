// LSTMUnit and GRUUnit.
#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "op_test.h"
#include "stepnet/tests/core/for_each_target.h"

namespace stepnet {
namespace {

constexpr int kRows = 4;
using Values = std::vector<std::vector<double>>;

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// Rows 0 and 2 have ended at step 3; lengths beyond any sequence and below 0 are values like others.
const std::vector<std::int32_t> kLengths = {3, 4, -7, std::numeric_limits<std::int32_t>::max()};
Tensor Lengths() { return Tensor::Of<std::int32_t>({kRows}, kLengths); }
Tensor Timestep(std::int32_t t = 3) { return Tensor::Of<std::int32_t>({1}, {t}); }

OpTest LstmUnit(int d, bool has_lengths, const Shape& before = {1, kRows}) {
  const auto shape = [&](int columns) { return before.Inserted(before.rank(), columns); };
  OpTest test("LSTMUnit", 2);
  test.Arg("sequence_lengths", has_lengths ? 1 : 0).Arg("forget_bias", 0.5f);
  test.Random("h_prev", shape(d), 1).Random("c_prev", shape(d), 2).RandomIn("gates", shape(4 * d), 3, -3, 3);
  if (has_lengths) test.Input("lengths", Lengths());
  return test.Input("t", Timestep());
}

OpTest GruUnit(int d, bool has_lengths, const Shape& before = {1, kRows}) {
  const auto shape = [&](int columns) { return before.Inserted(before.rank(), columns); };
  OpTest test("GRUUnit");
  test.Arg("sequence_lengths", has_lengths ? 1 : 0);
  test.Random("h_prev", shape(d), 1).RandomIn("gates", shape(3 * d), 3, -3, 3);
  if (has_lengths) test.Input("lengths", Lengths());
  return test.Input("t", Timestep());
}

bool Valid(int row, bool has_lengths) { return !has_lengths || row == 1 || row == 3; }

// h and c, one after the other.
std::vector<double> Lstm(const Values& in, int d, bool has_lengths, bool drops, bool wants_c) {
  std::vector<double> out;
  for (int k = 0; k < kRows * d; ++k) {
    const int row = k / d;
    const double* gates = &in[2][row * 4 * d + k % d];
    const double c = Sigmoid(gates[d] + 0.5) * in[1][k] + Sigmoid(gates[0]) * std::tanh(gates[3 * d]);
    const double h = Sigmoid(gates[2 * d]) * std::tanh(c);
    const double kept = drops ? 0 : in[wants_c ? 1 : 0][k];
    out.push_back(!Valid(row, has_lengths) ? kept : wants_c ? c : h);
  }
  return out;
}

std::vector<double> Gru(const Values& in, int d, bool has_lengths, bool drops) {
  std::vector<double> out;
  for (int k = 0; k < kRows * d; ++k) {
    const int row = k / d;
    const double* gates = &in[1][row * 3 * d + k % d];
    const double update = Sigmoid(gates[d]);
    const double h = update * in[0][k] + (1 - update) * std::tanh(gates[2 * d]);
    out.push_back(!Valid(row, has_lengths) ? (drops ? 0 : in[0][k]) : h);
  }
  return out;
}

TEST(LSTMUnit, FollowsItsFormula) {
  ForEachTarget([] {
    for (const int d : {1, 16, 37}) {
      for (const bool has_lengths : {false, true}) {
        for (const bool drops : {false, true}) {
          OpTest test = LstmUnit(d, has_lengths).Arg("drop_states", drops ? 1 : 0);
          test.Follows([&](const Values& in) { return Lstm(in, d, has_lengths, drops, false); }, 0, 2e-6);
          test.Follows([&](const Values& in) { return Lstm(in, d, has_lengths, drops, true); }, 1, 2e-6);
        }
      }
    }
  });
}

TEST(GRUUnit, FollowsItsFormula) {
  for (const int d : {1, 16, 37}) {
    for (const bool has_lengths : {false, true}) {
      for (const bool drops : {false, true}) {
        GruUnit(d, has_lengths)
            .Arg("drop_states", drops ? 1 : 0)
            .Follows([&](const Values& in) { return Gru(in, d, has_lengths, drops); }, 0, 2e-6);
      }
    }
  }
}

TEST(LSTMUnit, GradientMatchesDifferences) {
  for (const bool has_lengths : {false, true}) {
    for (const int drops : {0, 1}) LstmUnit(9, has_lengths).Arg("drop_states", drops).GradientMatches();
  }
}

TEST(GRUUnit, GradientMatchesDifferences) {
  for (const bool has_lengths : {false, true}) {
    for (const int drops : {0, 1}) GruUnit(9, has_lengths).Arg("drop_states", drops).GradientMatches();
  }
}

TEST(LSTMUnit, AcceptsMatricesAsStates) {
  const std::vector<Tensor> flat = LstmUnit(5, true, {kRows}).Run(), deep = LstmUnit(5, true).Run();
  EXPECT_EQ(flat[0].shape(), Shape({kRows, 5}));
  EXPECT_EQ(deep[0].shape(), Shape({1, kRows, 5}));
  for (int i = 0; i < 2; ++i) EXPECT_EQ(ToDoubles(flat[i]), ToDoubles(deep[i]));
}

TEST(GRUUnit, AcceptsMatricesAsStates) {
  EXPECT_EQ(GruUnit(5, true, {kRows}).Run()[0].shape(), Shape({kRows, 5}));
  EXPECT_EQ(ToDoubles(GruUnit(5, true, {kRows}).Run()[0]), ToDoubles(GruUnit(5, true).Run()[0]));
}

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// A row that has ended reads nothing but its state, and one that has not reads no hidden state.
TEST(LSTMUnit, R2KeepsNaNOutOfRowsThatDoNotReadIt) {
  const auto run = [](int drops) {
    return OpTest("LSTMUnit", 2)
        .Arg("drop_states", drops)
        .Input("h_prev", {2, 1}, {2, kNaN})
        .Input("c_prev", {2, 1}, {3, 0})
        .Input("gates", {2, 4}, {kNaN, kNaN, kNaN, kNaN, 0, 0, 0, 0})
        .Input("lengths", Tensor::Of<std::int32_t>({2}, {0, 9}))
        .Input("t", Timestep());
  };
  run(0).Gives({2, 1}, {2, 0}, 0);
  run(0).Gives({2, 1}, {3, 0}, 1);
  run(1).Gives({2, 1}, {0, 0}, 0);
  run(1).Gives({2, 1}, {0, 0}, 1);
}

TEST(LSTMUnit, R2GradientKeepsNaNOutOfRowsThatDoNotReadIt) {
  const auto run = [](int drops) {
    return OpTest("LSTMUnitGradient", 3)
        .Arg("drop_states", drops)
        .Input("h_prev", {2, 1}, {kNaN, kNaN})
        .Input("c_prev", {2, 1}, {kNaN, 0})
        .Input("gates", {2, 4}, {kNaN, kNaN, kNaN, kNaN, 0, 0, 0, 0})
        .Input("lengths", Tensor::Of<std::int32_t>({2}, {0, 9}))
        .Input("t", Timestep())
        .Input("h", {2, 1}, {kNaN, kNaN})
        .Input("c", {2, 1}, {kNaN, 0})
        .Input("dh", {2, 1}, {4, 8})
        .Input("dc", {2, 1}, {5, 0});
  };
  run(0).Gives({2, 1}, {4, 0}, 0);
  run(0).Gives({2, 1}, {5, 2}, 1);
  run(0).Gives({2, 4}, {0, 0, 0, 0, 0, 0, 0, 2}, 2);
  run(1).Gives({2, 1}, {0, 0}, 0);
  run(1).Gives({2, 1}, {0, 2}, 1);
}

TEST(GRUUnit, R2KeepsNaNOutOfRowsThatDoNotReadIt) {
  const auto run = [](int drops) {
    return OpTest("GRUUnit")
        .Arg("drop_states", drops)
        .Input("h_prev", {2, 1}, {2, 4})
        .Input("gates", {2, 3}, {kNaN, kNaN, kNaN, kNaN, 0, 0})
        .Input("lengths", Tensor::Of<std::int32_t>({2}, {0, 9}))
        .Input("t", Timestep());
  };
  run(0).Gives({2, 1}, {2, 2});
  run(1).Gives({2, 1}, {0, 2});
  const OpTest gradient = OpTest("GRUUnitGradient", 2)
                              .Input("h_prev", {2, 1}, {kNaN, 4})
                              .Input("gates", {2, 3}, {kNaN, kNaN, kNaN, kNaN, 0, 0})
                              .Input("lengths", Tensor::Of<std::int32_t>({2}, {0, 9}))
                              .Input("t", Timestep())
                              .Input("h", {2, 1}, {kNaN, kNaN})
                              .Input("dh", {2, 1}, {4, 8});
  gradient.Gives({2, 1}, {4, 4}, 0);
  gradient.Gives({2, 3}, {0, 0, 0, 0, 8, 4}, 1);
}

// Inputs of a unit, or of its gradient, of which rows 0 and 2 have ended; in those, all is NaN but what `passes`.
OpTest WithEndedRows(const std::string& type, int num_outputs, const std::vector<std::pair<const char*, int>>& inputs,
                     const std::string& passes, bool has_nan, int drops) {
  constexpr int kSize = 37;
  OpTest test(type, num_outputs);
  test.Arg("drop_states", drops);
  int seed = 1;
  for (const auto& [name, width] : inputs) {
    if (width == 0) {
      test.Input("lengths", Lengths()).Input("t", Timestep());
      continue;
    }
    const int columns = width * kSize;
    std::vector<double> values;
    for (int k = 0; k < kRows * columns; ++k) {
      const bool is_nan = has_nan && !Valid(k / columns, true) && passes.find(name) == std::string::npos;
      values.push_back(is_nan ? kNaN : std::sin(seed * 1000 + k));
    }
    test.Input(name, {1, kRows, columns}, values);
    ++seed;
  }
  return test;
}

TEST(GatedUnits, R2KeepNaNOutOfWideRowsThatDoNotReadIt) {
  struct Unit {
    const char* type;
    int num_outputs;
    std::vector<std::pair<const char*, int>> inputs;  // and how many times as wide as a state; 0: lengths and timestep
    const char* passes;
  };
  const Unit units[] = {
      {"LSTMUnit", 2, {{"h_prev", 1}, {"c_prev", 1}, {"gates", 4}, {"", 0}}, "h_prev c_prev"},
      {"LSTMUnitGradient",
       3,
       {{"h_prev", 1}, {"c_prev", 1}, {"gates", 4}, {"", 0}, {"h", 1}, {"c", 1}, {"dh", 1}, {"dc", 1}},
       "dh dc"},
      {"GRUUnit", 1, {{"h_prev", 1}, {"gates", 3}, {"", 0}}, "h_prev"},
      {"GRUUnitGradient", 2, {{"h_prev", 1}, {"gates", 3}, {"", 0}, {"h", 1}, {"dh", 1}}, "dh"}};
  for (const auto& [type, num_outputs, inputs, passes] : units) {
    for (const int drops : {0, 1}) {
      for (const DType dtype : {DType::kFloat, DType::kDouble}) {
        const std::vector<Tensor> clean = WithEndedRows(type, num_outputs, inputs, passes, false, drops).Run(dtype),
                                  with_nan = WithEndedRows(type, num_outputs, inputs, passes, true, drops).Run(dtype);
        for (int i = 0; i < num_outputs; ++i) {
          EXPECT_EQ(ToDoubles(with_nan[i]), ToDoubles(clean[i])) << type << ", output " << i << ", drops " << drops;
        }
      }
    }
  }
}

TEST(GatedUnits, GradientsRefuseWhatHasNoElementForEachOfAState) {
  const auto run = [](const Shape& h, const Shape& dh) {
    OpTest("GRUUnitGradient", 2)
        .Random("h_prev", {1, 3, 2}, 1)
        .Random("gates", {1, 3, 6}, 2)
        .Input("lengths", Tensor::Of<std::int32_t>({3}, {5, 5, 5}))
        .Input("t", Timestep())
        .Random("h", h, 3)
        .Random("dh", dh, 4)
        .Run();
  };
  ExpectError(
      [&] {
        run({1, 3, 2}, {1, 1, 2});
      },
      "…GRUUnitGradient needs dh of the shape that GRUUnit gives, an element for each of [1, 3, 2]; its");
  ExpectError(
      [&] {
        run({1, 1, 2}, {1, 3, 2});
      },
      "…GRUUnitGradient needs h of the shape that GRUUnit gives, an element for each of [1, 3, 2]; its");
  run({1, 3, 2}, {3, 2});
}

TEST(LSTMUnit, Saturates) {
  OpTest("LSTMUnit", 2)
      .Arg("sequence_lengths", 0)
      .Input("h_prev", {1, 2}, {0, 0})
      .Input("c_prev", {1, 2}, {3, 3})
      .Input("gates", {1, 8}, {1e4, -1e4, -1e4, 1e4, 1e4, -1e4, 1e4, -1e4})
      .Input("t", Timestep())
      .Gives({1, 2}, {1, 3}, 1);
}

TEST(LSTMUnit, AcceptsNoElements) {
  for (const Shape& shape : {Shape{1, 0, 5}, Shape{1, 2, 0}}) {
    const std::int64_t n = shape[1], d = shape[2];
    const OpTest test = OpTest("LSTMUnit", 2)
                            .Input("h_prev", shape, {})
                            .Input("c_prev", shape, {})
                            .Input("gates", {1, n, 4 * d}, {})
                            .Input("lengths", Tensor::Of<std::int32_t>({n}, std::vector<std::int32_t>(n, 5)))
                            .Input("t", Timestep());
    test.Gives(shape, {}, 0);
    test.Gives(shape, {}, 1);
    test.GradientMatches();
  }
}

TEST(GRUUnit, AcceptsNoElements) {
  const OpTest test = OpTest("GRUUnit")
                          .Input("h_prev", {1, 0, 5}, {})
                          .Input("gates", {1, 0, 15}, {})
                          .Input("lengths", Tensor::Of<std::int32_t>({0}, std::vector<std::int32_t>{}))
                          .Input("t", Timestep());
  test.Gives({1, 0, 5}, {});
  test.GradientMatches();
}

TEST(LSTMUnit, RefusesInputsThatDoNotFit) {
  const auto run = [](const Shape& h, const Shape& c, const Shape& gates, const Tensor& lengths, const Tensor& t) {
    return [=] {
      OpTest("LSTMUnit", 2)
          .Random("h", h, 1)
          .Random("c", c, 2)
          .Random("gates", gates, 3)
          .Input("lengths", lengths)
          .Input("t", t)
          .Run();
    };
  };
  const Tensor lengths = Lengths(), t = Timestep();
  ExpectError(run({1, 4, 2}, {1, 4, 2}, {1, 4, 6}, lengths, t),
              "shape mismatch: LSTMUnit needs gates [4, 4 x 2]; gates is float [1, 4, 6]\n"
              "  at op 0 `output0, output1 = LSTMUnit(h, c, gates, lengths, t)` with h float [1, 4, 2], "
              "c float [1, 4, 2], gates float [1, 4, 6], lengths int32 [4], t int32 [1]\n"
              "  in net \"test\"");
  ExpectError(run({2, 4, 2}, {2, 4, 2}, {2, 4, 8}, lengths, t),
              "…LSTMUnit needs states [1, N, D] or [N, D]; h is float [2, 4, 2]\n");
  ExpectError(run({0, std::int64_t{1} << 62}, {0, std::int64_t{1} << 62}, {0, 0}, Lengths(), t),
              "…LSTMUnit needs gates [0, 4 x 4611686018427387904]; gates is float [0, 0]\n");
  ExpectError(run({4, 2}, {4, 3}, {4, 8}, lengths, t),
              "…LSTMUnit needs inputs of one shape; h is float [4, 2] and c is float [4, 3]\n");
  ExpectError(run({3, 2}, {3, 2}, {3, 8}, lengths, t), "…LSTMUnit needs 3 lengths, one a row; lengths is int32 [4]\n");
  ExpectError(run({4, 2}, {4, 2}, {4, 8}, Tensor::Of<std::int64_t>({4}, {1, 2, 3, 4}), t),
              "…LSTMUnit works on int32; lengths is int64 [4]\n");
  ExpectError(run({4, 2}, {4, 2}, {4, 8}, lengths, lengths),
              "…LSTMUnit needs a timestep of one element; t is int32 [4]\n");
  ExpectError(run({4, 2}, {4, 2}, {4, 8}, lengths, Tensor::Of<float>({1}, {3})),
              "…LSTMUnit works on int32; t is float [1]\n");
}

TEST(LSTMUnit, R4RefusesLengthsThatAreMissing) {
  ExpectError(
      [] {
        OpTest("LSTMUnit", 2)
            .Random("h", {4, 2}, 1)
            .Random("c", {4, 2}, 2)
            .Random("gates", {4, 8}, 3)
            .Input("t", Timestep())
            .Run();
      },
      "…LSTMUnit with sequence_lengths = 1 has 5 inputs; here are 4");
  ExpectError([] { LstmUnit(2, true).Arg("sequence_lengths", 0).Run(); }, "…sequence_lengths");
  ExpectError(
      [] {
        OpTest("LSTMUnit", 2)
            .Arg("sequence_lengths", 0)
            .Random("h", {4, 2}, 1)
            .Random("c", {4, 2}, 2)
            .Random("gates", {4, 8}, 3)
            .Input("lengths", Lengths())
            .Input("t", Timestep())
            .Run();
      },
      "…LSTMUnit with sequence_lengths = 0 has 4 inputs; here are 5");
}

TEST(GRUUnit, R3RefusesAForgetBias) {
  OpTest test = GruUnit(2, true);
  test.Arg("forget_bias", 0.0f).Run();
  ExpectError([] { GruUnit(2, true).Arg("forget_bias", 1.5f).Run(); },
              "…GRUUnit: forget_bias is 1.5; a GRU has no forget gate, and Caffe2 ignores the value: make it 0");
}

TEST(GRUUnit, RefusesInputsThatDoNotFit) {
  ExpectError(
      [] {
        OpTest("GRUUnit")
            .Random("h", {4, 2}, 1)
            .Random("gates", {4, 8}, 3)
            .Input("lengths", Lengths())
            .Input("t", Timestep())
            .Run();
      },
      "…GRUUnit needs gates [4, 3 x 2]; gates is float [4, 8]\n");
}

}  // namespace
}  // namespace stepnet
