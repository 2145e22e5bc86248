// Compiling a region: its values get slots, of which those of elements are used again as soon as nothing reads them any
// more, and instructions.
#include <algorithm>
#include <climits>
#include <utility>

#include "stepnet/core/region_code.h"
#include "stepnet/core/region_values.h"

namespace stepnet {
namespace {

constexpr std::int64_t kAlignment = 64;   // of buffers, in bytes
constexpr std::int64_t kSumColumns = 16;  // that a part of a region of sums has at least

struct Node : RegionValue {
  int slot = -1;      // for good; instructions on elements have theirs for a while
  int partials = -1;  // slot of a reduction's partial results
};

class Compiler {
 public:
  explicit Compiler(const Region& region) : region_(region) {
    RegionValues values = FindRegionValues(region, &code_);
    output_nodes_ = std::move(values.outputs);
    for (const RegionValue& value : values.all) {
      nodes_.push_back({value});
      max_bytes_ = std::max(max_bytes_, DTypeBytes(value.expr->dtype));
    }
    is_one_block_ = code_.sizes[3] <= code_.width || code_.phases.size() == 1;
    PlaceStores();
    AllocateMemory();
    EmitRunAndRows();
    EmitBlocks();
    CutIntoParts();
    LayOut();
  }

  RegionCode Take() { return std::move(code_); }

 private:
  using Kind = RegionInstruction::Kind;

  struct Store {
    int node;
    int output;
    int phase;
    bool is_done = false;  // the instruction that computes the value writes it
  };
  // An instruction on elements, in a phase.
  struct Step {
    int node;
    int phase;
  };

  bool HasInPlace(int output) const {
    return std::ranges::any_of(region_.in_place, [&](const RegionInPlace& pair) { return pair.output == output; });
  }

  // When outputs are written: with their values, or where the memory is that of an input, when nothing reads that any
  // more.
  void PlaceStores() {
    const int last_phase = static_cast<int>(code_.phases.size()) - 1;
    for (int i = 0; i < static_cast<int>(region_.outputs.size()); ++i) {
      const RegionOutput& output = region_.outputs[i];
      Node& node = nodes_[output_nodes_[i]];
      if (output.kind == RegionOutputKind::kRows) continue;
      node.is_splat |= node.level != RegionLevel::kElement;
      if (output.kind == RegionOutputKind::kSums && !output.adds) code_.sums.push_back(i);
      stores_.push_back({.node = output_nodes_[i], .output = i, .phase = HasInPlace(i) ? last_phase : node.phase});
    }
  }

  // Whether the elements of a block are one after the other in memory.
  bool IsContiguous(const RegionCode::Operand& operand) const {
    std::int64_t stride = 1;
    for (int d = kRegionDims - 1; d >= 0; --d) {
      if (code_.sizes[d] != 1 && operand.strides[d] != stride) return false;
      if (!code_.crosses_rows) return true;
      stride *= code_.sizes[d];
    }
    return true;
  }

  int NewBuffer(std::int64_t bytes) {
    code_.buffer_offsets.push_back(code_.buffer_bytes);
    code_.buffer_bytes += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return num_memory_ + static_cast<int>(code_.buffer_offsets.size()) - 1;
  }

  void AllocateMemory() {
    std::vector<bool> is_read(code_.operands.size());
    for (const Node& node : nodes_) {
      if (node.expr->op == ExprOp::kInput && node.level == RegionLevel::kElement) is_read[node.expr->number] = true;
    }
    memory_slot_.assign(code_.operands.size(), -1);
    for (int i = 0; i < static_cast<int>(code_.operands.size()); ++i) {
      const bool is_output = i >= code_.num_inputs;
      const bool has_elements = is_output ? region_.outputs[i - code_.num_inputs].kind != RegionOutputKind::kRows
                                          : static_cast<bool>(is_read[i]);
      if (!has_elements || !IsContiguous(code_.operands[i])) continue;
      memory_slot_[i] = static_cast<int>(code_.memory_operands.size());
      code_.memory_operands.push_back(i);
    }
    num_memory_ = static_cast<int>(code_.memory_operands.size());
    for (Node& node : nodes_) {
      const std::int64_t bytes = DTypeBytes(node.expr->dtype);
      if (node.level != RegionLevel::kElement) {
        node.slot = NewBuffer(node.is_splat ? bytes * code_.width : bytes);
        if (node.is_reduction()) node.partials = NewBuffer(bytes * kRowPartials);
      } else if (node.expr->op == ExprOp::kInput) {
        const int memory = memory_slot_[node.expr->number];
        node.slot = memory >= 0 ? memory : NewBuffer(bytes * code_.width);
      }
    }
  }

