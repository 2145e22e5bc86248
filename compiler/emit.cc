#include "stepnet/compiler/emit.h"

#include <algorithm>
#include <utility>

#include "stepnet/compiler/batch_rows.h"
#include "stepnet/compiler/instruction_rows.h"
#include "stepnet/compiler/joined_regions.h"
#include "stepnet/compiler/linearity.h"
#include "stepnet/compiler/region_node_kernel.h"
#include "stepnet/compiler/region_nodes.h"
#include "stepnet/compiler/unit_parts.h"
#include "stepnet/core/cancellation.h"
#include "stepnet/core/formulas/formula_cache.h"
#include "stepnet/core/formulas/formula_sample.h"
#include "stepnet/core/move.h"
#include "stepnet/core/operator_text.h"
#include "stepnet/nets/net_operator.h"
#include "stepnet/nets/side_effects.h"

namespace stepnet {
namespace {

// Parts of what goes through elements, large enough to be worth a thread.
int PartsOf(std::int64_t bytes, const Target& target) {
  return static_cast<int>(std::clamp<std::int64_t>(bytes / target.min_part_bytes, 1, target.max_parts));
}

// Element i of all outputs follows from element i of the inputs.
bool IsByElements(const Instruction& instruction) {
  if (instruction.inputs.empty() || instruction.outputs.empty()) return false;
  const Shape& shape = instruction.outputs.front().info.shape;
  const auto is_alike = [&](const InstructionOperand& operand) { return operand.info.shape == shape; };
  return std::ranges::all_of(instruction.inputs, is_alike) && std::ranges::all_of(instruction.outputs, is_alike);
}

bool IsOneRow(const Instruction& instruction) {
  return std::ranges::all_of(instruction.outputs, [](const InstructionOperand& output) {
    const Shape& shape = output.info.shape;
    return shape.rank() > 0 && shape.size() == shape[-1];
  });
}

class Emitter {
 public:
  Emitter(const StepGraph& graph, const EmitOptions& options)
      : graph_(graph), target_(*graph.target), is_draft_(options.is_draft) {
    plan_.name = graph.name;
    plan_.backward = graph.backward;
    plan_.target = graph.target;
    PlaceHomes(graph, options.ring_rows, options.blocks, /*all_kept=*/is_draft_, &plan_);
  }

  StepPlan Run() {
    plan_.stages = graph_.stages;
    for (const Stage& stage : plan_.stages) {
      if (stage.steps_at_once > 1) plan_.chunk_steps = stage.steps_at_once;
    }
    if (plan_.stages.empty()) plan_.stages = {{.begin = 0, .end = static_cast<int>(graph_.nodes.size())}};
    plan_.instructions.reserve(graph_.nodes.size());
    for (const Stage& stage : plan_.stages) {
      for (int n = stage.begin; n < stage.end; ++n) {
        CheckCancelled();
        AddInstruction(Emit(graph_.nodes[n], stage));
      }
    }
    for (const auto& [blob, value] : graph_.last) {
      if (graph_.homes[graph_.values[value].home].kind == Home::Kind::kLocal) continue;
      plan_.finals[blob] = {.slot = graph_.values[value].home, .info = graph_.values[value].info};
    }
    for (size_t v = 0; v < graph_.values.size(); ++v) {
      const int home = graph_.values[v].home;
      if (graph_.homes[home].kind == Home::Kind::kOnce) plan_.once.emplace(graph_.NameOf(static_cast<int>(v)), home);
    }
    const int num_once = graph_.NumOnceNodes();
    const auto is_once = [&](const Stage& stage) { return stage.end <= num_once; };
    plan_.num_once_stages = static_cast<int>(std::ranges::count_if(plan_.stages, is_once));
    plan_.does_nothing = DoesNothing();
    plan_.is_copied.assign(plan_.num_bases, false);
    for (const RowMove& move : graph_.before) {
      plan_.before.push_back(EmitRows(move));
      if (move.kind == RowMove::Kind::kLend) plan_.is_copied[move.to.base] = true;
    }
    for (const RowMove& move : graph_.after) {
      plan_.after.push_back(EmitRows(move));
      plan_.gives |= move.kind == RowMove::Kind::kGive;
    }
    return std::move(plan_);
  }

