// Derivatives of formulas against the gradient operators that are written by hand, bit for bit.
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

const std::vector<Case> kCases = {
    {"tanh(a)", {{"TanhGradient", {"y", "dy"}, "da"}}},
    {"sigmoid(a)", {{"SigmoidGradient", {"y", "dy"}, "da"}}},
    {"max(a, 0)", {{"ReluGradient", {"y", "dy"}, "da"}}},
    {"min(max(a, -0.5), 1.5)", {{"ClipGradient", {"y", "dy"}, "da", {{"min", -0.5f}, {"max", 1.5f}}}}},
    {"min(max(a, -0.5), inf)", {{"ClipGradient", {"y", "dy"}, "da", {{"min", -0.5f}}}}},
    {"min(max(0.25 * a + 0.5, 0), 1)",
     {{"HardSigmoidGradient", {"y", "dy"}, "da", {{"alpha", 0.25f}, {"beta", 0.5f}}}}},
    {"where(a >= 0, a, 0.25 * a)", {{"LeakyReluGradient", {"y", "dy"}, "da", {{"alpha", 0.25f}}}}, true},
    {"abs(a)", {{"AbsGradient", {"a", "dy"}, "da"}}, true},
    {"-a", {{"Negative", {"dy"}, "da"}}},
    {"exp(a)", {{"Mul", {"y", "dy"}, "da"}}},
    {"log(a)", {{"Div", {"dy", "a"}, "da"}}, true},
    {"sin(a)", {{"SinGradient", {"a", "dy"}, "da"}}, true},
    {"cos(a)", {{"CosGradient", {"a", "dy"}, "da"}}, true},
    {"a * a", {{"Scale", {"dy"}, "twice", {{"scale", 2.0f}}}, {"Mul", {"twice", "a"}, "da"}}, true},
    {"sqrt(a)", {{"Scale", {"dy"}, "half", {{"scale", 0.5f}}}, {"Div", {"half", "y"}, "da"}}},
    {"1 / sqrt(a)", {{"RsqrtGradient", {"y", "dy"}, "da"}}},
    {"1 / a", {{"ReciprocalGradient", {"y", "dy"}, "da"}}},
    {"pow(a, 0.0)", {{"PowGradient", {"a", "dy"}, "da", {{"exponent", 0.0f}}}}},
    {"pow(a, 1)", {{"PowGradient", {"a", "dy"}, "da", {{"exponent", 1.0f}}}}},
    {"pow(a, 2)", {{"PowGradient", {"a", "dy"}, "da", {{"exponent", 2.0f}}}}, true},
    {"pow(a, 3)", {{"PowGradient", {"a", "dy"}, "da", {{"exponent", 3.0f}}}}, true},
    {"pow(a, 4)", {{"PowGradient", {"a", "dy"}, "da", {{"exponent", 4.0f}}}}, true},
    {"pow(a, -1)", {{"PowGradient", {"a", "dy"}, "da", {{"exponent", -1.0f}}}}, true},
    {"pow(a, -0.5)", {{"PowGradient", {"a", "dy"}, "da", {{"exponent", -0.5f}}}}, true},
    {"a * b", {{"Mul", {"dy", "b"}, "da"}, {"Mul", {"dy", "a"}, "db"}}, true},
    {"a - b", {{"Scale", {"dy"}, "da", {{"scale", 1.0f}}}, {"Negative", {"dy"}, "db"}}},
    {"a / b", {{"DivGradient", {"b", "y", "dy"}, "db", {}, 2}}, true},
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

TEST(DerivativeAndOperator, GiveTheSameBits) {
  for (const Case& one : kCases) {
    for (const DType dtype : {DType::kFloat, DType::kDouble}) {
      const bool is_binary = one.formula.find('b') < one.formula.size() && one.formula != "abs(a)";
      FormulaRun run(StrCat("in 0 a: ", dtype, "\nin 1 b: ", dtype, "\nout ", one.formula),
                     std::vector<ExprAccess>(is_binary ? 2 : 1));
      run.num_rows = 20;
      run.num_columns = 25;
      run.stores_outputs = true;
      std::mt19937 random(19);
      FillOdd(&run, dtype, random);
      Blobs blobs = {{"a", run.values[0]}, {"y", run.Outputs()[0]}, {"dy", run.gradients[0]}};
      if (is_binary) blobs["b"] = run.values[1];
      RunSteps(one.gradient, dtype, &blobs);
      std::vector<std::vector<double>> gradients = run.Gradients();
      if (gradients[0].empty()) gradients[0].assign(500, 0);  // of what is constant
      for (size_t k = 0; k < gradients.size(); ++k) {
        const std::vector<double>& want = blobs[k == 0 ? "da" : "db"];
        for (size_t i = 0; i < want.size(); ++i) {
          const double got = gradients[k][i];
          const bool same =
              std::isnan(want[i]) ? std::isnan(got) : got == want[i] && std::signbit(got) == std::signbit(want[i]);
          ASSERT_TRUE(same) << one.formula << " in " << dtype << " of " << run.values[0][i] << " and "
                            << run.values.back()[i] << " with " << run.gradients[0][i] << ": gradient " << k << " is "
                            << got << ", not " << want[i];
        }
      }
    }
  }
}

// What gradient operators compute from y alone, so does the derivative.
TEST(DerivativeAndOperator, ReadTheSame) {
  for (const Case& one : kCases) {
    FormulaRun run(StrCat("in 0 a: float\nin 1 b: float\nout ", one.formula), {kElementAccess, kElementAccess});
    run.stores_outputs = true;
    bool reads_input = false;
    for (const InputGradient& gradient : run.Derivative()) {
      if (gradient.reach != InputGradient::Reach::kFlows) continue;
      for (const ExprNode* node : ExprNodes({&gradient.value, 1})) {
        reads_input |= node->op == ExprOp::kInput && node->number < 2;
      }
    }
    EXPECT_EQ(reads_input, one.reads_input) << one.formula;
  }
}

}  // namespace
}  // namespace stepnet
