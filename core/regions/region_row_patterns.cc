// Patterns of whole rows: sums over them, and elements that read a value of their row or column.
#include <algorithm>
#include <initializer_list>
#include <utility>

#include "stepnet/core/regions/region_pattern_finder.h"
#include "stepnet/core/regions/region_patterns.h"

namespace stepnet {
namespace {

using Kind = RegionPattern::Kind;

class RowFinder : private PatternFinder {
 public:
  explicit RowFinder(std::span<RegionValue> values) : PatternFinder(values) {}

  // Sums of products, and of floats in double.
  void FindRowSums() {
    for (RegionValue& value : values_) {
      const DType dtype = value.expr->dtype;
      if (value.expr->op != ExprOp::kRowSum || !IsFloatOrDouble(dtype)) continue;
      RegionValue* const cast = LinkOf(value, 0, {ExprOp::kCast});
      const bool casts = cast != nullptr && values_[cast->operands[0]].expr->dtype == DType::kFloat;
      RegionValue* const product = LinkOf(casts ? *cast : value, 0, {ExprOp::kMultiply});
      if (product != nullptr && TakeSumOfProducts(&value, product, casts)) {
        product->is_absorbed = true;
      } else if (casts) {
        TakeRowSum(&value, {.kind = Kind::kRowSum, .casts = casts}, {cast->operands[0]}, SumInDoubleKernel());
      }
      if (value.rows_kernel != nullptr && casts) cast->is_absorbed = true;
    }
    FindSumsTogether();
  }

  // Which values read values of rows and columns as they are.
  void FindRowOperands() {
    for (RegionValue& value : values_) {
      if (value.level == RegionLevel::kRow || value.is_of_columns) value.is_spread = value.is_output_element;
    }
    for (RegionValue& value : values_) {
      if (MayEnd(value) && value.expr->op == ExprOp::kMultiply) FindScaledRest(&value);
    }
    for (RegionValue& value : values_) {
      if (!value.is_in_blocks()) continue;
      PutElementsFirst(&value);
      RepeatedOperands repeated;
      for (int k = 0; k < value.num_operands; ++k) {
        const RegionValue& operand = values_[value.operands[k]];
        if (operand.level == RegionLevel::kRow) repeated.of_rows |= 1U << k;
        if (operand.is_of_columns) repeated.of_columns |= 1U << k;
      }
      if (repeated == value.repeated) continue;  // none, or a sum knows
      if (value.is_reduction()) {
        if (repeated.of_rows == value.repeated.of_rows) value.repeated = repeated;
      } else if (const RowOperandKernel kernel = RowOperandKernelOf(value); kernel != nullptr) {
        value.repeated = repeated;
        value.row_operand_kernel = kernel;
      }
      for (int k = 0; k < value.num_operands; ++k) {
        RegionValue& operand = values_[value.operands[k]];
        if (repeated.Has(k) && !value.repeated.Has(k)) operand.is_spread = true;
        if (operand.is_of_columns && value.repeated.Has(k)) operand.is_read_as_is = true;
      }
    }
    for (RegionValue& value : values_) {
      if (value.is_of_columns) value.is_spread &= value.is_read_as_is;  // else there is no other array
    }
  }

 private:
  // A sum of products and that of one of the factors, both of rows that are read once then.
  void FindSumsTogether() {
    const auto is_sum_of = [&](const RegionValue& value, int element) {
      return value.expr->op == ExprOp::kRowSum && value.rows_kernel == nullptr && value.operands[0] == element;
    };
    for (RegionValue& products : values_) {
      if (products.rows_kernel == nullptr || products.pattern.casts || products.repeated.of_rows != 0) continue;
      if (products.operands[0] == products.operands[1]) continue;
      for (int k = 0; k < 2 && products.sum < 0; ++k) {
        for (int i = 0; i < static_cast<int>(values_.size()); ++i) {
          RegionValue& sum = values_[i];
          if (!is_sum_of(sum, products.operands[k]) || sum.is_with_products || sum.phase != products.phase) continue;
          std::swap(products.operands[0], products.operands[k]);
          products.sum = i;
          sum.is_with_products = true;
          break;
        }
      }
    }
  }