 private:
  Instruction Emit(const StepNode& node, const Stage& stage) {
    Instruction instruction{.op_index = node.RunsOperators() ? node.op_index : -1, .net = node.net};
    instruction.inputs.reserve(node.inputs.size());
    instruction.outputs.reserve(node.outputs.size());
    for (size_t i = 0; i < node.inputs.size(); ++i) instruction.inputs.push_back(OperandOf(node.inputs[i], i));
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      if (node.outputs[o] == kNoValue) continue;
      instruction.outputs.push_back(OperandOf(node.outputs[o], o));
      instruction.outputs.back().added = graph_.values[node.outputs[o]].added;
    }
    instruction.num_outputs = static_cast<int>(node.outputs.size());
    instruction.steps_at_once = stage.steps_at_once;
    const bool runs_once = stage.is_behind || graph_.GivesOnce(node);
    switch (node.kind) {
      case StepNode::Kind::kCall:
      case StepNode::Kind::kProduct: EmitCall(node, runs_once, &instruction); break;
      case StepNode::Kind::kRegion:
        node.IsOneOperator() ? EmitCall(node, runs_once, &instruction) : EmitRegion(node, runs_once, &instruction);
        break;
      case StepNode::Kind::kMove: EmitMove(runs_once, &instruction); break;
      case StepNode::Kind::kPack: EmitPack(node, &instruction); break;
    }
    return instruction;
  }

  InstructionOperand OperandOf(int value, size_t position) const {
    const StepValue& v = graph_.values[value];
    return {.slot = v.home, .info = v.info, .position = static_cast<int>(position)};
  }

  const std::string& BlobOf(const InstructionOperand& operand) const { return plan_.slots[operand.slot].blob; }

  // Notes whether each step has memory of its own for operand `number`, and much of it.
  void NoteMoving(const InstructionOperand& operand, int number, RegionNodeKernelSpec* spec) const {
    const Slot& slot = plan_.slots[operand.slot];
    const bool is_moving =
        !operand.shape_alone && slot.ring_rows == 0 && slot.row_bytes >= target_.regions.min_moving_bytes;
    if (!is_moving || number >= 64) return;
    spec->moving |= std::uint64_t{1} << number;
    spec->moving_bytes += slot.row_bytes;
  }

  bool IsDynamic(const InstructionOperand& operand) const {
    return plan_.slots[operand.slot].storage_class == StorageClass::kDynamic;
  }

  void EmitCall(const StepNode& node, bool runs_once, Instruction* instruction) {
    const OperatorCall& call = *node.call;
    const OperatorSchema& schema = call.schema();
    instruction->call = node.call;
    instruction->text = TextOf(node, *instruction);
    instruction->type = call.type();
    instruction->has_side_effects = HasSideEffects(call);
    const Kernel& kernel = KernelOf(call, node.op_index);
    instruction->checks_values =
        node.by_blobs ? kernel.checks_values || MayDivideByZero(call)
                      : MayFindBadValues(ShapeQuery(call, InfosOf(*instruction, instruction->inputs)), kernel);
    for (InstructionOperand& input : instruction->inputs)
      input.shape_alone = !node.by_blobs && call.schema().ReadsShapeAlone(input.position);
    if (!is_draft_) {
      try {
        instruction->kernel = kernel.make(call);
      } catch (...) {
        throw CurrentError().At({.net = graph_.name, .op_index = node.op_index, .op_text = call.Text()});
      }
    }
    instruction->by_blobs = node.by_blobs;
    if (node.by_blobs) return;
    instruction->only_copies = node.kind == StepNode::Kind::kRegion && !schema.formula;
    const bool may_be_cut = schema.formula || !kernel.max_parts;
    instruction->by_elements = may_be_cut && IsByElements(*instruction) &&
                               IsElementwise(ShapeQuery(call, InfosOf(*instruction, instruction->inputs)));
    if (instruction->by_elements) MarkRowsOfElements(plan_, instruction);
    // What runs once has no row for each step.
    if (schema.rows && !runs_once) MarkRows(plan_, call, instruction);
    instruction->can_pack = kernel.packing.has_value();
    if (node.packed != kNoValue) instruction->packed = OperandOf(node.packed, 0);
    if (is_draft_) return;
    EstimateWork(call, kernel, instruction);
    if (node.kind == StepNode::Kind::kProduct) MarkBatchOfProduct(node, instruction);
    if (node.kind == StepNode::Kind::kCall) MarkBatchOfRows(instruction);
    if (node.kind == StepNode::Kind::kRegion) {
      const std::vector<TensorInfo> inputs = InfosOf(*instruction, instruction->inputs);
      const auto parts = FindParts(ShapeQuery(call, inputs));
      MarkBatchOfRegion(parts->parts, instruction);
      if (schema.formula && parts->parts.size() == 1) MarkUnitsOfRegion(parts->parts.front(), instruction);
    }
    instruction->can_part_units = kernel.can_part_units && (instruction->packed || IsOneRow(*instruction));
    for (InstructionOperand& output : instruction->outputs)
      output.has_units = output.has_units || instruction->can_part_units;
  }

