#include "stepnet/cells/cell_expand.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "stepnet/cells/cell_carry.h"
#include "stepnet/cells/cell_check.h"
#include "stepnet/cells/cell_layer.h"
#include "stepnet/cells/finite_gradients.h"
#include "stepnet/nets/double_net.h"
#include "stepnet/nets/op_builder.h"

namespace stepnet {
namespace {

// An operator with one input and one output, and other inputs that are there already; adds itself to the net.
using Stage = std::function<void(const std::string& input, const std::string& output)>;

// The option of a cell that a size of this name is meant as, which may be PyTorch's; empty: none.
std::string OptionMeant(const std::string& name) {
  static const std::map<std::string, std::string> of_pytorch = {
      {"batch_first", "batch_major"}, {"bidirectional", "direction"}, {"num_layers", "layers"}};
  const auto found = of_pytorch.find(name);
  if (found != of_pytorch.end()) return found->second;
  return CellOptions::descriptor()->FindFieldByName(name) != nullptr ? name : "";
}

class CellExpander {
 public:
  CellExpander(const CellSource& source, const CellUse& use) : source_(source), cell_(source.def), use_(use) {}

  CellNet Run() {
    if (use_.carry) CheckCarry(source_);
    ReadSizes();
    repeats_first_ = (options().has_lengths() || options().has_mask()) && !HasFiniteGradients(cell_, sizes_);
    sizes_of_first_layer_ = sizes_;
    result_.init_net.set_name(cell_.name() + "_init");
    result_.net.set_name(cell_.name());
    NameInputs();
    WriteInputs();
    for (std::int64_t layer = 0; layer < options().layers(); ++layer) WriteLayer(layer);
    ListExternals();
    return std::move(result_);
  }

 private:
  const CellOptions& options() const { return cell_.options(); }
  bool is_bidirectional() const { return options().direction() == CellOptions::BIDIRECTIONAL; }

  // Whether a step of a layer needs nothing of the one below but its own step, so that both can be in one step net. A
  // sum with an input that is computed where it does not count is not what outputs hold there.
  bool joins_layers() const {
    return options().layers() > 1 && options().direction() == CellOptions::FORWARD && cell_.output_size() > 0 &&
           !cell_.output(0).last() && !(repeats_first_ && options().residual());
  }
  bool drops() const { return use_.training && options().dropout() > 0; }

  void ReadSizes() {
    std::vector<std::string> names;
    for (const CellSize& size : cell_.size()) {
      names.push_back(size.name());
      if (size.has_value()) sizes_[size.name()] = size.value();
    }
    for (const auto& [name, value] : use_.sizes) {
      if (std::ranges::find(names, name) == names.end()) {
        const std::string option = OptionMeant(name);
        throw Error(ErrorCode::kInvalidArgument,
                    StrCat("cell \"", cell_.name(), "\" has no size ", name,
                           !option.empty() ? StrCat("; it is the option ", option)
                                           : StrCat(DidYouMean(name, names), "; its sizes are ",
                                                    names.empty() ? "none" : Join(names, ", "))));
      }
      if (value <= 0)
        throw Error(ErrorCode::kInvalidArgument, StrCat("the size ", name, " is ", value, ", must be above 0"));
      sizes_[name] = value;
    }
    std::vector<std::string> missing;
    std::ranges::copy_if(names, std::back_inserter(missing), [&](const auto& name) { return !sizes_.contains(name); });
    if (missing.empty()) return;
    const auto first = static_cast<int>(std::ranges::find(names, missing[0]) - names.begin());
    throw Error(ErrorCode::kInvalidArgument,
                source_.Fault(CellPart::kSize, first,
                              StrCat("cell \"", cell_.name(), "\" needs a value for its ",
                                     missing.size() == 1 ? "size " : "sizes ", Join(missing, ", "))));
  }

  std::string InputBlob(const std::string& name) const {
    const auto found = use_.inputs.find(name);
    return found == use_.inputs.end() ? name : found->second;
  }

