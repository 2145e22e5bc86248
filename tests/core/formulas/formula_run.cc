#include "formula_run.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "stepnet/core/expressions/expr_scalar.h"
#include "stepnet/core/expressions/expr_text.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

using Bytes = std::vector<std::byte>;

Bytes BytesOf(DType dtype, const std::vector<double>& values) {
  return ForExprType(dtype, [&](auto zero) {
    Bytes bytes(values.size() * sizeof(zero));
    for (size_t i = 0; i < values.size(); ++i) {
      const auto value = scalar::Cast<decltype(zero)>(values[i]);
      std::memcpy(bytes.data() + i * sizeof(zero), &value, sizeof(zero));
    }
    return bytes;
  });
}

std::vector<double> ValuesOf(DType dtype, const Bytes& bytes) {
  return ForExprType(dtype, [&](auto zero) {
    std::vector<double> values(bytes.size() / sizeof(zero));
    for (size_t i = 0; i < values.size(); ++i) {
      auto value = zero;
      std::memcpy(&value, bytes.data() + i * sizeof(zero), sizeof(zero));
      values[i] = static_cast<double>(value);
    }
    return values;
  });
}

RegionOperand OperandOf(const FormulaRun& run, DType dtype, const ExprAccess& access) {
  const std::int64_t rows = access.moves[2] ? run.num_rows : 1, columns = access.moves[3] ? run.num_columns : 1;
  return {.dtype = dtype,
          .size = rows * columns,
          .strides = {0, 0, access.moves[2] ? columns : 0, access.moves[3] ? 1 : 0}};
}

// Values of a region over the run's rows and columns.
std::vector<std::vector<double>> RunRegion(const FormulaRun& run, const std::vector<RegionOutput>& outputs,
                                           const std::vector<RegionOperand>& operands,
                                           const std::vector<std::vector<double>>& values) {
  const Region region = {.sizes = {1, 1, run.num_rows, run.num_columns}, .inputs = operands, .outputs = outputs};
  CheckRegion(region);
  std::vector<Bytes> in, out;
  for (size_t i = 0; i < operands.size(); ++i) in.push_back(BytesOf(operands[i].dtype, values[i]));
  for (const RegionOutput& output : outputs) {
    out.push_back(BytesOf(output.memory.dtype, std::vector<double>(static_cast<size_t>(output.memory.size))));
  }
  std::vector<const void*> in_data;
  std::vector<void*> out_data;
  for (const Bytes& bytes : in) in_data.push_back(bytes.data());
  for (Bytes& bytes : out) out_data.push_back(bytes.data());
  EXPECT_FALSE(EvaluateRegion(region, in_data, out_data));
  std::vector<std::vector<double>> results;
  for (size_t i = 0; i < out.size(); ++i) results.push_back(ValuesOf(outputs[i].memory.dtype, out[i]));
  return results;
}

bool IsFloating(const Expr& expr) { return expr.dtype() == DType::kFloat || expr.dtype() == DType::kDouble; }

}  // namespace

FormulaRun::FormulaRun(std::string_view text, std::vector<ExprAccess> accesses, std::vector<int> rows)
    : FormulaRun(ParseExprs(text), std::move(accesses), std::move(rows)) {}

FormulaRun::FormulaRun(std::vector<Expr> outputs_in, std::vector<ExprAccess> accesses_in, std::vector<int> rows)
    : outputs(std::move(outputs_in)), accesses(std::move(accesses_in)) {
  std::map<int, Expr> by_number;
  for (const ExprNode* node : ExprNodes(outputs)) {
    if (node->op == ExprOp::kInput) by_number[node->number] = Expr::Of(node);
  }
  for (size_t i = 0; i < accesses.size(); ++i) {
    const auto found = by_number.find(static_cast<int>(i));
    inputs.push_back(found != by_number.end() ? found->second
                                              : Expr::Input(static_cast<int>(i), StrCat("unread", i), DType::kDouble));
  }
  is_row.assign(outputs.size(), false);
  for (const int row : rows) is_row[static_cast<size_t>(row)] = true;
  for (int times = 0; times < 2; ++times) {  // gradients, and what is stored
    for (const bool row : is_row) accesses.push_back(row ? kRowAccess : kElementAccess);
  }
}

