// Derivatives of whole formulas, against equations that are derived by hand, in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "formula_run.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

constexpr std::int64_t kRows = 3, kColumns = 5;
constexpr size_t kElements = 15;

using Values = std::vector<double>;

double Sigmoid(double value) { return 1 / (1 + std::exp(-value)); }
double SigmoidSlope(double y) { return y * (1 - y); }
double TanhSlope(double y) { return 1 - y * y; }

std::string Inputs(std::initializer_list<const char*> names, const std::string& others = "") {
  std::string text;
  int number = 0;
  for (const char* name : names) text += StrCat("in ", number++, " ", name, ": double\n");
  return text + others;
}

void ExpectNear(const Values& got, const Values& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-13 * (1 + std::fabs(want[i]))) << what << i;
}

// Runs with outputs computed again and with stored ones.
template <typename Fn>
void ForBoth(FormulaRun run, Fn expect) {
  std::mt19937 random(23);
  run.Fill(random);
  for (const bool stores : {false, true}) {
    run.stores_outputs = stores;
    expect(run, run.Gradients());
  }
}

// Inputs 0 to 5: i, f, o, g, c_prev, h_prev; 6: step, 7: lengths. Outputs c, h.
const char* const kLstm =
    "in 6 step: int32\nin 7 lengths: int32\n"
    "c_in = mul_add(sigmoid(f + 0.5), c_prev, sigmoid(i) * tanh(g))\n"
    "h_in = sigmoid(o) * tanh(c_in)\n"
    "ended = step >= lengths\n"
    "out where(ended, c_prev, c_in)\n"
    "out where(ended, h_prev, h_in)\n";

FormulaRun LstmRun() {
  FormulaRun run(Inputs({"i", "f", "o", "g", "c_prev", "h_prev"}) + kLstm,
                 {kElementAccess, kElementAccess, kElementAccess, kElementAccess, kElementAccess, kElementAccess,
                  kScalarAccess, kRowAccess});
  run.values = std::vector<Values>(8);
  run.values[6] = {4};
  run.values[7] = {9, 4, 5};  // row 1 has ended
  return run;
}

// Equations of operators/lstm_unit.cc (Hochreiter, Schmidhuber 1997; Gers, Schmidhuber, Cummins 2000).
TEST(DerivativeOfCell, LstmUnit) {
  ForBoth(LstmRun(), [](const FormulaRun& run, const std::vector<Values>& gradients) {
    std::vector<Values> want(6, Values(kElements));
    for (size_t k = 0; k < kElements; ++k) {
      const double dc_out = run.gradients[0][k], dh = run.gradients[1][k];
      if (k / kColumns == 1) {
        want[4][k] = dc_out;
        want[5][k] = dh;
        continue;
      }
      const double i = Sigmoid(run.values[0][k]), f = Sigmoid(run.values[1][k] + 0.5), o = Sigmoid(run.values[2][k]);
      const double g = std::tanh(run.values[3][k]), c_prev = run.values[4][k];
      const double tanh_c = std::tanh(f * c_prev + i * g);
      const double dc = dc_out + dh * o * TanhSlope(tanh_c);
      want[0][k] = dc * g * SigmoidSlope(i);
      want[1][k] = dc * c_prev * SigmoidSlope(f);
      want[2][k] = dh * tanh_c * SigmoidSlope(o);
      want[3][k] = dc * i * TanhSlope(g);
      want[4][k] = dc * f;
    }
    for (size_t input = 0; input < 6; ++input) ExpectNear(gradients[input], want[input], run.inputs[input]->text);
    EXPECT_TRUE(gradients[6].empty() && gradients[7].empty());
  });
}

TEST(DerivativeOfCell, LstmUnitReadsNothingOfRowsThatHaveEnded) {
  FormulaRun run = LstmRun();
  std::mt19937 random(29);
  run.Fill(random);
  const std::vector<Values> clean = run.Gradients();
  for (int input = 0; input < 6; ++input) {
    std::fill_n(run.values[input].begin() + kColumns, kColumns, input % 2 == 0 ? std::nan("") : 1e300 * 1e300);
  }
  EXPECT_EQ(run.Gradients(), clean);
}