  void AddInput(const std::string& name, DType dtype, std::vector<std::int64_t> dims) {
    names_.Take(InputBlob(name));
    *result_.net.add_external_input() = InputBlob(name);
    result_.inputs.push_back({.blob = InputBlob(name), .dtype = dtype, .dims = std::move(dims)});
  }

  // `first`, then the shape of part `index`.
  std::vector<std::int64_t> Dims(CellPart part, int index, const google::protobuf::RepeatedPtrField<std::string>& shape,
                                 std::vector<std::int64_t> first) const {
    for (const std::string& text : shape) {
      first.push_back(text == "B" ? CellNetInput::kBatch : SizeIn(source_, part, index, text, sizes_));
    }
    return first;
  }

  void NameInputs() {
    std::vector<std::int64_t> steps = {CellNetInput::kSteps, CellNetInput::kBatch};
    if (options().batch_major()) std::swap(steps[0], steps[1]);
    for (int i = 0; i < cell_.input_size(); ++i) {
      AddInput(cell_.input(i).name(), DType::kFloat, Dims(CellPart::kInput, i, cell_.input(i).shape(), steps));
    }
    for (int i = 0; i < cell_.capture_size(); ++i) {
      AddInput(cell_.capture(i).name(), DType::kFloat, Dims(CellPart::kCapture, i, cell_.capture(i).shape(), {}));
    }
    if (options().has_lengths()) AddInput(options().lengths(), DType::kInt32, {CellNetInput::kBatch});
    if (options().has_mask()) AddInput(options().mask(), DType::kBool, steps);
    TakeParameters();
    for (const CellOutput& output : cell_.output()) names_.Take(use_.scope + NameOf(output));
  }

  // What is given from outside must not be taken for a parameter of some layer or direction.
  void TakeParameters() {
    const NameSet given = names_;
    for (std::int64_t layer = 0; layer < options().layers(); ++layer) {
      for (const bool reverse : {false, true}) {
        for (int i = 0; i < cell_.parameter_size(); ++i) {
          const std::string name = Prefix(layer, reverse) + cell_.parameter(i).name();
          names_.Take(name);
          if (!given.Contains(name)) continue;
          throw Error(
              ErrorCode::kInvalidArgument,
              source_.Fault(CellPart::kParameter, i,
                            StrCat("\"", name, "\" is both a parameter and what the cell is given from outside")));
        }
      }
    }
  }

  std::string Prefix(std::int64_t layer, bool reverse) const {
    std::string prefix = use_.scope;
    if (options().layers() > 1) prefix += StrCat("layer", layer, "/");
    return is_bidirectional() && reverse ? prefix + "reverse/" : prefix;
  }

  std::string StepName(std::int64_t layer) const {
    const bool is_one_of_several = options().layers() > 1 && !joins_layers();
    return StrCat(cell_.name(), is_one_of_several ? StrCat("_layer", layer) : "", "_step");
  }

  // What names in the step begin with where several layers or directions share it.
  std::string StepPrefix(std::int64_t layer, bool reverse) const {
    if (joins_layers()) return StrCat("layer", layer, "/");
    return is_bidirectional() && reverse ? "reverse/" : "";
  }

  static std::vector<std::int64_t> StepsFirst(int item_rank) {
    std::vector<std::int64_t> axes = {1, 0};
    for (int i = 0; i < item_rank; ++i) axes.push_back(2 + i);
    return axes;
  }

  // Brings inputs into the form that layers take: time-major, the mask as [T, B].
  void WriteInputs() {
    for (const CellInput& input : cell_.input()) {
      std::string blob = InputBlob(input.name());
      if (options().batch_major()) blob = Transposed(blob, input.shape_size());
      sequences_.push_back(blob);
    }
    if (options().has_mask()) {
      mask_ = InputBlob(options().mask());
      if (options().batch_major()) mask_ = Transposed(mask_, 0);
    }
    if (options().has_lengths()) {
      mask_ = names_.Unused(use_.scope + "mask");
      AddOp(&result_.net, "StepMask", {sequences_[0], InputBlob(options().lengths())}, {mask_});
    }
  }

