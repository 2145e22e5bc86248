// Compiling a region: its values get slots, of which those of elements are used again as soon as nothing reads them any
// more, and instructions.
#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "stepnet/core/regions/region_code.h"
#include "stepnet/core/regions/region_instructions.h"
#include "stepnet/core/regions/region_layout.h"
#include "stepnet/core/regions/region_sums.h"
#include "stepnet/core/regions/region_values.h"

namespace stepnet {
namespace {

struct Node : RegionValue {
  bool is_kept = false;  // for all of a row that is several blocks: a later phase or a reduction reads it
  int slot = -1;         // for good; instructions on elements have theirs for a while
  int spread = -1;       // slot of the copies that instructions on elements read
  int partials = -1;     // slot of a reduction's partial results
};

class Compiler {
 public:
  Compiler(const Region& region, bool keeps_rows) : region_(region) {
    RegionValues values = FindRegionValues(region, keeps_rows, &code_);
    output_nodes_ = std::move(values.outputs);
    keeps_values_ = values.are_kept;
    for (const RegionValue& value : values.all) {
      max_bytes_ = std::max(max_bytes_, DTypeBytes(value.expr->dtype));
      nodes_.push_back({value});
    }
    slots_.has_whole_rows = keeps_values_ && code_.phases.size() > 1 && !code_.joins_rows;
    slots_.cuts_rows = slots_.has_whole_rows && ReducesElementsOnly();
    PlaceStores();
    if (slots_.cuts_rows) FindKept();
    AllocateMemory();
    EmitRunAndRows();
    EmitBlocks();
    EmitRowStores();
    LayOutRegion(slots_, &code_);
  }

  RegionCode Take() { return std::move(code_); }

 private:
  using Kind = RegionInstruction::Kind;
  using Extent = RegionExtent;

  struct Store {
    int node;
    int output;
    int phase;
    bool is_done = false;    // the instruction that computes the value writes it
    bool is_buffer = false;  // its memory has held another value before
    int copy = -1;           // slot of a copy of the value, where the value is memory that another output overwrites
  };
  // A node that an instruction on elements computes, in a phase.
  struct Computed {
    int node;
    int phase;
  };

  // When outputs are written: with their values, or where the memory is that of an input, when nothing reads that any
  // more.
  void PlaceStores() {
    const int last_phase = static_cast<int>(code_.phases.size()) - 1;
    in_place_of_.resize(region_.outputs.size());
    is_overwritten_.resize(region_.inputs.size());
    for (const auto& [input, output] : region_.in_place) {
      in_place_of_[output].push_back(input);
      is_overwritten_[input] = true;
    }
    nodes_of_input_.resize(region_.inputs.size());
    for (int i = 0; i < static_cast<int>(nodes_.size()); ++i) {
      if (nodes_[i].expr->op == ExprOp::kInput) nodes_of_input_[nodes_[i].expr->number].push_back(i);
    }
    for (int i = 0; i < static_cast<int>(region_.outputs.size()); ++i) {
      const RegionOutput& output = region_.outputs[i];
      const Node& node = nodes_[output_nodes_[i]];
      if (output.kind == RegionOutputKind::kSums && !output.adds) code_.sums.push_back(i);
      if (IsOfRows(region_, output)) continue;
      stores_.push_back(
          {.node = output_nodes_[i], .output = i, .phase = in_place_of_[i].empty() ? node.phase : last_phase});
    }
    stores_of_node_.resize(nodes_.size());
    for (Store& store : stores_) stores_of_node_[store.node].push_back(&store);
  }

  // Else what is reduced is an array that is filled for a block.
  bool ReducesElementsOnly() const {
    return std::ranges::all_of(nodes_, [&](const Node& node) {
      const std::span<const int> operands(node.operands, static_cast<size_t>(node.num_operands));
      return !node.is_reduction() || std::ranges::all_of(operands, [&](int operand) {
        return nodes_[operand].level == RegionLevel::kElement || node.repeated.of_rows != 0;
      });
    });
  }

  void FindKept() {
    for (const Node& node : nodes_) {
      for (int k = 0; k < node.num_operands; ++k) {
        Node& operand = nodes_[node.operands[k]];
        operand.is_kept |= node.is_in_blocks() && (node.is_reduction() || node.block_phase() > operand.phase);
      }
    }
    for (const Store& store : stores_) nodes_[store.node].is_kept |= store.phase > nodes_[store.node].phase;
  }