  void EmitRegion(const StepNode& node, bool runs_once, Instruction* instruction) {
    RegionNodeKernelSpec spec = SpecOf(graph_, node);
    std::vector<std::string> types;
    std::vector<TensorInfo> operands = spec.inputs;
    for (const std::span<const int> values : {std::span(node.outputs), node.locals()}) {
      for (const int value : values) operands.push_back(graph_.values[value].info);
    }
    for (InstructionOperand& input : instruction->inputs) input.shape_alone = true;
    for (const RegionCall& call : node.calls()) {
      for (size_t i = 0; i < call.inputs.size(); ++i) {
        const bool is_input = call.inputs[i] < static_cast<int>(instruction->inputs.size());
        if (is_input && !call.call->schema().ReadsShapeAlone(static_cast<int>(i))) {
          instruction->inputs[call.inputs[i]].shape_alone = false;
        }
      }
      types.push_back(call.call->type());
      instruction->has_side_effects = instruction->has_side_effects || HasSideEffects(*call.call);
      const Kernel& kernel = KernelOf(*call.call, call.op_index);
      std::vector<TensorInfo> infos;
      for (const int input : call.inputs) infos.push_back(operands[input]);
      instruction->checks_values |= MayFindBadValues(ShapeQuery(*call.call, infos), kernel);
    }
    const auto first_output = spec.names.begin() + static_cast<std::ptrdiff_t>(node.inputs.size());
    const auto first_local = first_output + static_cast<std::ptrdiff_t>(node.outputs.size());
    instruction->text = StrCat(Join(std::vector(first_output, first_local), ", "), " = Region(",
                               Join(std::vector(spec.names.begin(), first_output), ", "), ") of ", Join(types, ", "));
    instruction->type = "Region";
    instruction->names_operators = true;
    if (!node.body->begins.empty()) return EmitJoined(node, instruction);
    if (!runs_once) MarkRowsOfRegion(plan_, node.calls(), operands, instruction);
    if (!runs_once && instruction->steps_at_once != 1 && !instruction->can_take_steps) {
      throw Error(ErrorCode::kInternal, StrCat(instruction->text, " cannot run for several steps at once"))
          .At({.net = graph_.name});
    }
    if (is_draft_) return;
    for (const std::vector<InstructionOperand>* of : {&instruction->inputs, &instruction->outputs}) {
      const int first = of == &instruction->outputs ? spec.num_inputs : 0;
      for (const InstructionOperand& operand : *of) NoteMoving(operand, first + operand.position, &spec);
    }
    const auto kernel = std::make_shared<const RegionNodeKernel>(std::move(spec), target_.device);
    instruction->kernel = [kernel](const OpRun& run) { kernel->Run(run); };
    const std::vector<TensorInfo> inputs = InfosOf(*instruction, instruction->inputs);
    if (!kernel->Obstacle(inputs).empty()) instruction->text += ", one by one";
    instruction->max_parts = kernel->MaxParts(inputs);
    if (const auto composed = kernel->Composed(inputs)) {
      const RegionPart part{composed->region(), composed->inputs(), composed->outputs()};
      MarkBatchOfRegion({&part, 1}, instruction);
      MarkUnitsOfRegion(part, instruction);
    }
    instruction->cost = OfOneStep(kernel->EstimatedCost(inputs), *instruction);
  }