  std::string Transposed(const std::string& blob, int item_rank) {
    const std::string result = names_.Unused(use_.scope + blob + "_time_major");
    AddOp(&result_.net, "Transpose", {blob}, {result}).Ints("axes", StepsFirst(item_rank));
    return result;
  }

  // From the last step to the first; of sequences with lengths, each for itself.
  void Reverse(const std::string& input, const std::string& output) {
    std::vector<std::string> inputs = {input};
    if (options().has_lengths()) inputs.push_back(InputBlob(options().lengths()));
    AddOp(&result_.net, "ReversePackedSegs", inputs, {output});
  }

  std::string Reversed(const std::string& blob) {
    const auto [found, is_new] = reversed_.emplace(blob, "");
    if (is_new) Reverse(blob, found->second = names_.Unused(use_.scope + blob + "_reversed"));
    return found->second;
  }

  // Rows replace those that do not count.
  std::string Filled(const std::string& blob, const std::string& mask) {
    const auto [found, is_new] = filled_.emplace(blob, "");
    if (is_new) {
      found->second = names_.Unused(use_.scope + blob + "_filled");
      AddOp(&result_.net, "FillPadding", {blob, mask}, {found->second});
    }
    return found->second;
  }

  void WriteLayer(std::int64_t layer) {
    const bool is_last = layer + 1 == options().layers();
    const bool stays_open = joins_layers() && !is_last;
    std::vector<CellLayer> directions;
    for (const bool reverse : {false, true}) {
      if (is_bidirectional() || reverse == (options().direction() == CellOptions::REVERSE)) {
        directions.emplace_back(Context(layer, reverse));
      }
    }
    std::vector<std::vector<std::string>> sources(directions.size());
    std::vector<std::string> outputs;
    std::vector<Shape> items;
    std::vector<DType> dtypes;
    for (int k = 0; k < cell_.output_size(); ++k) {
      const Shape item = OutputItem(directions, k);
      const std::string prefix = is_last ? use_.scope : Prefix(layer, false);
      // What the next layer reads stays time-major.
      outputs.push_back(is_last ? prefix + NameOf(cell_.output(k)) : names_.Unused(prefix + NameOf(cell_.output(k))));
      items.push_back(item);
      dtypes.push_back(directions.front().OutputDType(k));
      if (k == 0 && layer > 0 && options().residual()) CheckResidual(layer, item);
      if (stays_open && k == 0) {
        sources[0].emplace_back();  // which the next layer reads within the step
      } else {
        WriteOutput(k, layer, item, outputs.back(), &sources, &finish_);
      }
    }
    for (size_t d = 0; d < directions.size(); ++d) directions[d].Write(sources[d], &result_);
    if (stays_open && drops()) DropTop(layer, outputs[0], items[0]);
    if (!stays_open) {
      op_.Write(names_.Unused((joins_layers() ? use_.scope : Prefix(layer, false)) + "record"), &result_.net);
      for (const auto& write : finish_) write();
      finish_.clear();
      op_ = {};
    }
    if (is_last) {
      result_.outputs.insert(result_.outputs.begin(), outputs.begin(), outputs.end());
      result_.output_items.insert(result_.output_items.begin(), items.begin(), items.end());
      result_.output_dtypes.insert(result_.output_dtypes.begin(), dtypes.begin(), dtypes.end());
      return;
    }
    // The next layer reads the first output.
    result_.outputs.insert(result_.outputs.end(), outputs.begin() + 1, outputs.end());
    result_.output_items.insert(result_.output_items.end(), items.begin() + 1, items.end());
    result_.output_dtypes.insert(result_.output_dtypes.end(), dtypes.begin() + 1, dtypes.end());
    BindInput(items[0]);
    sequences_[0] = outputs[0];
  }