// Peepholes: columns that every row shares. Source: Gers, Schraudolph, Schmidhuber, "Learning Precise Timing with LSTM
// Recurrent Networks", 2002.
TEST(DerivativeOfCell, PeepholeLstm) {
  FormulaRun lstm(Inputs({"i", "f", "o", "g", "c_prev", "p_i", "p_f", "p_o"}) +
                      "c = mul_add(sigmoid(f + p_f * c_prev), c_prev, sigmoid(i + p_i * c_prev) * tanh(g))\n"
                      "out c\n"
                      "out sigmoid(o + p_o * c) * tanh(c)\n",
                  {kElementAccess, kElementAccess, kElementAccess, kElementAccess, kElementAccess, kColumnAccess,
                   kColumnAccess, kColumnAccess});
  ForBoth(lstm, [](const FormulaRun& run, const std::vector<Values>& gradients) {
    std::vector<Values> want(5, Values(kElements));
    want.resize(8, Values(kColumns));
    for (size_t k = 0; k < kElements; ++k) {
      const size_t j = k % kColumns;
      const double c_prev = run.values[4][k], p_i = run.values[5][j], p_f = run.values[6][j], p_o = run.values[7][j];
      const double i = Sigmoid(run.values[0][k] + p_i * c_prev), f = Sigmoid(run.values[1][k] + p_f * c_prev);
      const double g = std::tanh(run.values[3][k]), c = f * c_prev + i * g;
      const double o = Sigmoid(run.values[2][k] + p_o * c), tanh_c = std::tanh(c), dh = run.gradients[1][k];
      const double d_o = dh * tanh_c * SigmoidSlope(o);
      const double dc = run.gradients[0][k] + dh * o * TanhSlope(tanh_c) + d_o * p_o;
      const double di = dc * g * SigmoidSlope(i), df = dc * c_prev * SigmoidSlope(f);
      want[0][k] = di;
      want[1][k] = df;
      want[2][k] = d_o;
      want[3][k] = dc * i * TanhSlope(g);
      want[4][k] = dc * f + di * p_i + df * p_f;
      want[5][j] += di * c_prev;
      want[6][j] += df * c_prev;
      want[7][j] += d_o * c;
    }
    for (size_t input = 0; input < 8; ++input) ExpectNear(gradients[input], want[input], run.inputs[input]->text);
  });
}

// Equations of operators/gru_unit.cc (Cho et al. 2014, eq. 7), with drop_states.
TEST(DerivativeOfCell, GruUnit) {
  FormulaRun gru(Inputs({"update", "output", "h_prev"}, "in 3 ended: bool\n") +
                     "u = sigmoid(update)\n"
                     "out where(ended, 0, mul_add(h_prev, u, (1 - u) * tanh(output)))\n",
                 {kElementAccess, kElementAccess, kElementAccess, kRowAccess});
  gru.values = {{}, {}, {}, {0, 0, 1}};
  ForBoth(gru, [](const FormulaRun& run, const std::vector<Values>& gradients) {
    std::vector<Values> want(3, Values(kElements));
    for (size_t k = 0; k < kElements - kColumns; ++k) {
      const double u = Sigmoid(run.values[0][k]), output = std::tanh(run.values[1][k]), dh = run.gradients[0][k];
      want[0][k] = dh * (1 - u) * u * (run.values[2][k] - output);
      want[1][k] = dh * (1 - u) * TanhSlope(output);
      want[2][k] = dh * u;
    }
    for (size_t input = 0; input < 3; ++input) ExpectNear(gradients[input], want[input], run.inputs[input]->text);
  });
}