  void EmitJoined(const StepNode& node, Instruction* instruction) const {
    if (is_draft_) return;
    const auto joined = JoinedRegions::Of(graph_, RegionsOf(graph_, node));
    if (!joined) {
      throw Error(ErrorCode::kInternal, StrCat(instruction->text, " cannot run as one kernel"))
          .At({.net = graph_.name});
    }
    instruction->kernel = joined->MakeRun(node);
    for (const RegionCall& call : node.calls()) {
      std::vector<int> inputs, outputs;
      for (const int input : call.inputs) inputs.push_back(node.ValueOf(input));
      for (const int output : call.outputs) outputs.push_back(node.ValueOf(output));
      instruction->cost.flops += EstimateCost(*call.call, graph_.InfosOf(inputs), graph_.InfosOf(outputs)).flops;
    }
    for (const std::vector<InstructionOperand>* of : {&instruction->inputs, &instruction->outputs}) {
      for (const InstructionOperand& operand : *of)
        instruction->cost.bytes += static_cast<double>(operand.info.size_bytes());
    }
  }

  const Kernel& KernelOf(const OperatorCall& call, int op_index) const {
    if (const Kernel* kernel = call.schema().FindKernel(target_.device)) return *kernel;
    throw Error(ErrorCode::kInvalidNet, StrCat(call.type(), " has no kernel for ", DeviceKindName(target_.device)))
        .At({.net = graph_.name, .op_index = op_index, .op_text = call.Text()});
  }

  // "y = FC(x, w, b)", with the outputs that it gives.
  static std::string TextOf(const StepNode& node, const Instruction& instruction) {
    const OperatorCall& call = *node.call;
    if (static_cast<int>(instruction.outputs.size()) == instruction.num_outputs) return call.Text();
    std::vector<std::string> outputs;
    for (const InstructionOperand& output : instruction.outputs) outputs.push_back(call.outputs()[output.position]);
    return OperatorText(call.type(), call.inputs(), outputs);
  }

  void EstimateWork(const OperatorCall& call, const Kernel& kernel, Instruction* instruction) const {
    const std::vector<TensorInfo> inputs = InfosOf(*instruction, instruction->inputs);
    const std::vector<TensorInfo> outputs = InfosOf(*instruction, instruction->outputs);
    instruction->cost = OfOneStep(EstimateCost(call, inputs, outputs), *instruction);
    const PartsRule& parts = instruction->packed ? kernel.packing->max_parts : kernel.max_parts;
    if (parts) {
      // A formula compares the shapes of all outputs with its own; those that are left out have none here.
      const ShapeQuery query(call, inputs);
      const bool asks_rule = call.schema().formula && instruction->outputs.size() < instruction->num_outputs;
      instruction->max_parts = parts(query, asks_rule ? call.schema().shapes(query) : outputs);
    }
    if (instruction->by_elements) instruction->max_parts = PartsOf(outputs.front().size_bytes(), target_);
  }

  static Cost OfOneStep(Cost cost, const Instruction& instruction) {
    const std::int64_t steps = TypicalStepsOf(instruction.steps_at_once);
    cost.flops /= static_cast<double>(steps);
    cost.bytes /= static_cast<double>(steps);
    return cost;
  }

