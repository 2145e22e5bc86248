// Dimensions that move as one are merged. A value is of the run where it depends on no index, of the row where it does
// not depend on the column.
#include "stepnet/core/regions/region_values.h"

#include <algorithm>
#include <span>
#include <utility>

#include "stepnet/core/expressions/node_numbers.h"
#include "stepnet/core/regions/joined_dimensions.h"
#include "stepnet/core/regions/region_patterns.h"
#include "stepnet/core/regions/region_sums.h"
#include "stepnet/core/target.h"

namespace stepnet {
namespace {

class Finder {
 public:
  Finder(const Region& region, bool keeps_rows, RegionCode* code)
      : region_(region), code_(code), keeps_rows_(keeps_rows) {
    const std::vector<Expr> roots = region.Roots();
    ReadNodes(ExprNodes(roots));
    MakeOperands();
    Collapse();
    code_->joins_rows = code_->NumRows() > 1 && code_->sizes[3] < LongestShortRow();
    code_->group_rows = MayGroupRows() ? code_->sizes[2] : code_->NumRows();
    FindLevels();
    ChoosePatterns();
  }

  RegionValues Take() { return std::move(values_); }

 private:
  // Places that a message shows are not computed: they are known when it is. The condition stands for them.
  static bool IsPlaceInMessage(const ExprNode* expr, int operand) {
    return expr->op == ExprOp::kRequire && operand > 0 && expr->operands[operand]->op == ExprOp::kIndex;
  }

  // Whether anything but messages asks for each of these values.
  std::vector<bool> AreAskedFor(const std::vector<const ExprNode*>& order) const {
    NodeNumbers number;
    std::vector<bool> asked(order.size());
    for (size_t i = 0; i < order.size(); ++i) {
      number.Add(order[i], static_cast<int>(i));
      for (int k = 0; k < order[i]->num_operands; ++k) {
        if (!IsPlaceInMessage(order[i], k)) asked[number.Find(order[i]->operands[k])] = true;
      }
    }
    for (const RegionOutput& output : region_.outputs) asked[number.Find(output.value.node())] = true;
    return asked;
  }

  void ReadNodes(const std::vector<const ExprNode*>& order) {
    NodeNumbers number;
    values_.all.reserve(order.size());
    std::vector<bool> asked;  // where there are messages
    const auto requires_something = [](const ExprNode* expr) { return expr->op == ExprOp::kRequire; };
    if (std::ranges::any_of(order, requires_something)) asked = AreAskedFor(order);
    for (size_t i = 0; i < order.size(); ++i) {
      const ExprNode* const expr = order[i];
      has_index_ |= expr->op == ExprOp::kIndex;
      keeps_rows_ |= expr->op == ExprOp::kIndex;
      if (expr->op == ExprOp::kIndex && !asked.empty() && !asked[i]) continue;
      RegionValue node{.expr = expr, .num_operands = expr->num_operands};
      for (int k = 0; k < expr->num_operands; ++k) {
        node.operands[k] = IsPlaceInMessage(expr, k) ? node.operands[0] : number.Find(expr->operands[k]);
        ++values_.all[node.operands[k]].uses;
      }
      if (expr->op == ExprOp::kRequire) {
        node.requirement = static_cast<int>(code_->requirements.size());
        code_->requirements.push_back(Expr::Of(expr));
      }
      keeps_rows_ |= node.is_reduction();
      number.Add(expr, static_cast<int>(values_.all.size()));
      values_.all.push_back(node);
    }
    for (const RegionOutput& output : region_.outputs) {
      values_.outputs.push_back(number.Find(output.value.node()));
      ++values_.all[values_.outputs.back()].uses;
      keeps_rows_ |= output.kind != RegionOutputKind::kElements;
    }
  }

