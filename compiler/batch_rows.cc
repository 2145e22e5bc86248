#include "stepnet/compiler/batch_rows.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "stepnet/core/formulas/formula_cache.h"

namespace stepnet {
namespace {

// The first size that is not 1, which is that of the batch if anything is; not the last one, of the units.
std::int64_t FirstSize(const Shape& shape) {
  if (shape.rank() < 2) return 1;
  const std::span<const std::int64_t> dims = shape.dims().first(static_cast<size_t>(shape.rank() - 1));
  const auto first = std::ranges::find_if(dims, [](std::int64_t dim) { return dim != 1; });
  return first == dims.end() ? 1 : *first;
}

// Whether an operand that has `row` elements of each row of the batch moves from row to row along dimension d, and
// stays within one otherwise. With 0 elements all rows share it, and it stays where it is.
bool FollowsRows(const Region& region, const RegionOperand& operand, int d, std::int64_t rows, std::int64_t row) {
  if (row == 0) return operand.strides[d] == 0;
  const std::int64_t steps = region.sizes[d] / rows;  // along d, within a row
  if (operand.strides[d] * steps != row) return false;
  std::int64_t last = operand.offset + (steps - 1) * operand.strides[d];
  for (int other = 0; other < kRegionDims; ++other) {
    if (other != d) last += (region.sizes[other] - 1) * operand.strides[other];
  }
  return last < row;
}

class RegionRows {
 public:
  RegionRows(const Instruction& instruction, std::int64_t rows)
      : rows_(rows), elements_(instruction.inputs.size() + static_cast<size_t>(instruction.num_outputs), 0) {
    for (const InstructionOperand& input : instruction.inputs) SetTensor(input.position, input);
    const auto num_inputs = static_cast<int>(instruction.inputs.size());
    for (const InstructionOperand& output : instruction.outputs) SetTensor(num_inputs + output.position, output);
  }

  bool AreApart(const RegionPart& part) const {
    if (!part.region.requirements.empty() || KnowsPlaces(part.region)) return false;
    for (int d = 0; d < kRegionDims; ++d) {
      if (AreApartAlong(part, d)) return true;
    }
    return false;
  }

 private:
  void SetTensor(int tensor, const InstructionOperand& operand) {
    if (operand.has_batch) elements_[tensor] = operand.info.shape.size() / rows_;
  }
  std::int64_t ElementsOf(int tensor) const {
    return tensor < static_cast<int>(elements_.size()) ? elements_[tensor] : 0;
  }

  bool AreApartAlong(const RegionPart& part, int d) const {
    const Region& region = part.region;
    if (region.sizes[d] == 0 || region.sizes[d] % rows_ != 0) return false;
    const auto reduces = [](const Expr& root) { return root->has_row_reduction(); };
    const auto sums = [](const RegionOutput& output) { return output.kind != RegionOutputKind::kElements; };
    if (d == kRegionDims - 1 &&
        (std::ranges::any_of(region.Roots(), reduces) || std::ranges::any_of(region.outputs, sums)))
      return false;
    for (size_t i = 0; i < region.inputs.size(); ++i) {
      if (!FollowsRows(region, region.inputs[i], d, rows_, ElementsOf(part.inputs[i]))) return false;
    }
    for (size_t o = 0; o < region.outputs.size(); ++o) {
      if (!FollowsRows(region, region.outputs[o].memory, d, rows_, ElementsOf(part.outputs[o]))) return false;
    }
    return true;
  }

