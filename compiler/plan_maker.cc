// MakeStepPlan: from a step net and what its blobs are bound to, through passes, to where each blob lives and what runs
// when.
#include <algorithm>
#include <set>

#include "stepnet/compiler/first_terms.h"
#include "stepnet/compiler/instruction_rows.h"
#include "stepnet/compiler/passes/passes.h"
#include "stepnet/compiler/schedule.h"
#include "stepnet/compiler/stages.h"
#include "stepnet/compiler/transfer_order.h"
#include "stepnet/core/accumulate.h"
#include "stepnet/core/cancellation.h"
#include "stepnet/nets/net_check.h"
#include "stepnet/nets/net_operator.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

// Parts of what goes through elements, large enough to be worth a thread.
int PartsOf(const TensorInfo& info, const Target& target) {
  constexpr std::int64_t kMax = 1024;
  return static_cast<int>(std::clamp<std::int64_t>(info.size_bytes() / target.min_part_bytes, 1, kMax));
}

RunFn CopyKernel() {
  return [](const OpRun& run) { CopyElements(run.In(0), run.Out(0)); };
}

RunFn AddKernel(const std::string& blob, const TensorInfo& info) {
  if (info.dtype == DType::kFloat || info.dtype == DType::kDouble) {
    return [](const OpRun& run) { Accumulate(run.In(0), run.Out(0)); };
  }
  throw Error(ErrorCode::kTypeMismatch,
              StrCat("gradients are summed in float and double; \"", blob, "\" is ", info.Description()));
}

class PlanMaker {
 public:
  explicit PlanMaker(const StepDraft& draft)
      : request_(draft.request),
        graph_(draft.graph),
        direct_sums_(draft.direct_sums),
        unneeded_(draft.unneeded),
        order_(OrderTransfers(draft)) {}

  StepPlan Make() {
    std::vector<StageDraft> stages;
    if (request_.options.opt_level > 0) {
      // Where every step has memory of its own, only what computes a value and what uses it wait for each other.
      is_draft_ = true;
      Build();
      stages = FindStages(plan_);
      if (JoinCutOperators(stages)) {
        Build();
        stages = FindStages(plan_);
      }
      is_draft_ = false;
      KeepBetween(stages);
    }
    Build();
    Arrange(stages);
    WriteFirstTerms(request_, &plan_);
    plan_.writes.assign(plan_.num_bases, false);
    for (const Instruction& instruction : plan_.instructions) {
      for (const Operand& output : instruction.outputs) {
        const Slot& slot = plan_.slots[output.slot];
        if (slot.storage_class != StorageClass::kDynamic) plan_.writes[slot.base] = true;
      }
    }
    plan_.does_nothing = std::ranges::all_of(plan_.instructions, [](const Instruction& instruction) {
      return !instruction.dynamic && !instruction.has_side_effects &&
             std::ranges::all_of(instruction.outputs, [](const Operand& out) { return out.info.shape.size() == 0; });
    });
    return std::move(plan_);
  }

 private:
  // The plan with its instructions in program order.
  void Build() {
    plan_ = {};
    packs_.clear();
    plan_.name = request_.net->name();
    plan_.backward = request_.backward;
    plan_.target = request_.target;
    plan_.num_bases = request_.num_bases;
    plan_.max_steps = request_.max_steps;
    plan_.dynamic_lists.assign(request_.num_dynamic_lists, true);
    slot_of_.clear();
    PlaceBlobs();
    written_bases_ = WrittenBases();
    AddTransfers(order_.before, kNoOperator);
    for (const StepNode& node : graph_.nodes) {
      CheckCancelled();
      AddTransfers(order_.before, node.op_index);
      AddOperator(node);
      AddTransfers(order_.after, node.op_index);
    }
    for (const auto& [blob, value] : graph_.last) {
      if (unneeded_.contains(value)) continue;
      plan_.finals[blob] = {.slot = slot_of_.at(blob), .info = graph_.values[value].info};
    }
  }