  // Kernels know two factors or terms in one order.
  void PutElementsFirst(RegionValue* value) const {
    const RegionPattern& pattern = value->pattern;
    const ExprOp op = value->expr->op;
    const bool is_chain = pattern.kind == Kind::kChain;
    const bool commutes =
        is_chain
            ? pattern.chain.before == ChainStep::kMultiply || pattern.chain.before == ChainStep::kAdd
            : pattern.kind == Kind::kNone && (op == ExprOp::kMultiply || op == ExprOp::kAdd || op == ExprOp::kMulAdd);
    if (commutes && IsOfRow(value->operands[0]) && !IsOfRow(value->operands[1])) {
      std::swap(value->operands[0], value->operands[1]);
    }
  }

  static RowOperandKernel RowOperandKernelOf(const RegionValue& value) {
    const DType dtype = value.expr->dtype;
    if (!IsFloatOrDouble(dtype)) return nullptr;
    if (value.pattern.kind == Kind::kScaledRest) return ScaledRestKernelOf(dtype);
    if (value.pattern.kind == Kind::kChain) return RowOperandChainOf(value.pattern.chain, dtype);
    if (value.pattern.kind != Kind::kNone) return nullptr;
    if (value.expr->op == ExprOp::kMulAdd) return RowOperandMulAddOf(dtype);
    const ChainStep step = StepOf(value.expr->op);
    return step == ChainStep::kNone ? nullptr : RowOperandChainOf({.before = step}, dtype);
  }

  bool IsOfRow(int value) const { return values_[value].level == RegionLevel::kRow; }

  // MulAdd(a, b, c - d) * e, in any order, where a and c alone are elements.
  void FindScaledRest(RegionValue* value) {
    for (int k = 0; k < 2; ++k) {
      RegionValue* sum = LinkOf(*value, k, {ExprOp::kMulAdd});
      RegionValue* rest = sum == nullptr ? nullptr : LinkOf(*sum, 2, {ExprOp::kSubtract});
      if (rest == nullptr) continue;
      const int share = IsElement(sum->operands[0]) ? 1 : 0;  // the place of b
      const int a = sum->operands[1 - share], b = sum->operands[share];
      const int c = rest->operands[0], d = rest->operands[1], e = value->operands[1 - k];
      if (!IsElement(a) || !IsOfRow(b) || !IsElement(c) || !IsOfRow(d) || !IsOfRow(e)) continue;
      return Take(value, {.kind = Kind::kScaledRest}, nullptr, {a, b, c, d, e}, {sum, rest});
    }
  }

  static void TakeRowSum(RegionValue* sum, const RegionPattern& pattern, std::initializer_list<int> operands,
                         RowsKernel kernel) {
    Take(sum, pattern, nullptr, operands, {});
    sum->rows_kernel = kernel;
  }

  // Also of squares of what differs from a value of the row: the difference is computed again where others use it.
  bool TakeSumOfProducts(RegionValue* sum, const RegionValue* product, bool casts) {
    const DType from = product->expr->dtype, to = sum->expr->dtype;
    const int a = product->operands[0], b = product->operands[1];
    RegionValue& difference = values_[a];
    if (a == b && difference.expr->op == ExprOp::kSubtract && IsElement(difference.operands[0]) &&
        values_[difference.operands[1]].level == RegionLevel::kRow) {
      difference.uses -= 2;
      difference.is_absorbed = difference.uses == 0;
      TakeRowSum(sum, {.kind = Kind::kRowSum, .casts = casts, .term = " (-)^2"},
                 {difference.operands[0], difference.operands[1]}, SumOfSquaresKernelOf(from, to));
      sum->repeated.of_rows = 2;
      return true;
    }
    if (!IsElement(a) || !IsElement(b)) return false;
    TakeRowSum(sum, {.kind = Kind::kRowSum, .casts = casts, .term = " *"}, {a, b}, SumOfProductsKernelOf(from, to));
    return true;
  }
};

}  // namespace

void FindRowSums(std::span<RegionValue> values) { RowFinder(values).FindRowSums(); }
void FindRowOperands(std::span<RegionValue> values) { RowFinder(values).FindRowOperands(); }

}  // namespace stepnet