  // How much an array holds that has a value of each element, for a node or for what all phases read.
  Extent ElementsOf(const Node& node) const { return node.is_kept ? Extent::kWholeRow : Extent::kBlock; }
  Extent LoadedElements() const { return slots_.cuts_rows ? Extent::kWholeRow : Extent::kBlock; }

  int NewBuffer(std::int64_t bytes, Extent extent) {
    slots_.buffers.push_back({.bytes = bytes, .extent = extent});
    return num_fixed_ + static_cast<int>(slots_.buffers.size()) - 1;
  }

  void AllocateMemory() {
    std::vector<bool> is_read(code_.operands.size()), is_read_as_is(code_.operands.size());
    for (const Node& node : nodes_) {
      if (node.expr->op != ExprOp::kInput || node.level != RegionLevel::kElement) continue;
      is_read[node.expr->number] = true;
      if (node.is_read_as_is) is_read_as_is[node.expr->number] = true;
    }
    memory_slot_.assign(code_.operands.size(), -1);
    for (int i = 0; i < static_cast<int>(code_.operands.size()); ++i) {
      const bool is_output = i >= code_.num_inputs;
      const bool has_elements =
          is_output ? !IsOfRows(region_, region_.outputs[i - code_.num_inputs]) : static_cast<bool>(is_read[i]);
      if (!has_elements || !(is_read_as_is[i] || code_.IsContiguous(code_.operands[i]))) continue;
      memory_slot_[i] = static_cast<int>(code_.memory_operands.size());
      code_.memory_operands.push_back(i);
    }
    num_memory_ = num_fixed_ = static_cast<int>(code_.memory_operands.size());
    for (Node& node : nodes_) {
      if (node.expr->op != ExprOp::kConstant) continue;
      node.slot = num_fixed_++;
      slots_.constants.push_back({.value = Expr::Of(node.expr), .extent = ExtentOf(node)});
    }
    for (Node& node : nodes_) {
      if (node.expr->op != ExprOp::kConstant) AllocateSlots(&node);
    }
  }

  // How many equal elements a value of the run has in its array.
  static Extent ExtentOf(const RegionValue& value) {
    return value.is_splat ? Extent::kBlock : value.is_row_splat ? Extent::kRows : Extent::kOne;
  }

  void AllocateSlots(Node* node) {
    const std::int64_t bytes = DTypeBytes(node->expr->dtype);
    if (node->level == RegionLevel::kRun) {
      node->slot = NewBuffer(bytes, ExtentOf(*node));
    } else if (node->level == RegionLevel::kRow) {
      node->slot = NewBuffer(bytes, Extent::kRows);
      if (node->is_spread) node->spread = NewBuffer(bytes, Extent::kBlock);
      if (node->is_reduction() && !keeps_values_) node->partials = NewBuffer(bytes * kRowPartials, Extent::kOne);
    } else if (node->expr->op == ExprOp::kInput) {
      const int memory = memory_slot_[node->expr->number];
      const bool is_array = node->is_read_as_is || code_.IsContiguous(code_.operands[node->expr->number]);
      node->slot = memory >= 0 && is_array ? memory : NewBuffer(bytes, LoadedElements());
      if (node->is_read_as_is && node->is_spread) node->spread = NewBuffer(bytes, Extent::kBlock);
    }
  }

  // Which keys of a draw are of the run, as bits.
  int KeysOfRun(const Node& node) const {
    int keys = 0;
    for (int k = 0; k < kNumUniformKeys && node.expr->op == ExprOp::kUniform; ++k) {
      if (nodes_[node.operands[k]].level == RegionLevel::kRun) keys |= 1 << k;
    }
    return keys;
  }

  // The slot that an instruction on as much as `level` reads of a value.
  int SlotAt(RegionLevel level, int node) const {
    const bool is_spread = level == RegionLevel::kElement && nodes_[node].is_spread;
    return is_spread ? nodes_[node].spread : nodes_[node].slot;
  }

  RegionInstruction CheckOf(const Node& node, std::span<const int> operands) const {
    RegionInstruction check{.kind = Kind::kCheck, .level = node.level, .number = node.requirement};
    SetOperands(&check, operands);
    return check;
  }

