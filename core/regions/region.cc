#include "stepnet/core/regions/region.h"

#include <algorithm>
#include <cstring>
#include <ostream>
#include <unordered_set>

#include "stepnet/core/error.h"
#include "stepnet/core/expressions/expr_evaluate.h"
#include "stepnet/core/expressions/expr_text.h"
#include "stepnet/core/regions/region_sums.h"
#include "stepnet/core/stored_float.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

std::string IndexText(const RegionIndex& index) { return StrCat("[", Join(index, ", "), "]"); }

void CheckSizes(const Region& region) {
  std::int64_t elements = 1;
  for (const std::int64_t size : region.sizes) {
    if (size < 0) throw Error(ErrorCode::kInvalidArgument, StrCat("a region of sizes ", IndexText(region.sizes)));
    if (__builtin_mul_overflow(elements, std::max<std::int64_t>(size, 1), &elements)) {
      throw Error(ErrorCode::kShapeMismatch,
                  StrCat("a region of sizes ", IndexText(region.sizes), " has more elements than int64 counts"));
    }
  }
}

// An operand as messages name it; its text is made where there is something to say.
struct OperandName {
  const char* kind;
  int number;

  friend std::ostream& operator<<(std::ostream& out, const OperandName& name) {
    return out << name.kind << name.number;
  }
};

// Throws when an element lies outside of the operand's memory.
void CheckBounds(const Region& region, const RegionOperand& operand, bool is_sum, const OperandName& what) {
  const auto text = [&] {
    return StrCat(what, " has offset ", operand.offset, " and strides ", IndexText(operand.strides));
  };
  bool is_negative = operand.offset < 0 || operand.size < 0;
  for (const std::int64_t stride : operand.strides) is_negative |= stride < 0;
  if (is_negative) throw Error(ErrorCode::kInvalidArgument, StrCat(text(), ", must be at least 0"));
  const RegionIndex sizes = TouchedSizes(region, operand, is_sum);
  if (std::ranges::count(sizes, 0) > 0) return;
  std::int64_t last = operand.offset;
  bool overflows = false;
  for (int d = 0; d < kRegionDims; ++d) {
    std::int64_t distance = 0;
    overflows |= __builtin_mul_overflow(sizes[d] - 1, operand.strides[d], &distance);
    overflows |= __builtin_add_overflow(last, distance, &last);
  }
  if (!overflows && last < operand.size) return;
  throw Error(ErrorCode::kShapeMismatch, StrCat(text(), "; over ", IndexText(region.sizes), " it leaves its memory of ",
                                                operand.size, " elements"));
}

// Throws unless different indices along the dimensions that count are different elements.
void CheckWritesApart(const Region& region, const RegionOutput& output, const OperandName& what) {
  struct Dim {
    std::int64_t stride, size;
  };
  std::vector<Dim> dims;
  for (int d = 0; d < kRegionDims; ++d) {
    const bool counts = output.kind == RegionOutputKind::kElements ||
                        (output.kind == RegionOutputKind::kRows && d < 3) || output.memory.strides[d] != 0;
    if (counts && region.sizes[d] > 1) dims.push_back({output.memory.strides[d], region.sizes[d]});
  }
  std::ranges::sort(dims, {}, &Dim::stride);
  std::int64_t reach = 0;  // of what the dimensions before may add
  for (const Dim& dim : dims) {
    if (dim.stride <= reach) {
      throw Error(ErrorCode::kShapeMismatch, StrCat(what, " has strides ", IndexText(output.memory.strides), " over ",
                                                    IndexText(region.sizes), "; elements that are written may meet"));
    }
    reach += (dim.size - 1) * dim.stride;
  }
}

