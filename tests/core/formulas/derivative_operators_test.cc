// Derivatives of formulas against gradient operators that are written by hand, bit for bit; and, where the operator's
// own gradient is that derivative, against the equation in double.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>

#include "formula_run.h"
#include "stepnet/core/strings.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct OpStep {
  std::string type;
  std::vector<std::string> inputs;
  std::string output;  // the last one of several
  std::vector<std::pair<std::string, float>> arguments = {};
  int num_outputs = 1;
};

struct Case {
  std::string formula;           // of a, and of b where it has one
  std::vector<OpStep> gradient;  // from a, b, y, dy to da, db
  bool reads_input = false;      // the derivative, though y is stored
};

// Gradients as Caffe2 writes them.
struct Given {
  double a, b, y, dy;
};
struct Equation {
  std::string formula;
  double (*da)(const Given& at);
  double (*db)(const Given& at) = nullptr;
  bool reads_input = false;
};

const std::vector<Equation> kEquations = {
    {"tanh(a)", [](const Given& at) { return at.dy * (1 - at.y * at.y); }},
    {"sigmoid(a)", [](const Given& at) { return at.dy * at.y * (1 - at.y); }},
    {"max(a, 0)", [](const Given& at) { return at.y > 0 ? at.dy : 0; }},
    {"min(max(a, -0.5), 1.5)", [](const Given& at) { return at.y > -0.5 && at.y < 1.5 ? at.dy : 0; }},
    {"min(max(a, -0.5), inf)", [](const Given& at) { return at.y > -0.5 && at.y < kInfinity ? at.dy : 0; }},
    {"min(max(0.25 * a + 0.5, 0), 1)", [](const Given& at) { return at.y > 0 && at.y < 1 ? at.dy * 0.25 : 0; }},
    {"abs(a)", [](const Given& at) { return at.a == 0  ? 0
                                            : at.a > 0 ? at.dy
                                                       : -at.dy; }, nullptr, true},
    {"sin(a)", [](const Given& at) { return at.dy * std::cos(at.a); }, nullptr, true},
    {"cos(a)", [](const Given& at) { return -at.dy * std::sin(at.a); }, nullptr, true},
    {"1 / sqrt(a)", [](const Given& at) { return -0.5 * at.dy * at.y * at.y * at.y; }},
    {"1 / a", [](const Given& at) { return -at.dy * at.y * at.y; }},
    {"a / b", [](const Given& at) { return at.dy / at.b; }, [](const Given& at) { return -at.dy * at.y / at.b; }, true},
};

const std::vector<Case> kCases = {
    {"where(a >= 0, a, 0.25 * a)", {{"LeakyReluGradient", {"y", "dy"}, "da", {{"alpha", 0.25f}}}}, true},
    {"-a", {{"Negative", {"dy"}, "da"}}},
    {"exp(a)", {{"Mul", {"y", "dy"}, "da"}}},
    {"log(a)", {{"Div", {"dy", "a"}, "da"}}, true},
    {"a * a", {{"Scale", {"dy"}, "twice", {{"scale", 2.0f}}}, {"Mul", {"twice", "a"}, "da"}}, true},
    {"sqrt(a)", {{"Scale", {"dy"}, "half", {{"scale", 0.5f}}}, {"Div", {"half", "y"}, "da"}}},
    {"pow(a, 0.0)", {{"PowGradient", {"a", "dy"}, "da", {{"exponent", 0.0f}}}}},
    {"pow(a, 1)", {{"PowGradient", {"a", "dy"}, "da", {{"exponent", 1.0f}}}}},
    {"pow(a, 2)", {{"PowGradient", {"a", "dy"}, "da", {{"exponent", 2.0f}}}}, true},
    {"pow(a, 3)", {{"PowGradient", {"a", "dy"}, "da", {{"exponent", 3.0f}}}}, true},
    {"pow(a, 4)", {{"PowGradient", {"a", "dy"}, "da", {{"exponent", 4.0f}}}}, true},
    {"pow(a, -1)", {{"PowGradient", {"a", "dy"}, "da", {{"exponent", -1.0f}}}}, true},
    {"pow(a, -0.5)", {{"PowGradient", {"a", "dy"}, "da", {{"exponent", -0.5f}}}}, true},
    {"a * b", {{"Mul", {"dy", "b"}, "da"}, {"Mul", {"dy", "a"}, "db"}}, true},
    {"a - b", {{"Scale", {"dy"}, "da", {{"scale", 1.0f}}}, {"Negative", {"dy"}, "db"}}},
    {"max(a, b)", {{"MaxGradient", {"y", "dy", "a", "b"}, "db", {}, 2}}, true},
    {"min(a, b)", {{"MinGradient", {"y", "dy", "a", "b"}, "db", {}, 2}}, true},
};

using Blobs = std::map<std::string, std::vector<double>>;

// Runs operators that read and write blobs; of an operator with two outputs, "db" comes with "da".
void RunSteps(const std::vector<OpStep>& steps, DType dtype, Blobs* blobs) {
  for (const OpStep& step : steps) {
    OpTest op(step.type, step.num_outputs);
    for (const std::string& input : step.inputs) {
      op.Input(input, Shape({std::ssize((*blobs)[input])}), (*blobs)[input]);
    }
    for (const auto& [name, value] : step.arguments) op.Arg(name, value);
    const std::vector<Tensor> results = op.Run(dtype);
    for (int k = 0; k < step.num_outputs; ++k) {
      std::vector<double>& blob = (*blobs)[k + 1 < step.num_outputs ? "da" : step.output];
      blob.clear();
      for (std::int64_t i = 0; i < results[k].size(); ++i) {
        blob.push_back(dtype == DType::kFloat ? results[k].data<float>()[i] : results[k].data<double>()[i]);
      }
    }
  }
}