  void MakeOperands() {
    const auto add = [&](const RegionOperand& from) {
      code_->operands.push_back(
          {.strides = from.strides, .offset = from.offset, .bytes = DTypeBytes(from.dtype), .dtype = from.dtype});
      for (int d = 0; d < kRegionDims; ++d) {
        if (region_.sizes[d] == 1) code_->operands.back().strides[d] = 0;
      }
    };
    for (const RegionOperand& input : region_.inputs) add(input);
    code_->num_inputs = static_cast<int>(region_.inputs.size());
    for (const RegionOutput& output : region_.outputs) add(output.memory);
    code_->sizes = region_.sizes;
  }

  void Collapse() {
    if (has_index_) return;
    const auto dims =
        JoinDimensions(code_->sizes, {.keeps_row = keeps_rows_}, [&](int outer, int inner, std::int64_t inner_size) {
          return std::ranges::all_of(code_->operands, [&](const RegionCode::Operand& operand) {
            return operand.strides[outer] == operand.strides[inner] * inner_size;
          });
        });
    RegionIndex sizes = {1, 1, 1, 1};
    for (size_t i = 0; i < dims.size(); ++i) sizes[kRegionDims - 1 - i] = dims[i].size;
    for (RegionCode::Operand& operand : code_->operands) {
      RegionIndex strides = {};
      for (size_t i = 0; i < dims.size(); ++i) strides[kRegionDims - 1 - i] = operand.strides[dims[i].inner];
      operand.strides = strides;
    }
    code_->sizes = sizes;
  }

  std::int64_t LongestShortRow() const {
    const auto is_reduction = [](const RegionValue& value) { return value.is_reduction(); };
    if (std::ranges::any_of(values_.all, is_reduction)) return kCpuTarget.regions.short_reduced_row;
    // Rows of an outer product are joined: one by one, where each operand has the row would be computed anew, which
    // takes longer than to copy some.
    const auto is_value_of_row = [](const RegionCode::Operand& operand) {
      return operand.strides[3] == 0 && operand.strides != RegionIndex{};
    };
    if (code_->sizes[0] * code_->sizes[1] != 1 && std::ranges::any_of(code_->operands, is_value_of_row))
      return kCpuTarget.regions.short_dense_row;
    const auto needs_no_copy = [&](const RegionCode::Operand& operand) {
      std::int64_t stride = 1;
      bool is_dense = true;
      for (int d = kRegionDims - 1; d >= 0; --d) {
        is_dense &= code_->sizes[d] == 1 || operand.strides[d] == stride;
        stride *= code_->sizes[d];
      }
      const RegionIndex& strides = operand.strides;
      const bool is_of_columns = strides[0] == 0 && strides[1] == 0 && strides[2] == 0;  // which is copied once a run
      return is_dense || is_of_columns || strides[3] == 0;
    };
    return std::ranges::all_of(code_->operands, needs_no_copy) ? kCpuTarget.regions.short_dense_row
                                                               : kCpuTarget.regions.short_row;
  }

  // Whether a block has rows of one matrix alone, because some operand has a row for all rows of a matrix: it is read
  // where it lies then.
  bool MayGroupRows() const {
    const bool is_large = code_->sizes[2] * code_->sizes[3] >= kCpuTarget.regions.min_group_elements;
    return code_->joins_rows && is_large &&
           std::ranges::any_of(code_->operands, [](const RegionCode::Operand& operand) {
             const RegionIndex& strides = operand.strides;
             return strides[2] == 0 && strides[3] == 1 && (strides[0] != 0 || strides[1] != 0);
           });
  }

  RegionLevel LevelOfInput(int input) const {
    const RegionIndex& strides = code_->operands[input].strides;
    if (std::ranges::all_of(strides, [](std::int64_t stride) { return stride == 0; })) return RegionLevel::kRun;
    return strides[3] == 0 ? RegionLevel::kRow : RegionLevel::kElement;
  }

  RegionLevel LevelOf(const RegionValue& node) const {
    switch (node.expr->op) {
      case ExprOp::kInput: return LevelOfInput(node.expr->number);
      case ExprOp::kIndex: return node.expr->number == kRegionDims - 1 ? RegionLevel::kElement : RegionLevel::kRow;
      case ExprOp::kRowSum:
      case ExprOp::kRowMax: return RegionLevel::kRow;
      default: break;
    }
    RegionLevel level = RegionLevel::kRun;
    for (int k = 0; k < node.expr->num_operands; ++k) level = std::max(level, values_.all[node.operands[k]].level);
    return level;
  }

