// Dimensions that move as one are merged. A value is of the run where it depends on no index, of the row where it does
// not depend on the column. A chain is what ends in one place and is used in no other.
#include "stepnet/core/region_values.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace stepnet {
namespace {

constexpr std::int64_t kShortRow = 128;  // of shorter ones a block holds several

class Finder {
 public:
  Finder(const Region& region, RegionCode* code) : region_(region), code_(code) {
    const std::vector<Expr> roots = region.Roots();
    ReadNodes(ExprNodes(roots));
    MakeOperands();
    Collapse();
    FindLevels();
    MakeChains();
  }

  RegionValues Take() { return std::move(values_); }

 private:
  void ReadNodes(const std::vector<const ExprNode*>& order) {
    std::unordered_map<const ExprNode*, int> number;
    number.reserve(order.size());
    for (const ExprNode* expr : order) {
      RegionValue node{.expr = expr, .num_operands = expr->num_operands};
      for (int k = 0; k < expr->num_operands; ++k) {
        node.operands[k] = number.at(expr->operands[k]);
        ++values_.all[node.operands[k]].uses;
      }
      if (expr->op == ExprOp::kRequire) {
        node.requirement = static_cast<int>(code_->requirements.size());
        code_->requirements.push_back({.require = Expr::Of(expr), .has_value = expr->num_operands > 1});
      }
      keeps_rows_ |= node.is_reduction() || expr->op == ExprOp::kIndex;
      has_index_ |= expr->op == ExprOp::kIndex;
      number.emplace(expr, static_cast<int>(values_.all.size()));
      values_.all.push_back(node);
    }
    for (const RegionOutput& output : region_.outputs) {
      values_.outputs.push_back(number.at(output.value.node()));
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

  // Whether all operands move along dimension `outer` as they would along `inner`, had that more elements.
  bool MoveAsOne(int outer, int inner, std::int64_t inner_size) const {
    return std::ranges::all_of(code_->operands, [&](const RegionCode::Operand& operand) {
      return operand.strides[outer] == operand.strides[inner] * inner_size;
    });
  }

  // Fewer dimensions and longer rows.
  void Collapse() {
    if (has_index_) return;
    struct Dim {
      int from;  // whose strides it has
      std::int64_t size;
    };
    std::vector<Dim> dims;  // from the last
    for (int d = kRegionDims - 1; d >= 0; --d) {
      const bool is_row = d == kRegionDims - 1 && keeps_rows_;
      if (code_->sizes[d] == 1 && !is_row) continue;
      const bool may_merge = !dims.empty() && !(dims.size() == 1 && keeps_rows_);
      if (may_merge && MoveAsOne(d, dims.back().from, dims.back().size)) {
        dims.back().size *= code_->sizes[d];
      } else {
        dims.push_back({.from = d, .size = code_->sizes[d]});
      }
    }
    RegionIndex sizes = {1, 1, 1, 1};
    for (size_t i = 0; i < dims.size(); ++i) sizes[kRegionDims - 1 - i] = dims[i].size;
    for (RegionCode::Operand& operand : code_->operands) {
      RegionIndex strides = {};
      for (size_t i = 0; i < dims.size(); ++i) strides[kRegionDims - 1 - i] = operand.strides[dims[i].from];
      operand.strides = strides;
    }
    code_->sizes = sizes;
    code_->crosses_rows = !keeps_rows_ && sizes[3] < kShortRow && code_->NumRows() > 1;
  }

  RegionLevel LevelOfInput(int input) const {
    const RegionIndex& strides = code_->operands[input].strides;
    if (std::ranges::all_of(strides, [](std::int64_t stride) { return stride == 0; })) return RegionLevel::kRun;
    return strides[3] == 0 && !code_->crosses_rows ? RegionLevel::kRow : RegionLevel::kElement;
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

  void FindLevels() {
    int last_phase = 0;
    for (RegionValue& node : values_.all) {
      node.level = LevelOf(node);
      for (int k = 0; k < node.expr->num_operands; ++k)
        node.phase = std::max(node.phase, values_.all[node.operands[k]].phase);
      const bool on_elements = node.level == RegionLevel::kElement || node.is_reduction();
      for (int k = 0; on_elements && k < node.expr->num_operands; ++k) {
        RegionValue& operand = values_.all[node.operands[k]];
        operand.is_splat |= operand.level != RegionLevel::kElement;
      }
      if (node.is_reduction()) ++node.phase;
      last_phase = std::max(last_phase, node.phase);
    }
    code_->phases.resize(static_cast<size_t>(last_phase) + 1);
    const std::int64_t run = code_->crosses_rows ? code_->NumRows() * code_->sizes[3] : code_->sizes[3];
    code_->width = std::clamp<std::int64_t>(run, 1, kRegionBlock);
  }

  // Operand k of a node as a link of its chain: a float that nothing else uses.
  const RegionValue* LinkOf(const RegionValue& node, int k) const {
    const RegionValue& operand = values_.all[node.operands[k]];
    const bool can = operand.level == RegionLevel::kElement && operand.uses == 1 && operand.chain_kernel == nullptr &&
                     operand.expr->op != ExprOp::kInput && operand.expr->dtype == node.expr->dtype;
    return can ? &operand : nullptr;
  }

  static ChainStep StepOf(ExprOp op) {
    switch (op) {
      case ExprOp::kAdd: return ChainStep::kAdd;
      case ExprOp::kSubtract: return ChainStep::kSubtract;
      case ExprOp::kMultiply: return ChainStep::kMultiply;
      default: return ChainStep::kNone;
    }
  }

  // Whether the node became the end of a chain in which operand k comes before it.
  bool EndsChain(RegionValue* node, int k) {
    const ChainStep after = StepOf(node->expr->op);
    const RegionValue* link = after == ChainStep::kNone ? node : LinkOf(*node, k);
    if (link == nullptr) return false;
    RegionChain chain;
    if (after != ChainStep::kNone) {
      chain.after = after == ChainStep::kSubtract && k == 1 ? ChainStep::kSubtractFrom : after;
    }
    const RegionValue* first = link;  // what `before` is computed of
    if (StepOf(link->expr->op) == ChainStep::kNone) {
      chain.f = link->expr->op;
      if (link->num_operands != 1) return false;
      const RegionValue* sum = LinkOf(*link, 0);
      const bool is_sum = sum != nullptr && (sum->expr->op == ExprOp::kAdd || sum->expr->op == ExprOp::kSubtract);
      if (is_sum) first = sum;
    }
    if (StepOf(first->expr->op) != ChainStep::kNone && first != node) chain.before = StepOf(first->expr->op);
    const RegionKernel kernel = ChainKernelOf(chain, node->expr->dtype);
    if (kernel == nullptr) return false;
    const int a = first->operands[0];
    const int b = chain.before == ChainStep::kNone ? a : first->operands[1];
    const int c = after == ChainStep::kNone ? a : node->operands[1 - k];
    for (const RegionValue* absorbed : {link, first}) {
      if (absorbed != node) values_.all[absorbed - values_.all.data()].is_absorbed = true;
    }
    node->operands[0] = a;
    node->operands[1] = b;
    node->operands[2] = c;
    node->num_operands = 3;
    node->chain = chain;
    node->chain_kernel = kernel;
    return true;
  }

  static bool IsFunction(const RegionValue& value) {
    return value.expr->op == ExprOp::kTanh || value.expr->op == ExprOp::kSigmoid || value.expr->op == ExprOp::kExp;
  }

  // Functions go before sums and products, whose chains save less.
  void MakeChains() {
    for (RegionValue& node : values_.all) {
      if (node.level != RegionLevel::kElement || StepOf(node.expr->op) == ChainStep::kNone) continue;
      for (int k = 0; k < 2; ++k) {
        if (IsFunction(values_.all[node.operands[k]]) && EndsChain(&node, k)) break;
      }
    }
    for (RegionValue& node : values_.all) {
      if (IsFunction(node) && node.level == RegionLevel::kElement && !node.is_absorbed) EndsChain(&node, 0);
    }
    for (RegionValue& node : values_.all) {
      const bool is_step = node.level == RegionLevel::kElement && StepOf(node.expr->op) != ChainStep::kNone;
      if (!is_step || node.is_absorbed || node.chain_kernel != nullptr) continue;
      if (!EndsChain(&node, 0)) EndsChain(&node, 1);
    }
  }

  const Region& region_;
  RegionCode* code_;
  RegionValues values_;
  bool keeps_rows_ = false;
  bool has_index_ = false;
};

}  // namespace

RegionValues FindRegionValues(const Region& region, RegionCode* code) { return Finder(region, code).Take(); }

}  // namespace stepnet
