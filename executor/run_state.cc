#include "stepnet/executor/run_state.h"

#include <array>
#include <limits>
#include <memory>
#include <utility>

#include "stepnet/compiler/batch_rows.h"
#include "stepnet/compiler/instruction_rows.h"
#include "stepnet/core/memory_fill.h"
#include "stepnet/core/scoped_value.h"
#include "stepnet/core/target.h"

namespace stepnet {
namespace {

// Narrows views of equally many elements to those of one part; `range` becomes their shape. Returns the first element.
std::int64_t NarrowToPart(int part, int parts, std::span<TensorView> views, Shape* range) {
  const std::int64_t size = views[0].size();
  const std::int64_t lines = (size + kFloatsOfLine - 1) / kFloatsOfLine;
  const std::int64_t begin = std::min(lines * part / parts * kFloatsOfLine, size);
  const std::int64_t end = std::min(lines * (part + 1) / parts * kFloatsOfLine, size);
  *range = Shape({end - begin});
  for (TensorView& view : views) {
    view.data = static_cast<std::byte*>(view.data) + begin * DTypeBytes(view.dtype);
    view.shape = range;
  }
  return begin;
}

bool Overlap(const TensorView& a, const TensorView& b) {
  const auto *begin_a = static_cast<const std::byte*>(a.data), *begin_b = static_cast<const std::byte*>(b.data);
  return begin_a < begin_b + b.size_bytes() && begin_b < begin_a + a.size_bytes();
}

// Its place among the operators of a step: moves of what they give come behind them.
std::int64_t OrderOf(const Instruction& instruction) {
  return instruction.op_index >= 0 ? instruction.op_index : std::numeric_limits<std::int64_t>::max();
}

// Whether it follows from net and data.
bool IsInEveryRun(ErrorCode code) {
  return code != ErrorCode::kCancelled && code != ErrorCode::kOutOfMemory && code != ErrorCode::kInternal;
}

// Rows of rings and arenas come again in later steps: what an instruction is about to write has no value before.
void FillOutputs(const Instruction& instruction, const OpRun& run) {
  if (instruction.op_index < 0 || run.parts() > 1) return;  // a move may add
  for (int o = 0; o < run.num_outputs(); ++o) {
    if (!run.Wants(o) || run.Adds(o) || run.Out(o).dtype == DType::kString) continue;
    bool is_read = false;
    for (int i = 0; i < run.num_inputs(); ++i) is_read = is_read || Overlap(run.In(i), run.Out(o));
    if (!is_read) FillUnwritten(run.Out(o).data, run.Out(o).size_bytes());
  }
}

}  // namespace

RunState::RunState(std::shared_ptr<const StepPlan> plan, Device device)
    : plan_(std::move(plan)),
      device_(device),
      bases_(plan_->num_bases),
      blobs_(*plan_),
      pieces_(plan_->arena.size()),
      instructions_(plan_->instructions.size()) {
  for (size_t i = 0; i < instructions_.size(); ++i) {
    const Instruction& instruction = plan_->instructions[i];
    BoundInstruction& bound = instructions_[i];
    const size_t count = instruction.inputs.size() + static_cast<size_t>(instruction.num_outputs);
    bound.operands.resize(count);
    bound.views.resize(count);
    bound.shapes.resize(instruction.steps_at_once == 1 ? 0 : 2 * count);
    for (const InstructionOperand& output : instruction.outputs) {
      if (output.added) bound.adds |= std::uint64_t{1} << output.position;
    }
    for (const InstructionOperand& input : instruction.inputs) {
      if (input.has_rows && input.position < 64) bound.with_rows |= std::uint64_t{1} << input.position;
    }
    if (instruction.by_blobs) bound.dynamic = std::make_unique<DynamicInstruction>(*plan_, static_cast<int>(i));
  }
}

void RunState::LendBase(int base, const Tensor& tensor) {
  if (!plan_->is_copied[base]) {
    bases_[base] = tensor;
    return;
  }
  const auto [copy, is_new] = copies_.try_emplace(base, "copy");
  bases_[base] = copy->second.MakeTensor(tensor.dtype(), tensor.shape(), device_);
  lent_[base] = tensor;
}

const Tensor& RunState::SeenOf(int base, const Tensor& tensor) const {
  const auto copy = copies_.find(base);
  return copy == copies_.end() ? tensor : copy->second.GetTensor();
}

void RunState::Prepare(std::int64_t num_steps, Workspace& workspace) {
  num_steps_ = num_steps;
  fills_ = device_.IsHost() && MemoryFill().has_value();
  faults_.Take();  // of a run that an exception ended
  FindOnceSources();
  MakeArena();
  blobs_.Prepare(num_steps, workspace);
  for (const Stage& stage : plan_->stages) {
    if (num_steps < stage.min_steps) continue;
    for (int i = stage.begin; i < stage.end; ++i) BindInstruction(plan_->instructions[i], &instructions_[i]);
  }
}

void RunState::FindOnceSources() {
  new_sources_.clear();
  const int first_own_base = plan_->num_bases - static_cast<int>(pieces_.size());
  const int end = plan_->num_once_stages == 0 ? 0 : plan_->stages[plan_->num_once_stages - 1].end;
  bool are_constant = device_.IsHost();
  for (int i = 0; i < end && are_constant; ++i) {
    for (const InstructionOperand& input : plan_->instructions[i].inputs) {
      const int base = plan_->slots[input.slot].base;
      if (base >= first_own_base) continue;
      new_sources_.push_back({bases_[base].ConstantId(), bases_[base].raw()});
      are_constant = are_constant && new_sources_.back().constant_id != 0;
    }
  }
  if (!are_constant) new_sources_.clear();
  if (new_sources_ != once_sources_) num_kept_ = 0;
  once_sources_.swap(new_sources_);
}

void RunState::KeepOnceValues() {
  if (once_sources_.empty() || plan_->does_nothing) return;
  for (int s = 0; s < plan_->num_once_stages; ++s) {
    const Stage& stage = plan_->stages[s];
    if (stage.end <= num_kept_) continue;
    if (NumRunsOf(stage) == 0) break;
    num_kept_ = stage.end;
  }
}

void RunState::MakeArena() {
  once_steps_ = std::max(once_steps_, num_steps_);
  std::int64_t once_bytes = 0, temporary_bytes = 0;
  for (size_t k = 0; k < pieces_.size(); ++k) {
    const ArenaPiece& piece = plan_->arena[k];
    pieces_[k].bytes = piece.BytesFor(piece.is_once ? once_steps_ : num_steps_);
    if (piece.IsKept()) continue;
    std::int64_t& end = piece.is_once ? once_bytes : temporary_bytes;
    pieces_[k].offset = end;
    end += StepPlan::AlignedBytes(pieces_[k].bytes);
  }
  if (num_kept_ > 0 && once_.GetTensor().size() != once_bytes) num_kept_ = 0;
  try {
    for (size_t k = 0; k < pieces_.size(); ++k) {
      if (!plan_->arena[k].IsKept()) continue;
      const Shape shape({StepPlan::AlignedBytes(pieces_[k].bytes)});
      pieces_[k].kept.MakeTensor(DType::kUInt8, shape, device_);
    }
    MakeTemporaries(temporary_bytes);
    if (num_kept_ == 0) once_.MakeTensor(DType::kUInt8, Shape({once_bytes}), device_);
  } catch (const Error& error) {  // before the first step
    num_kept_ = 0;
    throw Error(error).At({.net = plan_->name});
  }
  for (const ArenaPiece& piece : plan_->arena) bases_[piece.base] = ArenaTensor(piece.base);
}

// What was made larger for a borrower stays so for the next one.
void RunState::MakeTemporaries(std::int64_t bytes) {
  if (temporaries_ != &own_temporaries_) temporaries_->lent_bytes = bytes;
  const std::int64_t there = std::min(temporaries_->lent_bytes, BytesOf(temporaries_->memory));
  temporaries_->memory.MakeTensor(DType::kUInt8, Shape({std::max(bytes, there)}), device_);
}

void RunState::BindInstruction(const Instruction& instruction, BoundInstruction* bound) {
  for (const InstructionOperand& input : instruction.inputs) BindOperand(input, input.position, instruction, bound);
  for (const InstructionOperand& output : instruction.outputs) {
    BindOperand(output, instruction.inputs.size() + output.position, instruction, bound);
  }
  const bool packs = instruction.packed && num_steps_ >= plan_->target->min_steps_to_pack;
  bound->packed = packs ? bases_[plan_->slots[instruction.packed->slot].base].raw(device_) : nullptr;
}

void RunState::BindOperand(const InstructionOperand& operand, size_t k, const Instruction& instruction,
                           BoundInstruction* bound) {
  bound->views[k] = {nullptr, &operand.info.shape, operand.info.dtype};
  if (const std::int64_t at_once = instruction.steps_at_once; at_once != 1) {
    const std::int64_t rest = at_once == kAllSteps ? num_steps_ : num_steps_ % at_once;
    const size_t count = bound->views.size();
    bound->shapes[k] = ShapeOfSteps(operand, at_once);
    bound->shapes[count + k] = ShapeOfSteps(operand, rest);
  }
  const Slot& slot = plan_->slots[operand.slot];
  if (slot.storage_class == StorageClass::kDynamic) return;
  if (!operand.shape_alone) CheckBounds(slot, operand.info);
  const bool is_ring = slot.ring_rows > 0;
  auto* const base = static_cast<std::byte*>(bases_[slot.base].raw(device_));
  bound->operands[k] = {.address = base + (is_ring ? 0 : slot.BeginInBase()),
                        .row_bytes = slot.row_bytes,
                        .mask = is_ring ? slot.ring_rows - 1 : -1,
                        .offset = is_ring ? slot.offset : 0};
}

void RunState::CheckBounds(const Slot& slot, const TensorInfo& info) const {
  if (num_steps_ == 0) return;
  const std::int64_t last_row = num_steps_ - 1 + slot.offset;
  const std::int64_t last = slot.row_bytes == 0   ? 0
                            : slot.ring_rows == 0 ? last_row
                                                  : std::min(last_row, slot.ring_rows - 1);
  const std::int64_t room = bases_[slot.base].size_bytes() - info.size_bytes();
  if (room >= 0 && (last == 0 || last <= room / slot.row_bytes)) return;
  throw Error(ErrorCode::kShapeMismatch,
              StrCat("step ", num_steps_ - 1, " of ", num_steps_, " would see \"", slot.blob, "\", ",
                     info.Description(), ", beyond the end of ", bases_[slot.base].Description(),
                     ", to which it is linked at offset ", slot.offset))
      .At({.net = plan_->name});
}

std::int64_t RunState::MemoryBytes() const {
  std::int64_t bytes = BytesOf(own_temporaries_.memory) + BytesOf(once_) + blobs_.MemoryBytes();
  for (const PlacedPiece& piece : pieces_) bytes += BytesOf(piece.kept);
  for (const auto& [base, copy] : copies_) bytes += BytesOf(copy);
  return bytes;
}

std::vector<const void*> RunState::Addresses() const {
  std::vector<const void*> addresses = {reinterpret_cast<const void*>(num_steps_)};
  for (const BoundInstruction& bound : instructions_) {
    for (const BoundOperand& operand : bound.operands) addresses.push_back(operand.address);
    addresses.push_back(bound.packed);
  }
  return addresses;
}

std::int64_t RunState::NumRunsOf(const Stage& stage) const {
  if (stage.end <= num_kept_ || num_steps_ < stage.min_steps) return 0;
  if (stage.steps_at_once == kAllSteps) return std::min<std::int64_t>(num_steps_, 1);
  return (num_steps_ + stage.steps_at_once - 1) / stage.steps_at_once;
}

void RunState::ReleaseBases() {
  for (Tensor& base : bases_) base = Tensor();
  lent_.clear();
}

Tensor RunState::ArenaTensor(int base) const {
  const size_t number = PieceOf(base);
  const PlacedPiece& piece = pieces_.at(number);
  const ArenaPiece& made_for = plan_->arena[number];
  const Blob& memory = made_for.is_once ? once_ : made_for.is_temporary ? temporaries_->memory : piece.kept;
  return memory.GetTensor().At(piece.offset, DType::kUInt8, Shape({piece.bytes}));
}

void RunState::FreeKept(int slot) {
  const Slot& of = plan_->slots[slot];
  if (of.storage_class != StorageClass::kStacked) return;  // it is there for other reasons
  pieces_.at(PieceOf(of.base)).kept.Reset();
}

RunEvent RunState::LoopEvent(RunEventKind kind) const {
  return {.kind = kind, .net = &plan_->name, .backward = plan_->backward, .plan = &plan_, .num_steps = num_steps_};
}

// Runs what may find bad values; gives what it finds its place in the whole run. Not a part of RunKernel, where it
// would cost those that find none.
template <typename Body>
[[gnu::noinline]] void RunState::NoteFaults(const Instruction& instruction, const StepRange& steps, RunContext& context,
                                            const Body& run) {
  FaultRecord record;
  const ScopedValue<FaultRecord*> noted(context.faults, &record);
  const std::int64_t first = FirstOf(steps);
  context.site.first_step = first;
  context.site.op = instruction.op_index;
  run();
  if (!record.any()) return;
  Fault found = std::move(*record.Take());
  found.place.step += first;
  if (!instruction.names_operators) found.place.op = instruction.op_index;
  faults_.Note(found.place, [&] { return Placed(instruction, found); });
}

Error RunState::Placed(const Instruction& instruction, Fault fault) const {
  const std::int64_t t = plan_->backward ? num_steps_ - 1 - fault.place.step : fault.place.step;
  Place place = PlaceOf(instruction, fault.error, t, 1);
  place.step = t;
  return fault.error.At(std::move(place));
}

Error RunState::Placed(Fault fault) const {
  const auto& instructions = plan_->instructions;
  const auto found = std::ranges::find_if(instructions, [&](const Instruction& instruction) {
    return instruction.checks_values && instruction.op_index == fault.place.op;
  });
  return found == instructions.end() ? fault.error : Placed(*found, std::move(fault));
}

// Where an error in steps [t, t + count) was found, without the step.
Place RunState::PlaceOf(const Instruction& instruction, const Error& error, std::int64_t t, std::int64_t count) const {
  const bool is_known = instruction.names_operators && !error.places().empty();
  if (is_known) return {.net = plan_->name};
  return {.net = NetOf(instruction),
          .op_index = instruction.op_index,
          .op_text = instruction.text,
          .blobs = InputsText(instruction, t, count)};
}

void RunState::RunInstruction(int i, std::int64_t k, RunContext& context, const InstructionPart& part) {
  const Instruction& instruction = plan_->instructions[i];
  BoundInstruction& bound = instructions_[i];
  const StepRange steps = StepsOf(instruction, k);
  if (faults_.HasBefore({.step = FirstOf(steps), .op = OrderOf(instruction)})) return;
  const auto [t, count] = steps;
  const std::int64_t step = instruction.steps_at_once == 1 ? t : -1;
  try {
    if (context.observers.empty()) {
      RunBound(instruction, bound, steps, context, part);
    } else {
      const ObservedScope scope(context.observers, EventOf(instruction, i, step, context, part));
      RunBound(instruction, bound, steps, context, part);
    }
  } catch (...) {
    Error error = CurrentError();
    const bool names_op = !error.places().empty() && error.places().front().op_index >= 0;
    const std::int64_t op =
        names_op && instruction.op_index < 0 ? error.places().front().op_index : OrderOf(instruction);
    Place place = PlaceOf(instruction, error, t, count);
    place.step = step;
    error = error.At(std::move(place));
    if (!device_.IsHost() || !IsInEveryRun(error.code())) throw error;
    // What comes before it and is not done yet may fail, too.
    faults_.Note({.step = FirstOf(steps), .op = op}, [&] { return error; });
  }
}

// Not a part of RunInstruction, where it would cost those that nobody observes.
RunEvent RunState::EventOf(const Instruction& instruction, int number, std::int64_t step, const RunContext& context,
                           const InstructionPart& part) const {
  return {.kind = instruction.op_index >= 0 ? RunEventKind::kOperator : RunEventKind::kMove,
          .net = &NetOf(instruction),
          .op_index = instruction.op_index,
          .op_type = &instruction.type,
          .op_text = &instruction.text,
          .step = step,
          .backward = plan_->backward,
          .queue = context.queue,
          .plan = &plan_,
          .num_steps = num_steps_,
          .instruction = number,
          .part = part.part,
          .parts = part.parts};
}

void RunState::RunBound(const Instruction& instruction, BoundInstruction& bound, const StepRange& steps,
                        RunContext& context, InstructionPart part) {
  if (bound.dynamic != nullptr) return RunDynamic(instruction, *bound.dynamic, steps, context);
  const auto [t, count] = steps;
  context.ResetScratch();
  // Other steps of the instruction may run at the same time.
  constexpr size_t kMaxOnStack = 16;
  const size_t num_views = bound.operands.size();
  // Views of all 16 take as long to initialise as all else here.
  alignas(TensorView) std::array<std::byte, kMaxOnStack * sizeof(TensorView)> few;
  std::vector<TensorView> many;
  auto* first_view = reinterpret_cast<TensorView*>(few.data());
  if (num_views <= kMaxOnStack) {
    std::uninitialized_copy_n(bound.views.data(), num_views, first_view);
  } else {
    many = bound.views;
    first_view = many.data();
  }
  const std::span<TensorView> views(first_view, num_views);
  for (size_t v = 0; v < num_views; ++v) views[v].data = bound.operands[v].At(t);
  if (instruction.steps_at_once != 1) {
    const bool is_rest = count < instruction.steps_at_once || instruction.steps_at_once == kAllSteps;
    SetShapes(bound, /*of_rest=*/is_rest, views);
  }
  if (part.of_batch) {
    NarrowToRows(part, instruction, bound, views);
    part = {};
  }
  if (instruction.by_elements && part.parts > 1) return RunElements(instruction, bound, steps, context, part, views);
  RunKernel(instruction, bound, steps, context, part, views, {});
}

// Not a part of RunBound, where a shape of its own would cost those that run as a whole.
[[gnu::noinline]] void RunState::RunElements(const Instruction& instruction, const BoundInstruction& bound,
                                             const StepRange& steps, RunContext& context, const InstructionPart& part,
                                             std::span<TensorView> views) {
  Shape shape;
  const std::int64_t all = views[0].size(), begin = NarrowToPart(part.part, part.parts, views, &shape);
  RunKernel(instruction, bound, steps, context, {}, views, {.begin = begin, .all = all});
}

void RunState::RunKernel(const Instruction& instruction, const BoundInstruction& bound, const StepRange& steps,
                         RunContext& context, const InstructionPart& part, std::span<const TensorView> views,
                         const ElementsOfPart& elements) {
  OpRun run(views.first(instruction.inputs.size()), views.subspan(instruction.inputs.size()), context, steps.t);
  run.SetPart(part.part, part.parts);
  run.SetUnits(part.units);
  run.SetAdds(bound.adds);
  run.SetPacked(bound.packed);
  if (fills_) FillOutputs(instruction, run);
  if (!instruction.checks_values) return instruction.kernel(run);
  const RunRange range{.num_steps = steps.count,
                       .backward = plan_->backward,
                       .with_rows = bound.with_rows,
                       .begin = elements.begin,
                       .num_elements = elements.all};
  run.SetRange(&range);
  NoteFaults(instruction, steps, context, [&] { instruction.kernel(run); });
}

void RunState::CutBatch(int parts) {
  if (batch_parts_ == parts) return;
  batch_parts_ = 0;
  for (size_t i = 0; i < instructions_.size(); ++i) {
    const Instruction& instruction = plan_->instructions[i];
    BoundInstruction& bound = instructions_[i];
    const std::int64_t rows = instruction.batch_rows;
    if (rows == 0) continue;
    const size_t count = bound.operands.size();
    bound.batch_shapes.assign(2 * count, Shape());
    bound.batch_row_bytes.assign(count, 0);
    const auto cut = [&](const InstructionOperand& operand, size_t v) {
      const Shape& shape = operand.info.shape;
      if (!operand.has_batch) return;
      const int dim = *DimOfBatch(shape, rows);
      bound.batch_row_bytes[v] = operand.info.size_bytes() / rows;
      bound.batch_shapes[v] = shape.With(dim, rows / parts);
      bound.batch_shapes[count + v] = shape.With(dim, rows / parts + 1);
    };
    for (const InstructionOperand& input : instruction.inputs) cut(input, input.position);
    for (const InstructionOperand& output : instruction.outputs)
      cut(output, instruction.inputs.size() + output.position);
  }
  batch_parts_ = parts;  // once all of it is there
}

// Narrows the views of operands that have rows of the batch to those of one part.
void RunState::NarrowToRows(const InstructionPart& part, const Instruction& instruction, const BoundInstruction& bound,
                            std::span<TensorView> views) {
  const std::int64_t rows = instruction.batch_rows, begin = rows * part.part / part.parts;
  const bool has_one_more = rows * (part.part + 1) / part.parts - begin > rows / part.parts;
  const Shape* const shapes = bound.batch_shapes.data() + (has_one_more ? views.size() : 0);
  for (size_t v = 0; v < views.size(); ++v) {
    const std::int64_t row_bytes = bound.batch_row_bytes[v];
    if (row_bytes == 0) continue;
    views[v].data = static_cast<std::byte*>(views[v].data) + row_bytes * begin;
    views[v].shape = shapes + v;
  }
}

void RunState::SetShapes(const BoundInstruction& bound, bool of_rest, std::span<TensorView> views) {
  for (size_t v = 0; v < views.size(); ++v) {
    if (views[v].shape != nullptr) views[v].shape = &bound.shapes[of_rest ? views.size() + v : v];
  }
}

std::string RunState::InputsText(const Instruction& instruction, std::int64_t t, std::int64_t count) const {
  std::vector<std::string> blobs;
  for (const InstructionOperand& operand : instruction.inputs) {
    const Slot& slot = plan_->slots[operand.slot];
    const bool dynamic = slot.storage_class == StorageClass::kDynamic;
    const TensorInfo seen = {.dtype = operand.info.dtype, .shape = ShapeOfSteps(operand, count)};
    // It has the name in the operator's own text: the memory may be another blob's that is equal (merge_equal).
    const std::string& name = instruction.call != nullptr ? instruction.call->inputs()[operand.position] : slot.blob;
    blobs.push_back(StrCat(name, " ", dynamic ? blobs_.Of(slot, t)->Description() : seen.Description()));
  }
  return Join(blobs, ", ");
}

void RunState::RunDynamic(const Instruction& instruction, DynamicInstruction& dynamic, const StepRange& step,
                          RunContext& context) {
  const auto run = [&] { dynamic.Run(step.t, bases_, blobs_, context); };
  if (instruction.op_index < 0) return run();
  // What it finds is looked at before the next operator asks for shapes.
  const ScopedValue<LateFaults*> at_once(context.late_faults, nullptr);
  NoteFaults(instruction, step, context, run);
}

Tensor RunState::Final(const std::string& blob, std::int64_t t) const {
  const StepPlan::Final& final = plan_->finals.at(blob);
  const Slot& slot = plan_->slots[final.slot];
  if (slot.storage_class != StorageClass::kDynamic) return TensorAt(slot, final.info, t, bases_);
  const Blob* dynamic = blobs_.Of(slot, t);
  return dynamic->HasTensor() ? dynamic->GetTensor() : Tensor();
}

}  // namespace stepnet