  // Values of the run and of rows.
  void EmitRunAndRows() {
    for (Node& node : nodes_) {
      if (node.level == RegionLevel::kElement) continue;
      std::vector<RegionInstruction>& code =
          node.level == RegionLevel::kRun ? code_.setup : code_.phases[node.phase].row;
      int slots[kMaxExprOperands];
      for (int k = 0; k < node.num_operands; ++k) slots[k] = nodes_[node.operands[k]].slot;
      const std::span<const int> operands(slots, static_cast<size_t>(node.num_operands));
      switch (node.expr->op) {
        case ExprOp::kConstant: continue;
        case ExprOp::kInput:
          if (node.level == RegionLevel::kRun) {
            code_.run_loads.push_back({.operand = node.expr->number, .slot = node.slot});
          } else {
            code.push_back(LoadOf(Kind::kLoadRow, *node.expr, node.slot));
          }
          break;
        case ExprOp::kRequire:
          code.push_back(CheckOf(node, operands));
          code.push_back(ConditionOf(slots[0], node.slot));
          break;
        case ExprOp::kRowSum:
        case ExprOp::kRowMax:
          if (!keeps_values_) EmitRow(node, &code);
          break;
        default: {
          RegionInstruction instruction = InstructionOf(node, node.slot, KeysOfRun(node));
          SetOperands(&instruction, operands);
          code.push_back(instruction);
        }
      }
      if (ExtentOf(node) != Extent::kOne) {
        const int of_elements = node.is_splat ? 1 : 0;
        code.push_back({.kind = Kind::kSplat, .dtype = node.expr->dtype, .number = of_elements, .out = node.slot});
      }
      if (node.is_spread) {
        RegionInstruction spread{.kind = Kind::kSpread, .dtype = node.expr->dtype, .out = node.spread};
        SetOperands(&spread, {node.slot});
        code.push_back(spread);
      }
    }
  }

  // Outputs of rows, when all phases are done.
  void EmitRowStores() {
    for (const bool adds : {false, true}) {
      for (int i = 0; i < static_cast<int>(region_.outputs.size()); ++i) {
        if (!IsOfRows(region_, region_.outputs[i]) || SumsRows(region_, region_.outputs[i]) != adds) continue;
        const Kind kind = adds ? Kind::kAddRow : Kind::kStoreRow;
        code_.phases.back().end.push_back(StoreOf(kind, nodes_[output_nodes_[i]].slot, code_.num_inputs + i));
        code_.has_row_outputs = true;
      }
    }
  }

  // A reduction of a row of several blocks.
  void EmitRow(const Node& node, std::vector<RegionInstruction>* code) {
    RegionInstruction start{
        .kind = Kind::kStartRow, .op = node.expr->op, .dtype = node.expr->dtype, .out = node.partials};
    code_.phases[node.phase - 1].row.push_back(start);
    RegionInstruction finish{
        .kind = Kind::kFinishRow, .op = node.expr->op, .dtype = node.expr->dtype, .out = node.slot};
    SetOperands(&finish, {node.partials});
    code->push_back(finish);
  }

  // What the blocks of a phase compute where rows are longer than a block: all that the phase needs.
  std::vector<Computed> ComputedInPhase(int phase) const {
    std::vector<bool> is_needed(nodes_.size());
    for (int i = 0; i < static_cast<int>(nodes_.size()); ++i) {
      const bool ends = nodes_[i].is_reduction() || nodes_[i].requirement >= 0;
      if (ends && nodes_[i].is_in_blocks() && nodes_[i].block_phase() == phase) is_needed[i] = true;
    }
    for (const Store& store : stores_) {
      if (store.phase == phase) is_needed[store.node] = true;
    }
    std::vector<Computed> computed;
    for (int i = static_cast<int>(nodes_.size()) - 1; i >= 0; --i) {
      if (!is_needed[i] || !nodes_[i].is_in_blocks()) continue;
      // A reduction of a phase before is done, and what it needed is not needed any more.
      if (nodes_[i].is_reduction() && nodes_[i].block_phase() != phase) continue;
      computed.push_back({.node = i, .phase = phase});
      for (int k = 0; k < nodes_[i].num_operands; ++k) is_needed[nodes_[i].operands[k]] = true;
    }
    std::ranges::reverse(computed);
    return computed;
  }

