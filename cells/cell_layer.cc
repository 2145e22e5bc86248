#include "stepnet/cells/cell_layer.h"

#include <algorithm>
#include <map>
#include <set>

#include "stepnet/cells/cell_advice.h"
#include "stepnet/cells/cell_reader.h"
#include "stepnet/cells/size_arguments.h"
#include "stepnet/core/cancellation.h"
#include "stepnet/core/exact_number.h"
#include "stepnet/core/floating.h"
#include "stepnet/core/operator.h"
#include "stepnet/io/tensor_io.h"
#include "stepnet/nets/net_blobs.h"
#include "stepnet/nets/net_check.h"
#include "stepnet/nets/op_arguments.h"
#include "stepnet/nets/op_builder.h"

namespace stepnet {
namespace {

// What a state starts as: 0 where it is learned or given.
double StartOf(const CellState& state) { return RealOf(state.initial()).value_or(0); }

void AddFill(const std::string& name, const Shape& shape, double value, NetDef* net) {
  AddOp(net, "ConstantFill", {}, {name}).Ints("shape", shape.ToVector());
  SetDouble(value, NewArgument(net->mutable_op(net->op_size() - 1), "value"));
}

// Row `first` of x, of `rank` dimensions, and all behind it.
void AddRowsFrom(std::int64_t first, const std::string& x, const std::string& y, int rank, NetDef* net) {
  std::vector<std::int64_t> starts(rank, 0);
  starts[0] = first;
  AddOp(net, "Slice", {x}, {y}).Ints("starts", starts).Ints("ends", std::vector<std::int64_t>(rank, -1));
}

// For operators that CheckCell has not seen as they are, because their arguments follow from sizes or they are in no
// step.
void ThrowFaultsOf(const OperatorDef& op) {
  std::vector<std::string> faults;
  for (const NetProblem& problem : CheckOperator(op)) {
    faults.push_back(StrCat("`", problem.op_text, "`: ", problem.message));
  }
  if (!faults.empty()) throw Error(ErrorCode::kInvalidArgument, Join(faults, "\n"));
}

// Throws kTypeMismatch unless the operator gives a parameter floats. A cell of float64 has other doubles of these.
void CheckFill(const OperatorDef& fill, const CellParameter& parameter) {
  const OperatorCall call(fill);
  const DType dtype = call.schema().shapes(ShapeQuery(call, {})).front().dtype;
  if (dtype == DType::kFloat) return;
  throw Error(ErrorCode::kTypeMismatch, StrCat("the parameter \"", parameter.name(), "\" would be ", dtype,
                                               ", and all are float", AdviceOnFill(fill, parameter)));
}

std::string OuterName(const CellUse& use, const std::string& input) {
  const auto found = use.inputs.find(input);
  return found == use.inputs.end() ? input : found->second;
}

}  // namespace

bool IsRead(const CellDef& cell, const std::string& blob) {
  return std::ranges::any_of(cell.op(),
                             [&](const OperatorDef& op) { return std::ranges::count(op.input(), blob) > 0; });
}

CellLayer::CellLayer(LayerContext context) : context_(std::move(context)), names_(context_.op->names) {
  ChooseBatch(context_.use->batch > 0 ? context_.use->batch : 3);
  NameStep();
  WriteStep();
  InferShapes();
  WriteOutputs();
}

float CellLayer::DropoutOf(int state) const {
  const CellState& def = cell().state(state);
  if (!context_.use->training) return 0;
  return def.has_dropout() || state > 0 ? def.dropout() : cell().options().recurrent_dropout();
}

float CellLayer::ZoneoutOf(int state) const {
  const CellState& def = cell().state(state);
  return def.has_zoneout() ? def.zoneout() : cell().options().zoneout();
}

// What the cell calls a blob is kept where it can be; names that come from outside go before.
void CellLayer::NameStep() {
  names_.Take("timestep");
  for (const CellParameter& parameter : cell().parameter()) {
    names_.Take(renamed_[parameter.name()] = context_.prefix + parameter.name());
  }
  for (const CellCapture& capture : cell().capture()) {
    names_.Take(renamed_[capture.name()] = OuterName(*context_.use, capture.name()));
  }
  for (const CellInput& input : cell().input()) {
    const bool is_below = &input == &cell().input(0) && !context_.op->top.empty();
    linked_.push_back(is_below ? context_.op->top : names_.Unused(InStep(input.name() + "_t")));
    renamed_[input.name()] = linked_.back();
  }
  for (int i = 0; i < cell().state_size(); ++i) {
    const CellState& state = cell().state(i);
    const std::string previous = names_.Unused(InStep(PreviousOf(state)));
    previous_.push_back(previous);
    initial_.push_back(context_.names->Unused(context_.prefix + state.name() + "_init"));
    read_.push_back(previous);
    if (context_.repeats_first && IsRead(cell(), PreviousOf(state))) {
      names_.Take(initial_.back());
      read_.back() = names_.Unused(previous + "_or_init");
    }
    renamed_[PreviousOf(state)] = DropoutOf(i) > 0 ? names_.Unused(previous + "_dropped") : read_.back();
    next_.push_back(names_.Unused(InStep(state.name() + "_t")));
    const bool is_updated = ZoneoutOf(i) > 0 || !context_.mask.empty();
    renamed_[state.name()] = is_updated ? names_.Unused(InStep(state.name() + "_new")) : next_.back();
  }
  for (const OperatorDef& op : cell().op()) {
    for (const std::string& output : op.output()) {
      if (!renamed_.contains(output)) renamed_[output] = names_.Unused(InStep(output));
    }
  }
  if (context_.mask.empty()) return;
  const auto [mask, is_new] = context_.op->masks.try_emplace(context_.mask);
  if (is_new) mask->second = names_.Unused("mask_t");
  mask_ = mask->second;
}

void CellLayer::WriteStep() {
  context_.op->step.set_name(context_.step_name);
  step_.set_name(context_.step_name);
  ReadFirstStates();
  for (int i = 0; i < cell().state_size(); ++i) {
    if (DropoutOf(i) == 0) continue;
    const std::string& dropped = renamed_.at(PreviousOf(cell().state(i)));
    AddOp(&step_, "Dropout", {read_[i]}, {dropped, names_.Unused(dropped + "_mask")})
        .Float("ratio", DropoutOf(i))
        .Int("same_mask_each_step", 1);
  }
  MaskInputs();
  first_op_ = step_.op_size();
  for (int k = 0; k < cell().op_size(); ++k) {
    *step_.add_op() = context_.cell->At(CellPart::kOperator, k, [&] { return Resolved(cell().op(k)); });
  }
  for (int i = 0; i < cell().state_size(); ++i) WriteStateUpdate(i);
}

// With repeats_first: a state is read as what it starts from in steps that do not count. Then they compute what the
// first step does, and what is not finite there is so in a step that counts.
void CellLayer::ReadFirstStates() {
  std::map<int, std::string> conditions;  // by rank
  for (int i = 0; i < cell().state_size(); ++i) {
    if (read_[i] == previous_[i]) continue;
    std::string& condition = conditions[cell().state(i).shape_size()];
    if (condition.empty()) {
      std::vector<std::int64_t> dims;
      for (int d = 0; d < cell().state(i).shape_size(); ++d) dims.push_back(2 + d);
      condition = names_.Unused(StrCat(mask_, "_of_", dims.size(), "d"));
      AddOp(&step_, "ExpandDims", {mask_}, {condition}).Ints("dims", dims);
    }
    AddOp(&step_, "Where", {condition, previous_[i], initial_[i]}, {read_[i]});
  }
}

// What lies beyond the end of a sequence may be anything, NaN too, of which gradients would be: they multiply by 0.
void CellLayer::MaskInputs() {
  if (mask_.empty() || context_.repeats_first) return;
  for (int i = 0; i < cell().input_size(); ++i) {
    const std::string& name = cell().input(i).name();
    if (linked_[i] != context_.op->top && IsRead(cell(), name)) renamed_[name] = Masked(linked_[i], DType::kFloat, "");
  }
}

// The operator with the names of the step net and integers in place of expressions of sizes. What gives a mask
// and has an argument is_test, as Dropout, drops while training alone, and keeps the mask for its gradient.
OperatorDef CellLayer::Resolved(const OperatorDef& def) {
  constexpr std::int64_t kWork = 20'000;  // of one operator, from its copy to its shapes
  CountWork(kWork);
  OperatorDef op = def;
  const auto rename = [&](std::string* name) {
    if (const auto found = renamed_.find(*name); found != renamed_.end()) *name = found->second;
  };
  for (std::string& input : *op.mutable_input()) rename(&input);
  for (std::string& output : *op.mutable_output()) rename(&output);
  const OperatorSchema& schema = GetOperator(op.type());
  const bool has_expressions = !ExpressionsOf(op, SizesOf(cell())).empty();
  ReplaceSizes(context_.sizes, context_.use->in_double, &op);
  if (has_expressions) ThrowFaultsOf(op);
  const bool drops =
      schema.FindArgument("is_test") != nullptr && schema.outputs.size() == 2 && schema.outputs[1].name == "mask";
  if (drops) {
    if (op.output_size() == 1) *op.add_output() = names_.Unused(op.output(0) + "_mask");
    if (!context_.use->training && FindArgument(op, "is_test") == nullptr) OpBuilder(&op).Int("is_test", 1);
  }
  return op;
}

// Zoneout, then what holds back where the mask is false. Source: D. Krueger et al., Zoneout, 2016, eq. 2 and 3: while
// training, an element keeps its value with probability z, which the mask of a Dropout says; otherwise it moves by 1 -
// z of its way.
void CellLayer::WriteStateUpdate(int i) {
  const CellState& state = cell().state(i);
  const std::string& computed = renamed_.at(state.name());
  if (computed == next_[i]) return;
  const float zoneout = ZoneoutOf(i);
  std::string updated = computed;
  if (zoneout > 0) {
    const std::string previous = NewestRow(i, read_[i]);
    const auto name = [&](const char* suffix) { return names_.Unused(InStep(state.name() + suffix)); };
    updated = mask_.empty() ? next_[i] : name("_zoned");
    if (context_.use->training) {
      const std::string moves = name("_moves");
      AddOp(&step_, "Dropout", {computed}, {name("_drawn"), moves}).Float("ratio", zoneout);
      AddOp(&step_, "Where", {moves, computed, previous}, {updated});
    } else {
      const std::string change = name("_change"), part = name("_part");
      AddOp(&step_, "Sub", {computed, previous}, {change});
      AddOp(&step_, "Scale", {change}, {part}).Float("scale", 1 - zoneout);
      AddOp(&step_, "Add", {previous, part}, {updated});
    }
  }
  if (cell().output_size() > 0 && cell().output(0).blob() == state.name()) computed_ = updated;
  if (mask_.empty()) return;
  AddOp(&step_, "Where", {mask_, updated, NewestRow(i, previous_[i])}, {next_[i]}).Int("broadcast_on_rows", 1);
}

std::string CellLayer::NewestRow(int state, const std::string& rows) {
  const CellState& def = cell().state(state);
  if (def.window() == 1) return rows;
  const auto [newest, is_new] = newest_.emplace(rows, "");
  if (is_new) {
    newest->second = names_.Unused(rows + "_last");
    AddRowsFrom(def.window() - 1, rows, newest->second, 2 + def.shape_size(), &step_);
  }
  return newest->second;
}

// Whether an output can be a state, so that a step sees what it was before: its initial value says what an item is, by
// dimensions of which none is the batch. The last value of others is a row of all steps, none of which is that where
// a sequence has ended.
bool CellLayer::CanBeState(int k) const {
  const std::vector<std::int64_t> item = output_items_[k].ToVector();
  const bool is_floating = IsFloatOrDouble(output_infos_[k].dtype);
  if (is_floating && !item.empty() && !item_has_batch_[k]) return true;
  const bool is_last = cell().output(k).last();
  if (mask_.empty() || (is_last && !is_floating)) return false;
  const std::string& blob = cell().output(k).blob();
  const std::string need = is_last ? "`last` with a mask or lengths" : "beyond_length = held";
  const std::string fault =
      !is_floating ? StrCat("is ", output_infos_[k].dtype, ", and ", need, " is for what is floating alone")
      : item.empty()
          ? StrCat("is one number an item, and ", need, " needs a dimension: ExpandDims(", blob, ", dims=[2])")
          : StrCat("has items whose size follows from that of the batch, and there is no ", need, " for such");
  throw Error(is_floating ? ErrorCode::kShapeMismatch : ErrorCode::kTypeMismatch,
              context_.cell->Fault(CellPart::kOutput, k, StrCat("the output \"", blob, "\" ", fault)));
}

// What an output was in the last step of a sequence is kept within a run alone.
void CellLayer::ThrowNotCarried(int k) const {
  const CellOutput& output = cell().output(k);
  throw Error(
      ErrorCode::kInvalidArgument,
      context_.cell->Fault(
          CellPart::kOutput, k,
          StrCat("the output \"", output.blob(), "\" is no state, so a part of a sequence that begins behind its end ",
                 "would not know what it was there (", output.last() ? "last" : "beyond_length = held",
                 "); make it a state, or carry none")));
}

// `blob` where the step counts, and otherwise `otherwise`, or zeros where that is "".
std::string CellLayer::Masked(const std::string& blob, DType dtype, std::string otherwise) {
  if (otherwise.empty()) {
    otherwise = names_.Unused(blob + "_zeros");
    // Where no dtype is said, they have that of the blob: a cell for float may run in double.
    OpBuilder zeros = AddOp(&step_, "ConstantFill", {blob}, {otherwise});
    if (!IsFloatOrDouble(dtype)) zeros.Int("value", 0).Int("dtype", NumberFromDType(dtype));
  }
  const std::string masked = names_.Unused(blob + "_masked");
  AddOp(&step_, "Where", {mask_, blob, otherwise}, {masked}).Int("broadcast_on_rows", 1);
  return masked;
}

void CellLayer::WriteOutputs() {
  const bool is_held = cell().options().beyond_length() == CellOptions::HELD;
  for (int k = 0; k < cell().output_size(); ++k) {
    const bool is_last = cell().output(k).last();
    rows_.emplace_back();
    if (IndexOfName(cell().state(), cell().output(k).blob()) >= 0) {
      const bool is_part = k == 0 && context_.adds_top;
      if (mask_.empty() || is_held || is_last || is_part) continue;
      rows_.back() = Masked(output_blobs_[k], output_infos_[k].dtype, "");
      continue;
    }
    const TensorInfo& info = output_infos_[k];
    std::string& blob = output_blobs_[k];
    if (!HasStep(info.shape)) {
      const std::string expanded = names_.Unused(blob + "_t");
      AddOp(&step_, "ExpandDims", {blob}, {expanded}).Ints("dims", {0});
      blob = expanded;
    }
    if (k == 0) computed_ = blob;
    const bool is_shown = (is_last || (is_held && !mask_.empty())) && CanBeState(k);
    std::string before;
    if (!mask_.empty()) {
      if (is_shown && context_.use->carry) ThrowNotCarried(k);
      if (is_shown) before = names_.Unused(blob + "_prev");
      blob = Masked(blob, info.dtype, before);
    }
    if (is_shown) shown_.push_back({.blob = blob, .previous = before, .item = output_items_[k]});
  }
}

// In steps that do not count both terms are what they were in the step before, or that and 0.
void CellLayer::AddTop(bool is_shown) {
  const bool is_zero = !mask_.empty() && cell().options().beyond_length() != CellOptions::HELD;
  const std::string sum = names_.Unused(output_blobs_[0] + "_sum");
  AddOp(&step_, "Add", {output_blobs_[0], linked_[0]}, {sum});
  output_blobs_[0] = sum;
  if (is_shown) rows_[0] = is_zero ? Masked(sum, output_infos_[0].dtype, "") : sum;
}

void CellLayer::WriteParameters(CellNet* result) const {
  for (int i = 0; i < cell().parameter_size(); ++i) {
    const CellParameter& parameter = cell().parameter(i);
    const Shape shape = ParameterShape(i);
    const std::string& name = renamed_.at(parameter.name());
    OperatorDef& fill = *result->init_net.add_op();
    if (parameter.has_initializer()) {
      fill = parameter.initializer();
    } else {
      fill.set_type(shape.rank() >= 2 ? "XavierFill" : "ConstantFill");
    }
    fill.add_output(name);
    OpBuilder(&fill).Ints("shape", shape.ToVector());
    if (parameter.has_initializer()) {
      context_.cell->At(CellPart::kParameter, i, [&] {
        ReplaceSizes(context_.sizes, context_.use->in_double, &fill);
        ThrowFaultsOf(fill);
        CheckFill(fill, parameter);
      });
    }
    result->parameters.push_back(name);
  }
}

void CellLayer::WriteInitial(int i, CellNet* result) const {
  const CellState& state = cell().state(i);
  const std::string& name = initial_[i];
  CellNetInput input{
      .blob = name, .dtype = DType::kFloat, .dims = {state.window(), CellNetInput::kBatch}, .is_state = true};
  const Shape item = StateShape(i);
  input.dims.insert(input.dims.end(), item.dims().begin(), item.dims().end());
  if (context_.use->HasOuterStates() || state.initial() == "given") {
    result->net.add_external_input(name);
    result->inputs.push_back(std::move(input));
    return;
  }
  result->starts.push_back(std::move(input));
  if (state.initial() == "learned") result->parameters.push_back(name);
  // One row, for every item of the batch.
  const Shape shape = item.Inserted(0, 1).Inserted(0, state.window());
  const double start = StartOf(state);
  AddFill(name, shape, context_.use->in_double ? start : static_cast<float>(start), &result->init_net);
}

void CellLayer::Write(const std::vector<std::string>& outputs, CellNet* result) {
  RecurrentOperator& op = *context_.op;
  if (context_.adds_top) AddTop(/*is_shown=*/!outputs[0].empty());
  WriteParameters(result);
  const std::vector<std::string> read = BlobsReadFirst(step_);  // sorted
  const auto is_read = [&](const std::string& blob) { return std::ranges::binary_search(read, blob); };
  for (int i = 0; i < cell().input_size(); ++i) {
    const std::string& internal = linked_[i];
    if (internal == op.top || !is_read(internal)) continue;
    op.AddLink({internal, context_.sequences[i], 0, 1});
    op.AddInput(context_.sequences[i]);
  }
  if (!mask_.empty() && is_read(mask_)) {
    op.AddLink({mask_, context_.mask, 0, 1});
    op.AddInput(context_.mask);
  }
  WriteStates(result);
  for (const CellParameter& parameter : cell().parameter()) {
    if (is_read(renamed_.at(parameter.name()))) op.AddInput(renamed_.at(parameter.name()));
  }
  for (const CellCapture& capture : cell().capture()) {
    if (is_read(renamed_.at(capture.name()))) op.AddInput(renamed_.at(capture.name()));
  }
  ShowOutputs(outputs);
  CarryStates(result);
  op.step.mutable_op()->MergeFrom(step_.op());
  op.top = context_.repeats_first ? computed_ : output_blobs_.front();
}

void CellLayer::WriteStates(CellNet* result) {
  RecurrentOperator& op = *context_.op;
  const std::vector<std::string> read = BlobsReadFirst(step_);
  for (int i = 0; i < cell().state_size(); ++i) {
    const std::int64_t window = cell().state(i).window();
    states_.push_back(context_.names->UnusedState(context_.prefix + cell().state(i).name() + "_states"));
    WriteInitial(i, result);
    op.states.push_back({.name = states_[i], .initial = op.AddInput(initial_[i])});
    if (std::ranges::binary_search(read, previous_[i])) op.AddLink({previous_[i], states_[i], 0, window});
    op.AddLink({next_[i], states_[i], window, 1});
    op.step.add_external_output(next_[i]);
  }
  for (ShownState& shown : shown_) {
    shown.name = context_.names->UnusedState(Outside(shown.blob) + "_states");
    const std::string initial = context_.names->Unused(Outside(shown.blob) + "_init");
    op.states.push_back({.name = shown.name, .initial = op.AddInput(initial)});
    AddFill(initial, shown.item.Inserted(0, 1).Inserted(0, 1), 0, &result->net);
    if (!shown.previous.empty()) op.AddLink({shown.previous, shown.name, 0, 1});
    op.AddLink({shown.blob, shown.name, 1, 1});
    op.step.add_external_output(shown.blob);
  }
}

void CellLayer::ShowOutputs(const std::vector<std::string>& outputs) {
  RecurrentOperator& op = *context_.op;
  for (int k = 0; k < cell().output_size(); ++k) {
    if (outputs[k].empty()) continue;
    const bool last = cell().output(k).last();
    const auto shown = std::ranges::find(shown_, output_blobs_[k], &ShownState::blob);
    std::string given = outputs[k];
    const int state = IndexOfName(cell().state(), cell().output(k).blob());
    if (!rows_[k].empty()) {
      op.step_outputs.push_back({rows_[k], given});
      op.step.add_external_output(rows_[k]);
    } else if (state >= 0) {
      op.aliases.push_back({states_[state], given, last ? -1 : cell().state(state).window()});
    } else if (shown != shown_.end()) {
      op.aliases.push_back({shown->name, given, last ? -1 : 1});
    } else {
      if (last) given = context_.names->Unused(outputs[k] + "_steps");
      op.step_outputs.push_back({output_blobs_[k], given});
      op.step.add_external_output(output_blobs_[k]);
    }
    op.outputs.push_back(given);
    if (given == outputs[k]) continue;
    NetDef rows;
    AddRowsFrom(-2, given, outputs[k], 2 + output_items_[k].rank(), &rows);
    op.after.push_back(rows.op(0));
  }
}

void CellLayer::CarryStates(CellNet* result) {
  RecurrentOperator& op = *context_.op;
  for (int i = 0; context_.use->HasOuterStates() && i < cell().state_size(); ++i) {
    const std::int64_t window = cell().state(i).window();
    op.outputs.push_back(context_.names->Unused(context_.prefix + cell().state(i).name() + "_carried"));
    op.aliases.push_back({states_[i], op.outputs.back(), -window});
    const auto state = std::ranges::find(op.states, states_[i], &RecurrentState::name);
    result->states.push_back({.initial = op.inputs[state->initial],
                              .last = op.outputs.back(),
                              .rows = window,
                              .item = StateShape(i),
                              .start = static_cast<float>(StartOf(cell().state(i)))});
  }
}

}  // namespace stepnet