  // Operators in two instructions that came into one loop after all need not be.
  bool JoinCutOperators(const std::vector<StageDraft>& stages) {
    for (const StageDraft& stage : stages) {
      if (stage.steps_at_once != 1) continue;
      std::set<int> ops;
      for (const int i : stage.instructions) {
        const int op_index = plan_.instructions[i].op_index;
        if (op_index >= 0 && !ops.insert(op_index).second) uncut_operators_.insert(op_index);
      }
    }
    std::erase_if(cut_operators_, [this](int op_index) { return uncut_operators_.contains(op_index); });
    return !uncut_operators_.empty();
  }

  // Values that one stage gives to another are there for all steps at once.
  void KeepBetween(const std::vector<StageDraft>& stages) {
    steps_at_once_.assign(plan_.instructions.size(), 1);
    std::map<std::string, size_t> stage_of;
    for (size_t s = 0; s < stages.size(); ++s) {
      for (const int i : stages[s].instructions) {
        steps_at_once_[i] = stages[s].steps_at_once;
        const Instruction& instruction = plan_.instructions[i];
        for (const std::vector<Operand>* operands : {&instruction.inputs, &instruction.outputs}) {
          for (const Operand& operand : *operands) {
            const Slot& slot = plan_.slots[operand.slot];
            if (slot.storage_class != StorageClass::kStacked) continue;  // it has a place of its own
            const size_t first = stage_of.emplace(slot.blob, s).first->second;
            if (stages[s].steps_at_once != 1 || first != s) kept_between_.insert(slot.blob);
          }
        }
      }
    }
  }

  void Arrange(const std::vector<StageDraft>& stages) {
    if (stages.empty()) {
      plan_.stages = {{.begin = 0, .end = static_cast<int>(plan_.instructions.size())}};
      return;
    }
    std::vector<Instruction> arranged = std::move(packs_);
    if (!arranged.empty()) {
      plan_.stages.push_back({.begin = 0,
                              .end = static_cast<int>(arranged.size()),
                              .steps_at_once = kAllSteps,
                              .min_steps = request_.target->min_steps_to_pack});
    }
    for (const StageDraft& stage : stages) {
      const auto begin = static_cast<int>(arranged.size());
      for (const int i : stage.instructions) arranged.push_back(std::move(plan_.instructions[i]));
      const auto end = static_cast<int>(arranged.size());
      plan_.stages.push_back({.begin = begin, .end = end, .steps_at_once = stage.steps_at_once});
      if (stage.steps_at_once > 1) plan_.chunk_steps = stage.steps_at_once;
    }
    plan_.instructions = std::move(arranged);
  }

  // One slot for each blob, large enough for every value that it takes: a later value overwrites an earlier one, as the
  // net says.
  void PlaceBlobs() {
    std::map<std::string, const BoundBlob*> bound;
    for (const BoundBlob& blob : request_.bound) bound[blob.slot.blob] = &blob;
    std::map<std::string, std::int64_t> bytes;
    std::map<std::string, bool> dynamic;
    std::map<std::string, std::vector<int>> values_of;
    for (size_t v = 0; v < graph_.values.size(); ++v) {
      const StepValue& value = graph_.values[v];
      if (unneeded_.contains(static_cast<int>(v))) continue;
      std::int64_t& most = bytes[value.blob];
      most = std::max(most, value.info.size_bytes());
      // Arenas are bytes, in which no string can live.
      dynamic[value.blob] = dynamic[value.blob] || value.dynamic || value.info.dtype == DType::kString;
      values_of[value.blob].push_back(static_cast<int>(v));
    }
    for (const auto& [blob, most] : bytes) {
      if (const auto found = bound.find(blob); found != bound.end()) {
        CheckFits(*found->second, values_of[blob]);
        AddSlot(found->second->slot);
      } else if (const auto sum = direct_sums_.find(blob); sum != direct_sums_.end()) {
        slot_of_[blob] = AddOutside(request_.transfers[sum->second].outside);
      } else if (const auto list = request_.bound_dynamic.find(blob); list != request_.bound_dynamic.end()) {
        AddSlot({.blob = blob, .storage_class = StorageClass::kDynamic, .base = list->second});
      } else if (dynamic[blob]) {
        AddDynamicSlot(blob);
      } else {
        AddArenaSlot(blob, most);
      }
    }
  }