  void EmitBlocks() {
    if (!keeps_values_) {
      for (int phase = 0; phase < static_cast<int>(code_.phases.size()); ++phase) {
        EmitAll(ComputedInPhase(phase), phase, phase);
      }
      return;
    }
    std::vector<Computed> computed;
    for (int i = 0; i < static_cast<int>(nodes_.size()); ++i) {
      if (nodes_[i].is_in_blocks()) computed.push_back({.node = i, .phase = nodes_[i].block_phase()});
    }
    std::ranges::stable_sort(computed, {}, [&](const Computed& of) {
      return std::pair(of.phase, nodes_[of.node].is_reduction());  // which follow the blocks
    });
    EmitAll(computed, 0, static_cast<int>(code_.phases.size()) - 1);
  }

  // Instructions whose buffers live in the phases [first, last].
  void EmitAll(const std::vector<Computed>& computed, int first, int last) {
    std::vector<int> last_read(nodes_.size(), -1);  // the number among these
    for (int s = 0; s < static_cast<int>(computed.size()); ++s) {
      const Node& node = nodes_[computed[s].node];
      for (int k = 0; k < node.num_operands; ++k) last_read[node.operands[k]] = s;
    }
    order_.clear();
    for (const Computed& of : computed) order_.push_back(of.node);
    std::vector<int> slot(nodes_.size(), -1);
    for (size_t i = 0; i < nodes_.size(); ++i) slot[i] = SlotAt(RegionLevel::kElement, static_cast<int>(i));
    LoadInputs(computed, first, last);
    CopyWhatIsOverwritten(first, last);
    for (int s = 0; s < static_cast<int>(computed.size()); ++s) {
      const Node& node = nodes_[computed[s].node];
      EmitOne(computed[s], last_read, s, &slot);
      for (int k = 0; k < node.num_operands; ++k) {
        if (last_read[node.operands[k]] == s) Release(node.operands[k], &slot);
      }
    }
    for (const Kind kind : {Kind::kCompute, Kind::kStore, Kind::kAdd}) EmitStores(kind, first, last, slot);
    free_ = pool_;
  }

  // What no instruction has written: copies, other elements, and sums.
  void EmitStores(Kind kind, int first, int last, const std::vector<int>& slot) {
    for (const Store& store : stores_) {
      if (store.phase < first || store.phase > last || store.is_done) continue;
      const RegionOutput& output = region_.outputs[store.output];
      const int from = store.copy >= 0 ? store.copy : slot[store.node];
      const int memory = memory_slot_[code_.num_inputs + store.output];
      const Kind own = output.kind == RegionOutputKind::kSums ? Kind::kAdd : memory < 0 ? Kind::kStore : Kind::kCompute;
      if (own != kind) continue;
      const bool copies = kind == Kind::kCompute;
      code_.phases[store.phase].block.push_back(copies ? CopyOf(output.value, from, memory)
                                                       : StoreOf(kind, from, code_.num_inputs + store.output));
    }
  }

  // An input that an output stores as it is, and whose memory is that of another output, which may be written before.
  void CopyWhatIsOverwritten(int first, int last) {
    for (Store& store : stores_) {
      const Node& node = nodes_[store.node];
      const bool is_memory = node.expr->op == ExprOp::kInput && node.slot >= 0 && node.slot < num_memory_;
      if (!is_memory || store.is_done || store.phase < first || store.phase > last) continue;
      if (!is_overwritten_[node.expr->number]) continue;
      store.copy = NewBuffer(DTypeBytes(node.expr->dtype), LoadedElements());
      code_.phases[first].block.push_back(CopyOf(region_.outputs[store.output].value, node.slot, store.copy));
    }
  }

  // Elements that are not one after the other are gathered before a block.
  void LoadInputs(const std::vector<Computed>& computed, int first, int last) {
    std::vector<bool> is_read(nodes_.size());
    for (const Computed& of : computed) {
      for (int k = 0; k < nodes_[of.node].num_operands; ++k) is_read[nodes_[of.node].operands[k]] = true;
    }
    for (const Store& store : stores_) {
      if (first <= store.phase && store.phase <= last) is_read[store.node] = true;
    }
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const Node& node = nodes_[i];
      if (!is_read[i] || node.expr->op != ExprOp::kInput || node.level != RegionLevel::kElement) continue;
      const int slot = SlotAt(RegionLevel::kElement, static_cast<int>(i));
      if (slot < num_memory_) continue;
      const RegionIndex& strides = code_.operands[node.expr->number].strides;
      const bool is_tile = code_.joins_rows && strides[0] == 0 && strides[1] == 0 && strides[2] == 0;
      if (is_tile) {
        code_.tile_loads.push_back({.operand = node.expr->number, .slot = slot});
      } else {
        code_.phases[first].block.push_back(LoadOf(Kind::kLoad, *node.expr, slot));
      }
    }
  }