  void EmitMove(bool runs_once, Instruction* instruction) {
    const InstructionOperand& from = instruction->inputs[0];
    InstructionOperand& to = instruction->outputs[0];
    const bool adds = std::exchange(to.added, false);  // what the kernel does, whatever it is asked
    instruction->text = StrCat(BlobOf(to), adds ? " += " : " = ", BlobOf(from));
    instruction->type = adds ? "add" : "copy";
    instruction->kernel = adds ? AddInput : CopyInput;
    instruction->by_blobs = IsDynamic(from) || IsDynamic(to);
    const double times = adds ? 3 : 2;  // read, also where it is added to, and written
    instruction->cost = {.bytes = times * static_cast<double>(to.info.size_bytes())};
    if (runs_once) instruction->cost = OfOneStep(instruction->cost, *instruction);
    instruction->by_elements = !instruction->by_blobs;
    if (instruction->by_blobs) return;
    MarkRowsOfElements(plan_, instruction);
    MarkBatchOfElements(instruction);
    instruction->max_parts = PartsOf(to.info.size_bytes(), target_);
  }

  void EmitPack(const StepNode& node, Instruction* instruction) {
    const InstructionOperand& to = instruction->outputs[0];
    std::vector<std::string> names;
    std::int64_t bytes = 0;
    for (const InstructionOperand& from : instruction->inputs) {
      names.push_back(BlobOf(from));
      bytes += from.info.size_bytes();
    }
    instruction->text = StrCat(BlobOf(to), " = Pack(", Join(names, ", "), ")");
    instruction->type = "pack";
    if (!is_draft_) instruction->kernel = KernelOf(*node.call, node.op_index).packing->pack(*node.call);
    instruction->cost = {.bytes = static_cast<double>(bytes + to.info.size_bytes()) / kTypicalSteps};
    instruction->max_parts = PartsOf(bytes, target_);
  }

  // Parts must not write what others read: instructions that a link lets write into what they read run whole, unless
  // every element is where it was.
  void AddInstruction(Instruction instruction) {
    for (const InstructionOperand& output : instruction.outputs) {
      for (const InstructionOperand& input : instruction.inputs) {
        const Slot &to = plan_.slots[output.slot], &from = plan_.slots[input.slot];
        const bool in_place =
            input.slot == output.slot || (instruction.by_elements && to.BeginInBase() == from.BeginInBase());
        if (!in_place && ShareBytes(to, from)) instruction.max_parts = 1;
      }
    }
    plan_.instructions.push_back(std::move(instruction));
  }

  bool DoesNothing() const {
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Instruction& instruction = plan_.instructions[n];
      if (instruction.by_blobs || instruction.has_side_effects || instruction.checks_values) return false;
      for (size_t o = 0; o < graph_.nodes[n].outputs.size(); ++o) {
        if (Shows(graph_.nodes[n], o)) return false;
      }
    }
    return true;
  }

  // Whether an output changes an element of memory that others than the plan read.
  bool Shows(const StepNode& node, size_t output) const {
    if (node.outputs[output] == kNoValue) return false;
    const StepValue& value = graph_.values[node.outputs[output]];
    const Home& home = graph_.homes[value.home];
    const bool is_others = home.kind == Home::Kind::kOutside || home.kind == Home::Kind::kDynamic || home.kept;
    return value.info.shape.size() > 0 && is_others && !(value.added && IsOfNoElements(node, output));
  }

  // Whether an output is linear in an input without elements, as a product of no rows is, and so is 0.
  bool IsOfNoElements(const StepNode& node, size_t output) const {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (graph_.values[node.inputs[i]].info.shape.size() > 0) continue;
      std::vector<Linearity> inputs(node.inputs.size(), Linearity::kSame);
      inputs[i] = Linearity::kLinear;
      if (LinearityOf(graph_, node, inputs)[output] == Linearity::kLinear) return true;
    }
    return false;
  }

  // Nobody watches a draft.
  Instruction EmitRows(RowMove move) const {
    Instruction instruction{.text = is_draft_ ? "" : RowMoveText(move), .type = RowMoveName(move.kind)};
    if (const int sum = std::exchange(move.to.sum, -1); sum >= 0) move.to.base = plan_.slots[sum].base;
    instruction.rows = std::move(move);
    return instruction;
  }

  const StepGraph& graph_;
  const Target& target_;
  const bool is_draft_;
  StepPlan plan_;
};

}  // namespace

StepPlan EmitPlan(const StepGraph& graph, const EmitOptions& options) { return Emitter(graph, options).Run(); }

}  // namespace stepnet