void CheckOutput(const Region& region, int i) {
  const RegionOutput& output = region.outputs[i];
  const OperandName what{"output ", i};
  if (!output.value.defined()) throw Error(ErrorCode::kInvalidArgument, StrCat(what, " has no value"));
  const DType computed = IsStoredSum(output) ? DType::kFloat : output.memory.dtype;
  if (output.value.dtype() != computed || output.value->op == ExprOp::kLiteral) {
    throw Error(ErrorCode::kTypeMismatch, StrCat(what, " is ", output.memory.dtype, " and its value ",
                                                 ExprSummary(output.value), " ", output.value.dtype()));
  }
  CheckBounds(region, output.memory, output.kind == RegionOutputKind::kSums, what);
  CheckWritesApart(region, output, what);
  const bool repeats = output.memory.strides[3] == 0;
  if (output.kind == RegionOutputKind::kRows) {
    if (!repeats)
      throw Error(ErrorCode::kShapeMismatch, StrCat(what, " is of rows and has a stride along the last dimension"));
    if (VariesInRow(region, *output.value)) {
      throw Error(ErrorCode::kInternal,
                  StrCat(what, " is of rows, and ", ExprSummary(output.value), " differs between columns"));
    }
  }
  if (output.kind == RegionOutputKind::kSums) {
    if (output.memory.dtype == DType::kBool) throw Error(ErrorCode::kTypeMismatch, StrCat(what, " is a sum of bool"));
    if (SumsRows(region, output) && VariesInRow(region, *output.value)) {
      throw Error(ErrorCode::kShapeMismatch, StrCat(what, " sums over the last dimension, for which RowSum is"));
    }
  } else if (output.adds) {
    throw Error(ErrorCode::kInvalidArgument, StrCat(what, " adds, and is no sum"));
  }
}

void CheckInputs(const Region& region) {
  for (int i = 0; i < static_cast<int>(region.inputs.size()); ++i) {
    CheckBounds(region, region.inputs[i], /*is_sum=*/false, {"input ", i});
  }
  const std::vector<Expr> roots = region.Roots();
  for (const ExprNode* node : ExprNodes(roots)) {
    if (node->op == ExprOp::kLiteral) {
      throw Error(ErrorCode::kTypeMismatch, StrCat("nothing says of what dtype ", ExprSummary(Expr::Of(node)), " is"));
    }
    if (node->op != ExprOp::kInput) continue;
    if (node->number >= static_cast<int>(region.inputs.size())) {
      throw Error(ErrorCode::kInvalidArgument,
                  StrCat(node->text, " is input ", node->number, " of a region that has ", region.inputs.size()));
    }
    const DType dtype = region.inputs[node->number].dtype;
    if (dtype != node->dtype) {
      throw Error(ErrorCode::kTypeMismatch,
                  StrCat("input ", node->number, " is ", dtype, " and ", node->text, " ", node->dtype));
    }
  }
}

void CheckInPlace(const Region& region) {
  for (const auto& [input, output] : region.in_place) {
    if (input < 0 || input >= static_cast<int>(region.inputs.size()) || output < 0 ||
        output >= static_cast<int>(region.outputs.size())) {
      throw Error(ErrorCode::kInvalidArgument,
                  StrCat("output ", output, " in place of input ", input, ", which are not"));
    }
    const RegionOperand& from = region.inputs[input];
    const RegionOperand& to = region.outputs[output].memory;
    if (region.outputs[output].kind != RegionOutputKind::kElements || from.dtype != to.dtype ||
        from.offset != to.offset || from.strides != to.strides) {
      throw Error(ErrorCode::kShapeMismatch,
                  StrCat("output ", output, " in place of input ", input,
                         " needs its dtype, offset and strides, and an element for each index"));
    }
  }
}

ExprScalar Read(const void* memory, DType dtype, std::int64_t at) {
  ExprScalar value{.dtype = dtype};
  const auto bytes = static_cast<size_t>(DTypeBytes(dtype));
  std::memcpy(&value.bits, static_cast<const char*>(memory) + at * DTypeBytes(dtype), bytes);
  return value;
}

void Write(void* memory, std::int64_t at, const ExprScalar& value) {
  const auto bytes = static_cast<size_t>(DTypeBytes(value.dtype));
  std::memcpy(static_cast<char*>(memory) + at * DTypeBytes(value.dtype), &value.bits, bytes);
}