// Equations of operators/layer_norm.cc (Ba, Kiros, Hinton 2016, eq. 3), here with gain and bias; y, mean and std are
// outputs, of which y alone has a gradient.
TEST(DerivativeOfCell, LayerNorm) {
  FormulaRun norm(Inputs({"x", "gain", "bias"}) +
                      "mean = row_sum(x) / 5\n"
                      "std = sqrt(row_sum((x - mean) * (x - mean)) / 5 + 0.00001)\n"
                      "out (x - mean) * (1 / std) * gain + bias\n",
                  {kElementAccess, kColumnAccess, kColumnAccess});
  ForBoth(norm, [](const FormulaRun& run, const std::vector<Values>& gradients) {
    Values dx(kElements), dgain(kColumns), dbias(kColumns);
    for (std::int64_t row = 0; row < kRows; ++row) {
      const double *x = &run.values[0][row * kColumns], *dy = &run.gradients[0][row * kColumns];
      double mean = 0, variance = 0, along_mean = 0, along_y = 0;
      for (int j = 0; j < kColumns; ++j) mean += x[j] / kColumns;
      for (int j = 0; j < kColumns; ++j) variance += (x[j] - mean) * (x[j] - mean) / kColumns;
      const double deviation = std::sqrt(variance + 0.00001);
      const auto y = [&](int j) { return (x[j] - mean) / deviation; };
      const auto slope = [&](int j) { return dy[j] * run.values[1][j]; };
      for (int j = 0; j < kColumns; ++j) along_mean += slope(j) / kColumns;
      for (int j = 0; j < kColumns; ++j) along_y += slope(j) * y(j) / kColumns;
      for (int j = 0; j < kColumns; ++j) {
        dx[row * kColumns + j] = (slope(j) - along_mean - y(j) * along_y) / deviation;
        dgain[j] += dy[j] * y(j);
        dbias[j] += dy[j];
      }
    }
    ExpectNear(gradients[0], dx, "x");
    ExpectNear(gradients[1], dgain, "gain");
    ExpectNear(gradients[2], dbias, "bias");
  });
}

const char* const kExponentials = "e = exp(x - row_max(x))\ns = row_sum(e)\n";

// With and without a gradient through the largest element, which is nothing but rounding.
void ExpectRowsFollow(const std::string& output, double (*derivative)(double y, double dy, double sum),
                      double (*summand)(double y, double dy)) {
  for (const bool holds_largest : {false, true}) {
    FormulaRun softmax(Inputs({"x"}) + kExponentials + "out " + output, {kElementAccess});
    if (holds_largest) softmax.constants = {RowMax(softmax.inputs[0])};
    ForBoth(softmax, [&](const FormulaRun& run, const std::vector<Values>& gradients) {
      const Values y = run.Outputs()[0];
      Values want(kElements);
      for (std::int64_t row = 0; row < kRows; ++row) {
        double sum = 0;
        for (size_t k = row * kColumns; k < (row + 1) * kColumns; ++k) sum += summand(y[k], run.gradients[0][k]);
        for (size_t k = row * kColumns; k < (row + 1) * kColumns; ++k) {
          want[k] = derivative(y[k], run.gradients[0][k], sum);
        }
      }
      ExpectNear(gradients[0], want, "x");
    });
  }
}

// Equations of operators/softmax.cc.
TEST(DerivativeOfCell, Softmax) {
  ExpectRowsFollow(
      "e / s", [](double y, double dy, double sum) { return y * (dy - sum); },
      [](double y, double dy) { return y * dy; });
}

TEST(DerivativeOfCell, LogSoftmax) {
  ExpectRowsFollow(
      "x - row_max(x) - log(s)", [](double y, double dy, double sum) { return dy - std::exp(y) * sum; },
      [](double, double dy) { return dy; });
}