  // The store that this instruction can do at once: nobody reads the memory later under the name of an input.
  Store* DirectStore(const Computed& of, const std::vector<int>& last_read, int s) {
    for (Store* const store : stores_of_node_[of.node]) {
      const int memory = memory_slot_[code_.num_inputs + store->output];
      if (store->phase != of.phase || store->is_done || memory < 0 ||
          region_.outputs[store->output].kind != RegionOutputKind::kElements) {
        continue;
      }
      if (IsFree(store->output, last_read, s)) return store;
    }
    return nullptr;
  }

  // Whether nothing reads the memory of an output after the one of number s under the name of an input.
  bool IsFree(int of_output, const std::vector<int>& last_read, int s) const {
    for (const int input : in_place_of_[of_output]) {
      for (const int node : nodes_of_input_[input]) {
        if (last_read[node] > s || !stores_of_node_[node].empty()) return false;  // or an output is the input itself
      }
    }
    return true;
  }

  // The memory of an output, for a value that is read for the last time by what computes that output: one array less
  // that has to stay in the cache. -1: there is none.
  int OutputAsBuffer(const Computed& of, const std::vector<int>& last_read, int s) {
    if (!keeps_values_ || last_read[of.node] <= s || IsStored(of.node)) return -1;
    for (Store* const store : stores_of_node_[order_[last_read[of.node]]]) {
      const RegionOutput& output = region_.outputs[store->output];
      const int memory = memory_slot_[code_.num_inputs + store->output];
      const bool fits = output.kind == RegionOutputKind::kElements && memory >= 0 &&
                        DTypeBytes(output.memory.dtype) == DTypeBytes(nodes_[of.node].expr->dtype);
      if (!fits || store->is_done || store->is_buffer || !IsFree(store->output, last_read, s)) continue;
      store->is_buffer = true;
      return memory;
    }
    return -1;
  }

  // A buffer for the result: of an operand that nothing reads any more and whose elements have its size, where there
  // is one, because that is in the cache.
  int BufferFor(const Computed& of, const std::vector<int>& last_read, int s, std::vector<int>* slot) {
    const Node& node = nodes_[of.node];
    const Extent extent = ElementsOf(node);
    for (int k = 0; k < node.num_operands; ++k) {
      const int operand = node.operands[k];
      const bool same_size = DTypeBytes(nodes_[operand].expr->dtype) == DTypeBytes(node.expr->dtype);
      if (last_read[operand] != s || !IsPooled(operand, *slot) || IsStored(operand) || !same_size ||
          ExtentOfBuffer((*slot)[operand]) != extent) {
        continue;
      }
      const int buffer = (*slot)[operand];
      (*slot)[operand] = -1;
      return buffer;
    }
    if (const int memory = OutputAsBuffer(of, last_read, s); memory >= 0) return memory;
    // Runs go to a block of a whole row by the size of its elements.
    const std::int64_t bytes = extent == Extent::kWholeRow ? DTypeBytes(node.expr->dtype) : max_bytes_;
    const auto is_alike = [&](int buffer) {
      return ExtentOfBuffer(buffer) == extent && slots_.buffers[buffer - num_fixed_].bytes == bytes;
    };
    const auto found = std::ranges::find_if(free_.rbegin(), free_.rend(), is_alike);
    if (found == free_.rend()) {
      pool_.push_back(NewBuffer(bytes, extent));
      return pool_.back();
    }
    const int buffer = *found;
    free_.erase(std::next(found).base());
    return buffer;
  }

  Extent ExtentOfBuffer(int slot) const { return slots_.buffers[slot - num_fixed_].extent; }

  bool IsPooled(int node, const std::vector<int>& slot) const {
    return nodes_[node].slot < 0 && slot[node] >= num_fixed_;
  }
  bool IsStored(int node) const {
    return std::ranges::any_of(stores_of_node_[node], [](const Store* store) { return !store->is_done; });
  }

  void Release(int node, std::vector<int>* slot) {
    if (!IsPooled(node, *slot) || IsStored(node)) return;
    free_.push_back((*slot)[node]);
    (*slot)[node] = -1;
  }