  // The value that a step leaves in a linked blob must have the link's shape, and values on the way there its size:
  // memory outside does not move. `values` are the blob's.
  void CheckFits(const BoundBlob& bound, const std::vector<int>& values) const {
    for (const int v : values) {
      const StepValue& value = graph_.values[v];
      if (value.dynamic || value.producer < 0) continue;
      const bool is_last = graph_.last.at(value.blob) == v;
      const bool fits = value.info.dtype == bound.info.dtype && value.info.shape.size() == bound.info.shape.size() &&
                        (!is_last || EqualButForOnes(value.info.shape, bound.info.shape));
      if (fits) continue;
      const StepNode& node = graph_.nodes[value.producer];
      throw Error(ErrorCode::kShapeMismatch,
                  StrCat("\"", value.blob, "\" is linked to memory for ", bound.info.Description(), " a step, and ",
                         node.init.type(), " gives ", value.info.Description()))
          .At({.net = graph_.name, .op_index = node.op_index, .op_text = node.init.Text()});
    }
  }

  int AddSlot(Slot slot) {
    const int index = static_cast<int>(plan_.slots.size());
    if (!slot.blob.empty()) slot_of_.emplace(slot.blob, index);
    plan_.slots.push_back(std::move(slot));
    return index;
  }

  void AddDynamicSlot(const std::string& blob) {
    const bool kept = request_.keep && request_.keep(blob);
    AddSlot({.blob = blob,
             .storage_class = StorageClass::kDynamic,
             .base = static_cast<int>(plan_.dynamic_lists.size()),
             .row_bytes = kept ? 1 : 0});
    plan_.dynamic_lists.push_back(kept);
  }

  void AddArenaSlot(const std::string& blob, std::int64_t bytes) {
    const bool stacked = is_draft_ || kept_between_.contains(blob) || (request_.keep && request_.keep(blob));
    const int base = plan_.num_bases++;
    const bool turns = !stacked && request_.ring_rows > 1;  // otherwise every step uses the one row
    const std::int64_t row_bytes = turns ? StepPlan::AlignedBytes(bytes) : bytes;
    plan_.arena.push_back({.base = base, .row_bytes = row_bytes, .rows = stacked ? 0 : request_.ring_rows});
    AddSlot({.blob = blob,
             .storage_class = stacked ? StorageClass::kStacked : StorageClass::kRing,
             .base = base,
             .row_bytes = stacked || turns ? row_bytes : 0,
             .ring_rows = turns ? request_.ring_rows : 0,
             .bytes = bytes});
  }

  // A slot that shows the name outside, which may be the name of another blob of the step.
  int AddOutside(Slot slot) {
    const std::string name = std::exchange(slot.blob, "");
    const int index = AddSlot(std::move(slot));
    plan_.slots[index].blob = name;
    return index;
  }

  Operand OperandOf(int value, size_t position) const {
    const StepValue& v = graph_.values[value];
    return {.slot = slot_of_.at(v.blob),
            .info = v.info,
            .position = static_cast<int>(position),
            .adds = direct_sums_.contains(v.blob)};
  }