  RegionInstruction InstructionOf(const Node& node, int out) const {
    RegionInstruction instruction{
        .op = node.expr->op, .dtype = node.expr->dtype, .number = node.expr->number, .out = out};
    if (node.chain_kernel != nullptr) {
      instruction.kernel = node.chain_kernel;
      instruction.chain = node.chain;
      return instruction;
    }
    switch (node.expr->op) {
      case ExprOp::kUniform: instruction.kind = Kind::kUniform; break;
      case ExprOp::kIndex: instruction.kind = node.expr->number == 3 ? Kind::kColumns : Kind::kIndex; break;
      default: {
        const int typed = node.expr->op == ExprOp::kWhere ? 1 : 0;  // whose dtype chooses the kernel
        instruction.kernel = KernelOf(node.expr->op, node.expr->operands[typed]->dtype, node.expr->dtype);
      }
    }
    return instruction;
  }

  RegionInstruction CheckOf(const Node& node, int condition, int value) const {
    RegionInstruction check{.kind = Kind::kCheck, .number = node.requirement};
    check.operands[0] = condition;
    check.operands[1] = value;
    if (value >= 0) check.dtype = node.expr->operands[1]->dtype;
    return check;
  }

  // Values of the run and of rows.
  void EmitRunAndRows() {
    for (Node& node : nodes_) {
      if (node.level == RegionLevel::kElement) continue;
      std::vector<RegionInstruction>& code =
          node.level == RegionLevel::kRun ? code_.setup : code_.phases[node.phase].row;
      switch (node.expr->op) {
        case ExprOp::kConstant: code_.constants.push_back({.slot = node.slot, .bits = node.expr->bits}); break;
        case ExprOp::kInput:
          (node.level == RegionLevel::kRun ? code_.run_loads : code_.row_loads)
              .push_back({.operand = node.expr->number, .slot = node.slot});
          break;
        case ExprOp::kRequire: {
          const int value = node.num_operands > 1 ? nodes_[node.operands[1]].slot : -1;
          code.push_back(CheckOf(node, nodes_[node.operands[0]].slot, value));
          CopyInto(&code, node, nodes_[node.operands[0]].slot);
          break;
        }
        case ExprOp::kRowSum:
        case ExprOp::kRowMax: {
          code_.phases[node.phase - 1].row.push_back(
              {.kind = Kind::kStartRow, .op = node.expr->op, .dtype = node.expr->dtype, .out = node.partials});
          RegionInstruction finish{
              .kind = Kind::kFinishRow, .op = node.expr->op, .dtype = node.expr->dtype, .out = node.slot};
          finish.operands[0] = node.partials;
          code.push_back(finish);
          break;
        }
        default: {
          RegionInstruction instruction = InstructionOf(node, node.slot);
          for (int k = 0; k < node.num_operands; ++k) instruction.operands[k] = nodes_[node.operands[k]].slot;
          code.push_back(instruction);
        }
      }
      if (node.is_splat) code.push_back({.kind = Kind::kSplat, .dtype = node.expr->dtype, .out = node.slot});
    }
    for (size_t i = 0; i < region_.outputs.size(); ++i) {
      if (region_.outputs[i].kind != RegionOutputKind::kRows) continue;
      code_.row_stores.push_back(
          {.operand = code_.num_inputs + static_cast<int>(i), .slot = nodes_[output_nodes_[i]].slot});
    }
  }

  // A requirement is its condition.
  static void CopyInto(std::vector<RegionInstruction>* code, const Node& node, int from) {
    RegionInstruction copy{.op = ExprOp::kAnd,
                           .dtype = DType::kBool,
                           .out = node.slot,
                           .kernel = KernelOf(ExprOp::kAnd, DType::kBool, DType::kBool)};
    copy.operands[0] = copy.operands[1] = from;
    code->push_back(copy);
  }

  // What the blocks of a phase compute where rows are longer than a block: all that the phase needs.
  std::vector<Step> StepsOfPhase(int phase) const {
    std::vector<bool> is_needed(nodes_.size());
    for (int i = 0; i < static_cast<int>(nodes_.size()); ++i) {
      const bool ends = nodes_[i].is_reduction() || nodes_[i].requirement >= 0;
      if (ends && nodes_[i].is_in_blocks() && nodes_[i].block_phase() == phase) is_needed[i] = true;
    }
    for (const Store& store : stores_) {
      if (store.phase == phase) is_needed[store.node] = true;
    }
    std::vector<Step> steps;
    for (int i = static_cast<int>(nodes_.size()) - 1; i >= 0; --i) {
      if (!is_needed[i] || !nodes_[i].is_in_blocks()) continue;
      // A reduction of a phase before is done, and what it needed is not needed any more.
      if (nodes_[i].is_reduction() && nodes_[i].block_phase() != phase) continue;
      steps.push_back({.node = i, .phase = phase});
      for (int k = 0; k < nodes_[i].num_operands; ++k) is_needed[nodes_[i].operands[k]] = true;
    }
    std::ranges::reverse(steps);
    return steps;
  }

