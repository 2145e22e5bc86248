// Compiling a region: dimensions that move as one are merged, values get a level (run, row or element) and a phase,
// then slots, of which those of elements are used again as soon as nothing reads them any more.
#include <algorithm>
#include <climits>
#include <unordered_map>

#include "stepnet/core/region_code.h"

namespace stepnet {
namespace {

constexpr std::int64_t kShortRow = 128;   // of shorter ones a block holds several
constexpr std::int64_t kAlignment = 64;   // of buffers, in bytes
constexpr std::int64_t kSumColumns = 16;  // that a part of a region of sums has at least

enum class Level : std::uint8_t { kRun, kRow, kElement };

bool IsReduction(ExprOp op) { return op == ExprOp::kRowSum || op == ExprOp::kRowMax; }

struct Node {
  const ExprNode* expr = nullptr;
  int operands[kMaxExprOperands] = {-1, -1, -1, -1, -1};
  int num_operands = 0;
  int uses = 0;              // by other nodes and as an output
  bool is_absorbed = false;  // a link of the chain of what uses it
  RegionKernel chain_kernel = nullptr;
  RegionChain chain = {};
  Level level = Level::kRun;
  int phase = 0;
  bool is_splat = false;  // a value of the run or the row that instructions on elements read
  int slot = -1;          // for good; instructions on elements have theirs for a while
  int partials = -1;      // slot of a reduction's partial results
  int requirement = -1;
};

class Compiler {
 public:
  explicit Compiler(const Region& region) : region_(region), roots_(region.Roots()) {
    const std::vector<const ExprNode*> order = ExprNodes(roots_);
    ReadNodes(order);
    MakeOperands();
    Collapse();
    FindLevels();
    MakeChains();
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

  void ReadNodes(const std::vector<const ExprNode*>& order) {
    std::unordered_map<const ExprNode*, int> number;
    number.reserve(order.size());
    for (const ExprNode* expr : order) {
      Node node{.expr = expr, .num_operands = expr->num_operands};
      for (int k = 0; k < expr->num_operands; ++k) {
        node.operands[k] = number.at(expr->operands[k]);
        ++nodes_[node.operands[k]].uses;
      }
      if (expr->op == ExprOp::kRequire) {
        node.requirement = static_cast<int>(code_.requirements.size());
        code_.requirements.push_back({.require = Expr::Of(expr), .has_value = expr->num_operands > 1});
      }
      keeps_rows_ |= IsReduction(expr->op) || expr->op == ExprOp::kIndex;
      has_index_ |= expr->op == ExprOp::kIndex;
      number.emplace(expr, static_cast<int>(nodes_.size()));
      nodes_.push_back(node);
    }
    for (const RegionOutput& output : region_.outputs) {
      output_nodes_.push_back(number.at(output.value.node()));
      ++nodes_[output_nodes_.back()].uses;
      keeps_rows_ |= output.kind != RegionOutputKind::kElements;
    }
  }

  void MakeOperands() {
    const auto add = [&](const RegionOperand& from) {
      code_.operands.push_back(
          {.strides = from.strides, .offset = from.offset, .bytes = DTypeBytes(from.dtype), .dtype = from.dtype});
      for (int d = 0; d < kRegionDims; ++d) {
        if (region_.sizes[d] == 1) code_.operands.back().strides[d] = 0;
      }
    };
    for (const RegionOperand& input : region_.inputs) add(input);
    code_.num_inputs = static_cast<int>(region_.inputs.size());
    for (const RegionOutput& output : region_.outputs) add(output.memory);
    code_.sizes = region_.sizes;
  }

  // Whether all operands move along dimension `outer` as they would along `inner`, had that more elements.
  bool MoveAsOne(int outer, int inner, std::int64_t inner_size) const {
    return std::ranges::all_of(code_.operands, [&](const RegionCode::Operand& operand) {
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
      if (code_.sizes[d] == 1 && !is_row) continue;
      const bool may_merge = !dims.empty() && !(dims.size() == 1 && keeps_rows_);
      if (may_merge && MoveAsOne(d, dims.back().from, dims.back().size)) {
        dims.back().size *= code_.sizes[d];
      } else {
        dims.push_back({.from = d, .size = code_.sizes[d]});
      }
    }
    RegionIndex sizes = {1, 1, 1, 1};
    for (size_t i = 0; i < dims.size(); ++i) sizes[kRegionDims - 1 - i] = dims[i].size;
    for (RegionCode::Operand& operand : code_.operands) {
      RegionIndex strides = {};
      for (size_t i = 0; i < dims.size(); ++i) strides[kRegionDims - 1 - i] = operand.strides[dims[i].from];
      operand.strides = strides;
    }
    code_.sizes = sizes;
    code_.crosses_rows = !keeps_rows_ && sizes[3] < kShortRow && code_.NumRows() > 1;
  }

  Level LevelOfInput(int input) const {
    const RegionIndex& strides = code_.operands[input].strides;
    if (std::ranges::all_of(strides, [](std::int64_t stride) { return stride == 0; })) return Level::kRun;
    return strides[3] == 0 && !code_.crosses_rows ? Level::kRow : Level::kElement;
  }

  Level LevelOf(const Node& node) const {
    switch (node.expr->op) {
      case ExprOp::kInput: return LevelOfInput(node.expr->number);
      case ExprOp::kIndex: return node.expr->number == kRegionDims - 1 ? Level::kElement : Level::kRow;
      case ExprOp::kRowSum:
      case ExprOp::kRowMax: return Level::kRow;
      default: break;
    }
    Level level = Level::kRun;
    for (int k = 0; k < node.expr->num_operands; ++k) level = std::max(level, nodes_[node.operands[k]].level);
    return level;
  }

  void FindLevels() {
    int last_phase = 0;
    for (Node& node : nodes_) {
      node.level = LevelOf(node);
      for (int k = 0; k < node.expr->num_operands; ++k)
        node.phase = std::max(node.phase, nodes_[node.operands[k]].phase);
      const bool on_elements = node.level == Level::kElement || IsReduction(node.expr->op);
      for (int k = 0; on_elements && k < node.expr->num_operands; ++k) {
        Node& operand = nodes_[node.operands[k]];
        operand.is_splat |= operand.level != Level::kElement;
      }
      if (IsReduction(node.expr->op)) ++node.phase;
      last_phase = std::max(last_phase, node.phase);
    }
    code_.phases.resize(static_cast<size_t>(last_phase) + 1);
    const std::int64_t run = code_.crosses_rows ? code_.NumRows() * code_.sizes[3] : code_.sizes[3];
    code_.width = std::clamp<std::int64_t>(run, 1, kRegionBlock);
    for (const Node& node : nodes_) max_bytes_ = std::max(max_bytes_, DTypeBytes(node.expr->dtype));
    is_one_block_ = code_.sizes[3] <= code_.width || code_.phases.size() == 1;
  }

  // Operand k of a node as a link of its chain: a float that nothing else uses.
  const Node* LinkOf(const Node& node, int k) const {
    const Node& operand = nodes_[node.operands[k]];
    const bool can = operand.level == Level::kElement && operand.uses == 1 && operand.chain_kernel == nullptr &&
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
  bool EndsChain(Node* node, int k) {
    const ChainStep after = StepOf(node->expr->op);
    const Node* link = after == ChainStep::kNone ? node : LinkOf(*node, k);
    if (link == nullptr) return false;
    RegionChain chain;
    if (after != ChainStep::kNone) {
      chain.after = after == ChainStep::kSubtract && k == 1 ? ChainStep::kSubtractFrom : after;
    }
    const Node* first = link;  // what `before` is computed of
    if (StepOf(link->expr->op) == ChainStep::kNone) {
      chain.f = link->expr->op;
      if (link->num_operands != 1) return false;
      const Node* sum = LinkOf(*link, 0);
      if (sum != nullptr && StepOf(sum->expr->op) == ChainStep::kAdd) first = sum;
    }
    if (StepOf(first->expr->op) != ChainStep::kNone && first != node) chain.before = StepOf(first->expr->op);
    const RegionKernel kernel = ChainKernelOf(chain, node->expr->dtype);
    if (kernel == nullptr) return false;
    const int a = first->operands[0];
    const int b = chain.before == ChainStep::kNone ? a : first->operands[1];
    const int c = after == ChainStep::kNone ? a : node->operands[1 - k];
    for (const Node* absorbed : {link, first}) {
      if (absorbed != node) nodes_[absorbed - nodes_.data()].is_absorbed = true;
    }
    node->operands[0] = a;
    node->operands[1] = b;
    node->operands[2] = c;
    node->num_operands = 3;
    node->chain = chain;
    node->chain_kernel = kernel;
    return true;
  }

  // Functions go before sums and products, whose chains save less.
  void MakeChains() {
    for (Node& node : nodes_) {
      if (node.level != Level::kElement || StepOf(node.expr->op) == ChainStep::kNone) continue;
      for (int k = 0; k < 2; ++k) {
        const ExprOp op = nodes_[node.operands[k]].expr->op;
        if ((op == ExprOp::kTanh || op == ExprOp::kSigmoid) && EndsChain(&node, k)) break;
      }
    }
    for (Node& node : nodes_) {
      const bool is_function = node.expr->op == ExprOp::kTanh || node.expr->op == ExprOp::kSigmoid;
      if (is_function && node.level == Level::kElement && !node.is_absorbed) EndsChain(&node, 0);
    }
    for (Node& node : nodes_) {
      const bool is_step = node.level == Level::kElement && StepOf(node.expr->op) != ChainStep::kNone;
      if (!is_step || node.is_absorbed || node.chain_kernel != nullptr) continue;
      if (!EndsChain(&node, 0)) EndsChain(&node, 1);
    }
  }

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
      node.is_splat |= node.level != Level::kElement;
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
      if (node.expr->op == ExprOp::kInput && node.level == Level::kElement) is_read[node.expr->number] = true;
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
      if (node.level != Level::kElement) {
        node.slot = NewBuffer(node.is_splat ? bytes * code_.width : bytes);
        if (IsReduction(node.expr->op)) node.partials = NewBuffer(bytes * kRowPartials);
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
      if (node.level == Level::kElement) continue;
      std::vector<RegionInstruction>& code = node.level == Level::kRun ? code_.setup : code_.phases[node.phase].row;
      switch (node.expr->op) {
        case ExprOp::kConstant: code_.constants.push_back({.slot = node.slot, .bits = node.expr->bits}); break;
        case ExprOp::kInput:
          (node.level == Level::kRun ? code_.run_loads : code_.row_loads)
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

  bool IsStep(int node) const {
    const bool is_computed = nodes_[node].level == Level::kElement && nodes_[node].expr->op != ExprOp::kInput;
    return (is_computed && !nodes_[node].is_absorbed) || IsReduction(nodes_[node].expr->op);
  }
  // The phase in which an element instruction belongs: a reduction runs before what uses it.
  int PhaseOf(int node) const { return nodes_[node].phase - (IsReduction(nodes_[node].expr->op) ? 1 : 0); }

  // What the blocks of a phase compute where rows are longer than a block: all that the phase needs.
  std::vector<Step> StepsOfPhase(int phase) const {
    std::vector<bool> is_needed(nodes_.size());
    for (int i = 0; i < static_cast<int>(nodes_.size()); ++i) {
      const bool ends = IsReduction(nodes_[i].expr->op) || nodes_[i].requirement >= 0;
      if (ends && IsStep(i) && PhaseOf(i) == phase) is_needed[i] = true;
    }
    for (const Store& store : stores_) {
      if (store.phase == phase) is_needed[store.node] = true;
    }
    std::vector<Step> steps;
    for (int i = static_cast<int>(nodes_.size()) - 1; i >= 0; --i) {
      if (!is_needed[i] || !IsStep(i)) continue;
      // A reduction of a phase before is done, and what it needed is not needed any more.
      if (IsReduction(nodes_[i].expr->op) && PhaseOf(i) != phase) continue;
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
      if (IsStep(i)) steps.push_back({.node = i, .phase = PhaseOf(i)});
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
      if (!is_read[i] || node.expr->op != ExprOp::kInput || node.slot < num_memory_ || node.level != Level::kElement) {
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
    if (IsReduction(node.expr->op)) {
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
      parts = columns == 0 ? 1 : rows * ((columns + code_.width - 1) / code_.width);
    }
    code_.max_parts = static_cast<int>(std::clamp<std::int64_t>(parts, 1, INT_MAX));
  }

  void LayOut() {
    const auto aligned = [](size_t size) {
      return static_cast<std::int64_t>((size + kAlignment - 1) / kAlignment * kAlignment);
    };
    code_.rows_at = aligned((code_.memory_operands.size() + code_.buffer_offsets.size()) * sizeof(void*));
    code_.buffers_at = code_.rows_at + aligned(code_.operands.size() * sizeof(void*));
    code_.run_bytes = code_.buffers_at + code_.buffer_bytes;
  }

  const Region& region_;
  const std::vector<Expr> roots_;
  RegionCode code_;
  std::vector<Node> nodes_;
  std::vector<int> output_nodes_;
  std::vector<Store> stores_;
  std::vector<int> memory_slot_;  // of each operand, or -1
  int num_memory_ = 0;
  std::vector<int> pool_;  // buffers of element instructions
  std::vector<int> free_;  // those that hold nothing
  std::int64_t max_bytes_ = 1;
  bool keeps_rows_ = false;
  bool has_index_ = false;
  bool is_one_block_ = true;  // a row is one, or has one phase
};

}  // namespace

RegionCode CompileRegion(const Region& region) {
  CheckRegion(region);
  return Compiler(region).Take();
}

}  // namespace stepnet