  void AddOperator(const StepNode& node) {
    Instruction instruction{.text = node.init.Text(), .type = node.init.type(), .op_index = node.op_index};
    const Kernel* kernel = node.init.schema().FindKernel(request_.target->device);
    try {
      if (kernel == nullptr)
        throw Error(ErrorCode::kInvalidNet,
                    StrCat(node.init.type(), " has no kernel for ", DeviceName(request_.target->device)));
      instruction.kernel = kernel->make(node.init);
    } catch (...) {
      throw CurrentError().At({.net = graph_.name, .op_index = node.op_index, .op_text = node.init.Text()});
    }
    for (size_t i = 0; i < node.inputs.size(); ++i) instruction.inputs.push_back(OperandOf(node.inputs[i], i));
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      if (!unneeded_.contains(node.outputs[o])) instruction.outputs.push_back(OperandOf(node.outputs[o], o));
    }
    instruction.num_outputs = static_cast<int>(node.outputs.size());
    CopyOverwrittenInputs(node, &instruction);
    instruction.has_side_effects = node.init.schema().has_side_effects;
    const auto is_dynamic = [&](const Operand& operand) {
      return plan_.slots[operand.slot].storage_class == StorageClass::kDynamic;
    };
    instruction.dynamic = node.dynamic || std::ranges::any_of(instruction.inputs, is_dynamic) ||
                          std::ranges::any_of(instruction.outputs, is_dynamic);
    if (instruction.dynamic) {
      instruction.node = node;
      AddInstruction(std::move(instruction));
      return;
    }
    const OperatorSchema& schema = node.init.schema();
    instruction.by_elements = schema.elementwise && !kernel->max_parts && IsByElements(instruction);
    if (instruction.by_elements) MarkRowsOfElements(plan_, &instruction);
    if (schema.rows) MarkRows(plan_, node.init, &instruction);
    if (is_draft_ && HasSumsAndRows(instruction) && !uncut_operators_.contains(node.op_index))
      cut_operators_.insert(node.op_index);
    if (cut_operators_.contains(node.op_index)) {
      const auto is_sum = [](const Operand& output) { return !output.contiguous_rows; };
      Instruction sums = instruction;
      std::erase_if(sums.outputs, std::not_fn(is_sum));
      FinishOperator(node, std::move(sums));
      std::erase_if(instruction.outputs, is_sum);
    }
    FinishOperator(node, std::move(instruction));
  }

  // Kernels read and write in any order. Where links show the rows of an input and of an output that overlap, and the
  // operator may not work in place there, it reads a copy of the input.
  void CopyOverwrittenInputs(const StepNode& node, Instruction* instruction) {
    const auto overwrites = [&](const Operand& output, const Operand& input) {
      const Slot &to = plan_.slots[output.slot], &from = plan_.slots[input.slot];
      if (output.slot == input.slot || !ShareBytes(to, from)) return false;  // one blob: checked with the net
      const bool is_same = to.BeginInBase() == from.BeginInBase() && to.row_bytes == from.row_bytes;
      return !is_same || to.bytes != from.bytes || !node.init.schema().AllowsInPlace(input.position, output.position);
    };
    for (Operand& input : instruction->inputs) {
      const auto is_overwritten = [&](const Operand& output) { return overwrites(output, input); };
      if (std::ranges::none_of(instruction->outputs, is_overwritten)) continue;
      const std::string blob = plan_.slots[input.slot].blob;
      const std::string name = StrCat(blob, " for op ", node.op_index);
      if (graph_.values[node.inputs[input.position]].dynamic || input.info.dtype == DType::kString) {
        AddDynamicSlot(name);
      } else {
        AddArenaSlot(name, input.info.size_bytes());
      }
      Operand copy = input;
      copy.slot = static_cast<int>(plan_.slots.size()) - 1;
      AddInstruction(CopyInstruction(StrCat(plan_.slots[copy.slot].blob, " = ", blob), input, copy));
      input.slot = copy.slot;
    }
  }

  Instruction CopyInstruction(std::string text, Operand from, Operand to) const {
    from.position = to.position = 0;
    to.adds = false;
    const bool dynamic = plan_.slots[to.slot].storage_class == StorageClass::kDynamic;
    Instruction instruction{.text = std::move(text),
                            .type = "copy",
                            .kernel = CopyKernel(),
                            .inputs = {from},
                            .outputs = {to},
                            .num_outputs = 1,
                            .dynamic = dynamic,
                            .cost = {.bytes = 3.0 * static_cast<double>(from.info.size_bytes())},
                            .by_elements = !dynamic,
                            .node = {}};
    if (dynamic) return instruction;
    MarkRowsOfElements(plan_, &instruction);
    instruction.steps_at_once = StepsAtOnce();
    instruction.max_parts = PartsOf(to.info, *request_.target);
    return instruction;
  }

  void FinishOperator(const StepNode& node, Instruction instruction) {
    if (static_cast<int>(instruction.outputs.size()) < instruction.num_outputs) {
      std::vector<std::string> outputs;
      for (const Operand& output : instruction.outputs) outputs.push_back(node.init.outputs()[output.position]);
      instruction.text = Join(outputs, ", ") + instruction.text.substr(instruction.text.find(" = "));
    }
    instruction.steps_at_once = StepsAtOnce();
    const std::vector<TensorInfo> inputs = InfosOf(instruction, instruction.inputs);
    const std::vector<TensorInfo> outputs = InfosOf(instruction, instruction.outputs);
    instruction.cost = EstimateCost(node.init, inputs, outputs);
    const PartsRule& max_parts = node.init.schema().FindKernel(request_.target->device)->max_parts;
    if (max_parts) instruction.max_parts = max_parts(ShapeQuery(node.init, inputs), outputs);
    if (instruction.by_elements) instruction.max_parts = PartsOf(outputs.front(), *request_.target);
    const std::int64_t steps = instruction.steps_at_once == kAllSteps ? kTypicalSteps : instruction.steps_at_once;
    instruction.cost.flops /= static_cast<double>(steps);
    instruction.cost.bytes /= static_cast<double>(steps);
    if (request_.options.opt_level > 0 && !is_draft_) Pack(node, &instruction);
    AddInstruction(std::move(instruction));
  }

  // Adds an instruction that packs an input of this one before the first step.
  void Pack(const StepNode& node, Instruction* instruction) {
    // What runs for many steps at once reads weights once for all of them: in the shortest run that packs four times.
    const std::int64_t max_steps_at_once = request_.target->min_steps_to_pack / 4;
    const std::optional<Packing>& packing = node.init.schema().FindKernel(request_.target->device)->packing;
    if (!packing || instruction->steps_at_once == kAllSteps || instruction->steps_at_once > max_steps_at_once) return;
    const Operand& input = instruction->inputs[packing->input];
    const Slot& from = plan_.slots[input.slot];
    if (from.storage_class != StorageClass::kShared || written_bases_.contains(from.base)) return;
    const std::int64_t bytes = packing->bytes(ShapeQuery(node.init, InfosOf(*instruction, instruction->inputs)));
    if (bytes == 0) return;
    const int base = plan_.num_bases++;
    plan_.arena.push_back({.base = base, .row_bytes = bytes});
    const std::string blob = from.blob + " packed";
    const int slot = AddOutside({.blob = blob, .storage_class = StorageClass::kShared, .base = base, .bytes = bytes});
    const Operand packed{.slot = slot, .info = {.dtype = DType::kUInt8, .shape = Shape({bytes})}};
    instruction->packed = packed;
    packs_.push_back({.text = StrCat(blob, " = Pack(", plan_.slots[input.slot].blob, ")"),
                      .type = "pack",
                      .op_index = -1,
                      .kernel = packing->pack(node.init),
                      .inputs = {input},
                      .outputs = {packed},
                      .num_outputs = 1,
                      .steps_at_once = kAllSteps,
                      .cost = {.bytes = 2.0 * static_cast<double>(bytes) / kTypicalSteps},
                      .max_parts = PartsOf(input.info, *request_.target),
                      .node = {}});
    packs_.back().inputs[0].position = 0;
  }

  // Those to some of whose memory an instruction or the step writes.
  std::set<int> WrittenBases() const {
    std::set<int> bases;
    for (const Transfer& transfer : request_.transfers) {
      if (!GoesIn(transfer)) bases.insert(transfer.outside.base);
    }
    for (const StepValue& value : graph_.values) {
      const auto slot = slot_of_.find(value.blob);  // outputs that nobody needs have none
      if (value.version > 0 && slot != slot_of_.end()) bases.insert(plan_.slots[slot->second].base);
    }
    return bases;
  }

  // What the next instruction runs for.
  std::int64_t StepsAtOnce() const {
    const size_t next = plan_.instructions.size();
    return next < steps_at_once_.size() ? steps_at_once_[next] : 1;
  }

  // Parts must not write what others read: instructions that a link lets write into what they read run whole, unless
  // every element is where it was.
  void AddInstruction(Instruction instruction) {
    for (const Operand& output : instruction.outputs) {
      for (const Operand& input : instruction.inputs) {
        const Slot &to = plan_.slots[output.slot], &from = plan_.slots[input.slot];
        const bool in_place =
            input.slot == output.slot || (instruction.by_elements && to.BeginInBase() == from.BeginInBase());
        if (!in_place && ShareBytes(to, from)) instruction.max_parts = 1;
      }
    }
    plan_.instructions.push_back(std::move(instruction));
  }

  // Element i of all outputs follows from element i of the inputs.
  static bool IsByElements(const Instruction& instruction) {
    if (instruction.inputs.empty()) return false;
    const Shape& shape = instruction.outputs.front().info.shape;
    const auto is_alike = [&](const Operand& operand) { return operand.info.shape == shape; };
    return std::ranges::all_of(instruction.inputs, is_alike) && std::ranges::all_of(instruction.outputs, is_alike);
  }

  void AddTransfers(const TransfersByOperator& transfers, int op_index) {
    const auto found = transfers.find(op_index);
    if (found == transfers.end()) return;
    for (const Transfer* transfer : found->second) AddTransfer(*transfer);
  }

  void AddTransfer(const Transfer& transfer) {
    if (direct_sums_.contains(transfer.blob)) return;
    const auto found = slot_of_.find(transfer.blob);
    if (found == slot_of_.end()) {
      if (!transfer.required) return;
      throw Error(ErrorCode::kInvalidNet,
                  StrCat("nothing in the ", request_.backward ? "backward step net" : "step net", " writes \"",
                         transfer.blob, "\"", DidYouMean(transfer.blob, WrittenBlobs())))
          .At({.net = graph_.name});
    }
    const bool in = GoesIn(transfer);
    const StepValue& value = graph_.values[in ? graph_.first.at(transfer.blob) : graph_.last.at(transfer.blob)];
    // What is known only at each step is compared then.
    const bool differs =
        value.info.dtype != transfer.info.dtype || value.info.shape.size() != transfer.info.shape.size();
    if (!value.dynamic && differs) {
      throw Error(ErrorCode::kShapeMismatch,
                  StrCat("\"", transfer.blob, "\" is ", value.info.Description(), " in the step net; it belongs to \"",
                         transfer.outside.blob, "\", where a step has room for ", transfer.info.Description()))
          .At({.net = graph_.name});
    }
    const std::string& outside_name = transfer.outside.blob;
    const Operand blob{.slot = found->second, .info = value.info};
    const Operand external{.slot = AddOutside(transfer.outside), .info = transfer.info};
    const bool adds = transfer.kind == Transfer::Kind::kAddIn || transfer.kind == Transfer::Kind::kAddOut;
    const bool dynamic = plan_.slots[found->second].storage_class == StorageClass::kDynamic;
    const std::string& to = in ? transfer.blob : outside_name;
    const std::string& from = in ? outside_name : transfer.blob;
    Instruction instruction{.text = StrCat(to, adds ? " += " : " = ", from),
                            .type = adds ? "add" : "copy",
                            .kernel = adds ? AddKernel(transfer.blob, transfer.info) : CopyKernel(),
                            .inputs = {in ? external : blob},
                            .outputs = {in ? blob : external},
                            .num_outputs = 1,
                            .dynamic = dynamic,
                            .cost = {.bytes = 3.0 * static_cast<double>(transfer.info.size_bytes())},
                            .by_elements = !dynamic,
                            .node = {}};
    if (!dynamic) {
      MarkRowsOfElements(plan_, &instruction);
      instruction.steps_at_once = StepsAtOnce();
      instruction.max_parts = PartsOf(InfosOf(instruction, instruction.outputs).front(), *request_.target);
    }
    AddInstruction(std::move(instruction));
  }

  std::vector<std::string> WrittenBlobs() const {
    std::vector<std::string> blobs;
    for (const auto& [blob, value] : graph_.last) blobs.push_back(blob);
    return blobs;
  }

  const StepPlanRequest& request_;
  const StepGraph& graph_;
  const std::map<std::string, int>& direct_sums_;
  const std::set<int>& unneeded_;
  const TransferOrder order_;
  StepPlan plan_;
  std::map<std::string, int> slot_of_;
  std::set<int> written_bases_;
  bool is_draft_ = false;
  std::set<std::string> kept_between_;       // temporaries that more than one stage uses
  std::vector<std::int64_t> steps_at_once_;  // by instruction, in program order
  std::vector<Instruction> packs_;           // before the first step
  // Operators that sum over the steps and give rows too: sums can wait until after the loop when what goes on in it
  // cannot, so they may be two instructions.
  std::set<int> cut_operators_;
  std::set<int> uncut_operators_;
};

}  // namespace

StepPlan MakeStepPlan(const StepPlanRequest& request) {
  StepDraft draft = ImportStep(request);
  RunPasses(&draft);
  StepPlan plan = PlanMaker(draft).Make();
  if (request.options.executor == "parallel") {
    AddSchedules(request.options.threads, &plan);
  }
  if (request.options.on_plan) request.options.on_plan(plan);
  return plan;
}

}  // namespace stepnet
