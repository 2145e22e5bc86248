// FormulaRun: a formula and its derivative over a region of some rows and columns, in memory that tests read and write
// as double.
#pragma once

#include <random>
#include <string_view>
#include <vector>

#include "stepnet/core/formulas/derivative.h"

namespace stepnet {

// How an input lies over [rows, columns].
inline constexpr ExprAccess kElementAccess = {};
inline constexpr ExprAccess kRowAccess = {{true, true, true, false}};
inline constexpr ExprAccess kColumnAccess = {{true, true, false, true}};
inline constexpr ExprAccess kScalarAccess = {{true, true, false, false}};

struct FormulaRun {
  // Texts as ParseExprs reads them; input k has accesses[k]. An output that is the same for all of a row is in `rows`.
  FormulaRun(std::string_view text, std::vector<ExprAccess> accesses, std::vector<int> rows = {});
  FormulaRun(std::vector<Expr> outputs, std::vector<ExprAccess> accesses, std::vector<int> rows = {});

  // Numbers of inputs and of gradients of outputs, uniform in [low, high); other dtypes than float and double are left.
  void Fill(std::mt19937& random, double low = -2, double high = 2);

  std::vector<std::vector<double>> Outputs() const;
  // Sum of gradient * output.
  double Loss() const;
  std::vector<InputGradient> Derivative() const;
  // One for each input, laid out as its memory; empty where nothing flows to it.
  std::vector<std::vector<double>> Gradients() const;
  // d Loss / d element, by central differences.
  double Difference(size_t input, size_t element, double step = 1e-5);

  std::vector<Expr> outputs;
  std::vector<Expr> inputs;
  std::vector<ExprAccess> accesses;  // of inputs, gradients and stored outputs
  std::vector<bool> is_row;          // of outputs
  std::int64_t num_rows = 3;
  std::int64_t num_columns = 5;
  bool stores_outputs = false;
  std::vector<Expr> constants;
  std::vector<std::vector<double>> values;     // of inputs
  std::vector<std::vector<double>> gradients;  // of outputs

 private:
  void Prepare(const std::vector<int>& rows);
};

// Expects that gradients are central differences, |a - b| <= tolerance * (1 + |b|), of inputs that a gradient flows to.
void ExpectGradientsAreDifferences(FormulaRun* run, double tolerance = 1e-7);

}  // namespace stepnet