  // `node` reads one element for each of its own.
  void ReadFrom(const RegionValue& node, int operand) {
    RegionValue& from = values_.all[operand];
    const bool on_elements = node.level == RegionLevel::kElement || node.is_reduction();
    from.is_splat |= from.level == RegionLevel::kRun && on_elements;
    from.is_row_splat |= from.level == RegionLevel::kRun && node.level == RegionLevel::kRow;
    from.is_spread |= from.level == RegionLevel::kRow && on_elements;
  }

  void FindLevels() {
    int last_phase = 0;
    for (RegionValue& node : values_.all) {
      node.level = LevelOf(node);
      for (int k = 0; k < node.expr->num_operands; ++k)
        node.phase = std::max(node.phase, values_.all[node.operands[k]].phase);
      for (int k = 0; k < node.expr->num_operands; ++k) {
        // A draw reads the keys of all elements at once.
        const bool is_key = node.expr->op == ExprOp::kUniform && k < kNumUniformKeys;
        if (!is_key || values_.all[node.operands[k]].level != RegionLevel::kRun) ReadFrom(node, node.operands[k]);
      }
      if (node.is_reduction()) ++node.phase;
      last_phase = std::max(last_phase, node.phase);
    }
    code_->phases.resize(static_cast<size_t>(last_phase) + 1);
    for (size_t i = 0; i < region_.outputs.size(); ++i) {
      RegionValue& value = values_.all[values_.outputs[i]];
      const bool is_row = IsOfRows(region_, region_.outputs[i]);
      (is_row ? value.is_row_splat : value.is_splat) |= value.level == RegionLevel::kRun;
      value.is_output_element |= !is_row;
      value.is_spread |= value.level == RegionLevel::kRow && !is_row;
    }
  }

  // Whether all values of a row may be kept from phase to phase.
  bool RowFitsInCache(std::span<const RegionValue> values) const {
    std::int64_t bytes = 0;  // of an element
    for (const RegionValue& value : values) {
      if (value.is_in_blocks() && !value.is_reduction()) bytes += DTypeBytes(value.expr->dtype);
    }
    return bytes == 0 || code_->sizes[3] <= kCpuTarget.regions.kept_row_bytes / bytes;
  }

  // An input that every row of a block reads again, where it has several.
  bool IsOfColumns(const RegionValue& value) const {
    if (!code_->joins_rows || value.expr->op != ExprOp::kInput) return false;
    const RegionIndex& strides = code_->operands[value.expr->number].strides;
    return strides[2] == 0 && strides[3] == 1 && ((strides[0] == 0 && strides[1] == 0) || code_->has_groups());
  }

  // Sums of what a row keeps have patterns of their own.
  void ChoosePatterns() {
    const bool goes_by_rows = !code_->joins_rows || code_->sizes[3] >= kCpuTarget.regions.min_row_of_operands;
    for (RegionValue& value : values_.all) value.is_of_columns = goes_by_rows && IsOfColumns(value);
    const PatternOptions options{.has_several = code_->phases.size() == 1,
                                 .spares_repeated = code_->has_groups() && goes_by_rows};
    std::vector<RegionValue> kept = values_.all;
    FindRowSums(kept);
    FindPatterns(kept, options);
    values_.are_kept = code_->phases.size() == 1 || code_->joins_rows || RowFitsInCache(kept);
    if (values_.are_kept) {
      values_.all = std::move(kept);
    } else {
      FindPatterns(values_.all, options);
    }
    if (goes_by_rows) FindRowOperands(values_.all);
  }

  const Region& region_;
  RegionCode* code_;
  bool keeps_rows_;
  bool has_index_ = false;
  RegionValues values_;
};

}  // namespace

RegionValues FindRegionValues(const Region& region, bool keeps_rows, RegionCode* code) {
  return Finder(region, keeps_rows, code).Take();
}

}  // namespace stepnet