// All pairs of odd numbers, and random ones; a gradient that is less than any normal number.
void FillOdd(FormulaRun* run, DType dtype, std::mt19937& random) {
  constexpr double kOdd[] = {0,    -0.0, 1,         -1,         0.5,
                             -0.5, 1.5,  kInfinity, -kInfinity, std::numeric_limits<double>::quiet_NaN()};
  run->Fill(random);
  size_t i = 0;
  for (const double a : kOdd) {
    for (const double b : kOdd) {
      run->values[0][i] = a;
      if (run->values.size() > 1) run->values[1][i] = b;
      ++i;
    }
  }
  run->values[0][i] = 0.5;
  run->gradients[0][i] = 3 * (dtype == DType::kFloat ? std::numeric_limits<float>::denorm_min()
                                                     : std::numeric_limits<double>::denorm_min());
}

bool IsOfTwo(const std::string& formula) { return formula.find('b') < formula.size() && formula != "abs(a)"; }

FormulaRun OddRun(const std::string& formula, DType dtype) {
  FormulaRun run(StrCat("in 0 a: ", dtype, "\nin 1 b: ", dtype, "\nout ", formula),
                 std::vector<ExprAccess>(IsOfTwo(formula) ? 2 : 1));
  run.num_rows = 20;
  run.num_columns = 25;
  run.stores_outputs = true;
  std::mt19937 random(19);
  FillOdd(&run, dtype, random);
  return run;
}

std::string Place(const FormulaRun& run, const std::string& formula, DType dtype, size_t k, size_t i) {
  return StrCat(formula, " in ", dtype, " of ", run.values[0][i], " and ", run.values.back()[i], " with ",
                run.gradients[0][i], ": gradient ", k);
}

TEST(DerivativeAndOperator, GiveTheSameBits) {
  for (const Case& one : kCases) {
    for (const DType dtype : {DType::kFloat, DType::kDouble}) {
      const FormulaRun run = OddRun(one.formula, dtype);
      Blobs blobs = {{"a", run.values[0]}, {"y", run.Outputs()[0]}, {"dy", run.gradients[0]}};
      if (IsOfTwo(one.formula)) blobs["b"] = run.values[1];
      RunSteps(one.gradient, dtype, &blobs);
      std::vector<std::vector<double>> gradients = run.Gradients();
      if (gradients[0].empty()) gradients[0].assign(500, 0);  // of what is constant
      for (size_t k = 0; k < gradients.size(); ++k) {
        const std::vector<double>& want = blobs[k == 0 ? "da" : "db"];
        for (size_t i = 0; i < want.size(); ++i) {
          const double got = gradients[k][i];
          const bool same =
              std::isnan(want[i]) ? std::isnan(got) : got == want[i] && std::signbit(got) == std::signbit(want[i]);
          ASSERT_TRUE(same) << Place(run, one.formula, dtype, k, i) << " is " << got << ", not " << want[i];
        }
      }
    }
  }
}

// Some roundings of numbers of the size of the result, or of dy, from which differences near 1 are taken.
bool IsNear(double got, double want, double dy, DType dtype) {
  const bool is_float = dtype == DType::kFloat;
  const double rounding = is_float ? 0x1p-24 : 0x1p-53;
  const double least = is_float ? std::numeric_limits<float>::denorm_min() : std::numeric_limits<double>::denorm_min();
  if (is_float) want = static_cast<float>(want);
  if (!std::isfinite(want)) return std::isnan(want) ? std::isnan(got) : got == want;
  return std::abs(got - want) <= 4 * rounding * std::max(std::abs(want), std::abs(dy)) + 2 * least;
}

TEST(DerivativeAndEquation, AreNear) {
  for (const Equation& one : kEquations) {
    for (const DType dtype : {DType::kFloat, DType::kDouble}) {
      const FormulaRun run = OddRun(one.formula, dtype);
      const std::vector<double>&a = run.values[0], &b = run.values.back(), &dy = run.gradients[0];
      const std::vector<double> y = run.Outputs()[0];
      const std::vector<std::vector<double>> gradients = run.Gradients();
      for (size_t k = 0; k < gradients.size(); ++k) {
        ASSERT_EQ(gradients[k].size(), a.size());
        for (size_t i = 0; i < a.size(); ++i) {
          const double want = (k == 0 ? one.da : one.db)({a[i], b[i], y[i], dy[i]});
          ASSERT_TRUE(IsNear(gradients[k][i], want, dy[i], dtype))
              << Place(run, one.formula, dtype, k, i) << " is " << gradients[k][i] << ", not " << want;
        }
      }
    }
  }
}

bool ReadsInput(const std::string& formula) {
  FormulaRun run(StrCat("in 0 a: float\nin 1 b: float\nout ", formula), {kElementAccess, kElementAccess});
  run.stores_outputs = true;
  bool reads_input = false;
  for (const InputGradient& gradient : run.Derivative()) {
    if (gradient.reach != InputGradient::Reach::kFlows) continue;
    for (const ExprNode* node : ExprNodes({&gradient.value, 1})) {
      reads_input |= node->op == ExprOp::kInput && node->number < 2;
    }
  }
  return reads_input;
}

// What gradient operators compute from y alone, so does the derivative.
TEST(DerivativeAndOperator, ReadTheSame) {
  for (const Case& one : kCases) EXPECT_EQ(ReadsInput(one.formula), one.reads_input) << one.formula;
  for (const Equation& one : kEquations) EXPECT_EQ(ReadsInput(one.formula), one.reads_input) << one.formula;
}

}  // namespace
}  // namespace stepnet