// Softmax over the first elements of each row: those beyond are read by nothing.
TEST(DerivativeOfCell, MaskedSoftmaxIsZeroBeyondItsLength) {
  FormulaRun run(Inputs({"x"}, "in 1 length: int64\n") +
                     "inside = index(3) < length\n"
                     "e = where(inside, exp(x - row_max(where(inside, x, -inf))), 0)\n"
                     "out where(inside, e / row_sum(e), 0)\n",
                 {kElementAccess, kRowAccess});
  run.values = {{}, {2, 5, 0}};
  std::mt19937 random(31);
  run.Fill(random);
  for (const size_t beyond : {2, 3, 4, 10, 11, 12, 13, 14})
    run.values[0][beyond] = beyond % 2 == 0 ? std::nan("") : 1e308 * 10;
  const Values dx = run.Gradients()[0];
  for (const size_t beyond : {2, 3, 4, 10, 11, 12, 13, 14}) EXPECT_EQ(dx[beyond], 0);
  for (const size_t inside : {0, 1, 5, 6, 7, 8, 9}) EXPECT_NEAR(dx[inside], run.Difference(0, inside), 1e-8);
}

// -sum of t log softmax(x), one number for a row (operators/softmax_with_loss.cc with label_prob), and its sum over
// labels that are indices.
TEST(DerivativeOfCell, CrossEntropy) {
  FormulaRun entropy(Inputs({"x", "t", "w"}) + kExponentials + "out -row_sum(t * (x - row_max(x) - log(s))) * w\n",
                     {kElementAccess, kElementAccess, kRowAccess}, {0});
  ForBoth(entropy, [](const FormulaRun& run, const std::vector<Values>& gradients) {
    Values dx(kElements), dw(kRows);
    for (std::int64_t row = 0; row < kRows; ++row) {
      double total = 0, labels = 0;
      for (int j = 0; j < kColumns; ++j) total += std::exp(run.values[0][row * kColumns + j]);
      for (int j = 0; j < kColumns; ++j) labels += run.values[1][row * kColumns + j];
      for (int j = 0; j < kColumns; ++j) {
        const size_t k = row * kColumns + j;
        const double dy = run.gradients[0][row], log_p = run.values[0][k] - std::log(total);
        dx[k] = dy * run.values[2][row] * (labels * std::exp(log_p) - run.values[1][k]);
        dw[row] -= dy * run.values[1][k] * log_p;
      }
    }
    ExpectNear(gradients[0], dx, "x");
    ExpectNear(gradients[2], dw, "w");
  });
}

TEST(DerivativeOfCell, CrossEntropyOfLabels) {
  FormulaRun entropy(
      Inputs({"x"}, "in 1 label: int64\n") + "out row_sum(where(index(3) == label, -log(max(x, 1e-20)), 0))\n",
      {kElementAccess, kRowAccess}, {0});
  entropy.values = {{}, {1, 0, 4}};
  std::mt19937 random(37);
  entropy.Fill(random, 0.1, 1);
  entropy.values[0][0] = std::nan("");
  Values want(kElements);
  for (const size_t k : {1, 5, 14}) want[k] = -entropy.gradients[0][k / kColumns] / entropy.values[0][k];
  EXPECT_EQ(entropy.Gradients()[0], want);
}

// Softplus as operators/softplus.cc computes it, whose derivative is the sigmoid, and Swish.
TEST(DerivativeOfCell, SoftplusAndSwish) {
  FormulaRun both(Inputs({"x"}) +
                      "e = exp(-abs(x))\nu = 1 + e\nout max(x, 0) + (log(u) + (e - (u - 1)) / u)\n"
                      "out x * sigmoid(x)\n",
                  {kElementAccess});
  ForBoth(both, [](const FormulaRun& run, const std::vector<Values>& gradients) {
    Values want(kElements);
    for (size_t k = 0; k < kElements; ++k) {
      const double s = Sigmoid(run.values[0][k]), y = run.values[0][k] * s;
      want[k] = run.gradients[0][k] * s + run.gradients[1][k] * (y + s * (1 - y));
    }
    ExpectNear(gradients[0], want, "x");
  });
}

}  // namespace
}  // namespace stepnet