void FormulaRun::Fill(std::mt19937& random, double low, double high) {
  std::uniform_real_distribution<double> uniform(low, high);
  values.resize(inputs.size());
  gradients.resize(outputs.size());
  const auto fill = [&](std::vector<double>* memory, const Expr& expr, const ExprAccess& access) {
    memory->resize(static_cast<size_t>(OperandOf(*this, expr.dtype(), access).size));
    for (double& value : *memory) {
      if (IsFloating(expr))
        value = expr.dtype() == DType::kFloat ? static_cast<float>(uniform(random)) : uniform(random);
    }
  };
  for (size_t i = 0; i < inputs.size(); ++i) fill(&values[i], inputs[i], accesses[i]);
  for (size_t k = 0; k < outputs.size(); ++k) fill(&gradients[k], outputs[k], accesses[inputs.size() + k]);
}

std::vector<std::vector<double>> FormulaRun::Outputs() const {
  std::vector<RegionOperand> operands;
  for (size_t i = 0; i < inputs.size(); ++i) operands.push_back(OperandOf(*this, inputs[i].dtype(), accesses[i]));
  std::vector<RegionOutput> region_outputs;
  for (size_t k = 0; k < outputs.size(); ++k) {
    region_outputs.push_back({.value = outputs[k],
                              .memory = OperandOf(*this, outputs[k].dtype(), accesses[inputs.size() + k]),
                              .kind = is_row[k] ? RegionOutputKind::kRows : RegionOutputKind::kElements});
  }
  return RunRegion(*this, region_outputs, operands, values);
}

double FormulaRun::Loss() const {
  const std::vector<std::vector<double>> results = Outputs();
  double loss = 0;
  for (size_t k = 0; k < results.size(); ++k) {
    for (size_t i = 0; i < results[k].size(); ++i) loss += gradients[k][i] * results[k][i];
  }
  return loss;
}

std::vector<InputGradient> FormulaRun::Derivative() const {
  std::vector<DerivativeOutput> of;
  for (size_t k = 0; k < outputs.size(); ++k) {
    const int number = static_cast<int>(inputs.size() + k), num_outputs = static_cast<int>(outputs.size());
    DerivativeOutput output = {.value = outputs[k],
                               .gradient = Expr::Input(number, StrCat("gradient", k), outputs[k].dtype()),
                               .is_row = is_row[k]};
    if (stores_outputs) {
      output.stored = Expr::Input(number + num_outputs, StrCat("stored", k), outputs[k].dtype());
    }
    of.push_back(output);
  }
  return Differentiate(of, inputs, {.accesses = accesses, .constants = constants});
}

std::vector<std::vector<double>> FormulaRun::Gradients() const {
  std::vector<std::vector<double>> memory = values;
  memory.insert(memory.end(), gradients.begin(), gradients.end());
  for (const std::vector<double>& output : Outputs()) memory.push_back(output);
  std::vector<RegionOperand> operands;
  for (size_t i = 0; i < memory.size(); ++i) {
    const bool is_input = i < inputs.size();
    const DType dtype = (is_input ? inputs[i] : outputs[(i - inputs.size()) % outputs.size()]).dtype();
    operands.push_back(OperandOf(*this, dtype, accesses[i]));
  }
  const std::vector<InputGradient> derivative = Derivative();
  std::vector<std::vector<double>> results(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (derivative[i].reach != InputGradient::Reach::kFlows) continue;
    const ExprAccess access = derivative[i].adds_rows ? kRowAccess : accesses[i];
    results[i] = RunRegion(*this,
                           {{.value = derivative[i].value,
                             .memory = OperandOf(*this, inputs[i].dtype(), access),
                             .kind = derivative[i].kind}},
                           operands, memory)[0];
    if (!derivative[i].adds_rows) continue;
    double sum = 0;
    for (const double row : results[i]) sum += row;
    results[i] = {sum};
  }
  return results;
}

double FormulaRun::Difference(size_t input, size_t element, double step) {
  double& value = values[input][element];
  const double saved = value;
  value = saved + step;
  const double above = Loss();
  value = saved - step;
  const double below = Loss();
  value = saved;
  return (above - below) / (2 * step);
}

void ExpectGradientsAreDifferences(FormulaRun* run, double tolerance) {
  const std::vector<std::vector<double>> gradients = run->Gradients();
  for (size_t i = 0; i < gradients.size(); ++i) {
    for (size_t k = 0; k < gradients[i].size(); ++k) {
      const double want = run->Difference(i, k);
      EXPECT_NEAR(gradients[i][k], want, tolerance * (1 + std::fabs(want)))
          << PrintExprs(run->outputs) << "by " << run->inputs[i]->text << ", element " << k << " = "
          << run->values[i][k];
    }
  }
}

}  // namespace stepnet