  const std::int64_t rows_;
  std::vector<std::int64_t> elements_;  // of a row, by tensor
};

constexpr std::int64_t kSomeRows = 1;

Shape SomeRows(const InstructionOperand& operand, std::int64_t rows) {
  const Shape& shape = operand.info.shape;
  return operand.has_batch ? shape.With(*DimOfBatch(shape, rows), kSomeRows) : shape;
}

// An operand of an operator as it is, and with some rows.
struct WholeAndSome {
  TensorInfo whole, some;
};

// What the operator gives. A formula is made for fewer rows, which takes long, only where it asks for shapes.
std::vector<WholeAndSome> OutputsOf(const OperatorCall& call, std::span<const WholeAndSome> inputs, std::int64_t rows) {
  std::vector<TensorInfo> of_whole, of_some;
  for (const WholeAndSome& input : inputs) {
    of_whole.push_back(input.whole);
    of_some.push_back(input.some);
  }
  const ShapeQuery query(call, of_whole);
  std::vector<WholeAndSome> outputs;
  for (const TensorInfo& output : call.schema().shapes(query)) outputs.push_back({.whole = output, .some = output});
  if (of_whole == of_some) return outputs;
  // With an input that keeps its rows, they are repeated or refused.
  const bool are_all_cut = std::ranges::none_of(inputs, [&](const WholeAndSome& input) {
    return input.whole == input.some && DimOfBatch(input.whole.shape, rows);
  });
  if (are_all_cut && FollowsInputs(query)) {
    for (auto& [whole, some] : outputs) {
      if (const auto dim = DimOfBatch(whole.shape, rows)) some.shape = whole.shape.With(*dim, kSomeRows);
    }
    return outputs;
  }
  std::vector<TensorInfo> some = call.schema().shapes(ShapeQuery(call, of_some));
  for (size_t o = 0; o < outputs.size(); ++o) outputs[o].some = std::move(some.at(o));
  return outputs;
}

// Whether the operators of the node, given some rows of the batch, give as many.
bool GivesAsManyRows(const StepNode& node, const Instruction& instruction, std::int64_t rows) {
  std::vector<WholeAndSome> operands;
  for (const InstructionOperand& input : instruction.inputs) {
    operands.push_back({.whole = input.info, .some = input.info});
    operands.back().some.shape = SomeRows(input, rows);
  }
  try {
    std::vector<WholeAndSome> outputs;  // by position
    if (node.call != nullptr) {
      outputs = OutputsOf(*node.call, operands, rows);
    } else {
      operands.resize(operands.size() + node.outputs.size() + node.locals().size());
      for (const RegionCall& call : node.calls()) {
        std::vector<WholeAndSome> inputs;
        for (const int input : call.inputs) inputs.push_back(operands.at(input));
        const std::vector<WholeAndSome> given = OutputsOf(*call.call, inputs, rows);
        for (size_t o = 0; o < call.outputs.size(); ++o) operands[call.outputs[o]] = given.at(o);
      }
      outputs.assign(operands.begin() + static_cast<std::ptrdiff_t>(node.inputs.size()), operands.end());
    }
    return std::ranges::all_of(instruction.outputs, [&](const InstructionOperand& output) {
      return outputs.at(output.position).some.shape == SomeRows(output, rows);
    });
  } catch (const Error&) {
    return false;  // they count on the rows that there are
  }
}

// Takes back what has been marked where the rows are not kept apart.
void Mark(std::int64_t rows, Instruction* instruction) {
  instruction->batch_rows = rows;
  if (rows > 0) return;
  for (std::vector<InstructionOperand>* operands : {&instruction->inputs, &instruction->outputs}) {
    for (InstructionOperand& operand : *operands) operand.has_batch = false;
  }
}

// Marks operands by their shapes; false where an output has no rows.
bool MarkByShape(std::int64_t rows, Instruction* instruction) {
  for (InstructionOperand& input : instruction->inputs)
    input.has_batch = DimOfBatch(input.info.shape, rows).has_value();
  bool all_have = true;
  for (InstructionOperand& output : instruction->outputs) {
    output.has_batch = DimOfBatch(output.info.shape, rows).has_value();
    all_have = all_have && output.has_batch;
  }
  return all_have;
}

bool MayBeCut(const Instruction& instruction) {
  return !instruction.by_blobs && !instruction.has_side_effects && !instruction.checks_values &&
         !instruction.outputs.empty() && instruction.steps_at_once == 1;
}

}  // namespace

std::optional<int> DimOfBatch(const Shape& shape, std::int64_t rows) {
  for (int d = 0; d < shape.rank(); ++d) {
    if (shape[d] == rows) return d;
    if (shape[d] != 1) return {};
  }
  return {};
}

// Others than those with packed weights round as it suits how many rows there are.
void MarkBatchOfProduct(const StepNode& node, Instruction* instruction) {
  if (!MayBeCut(*instruction) || !instruction->packed) return;
  std::int64_t rows = 0;
  for (InstructionOperand& output : instruction->outputs) {
    const std::optional<Product>& product = node.products.at(output.position);
    if (!product || !product->right || product->left.transposed || product->left.shape.rank() != 2)
      return Mark(0, instruction);
    if (rows != 0 && rows != product->left.rows()) return Mark(0, instruction);
    rows = product->left.rows();
    output.has_batch = DimOfBatch(output.info.shape, rows).has_value();
    InstructionOperand& left = instruction->inputs.at(product->left.input);
    left.has_batch = DimOfBatch(left.info.shape, rows).has_value();
    if (rows < 2 || !output.has_batch || !left.has_batch) return Mark(0, instruction);
  }
  std::set<int> shared;
  for (const InstructionOperand& output : instruction->outputs) {
    const Product& product = *node.products[output.position];
    shared.insert({product.right->input, product.bias});
  }
  for (int i = 0; i < std::ssize(instruction->inputs); ++i) {
    const InstructionOperand& input = instruction->inputs[i];
    // What its operator has beside the factors, as FCGradient x, has as many rows as these.
    const bool is_beside = !input.has_batch && !shared.contains(i) && DimOfBatch(input.info.shape, rows).has_value();
    if ((input.has_batch && shared.contains(i)) || is_beside) return Mark(0, instruction);
  }
  Mark(rows, instruction);
}

void MarkBatchOfRows(Instruction* instruction) {
  if (!MayBeCut(*instruction) || !instruction->packed || !instruction->can_take_steps) return;
  const std::int64_t rows = FirstSize(instruction->outputs.front().info.shape);
  bool all_have = rows > 1;
  for (std::vector<InstructionOperand>* operands : {&instruction->inputs, &instruction->outputs}) {
    const bool are_outputs = operands == &instruction->outputs;
    for (InstructionOperand& operand : *operands) {
      operand.has_batch = operand.has_rows && DimOfBatch(operand.info.shape, rows).has_value();
      all_have = all_have && (operand.has_batch || (!operand.has_rows && !are_outputs));
    }
  }
  Mark(all_have ? rows : 0, instruction);
}

void MarkBatchOfRegion(std::span<const RegionPart> parts, Instruction* instruction) {
  if (!MayBeCut(*instruction) || parts.empty()) return;
  const std::int64_t rows = FirstSize(instruction->outputs.front().info.shape);
  if (rows < 2 || !MarkByShape(rows, instruction)) return Mark(0, instruction);
  const RegionRows of_region(*instruction, rows);
  const bool are_apart = std::ranges::all_of(parts, [&](const RegionPart& part) { return of_region.AreApart(part); });
  Mark(are_apart ? rows : 0, instruction);
}

void MarkBatchOfElements(Instruction* instruction) {
  if (!MayBeCut(*instruction)) return;
  const std::int64_t rows = FirstSize(instruction->outputs.front().info.shape);
  const bool all_have =
      rows > 1 && MarkByShape(rows, instruction) &&
      std::ranges::all_of(instruction->inputs, [](const InstructionOperand& input) { return input.has_batch; });
  Mark(all_have ? rows : 0, instruction);
}

std::int64_t BatchRowsOf(const StepPlan& plan, const Stage& stage) {
  if (stage.steps_at_once != 1 || stage.begin == stage.end) return 0;
  const std::int64_t rows = plan.instructions[stage.begin].batch_rows;
  std::map<int, std::pair<bool, std::vector<const InstructionOperand*>>> bases;  // whether it is written
  for (int i = stage.begin; i < stage.end; ++i) {
    const Instruction& instruction = plan.instructions[i];
    if (rows < 2 || instruction.batch_rows != rows) return 0;
    for (const InstructionOperand& input : instruction.inputs) {
      if (!input.shape_alone) bases[plan.slots[input.slot].base].second.push_back(&input);
    }
    for (const InstructionOperand& output : instruction.outputs) {
      auto& [is_written, operands] = bases[plan.slots[output.slot].base];
      is_written = true;
      operands.push_back(&output);
    }
  }
  for (const auto& [base, used] : bases) {
    const auto& [is_written, operands] = used;
    if (!is_written) continue;
    const Slot& first = plan.slots[operands.front()->slot];
    const std::int64_t bytes = operands.front()->info.size_bytes();
    if (bytes == 0) return 0;
    for (const InstructionOperand* operand : operands) {
      const Slot& slot = plan.slots[operand->slot];
      const std::int64_t apart = slot.BeginInBase() - first.BeginInBase();
      const bool are_steps_apart = slot.row_bytes == 0 || slot.row_bytes >= bytes;  // no window shows rows of two
      const bool is_row_for_row = apart == 0 ? are_steps_apart : apart % bytes == 0 && slot.row_bytes % bytes == 0;
      if (!operand->has_batch || operand->info.size_bytes() != bytes || slot.row_bytes != first.row_bytes ||
          slot.ring_rows != first.ring_rows || !is_row_for_row)
        return 0;
    }
  }
  return rows;
}

bool TakeBackBatch(const StepGraph& graph, const Stage& stage, StepPlan* plan) {
  for (int i = stage.begin; i < stage.end; ++i) {
    Instruction& instruction = plan->instructions[i];
    if (instruction.batch_rows == 0 || !graph.nodes[i].RunsOperators()) continue;
    if (GivesAsManyRows(graph.nodes[i], instruction, instruction.batch_rows)) continue;
    Mark(0, &instruction);
    return true;
  }
  return false;
}

}  // namespace stepnet