  void EmitBlocks() {
    if (!is_one_block_) {
      for (int phase = 0; phase < static_cast<int>(code_.phases.size()); ++phase) {
        EmitSteps(StepsOfPhase(phase), phase, phase);
      }
      return;
    }
    std::vector<Step> steps;
    for (int i = 0; i < static_cast<int>(nodes_.size()); ++i) {
      if (nodes_[i].is_in_blocks()) steps.push_back({.node = i, .phase = nodes_[i].block_phase()});
    }
    std::ranges::stable_sort(steps, {}, &Step::phase);
    EmitSteps(steps, 0, static_cast<int>(code_.phases.size()) - 1);
  }

  // Instructions whose buffers live in the phases [first, last].
  void EmitSteps(const std::vector<Step>& steps, int first, int last) {
    std::vector<int> last_read(nodes_.size(), -1);  // the step
    for (int s = 0; s < static_cast<int>(steps.size()); ++s) {
      const Node& node = nodes_[steps[s].node];
      for (int k = 0; k < node.num_operands; ++k) last_read[node.operands[k]] = s;
    }
    std::vector<int> slot(nodes_.size(), -1);
    for (size_t i = 0; i < nodes_.size(); ++i) slot[i] = nodes_[i].slot;
    LoadInputs(steps, first, last);
    for (int s = 0; s < static_cast<int>(steps.size()); ++s) {
      const Node& node = nodes_[steps[s].node];
      EmitStep(steps[s], last_read, s, &slot);
      for (int k = 0; k < node.num_operands; ++k) {
        if (last_read[node.operands[k]] == s) Release(node.operands[k], &slot);
      }
    }
    for (Store& store : stores_) {
      if (store.phase < first || store.phase > last || store.is_done) continue;
      const bool is_sum = region_.outputs[store.output].kind == RegionOutputKind::kSums;
      RegionCode::Phase& phase = code_.phases[store.phase];
      (is_sum ? phase.sums : phase.stores)
          .push_back({.operand = code_.num_inputs + store.output, .slot = slot[store.node]});
    }
    free_.clear();
    for (const int buffer : pool_) free_.push_back(buffer);
  }

  // Elements that are not one after the other are gathered before a block.
  void LoadInputs(const std::vector<Step>& steps, int first, int last) {
    std::vector<bool> is_read(nodes_.size());
    for (const Step& step : steps) {
      for (int k = 0; k < nodes_[step.node].num_operands; ++k) is_read[nodes_[step.node].operands[k]] = true;
    }
    for (const Store& store : stores_) {
      if (first <= store.phase && store.phase <= last) is_read[store.node] = true;
    }
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const Node& node = nodes_[i];
      if (!is_read[i] || node.expr->op != ExprOp::kInput || node.slot < num_memory_ ||
          node.level != RegionLevel::kElement) {
        continue;
      }
      code_.phases[first].loads.push_back({.operand = node.expr->number, .slot = node.slot});
    }
  }

  // The store that this step can do at once: nobody reads the memory later under the name of an input.
  Store* DirectStore(const Step& step, const std::vector<int>& last_read, int s) {
    for (Store& store : stores_) {
      const int memory = memory_slot_[code_.num_inputs + store.output];
      if (store.node != step.node || store.phase != step.phase || store.is_done || memory < 0 ||
          region_.outputs[store.output].kind != RegionOutputKind::kElements) {
        continue;
      }
      bool is_free = true;
      for (const auto& [input, output] : region_.in_place) {
        for (size_t i = 0; output == store.output && i < nodes_.size(); ++i) {
          const bool is_input = nodes_[i].expr->op == ExprOp::kInput && nodes_[i].expr->number == input;
          is_free &= !is_input || (last_read[i] <= s && !IsStoredLater(static_cast<int>(i)));
        }
      }
      if (is_free) return &store;
    }
    return nullptr;
  }

  // Whether an output is the input itself.
  bool IsStoredLater(int input_node) const {
    return std::ranges::any_of(stores_, [&](const Store& store) { return store.node == input_node; });
  }

  // A buffer for the result: of an operand that nothing reads any more and whose elements have its size, where there
  // is one, because that is in the cache.
  int BufferFor(const Step& step, const std::vector<int>& last_read, int s, std::vector<int>* slot) {
    const Node& node = nodes_[step.node];
    for (int k = 0; k < node.num_operands; ++k) {
      const int operand = node.operands[k];
      const bool same_size = DTypeBytes(nodes_[operand].expr->dtype) == DTypeBytes(node.expr->dtype);
      if (last_read[operand] != s || !IsPooled(operand, *slot) || IsStored(operand) || !same_size) continue;
      const int buffer = (*slot)[operand];
      (*slot)[operand] = -1;
      return buffer;
    }
    if (free_.empty()) {
      pool_.push_back(NewBuffer(max_bytes_ * code_.width));
      return pool_.back();
    }
    const int buffer = free_.back();
    free_.pop_back();
    return buffer;
  }