  void EmitOne(const Computed& of, const std::vector<int>& last_read, int s, std::vector<int>* slot) {
    const Node& node = nodes_[of.node];
    RegionCode::Phase& phase = code_.phases[of.phase];
    std::vector<RegionInstruction>& code = node.is_reduction() && keeps_values_ ? phase.end : phase.block;
    int operands[kMaxExprOperands];
    for (int k = 0; k < kMaxExprOperands; ++k) {
      const bool is_as_is = node.repeated.Has(k);
      operands[k] = k >= node.num_operands ? -1 : is_as_is ? nodes_[node.operands[k]].slot : (*slot)[node.operands[k]];
    }
    if (node.is_reduction()) {
      RegionInstruction reduce{.kind = keeps_values_ ? Kind::kReduceRows : Kind::kReduce,
                               .op = node.expr->op,
                               .dtype = node.expr->dtype,
                               .out = keeps_values_ ? node.slot : node.partials,
                               .row_kernel = RowKernelOf(node.expr->op, node.expr->dtype),
                               .rows_kernel = RowsKernelOf(node.expr->op, node.expr->dtype)};
      reduce.repeated = node.repeated;
      if (node.rows_kernel != nullptr) {
        reduce.pattern = node.pattern;
        reduce.rows_kernel = node.rows_kernel;
      }
      if (node.sum >= 0) {
        reduce.row_sums_kernel = SumsKernelOf(node.expr->dtype);
        reduce.sum = nodes_[node.sum].slot;
      }
      SetOperands(&reduce, operands);
      code.push_back(reduce);
      return;
    }
    if (node.requirement >= 0) code.push_back(CheckOf(node, operands));
    if (node.num_results > 0) {
      code.push_back(SeveralOf(of, operands, last_read, s, slot));
      return;
    }
    const int out = PlaceOfResult(of, last_read, s, slot);
    if (node.requirement >= 0) {
      code.push_back(ConditionOf(operands[0], out));
      return;
    }
    RegionInstruction instruction = InstructionOf(node, out, KeysOfRun(node));
    SetOperands(&instruction, operands);
    code.push_back(instruction);
  }

  // The slot for the result of an instruction.
  int PlaceOfResult(const Computed& of, const std::vector<int>& last_read, int s, std::vector<int>* slot) {
    Store* const direct = DirectStore(of, last_read, s);
    const int out =
        direct != nullptr ? memory_slot_[code_.num_inputs + direct->output] : BufferFor(of, last_read, s, slot);
    if (direct != nullptr) direct->is_done = true;
    (*slot)[of.node] = out;
    return out;
  }

  RegionInstruction SeveralOf(const Computed& of, std::span<const int> operands, const std::vector<int>& last_read,
                              int s, std::vector<int>* slot) {
    const Node& node = nodes_[of.node];
    RegionInstruction instruction{.kind = Kind::kSeveral,
                                  .op = node.expr->op,
                                  .dtype = node.expr->dtype,
                                  .pattern = node.pattern,
                                  .several_kernel = node.several_kernel,
                                  .num_results = node.num_results};
    for (int k = 0; k < kMaxRegionResults; ++k) {
      const bool has = k < node.num_results;
      instruction.several[k] = has ? PlaceOfResult({.node = node.results[k], .phase = of.phase}, last_read, s, slot)
                                   : instruction.several[0];
    }
    SetOperands(&instruction, operands);
    std::copy_n(instruction.operands, instruction.num_operands, instruction.several + kMaxRegionResults);
    return instruction;
  }

  const Region& region_;
  RegionCode code_;
  std::vector<Node> nodes_;
  std::vector<int> output_nodes_;
  std::vector<Store> stores_;
  std::vector<int> memory_slot_;  // of each operand, or -1
  std::vector<int> order_;
  std::vector<std::vector<Store*>> stores_of_node_;
  std::vector<std::vector<int>> nodes_of_input_;
  std::vector<std::vector<int>> in_place_of_;  // inputs that an output may be in place of
  std::vector<bool> is_overwritten_;           // an input, by an output in its place
  int num_memory_ = 0;
  int num_fixed_ = 0;  // slots of memory and constants
  RegionSlots slots_;
  std::vector<int> pool_;  // buffers of element instructions
  std::vector<int> free_;  // those that hold nothing
  std::int64_t max_bytes_ = 1;
  bool keeps_values_ = true;  // of a row, from phase to phase
};

}  // namespace

RegionCode CompileRegion(const Region& region, bool keeps_rows) { return Compiler(region, keeps_rows).Take(); }

}  // namespace stepnet