  LayerContext Context(std::int64_t layer, bool reverse) {
    LayerContext context{.cell = &source_,
                         .use = &use_,
                         .sizes = sizes_,
                         .prefix = Prefix(layer, reverse),
                         .step_name = StepName(layer),
                         .step_prefix = StepPrefix(layer, reverse),
                         .sequences = sequences_,
                         .mask = mask_,
                         .names = &names_,
                         .op = &op_,
                         .adds_top = joins_layers() && layer > 0 && options().residual(),
                         .repeats_first = repeats_first_};
    if (reverse) {
      for (std::string& sequence : context.sequences) sequence = Reversed(sequence);
      // With lengths, the steps that count come first in either direction.
      if (options().has_mask()) context.mask = Reversed(mask_);
    }
    if (repeats_first_) FillSequences(joins_layers() && layer > 0 ? 1 : 0, &context);
    return context;
  }

  void FillSequences(int first, LayerContext* context) {
    for (int i = first; i < cell_.input_size(); ++i) {
      if (IsRead(cell_, cell_.input(i).name())) context->sequences[i] = Filled(context->sequences[i], context->mask);
    }
  }

  Shape OutputItem(const std::vector<CellLayer>& directions, int k) const {
    const Shape& item = directions.front().output_items()[k];
    if (directions.size() == 1) return item;
    if (item.rank() == 0) {
      throw Error(
          ErrorCode::kShapeMismatch,
          source_.Fault(
              CellPart::kOutput, k,
              StrCat(
                  "the output \"", cell_.output(k).blob(),
                  "\" is one number an item, and has no dimension in which two directions could be put side by side")));
    }
    return item.With(item.rank() - 1, 2 * item[-1]);
  }

  void CheckResidual(std::int64_t layer, const Shape& item) const {
    if (item == item_) return;
    throw Error(ErrorCode::kShapeMismatch, source_.Fault(CellPart::kOptions, CellOptions::kResidualFieldNumber,
                                                         StrCat("residual adds the input of layer ", layer, ", ", item_,
                                                                " an item, to its output, ", item)));
  }

  // Drops elements of what the layer gives to the next one, in the step. The mask is drawn for all steps before, as
  // that of a Dropout of the whole sequence `name` is.
  void DropTop(std::int64_t layer, const std::string& name, const Shape& item) {
    const std::string mask = names_.Unused(name + "_mask");
    AddOp(&result_.net, "ConstantFill", {OneOfEachItem()}, {name}).Ints("extra_shape", item.ToVector());
    AddOp(&result_.net, "Dropout", {name}, {name, mask}).Float("ratio", options().dropout());
    const std::string prefix = StepPrefix(layer, /*reverse=*/false);
    const std::string mask_of_step = op_.names.Unused(prefix + "dropout_mask_t");
    op_.AddLink({mask_of_step, mask, 0, 1});
    op_.AddInput(mask);
    const std::string dropped = op_.names.Unused(op_.top + "_dropped");
    AddOp(&op_.step, "DropoutGrad", {op_.top, mask_of_step}, {dropped}).Float("ratio", options().dropout());
    op_.top = dropped;
  }

  // A tensor [T, B], of the first elements of items.
  const std::string& OneOfEachItem() {
    if (!first_elements_.empty()) return first_elements_;
    const int rank = cell_.input(0).shape_size();
    if (rank == 0) return first_elements_ = sequences_[0];
    std::vector<std::int64_t> ends(2, -1);
    ends.insert(ends.end(), rank, 1);
    const std::string columns = names_.Unused(use_.scope + "first_columns");
    first_elements_ = names_.Unused(use_.scope + "first_elements");
    AddOp(&result_.net, "Slice", {sequences_[0]}, {columns})
        .Ints("starts", std::vector<std::int64_t>(2 + rank, 0))
        .Ints("ends", ends);
    AddOp(&result_.net, "Reshape", {columns}, {first_elements_}).Ints("shape", {0, 0});
    return first_elements_;
  }