void WriteRow(const Region& region, const RegionOutput& output, RegionIndex index, std::span<const ExprScalar> values,
              void* memory) {
  if (output.kind == RegionOutputKind::kRows) return Write(memory, PlaceOf(output.memory, index), values[0]);
  const std::int64_t columns = SumsRows(region, output) ? 1 : region.sizes[3];
  for (index[3] = 0; index[3] < columns; ++index[3]) {
    const std::int64_t at = PlaceOf(output.memory, index);
    const ExprScalar& value = values[index[3]];
    if (output.kind == RegionOutputKind::kElements) {
      Write(memory, at, value);
    } else {
      const ExprScalar operands[] = {Read(memory, output.memory.dtype, at), value};
      Write(memory, at, EvaluatePrimitive(ExprOp::kAdd, output.memory.dtype, operands));
    }
  }
}

}  // namespace

bool KnowsPlaces(const Region& region) {
  const std::vector<Expr> roots = region.Roots();
  return std::ranges::any_of(ExprNodes(roots), [](const ExprNode* node) { return node->op == ExprOp::kIndex; });
}

bool VariesInRow(const Region& region, const ExprNode& root) {
  std::vector<const ExprNode*> left = {&root};
  std::unordered_set<const ExprNode*> met;
  while (!left.empty()) {
    const ExprNode* node = left.back();
    left.pop_back();
    if (!met.insert(node).second) continue;
    if (node->op == ExprOp::kRowSum || node->op == ExprOp::kRowMax) continue;
    if (node->op == ExprOp::kIndex && node->number == 3) return true;
    if (node->op == ExprOp::kInput && region.inputs[node->number].strides[3] != 0) return true;
    left.insert(left.end(), node->Operands().begin(), node->Operands().end());
  }
  return false;
}

std::vector<Expr> Region::Roots() const {
  std::vector<Expr> roots;
  for (const RegionOutput& output : outputs) roots.push_back(output.value);
  roots.insert(roots.end(), requirements.begin(), requirements.end());
  return roots;
}

void CheckRegion(const Region& region) {
  CheckSizes(region);
  for (const Expr& requirement : region.requirements) {
    if (!requirement.defined()) throw Error(ErrorCode::kInvalidArgument, "a requirement is no expression");
  }
  for (const RegionOutput& output : region.outputs) {
    if (!output.value.defined()) throw Error(ErrorCode::kInvalidArgument, "an output has no value");
  }
  CheckInputs(region);
  for (int i = 0; i < static_cast<int>(region.outputs.size()); ++i) CheckOutput(region, i);
  CheckInPlace(region);
}

std::optional<RegionFault> EvaluateRegion(const Region& region, std::span<const void* const> inputs,
                                          std::span<void* const> outputs) {
  if (HasStoredSums(region)) {
    return RunWithFloatSums(
        region, outputs, [&](std::span<void* const> to) { return EvaluateRegion(WithFloatSums(region), inputs, to); });
  }
  const std::vector<Expr> roots = region.Roots();
  for (size_t i = 0; i < region.outputs.size(); ++i) {
    const RegionOutput& output = region.outputs[i];
    if (output.kind != RegionOutputKind::kSums || output.adds) continue;
    ForIndices(TouchedSizes(region, output.memory, /*is_sum=*/true), [&](const RegionIndex& index) {
      Write(outputs[i], PlaceOf(output.memory, index), {.dtype = output.memory.dtype});
    });
  }
  std::optional<RegionFault> first;
  RegionIndex rows = region.sizes;
  rows[3] = 1;
  std::int64_t number = 0;
  ForIndices(rows, [&](const RegionIndex& index) {
    const ExprRow row{
        .index = {index[0], index[1], index[2]},
        .columns = region.sizes[3],
        .input = [&](const ExprNode& input, std::int64_t column) {
          const RegionOperand& operand = region.inputs[input.number];
          if (region.sizes[3] == 0 && operand.strides[3] != 0) return ExprScalar{.dtype = operand.dtype};
          return Read(inputs[input.number], operand.dtype, PlaceOf(operand, {index[0], index[1], index[2], column}));
        }};
    const ExprRowValues values = EvaluateRow(roots, row);
    for (size_t i = 0; i < region.outputs.size(); ++i) {
      WriteRow(region, region.outputs[i], index, values.values[i], outputs[i]);
    }
    if (values.fault && !first) {
      first = {.element = number * region.sizes[3] + values.fault->column,
               .message = FaultMessage(*values.fault->require, values.fault->values)};
    }
    ++number;
  });
  return first;
}

}  // namespace stepnet
