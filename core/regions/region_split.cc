#include "stepnet/core/regions/region_split.h"

#include <algorithm>
#include <array>
#include <ranges>
#include <vector>

#include "stepnet/core/target.h"

namespace stepnet {
namespace {

bool IsChoice(const RegionOutput& output) { return output.value->op == ExprOp::kWhere; }

const ExprNode* ConditionOf(const Region& region) {
  const ExprNode* condition = nullptr;
  for (const RegionOutput& output : region.outputs) {
    if (output.kind == RegionOutputKind::kSums) return nullptr;
    if (output.value->op == ExprOp::kConstant) continue;  // which both kinds of rows write
    if (!IsChoice(output)) return nullptr;
    const ExprNode* of_output = output.value->operands[0];
    if (condition != nullptr && of_output != condition) return nullptr;
    condition = of_output;
  }
  if (condition == nullptr || VariesInRow(region, *condition)) return nullptr;
  return condition;
}

Region WithValues(Region region, int operand) {
  for (RegionOutput& output : region.outputs) {
    if (IsChoice(output)) output.value = Expr::Of(output.value->operands[operand]);
  }
  return region;
}

int NumComputed(const Region& region) {
  return static_cast<int>(std::ranges::count_if(ExprNodes(region.Roots()), [](const ExprNode* node) {
    return node->op != ExprOp::kInput && node->op != ExprOp::kConstant;
  }));
}

// None where rows of the condition's input begin again.
std::optional<RowTest::Number> NumberOf(const Region& condition, const ExprNode& node, DType dtype) {
  if (node.op != ExprOp::kInput) return {};
  const int input = node.number;
  const RegionOperand& of = condition.inputs[input];
  const std::array<std::int64_t, 4>& sizes = condition.sizes;
  const bool varies_outside = (of.strides[0] != 0 && sizes[0] > 1) || (of.strides[1] != 0 && sizes[1] > 1);
  if (of.dtype != dtype || varies_outside || (of.strides[2] != 0 && sizes[0] * sizes[1] > 1)) return {};
  return RowTest::Number{.input = input, .offset = of.offset, .stride = of.strides[2]};
}

std::optional<RowTest> TestOf(const Region& condition) {
  const ExprNode& node = *condition.outputs[0].value;
  if (const auto holds = NumberOf(condition, node, DType::kBool)) {
    return RowTest{.kind = RowTest::Kind::kHolds, .a = *holds, .b = *holds};
  }
  if (node.op != ExprOp::kLess && node.op != ExprOp::kLessEqual) return {};
  const auto a = NumberOf(condition, *node.operands[0], DType::kInt32);
  const auto b = NumberOf(condition, *node.operands[1], DType::kInt32);
  if (!a || !b) return {};
  const bool is_less = node.op == ExprOp::kLess;
  return RowTest{.kind = is_less ? RowTest::Kind::kLess : RowTest::Kind::kLessEqual, .a = *a, .b = *b};
}

}  // namespace

std::optional<RegionSplit> SplitByRows(const Region& region) {
  const auto requires_something = [](const Expr& root) { return root->has_require(); };
  const RegionSizes& sizes = kCpuTarget.regions;
  if (region.sizes[3] < sizes.min_split_columns || std::ranges::any_of(region.Roots(), requires_something)) return {};
  const ExprNode* condition = ConditionOf(region);
  if (condition == nullptr) return {};
  RegionSplit split{.condition = region, .then = WithValues(region, 1), .otherwise = WithValues(region, 2)};
  if (NumComputed(split.then) + NumComputed(split.otherwise) < sizes.min_split_operations) return {};
  split.condition.in_place.clear();
  if (!condition->has_row_reduction()) split.condition.sizes[3] = 1;  // so that rows are looked at together
  const auto rows_of = [&](int d) { return std::max<std::int64_t>(1, region.sizes[d]); };  // also where there is none
  split.condition.outputs = {{.value = Expr::Of(condition),
                              .memory = {.dtype = DType::kBool,
                                         .size = region.NumRows(),
                                         .strides = {rows_of(1) * rows_of(2), rows_of(2), 1, 0}},
                              .kind = RegionOutputKind::kRows}};
  split.test = TestOf(split.condition);
  return split;
}

}  // namespace stepnet