  // Says what the RecurrentNetwork operators are to write (`sources`) and what is to be done behind them (`finish`) so
  // that `name` holds output k.
  void WriteOutput(int k, std::int64_t layer, const Shape& item, const std::string& name,
                   std::vector<std::vector<std::string>>* sources, std::vector<std::function<void()>>* finish) {
    const bool is_last_layer = layer + 1 == options().layers();
    const bool last = cell_.output(k).last();
    std::vector<Stage> joint;
    if (k == 0 && layer > 0 && options().residual() && !joins_layers()) {
      joint.push_back([this, input = sequences_[0]](const std::string& from, const std::string& to) {
        AddOp(&result_.net, "Add", {from, input}, {to});
      });
    }
    if (k == 0 && !is_last_layer && drops()) {
      joint.push_back([this](const std::string& from, const std::string& to) {
        AddOp(&result_.net, "Dropout", {from}, {to, names_.Unused(to + "_mask")}).Float("ratio", options().dropout());
      });
    }
    if (options().batch_major() && !last && (is_last_layer || k > 0)) {
      joint.push_back([this, rank = item.rank()](const std::string& from, const std::string& to) {
        AddOp(&result_.net, "Transpose", {from}, {to}).Ints("axes", StepsFirst(rank));
      });
    }
    const bool has_concat = sources->size() > 1;
    const std::string joined = WriteChain(name, joint, finish, /*at=*/finish->size());
    std::vector<std::string> parts;
    std::vector<std::function<void()>> before;
    for (size_t d = 0; d < sources->size(); ++d) {
      const bool reverse = options().direction() == CellOptions::REVERSE || d == 1;
      std::vector<Stage> own;
      if (!last && reverse) {
        own.push_back([this](const std::string& from, const std::string& to) { Reverse(from, to); });
      }
      parts.push_back(has_concat ? names_.Unused(joined + (reverse ? "_reverse" : "_forward")) : joined);
      (*sources)[d].push_back(WriteChain(parts.back(), own, &before, before.size()));
    }
    if (has_concat) {
      before.push_back([this, parts, joined] {
        AddOp(&result_.net, "Concat", parts, {joined, names_.Unused(joined + "_sizes")}).Int("axis", -1);
      });
    }
    finish->insert(finish->end() - static_cast<std::ptrdiff_t>(joint.size()), before.begin(), before.end());
  }

  // Appends the stages so that the last writes `name`; the blob that the first reads, `name` where there is none.
  std::string WriteChain(const std::string& name, const std::vector<Stage>& stages,
                         std::vector<std::function<void()>>* finish, size_t at) {
    std::string to = name;
    for (auto stage = stages.rbegin(); stage != stages.rend(); ++stage) {
      const std::string from = names_.Unused(name + "_raw");
      finish->insert(finish->begin() + static_cast<std::ptrdiff_t>(at),
                     [stage = *stage, from, to] { stage(from, to); });
      to = from;
    }
    return to;
  }

  // The sizes of the first input are those of what the next layer reads.
  void BindInput(const Shape& item) {
    item_ = item;
    const CellInput& input = cell_.input(0);
    if (item.rank() != input.shape_size()) {
      ThrowUnstackable(CellPart::kInput, 0,
                       StrCat("an item of the first output is ", item, ", of the first input it has ",
                              input.shape_size(), " dimensions"));
    }
    for (int i = 0; i < item.rank(); ++i) {
      if (sizes_.contains(input.shape(i))) sizes_[input.shape(i)] = item[i];
    }
    for (int i = 0; i < item.rank(); ++i) {
      if (SizeIn(source_, CellPart::kInput, 0, input.shape(i), sizes_) == item[i]) continue;
      ThrowUnstackable(
          CellPart::kInput, 0,
          StrCat("an item of the first output is ", item, ", and the first input has a size of ", input.shape(i)));
    }
    for (int i = 1; i < cell_.input_size(); ++i) CheckSharedByLayers(CellPart::kInput, i, cell_.input(i));
    for (int i = 0; i < cell_.capture_size(); ++i) CheckSharedByLayers(CellPart::kCapture, i, cell_.capture(i));
  }