  bool IsPooled(int node, const std::vector<int>& slot) const {
    return nodes_[node].slot < 0 && slot[node] >= num_memory_;
  }
  bool IsStored(int node) const {
    return std::ranges::any_of(stores_, [&](const Store& store) { return store.node == node && !store.is_done; });
  }

  void Release(int node, std::vector<int>* slot) {
    if (!IsPooled(node, *slot) || IsStored(node)) return;
    free_.push_back((*slot)[node]);
    (*slot)[node] = -1;
  }

  void EmitStep(const Step& step, const std::vector<int>& last_read, int s, std::vector<int>* slot) {
    const Node& node = nodes_[step.node];
    std::vector<RegionInstruction>& code = code_.phases[step.phase].block;
    int operands[kMaxExprOperands];
    for (int k = 0; k < kMaxExprOperands; ++k) operands[k] = node.operands[k] < 0 ? -1 : (*slot)[node.operands[k]];
    if (node.is_reduction()) {
      RegionInstruction reduce{.kind = Kind::kReduce, .op = node.expr->op, .dtype = node.expr->dtype};
      reduce.out = node.partials;
      reduce.operands[0] = operands[0];
      reduce.row_kernel = RowKernelOf(node.expr->op, node.expr->dtype);
      code.push_back(reduce);
      return;
    }
    if (node.requirement >= 0) code.push_back(CheckOf(node, operands[0], operands[1]));
    Store* const direct = DirectStore(step, last_read, s);
    const int out =
        direct != nullptr ? memory_slot_[code_.num_inputs + direct->output] : BufferFor(step, last_read, s, slot);
    if (direct != nullptr) direct->is_done = true;
    (*slot)[step.node] = out;
    RegionInstruction instruction =
        node.requirement >= 0 ? RegionInstruction{.op = ExprOp::kAnd,
                                                  .dtype = DType::kBool,
                                                  .kernel = KernelOf(ExprOp::kAnd, DType::kBool, DType::kBool)}
                              : InstructionOf(node, out);
    instruction.out = out;
    std::ranges::copy(operands, instruction.operands);
    if (node.requirement >= 0) instruction.operands[1] = operands[0];
    code.push_back(instruction);
  }

  void CutIntoParts() {
    bool has_sums = false;
    bool has_rows = code_.phases.size() > 1;
    for (const RegionOutput& output : region_.outputs) {
      has_sums |= output.kind == RegionOutputKind::kSums;
      has_rows |= output.kind == RegionOutputKind::kRows;
    }
    const std::int64_t rows = code_.NumRows();
    const std::int64_t columns = code_.sizes[3];
    std::int64_t parts = 1;
    if (has_sums) {
      code_.cut = RegionCode::Cut::kColumns;
      parts = has_rows ? 1 : columns / kSumColumns;
    } else if (has_rows) {
      code_.cut = RegionCode::Cut::kRows;
      parts = rows;
    } else if (code_.crosses_rows) {
      parts = (rows * columns + code_.width - 1) / code_.width;
    } else {
      code_.row_blocks = std::max<std::int64_t>(1, (columns + code_.width - 1) / code_.width);
      parts = rows * code_.row_blocks;
    }
    code_.max_parts = static_cast<int>(std::clamp<std::int64_t>(parts, 1, INT_MAX));
  }

  void LayOut() {
    const auto aligned = [](size_t size) {
      return static_cast<std::int64_t>((size + kAlignment - 1) / kAlignment * kAlignment);
    };
    code_.rows_at = aligned((code_.memory_operands.size() + code_.buffer_offsets.size()) * sizeof(void*));
    code_.buffers_at = code_.rows_at + aligned(2 * code_.operands.size() * sizeof(void*));
    code_.run_bytes = code_.buffers_at + code_.buffer_bytes;
  }

  const Region& region_;
  RegionCode code_;
  std::vector<Node> nodes_;
  std::vector<int> output_nodes_;
  std::vector<Store> stores_;
  std::vector<int> memory_slot_;  // of each operand, or -1
  int num_memory_ = 0;
  std::vector<int> pool_;  // buffers of element instructions
  std::vector<int> free_;  // those that hold nothing
  std::int64_t max_bytes_ = 1;
  bool is_one_block_ = true;  // a row is one, or has one phase
};

}  // namespace

RegionCode CompileRegion(const Region& region) {
  CheckRegion(region);
  return Compiler(region).Take();
}

}  // namespace stepnet