  // All layers read the same further inputs and captures, whatever sizes the layer below gives the first input.
  template <typename Message>
  void CheckSharedByLayers(CellPart part, int index, const Message& message) const {
    CellSizes first = sizes_of_first_layer_, here = sizes_;
    first["B"] = here["B"] = 1;
    for (const std::string& dimension : message.shape()) {
      const std::int64_t size = SizeIn(source_, part, index, dimension, first);
      const std::int64_t bound = SizeIn(source_, part, index, dimension, here);
      if (size == bound) continue;
      const std::string& input = cell_.input(0).name();
      ThrowUnstackable(part, index,
                       StrCat("all layers read the same \"", message.name(), "\", whose size ", dimension, " is ", size,
                              " in the first one and ", bound, " where \"", input, "\" is what the layer below gives; ",
                              "declare it by a size that \"", input, "\" does not have"));
    }
  }

  [[noreturn]] void ThrowUnstackable(CellPart part, int index, const std::string& why) const {
    throw Error(ErrorCode::kShapeMismatch,
                source_.Fault(part, index, StrCat("layers cannot be put on each other: ", why)));
  }

  void ListExternals() {
    for (const std::string& parameter : result_.parameters) result_.net.add_external_input(parameter);
    NameLearnedStates();
    std::set<std::string> known(result_.net.external_input().begin(), result_.net.external_input().end());
    for (const OperatorDef& op : result_.init_net.op()) {
      if (known.insert(op.output(0)).second) result_.net.add_external_input(op.output(0));
    }
    for (const std::string& output : result_.outputs) result_.net.add_external_output(output);
    for (const CarriedState& state : result_.states) result_.net.add_external_output(state.last);
  }

  void NameLearnedStates() {
    std::vector<std::string> learned;
    for (const CellNetInput& start : result_.starts) {
      if (std::ranges::count(result_.parameters, start.blob) > 0) learned.push_back(start.blob);
    }
    if (learned.empty()) return;
    Argument& argument = *result_.net.add_arg();
    argument.set_name(kLearnedStates);
    for (const std::string& blob : learned) argument.add_strings(blob);
  }

  const CellSource& source_;
  const CellDef& cell_;
  const CellUse& use_;
  CellSizes sizes_;  // of the layer at hand
  CellSizes sizes_of_first_layer_;
  NameSet names_;
  std::vector<std::string> sequences_;  // of the layer at hand
  Shape item_;                          // of its first sequence, from the second layer on
  std::string mask_;
  std::string first_elements_;                   // [T, B], where there is such a tensor
  RecurrentOperator op_;                         // of the layer at hand, or of it and those below
  std::vector<std::function<void()>> finish_;    // what comes behind them
  std::map<std::string, std::string> reversed_;  // sequence → the same from the last step to the first
  std::map<std::string, std::string> filled_;    // sequence → the same without what does not count
  bool repeats_first_ = false;                   // LayerContext::repeats_first
  CellNet result_;
};

void BecomeDouble(CellNet* cell) {
  cell->init_net = InDouble(cell->init_net);
  cell->net = InDouble(cell->net);
  const auto widen = [](DType& dtype) { dtype = dtype == DType::kFloat ? DType::kDouble : dtype; };
  for (CellNetInput& input : cell->inputs) widen(input.dtype);
  for (CellNetInput& start : cell->starts) widen(start.dtype);
  std::ranges::for_each(cell->output_dtypes, widen);
}

// Throws what is wrong with a cell of which something is not read, and what is wrong with its shapes, where that is
// known without it.
[[noreturn]] void ThrowWithShapes(const Error& unread, const CellSource& cell, const CellUse& use) {
  try {
    CellExpander(cell, use).Run();
  } catch (const Error& fault) {
    if (fault.code() == ErrorCode::kCancelled || fault.code() == ErrorCode::kOutOfMemory) throw;
    if (fault.code() == ErrorCode::kShapeMismatch || fault.code() == ErrorCode::kTypeMismatch) {
      throw Error(unread.code(), StrCat(unread.message(), "\n", fault.message()));
    }
  }
  throw unread;
}

}  // namespace

CellNet ExpandCell(const CellSource& cell, const CellUse& use) {
  const std::optional<Error> unread = UnreadFault(cell);
  if (unread) ThrowWithShapes(*unread, cell, use);
  CellNet net = CellExpander(cell, use).Run();
  if (use.in_double) BecomeDouble(&net);
  return net;
}

}  // namespace stepnet
