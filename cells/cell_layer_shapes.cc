// The shapes of a layer: of what the cell declares, and of what a step makes of it.
#include <algorithm>

#include "stepnet/cells/any_batch.h"
#include "stepnet/cells/cell_advice.h"
#include "stepnet/cells/cell_layer.h"
#include "stepnet/compiler/import_step.h"
#include "stepnet/core/operator.h"
#include "stepnet/nets/op_arguments.h"
#include "stepnet/nets/op_builder.h"

namespace stepnet {
namespace {

// "along dimension 0, of 3, it goes from 3 to 3, …": why a slice of `x` has no elements, and what to write.
std::string WhyEmpty(const OperatorDef& slice, const std::string& name, const Shape& x, const Shape& y) {
  int d = 0;
  while (y[d] != 0) ++d;
  const auto bound = [&](const char* name) -> std::int64_t {
    const Argument* bounds = FindArgument(slice, name);
    return bounds != nullptr && d < bounds->ints_size() ? bounds->ints(d) : 0;
  };
  const std::int64_t start = bound("starts"), end = bound("ends"), size = x[d];
  const auto resolved = [size](std::int64_t at) { return std::min(at < 0 ? at + size + 1 : at, size); };
  const char* const meaning = d == 0 ? " (steps)" : d == 1 ? " (the batch)" : "";
  const std::string along = StrCat("along dimension ", d, meaning, ", of ", size);
  if (const std::int64_t step = bound("steps"); step != 0) {
    return StrCat(along, ", it is [", start, ":", end, ":", step, "] as ONNX counts");
  }
  const std::string range = StrCat(along, ", it goes from ", resolved(start), " to ", resolved(end));
  if (start >= 0) return range;
  std::vector<std::string> starts(d, "0"), ends(d + 1, "-1");
  starts.emplace_back("-2");
  return StrCat(range, "; -1 is the end itself, and the last is Slice(", name, ", starts=[", Join(starts, ", "),
                "], ends=[", Join(ends, ", "), "])");
}

}  // namespace

std::int64_t SizeIn(const CellSource& cell, CellPart part, int index, const std::string& text, const CellSizes& sizes) {
  const std::int64_t value = cell.At(part, index, [&] { return EvaluateSize(text, sizes); });
  if (value > 0) return value;
  throw Error(ErrorCode::kInvalidArgument,
              cell.Fault(part, index, StrCat("the size ", text, " is ", value, ", must be above 0")));
}

Shape CellLayer::ShapeOf(CellPart part, int index, const google::protobuf::RepeatedPtrField<std::string>& shape,
                         const CellSizes& sizes) const {
  std::vector<std::int64_t> dims;
  for (const std::string& text : shape) dims.push_back(SizeIn(*context_.cell, part, index, text, sizes));
  return context_.cell->At(part, index, [&] { return Shape(dims); });
}

// The first number from `least` on that is no size of the cell.
void CellLayer::ChooseBatch(std::int64_t least) {
  std::set<std::int64_t> sizes;
  const auto add = [&](const Shape& shape) { sizes.insert(shape.dims().begin(), shape.dims().end()); };
  for (int i = 0; i < cell().input_size(); ++i) add(InputShape(i));
  for (int i = 0; i < cell().state_size(); ++i) add(StateShape(i));
  for (int i = 0; i < cell().parameter_size(); ++i) add(ParameterShape(i));
  for (int i = 0; i < cell().capture_size(); ++i) add(CaptureShape(i));
  batch_ = least;
  while (sizes.contains(batch_)) ++batch_;
}

// [1, B, …] and not [B, …].
bool CellLayer::HasStep(const Shape& shape) const { return shape.rank() >= 2 && shape[0] == 1 && shape[1] == batch_; }

Shape CellLayer::InputShape(int i) const {
  return ShapeOf(CellPart::kInput, i, cell().input(i).shape(), context_.sizes);
}
Shape CellLayer::StateShape(int i) const {
  return ShapeOf(CellPart::kState, i, cell().state(i).shape(), context_.sizes);
}
Shape CellLayer::ParameterShape(int i) const {
  return ShapeOf(CellPart::kParameter, i, cell().parameter(i).shape(), context_.sizes);
}
Shape CellLayer::CaptureShape(int i) const {
  CellSizes sizes = context_.sizes;
  sizes["B"] = batch_;
  return ShapeOf(CellPart::kCapture, i, cell().capture(i).shape(), sizes);
}

std::map<std::string, TensorInfo> CellLayer::StepInputs() const {
  std::map<std::string, TensorInfo> inputs;
  const auto add = [&](const std::string& name, DType dtype, const Shape& shape) {
    inputs[name] = {.dtype = dtype, .shape = shape};
  };
  const auto add_rows = [&](CellPart part, int i, const std::string& name, std::int64_t rows, const Shape& item) {
    context_.cell->At(part, i, [&] { add(name, DType::kFloat, item.Inserted(0, batch_).Inserted(0, rows)); });
  };
  for (int i = 0; i < cell().input_size(); ++i) {
    add_rows(CellPart::kInput, i, linked_[i], 1, InputShape(i));
  }
  for (int i = 0; i < cell().state_size(); ++i) {
    add_rows(CellPart::kState, i, previous_[i], cell().state(i).window(), StateShape(i));
    if (read_[i] != previous_[i]) add_rows(CellPart::kState, i, initial_[i], cell().state(i).window(), StateShape(i));
  }
  for (int i = 0; i < cell().capture_size(); ++i) {
    add(renamed_.at(cell().capture(i).name()), DType::kFloat, CaptureShape(i));
  }
  for (int i = 0; i < cell().parameter_size(); ++i) {
    add(renamed_.at(cell().parameter(i).name()), DType::kFloat, ParameterShape(i));
  }
  add("timestep", DType::kInt32, {1});
  if (!mask_.empty()) add(mask_, DType::kBool, {1, batch_});
  return inputs;
}

// Throws kShapeMismatch for slices without elements: operators take them, and what follows from them is nothing.
void CellLayer::CheckSlices(const StepGraph& graph) const {
  for (int k = 0; k < cell().op_size(); ++k) {
    const OperatorDef& slice = step_.op(first_op_ + k);
    const auto y = graph.last.find(slice.output(0));
    if (slice.type() != "Slice" || y == graph.last.end() || graph.values[y->second].dynamic) continue;
    const TensorInfo& info = graph.values[y->second].info;
    if (std::ranges::count(info.shape.dims(), 0) == 0) continue;
    const TensorInfo& x = graph.values[graph.last.at(slice.input(0))].info;
    throw Error(
        ErrorCode::kShapeMismatch,
        context_.cell->Fault(CellPart::kOperator, k,
                             StrCat("the slice of \"", cell().op(k).input(0), "\", ", x.Description(),
                                    ", takes nothing: ", WhyEmpty(slice, cell().op(k).input(0), x.shape, info.shape))));
  }
}

// Throws kShapeMismatch unless the cell's operators give states the shapes that are declared.
void CellLayer::CheckStateWrites(const StepGraph& graph) const {
  for (int i = 0; i < cell().state_size(); ++i) {
    const CellState& state = cell().state(i);
    const StepValue& written = graph.values[graph.last.at(renamed_.at(state.name()))];
    const TensorInfo wanted{.dtype = DType::kFloat, .shape = StateShape(i).Inserted(0, batch_).Inserted(0, 1)};
    if (written.dynamic || written.info == wanted) continue;
    const std::string advice =
        state.window() == 1 || written.info.shape.rank() == 0 || written.info.shape[0] != state.window()
            ? ""
            : StrCat("; with window=", state.window(), " it reads ", state.window(), " rows of ", state.name(),
                     ", the oldest first, and writes one: the newest is Slice(", state.name(),
                     ", starts=[-2], ends=[-1])");
    throw Error(
        ErrorCode::kShapeMismatch,
        context_.cell->Fault(CellPart::kStateWrite, i,
                             StrCat("the state \"", state.name(), "\" is declared as [", Join(state.shape(), ", "),
                                    "], which is ", wanted.Description(), " in a step of a batch of ", batch_,
                                    ", and the step writes ", written.info.Description(), advice)));
  }
}

// What operators of the step make of it before this one.
StepGraph CellLayer::GraphBefore(int op_index, const std::map<std::string, TensorInfo>& inputs) const {
  NetDef before = step_;
  before.mutable_op()->DeleteSubrange(op_index, before.op_size() - op_index);
  return ImportStep(before, inputs);
}

// Throws where the operators before this one give what they themselves accept and a cell may not have: an error behind
// them follows from that.
void CellLayer::CheckBefore(int op_index, const std::map<std::string, TensorInfo>& inputs) const {
  if (op_index < first_op_ || op_index >= step_.op_size()) return;
  const StepGraph graph = GraphBefore(op_index, inputs);
  CheckSlices(graph);
  if (op_index >= first_op_ + cell().op_size()) CheckStateWrites(graph);
}

// What to write in place of operator k of the cell, of which the error is.
std::string CellLayer::AdviceOn(int k, const Error& error, const std::map<std::string, TensorInfo>& inputs) const {
  if (error.code() != ErrorCode::kShapeMismatch && error.code() != ErrorCode::kTypeMismatch) return "";
  const StepGraph graph = GraphBefore(first_op_ + k, inputs);
  const auto info_of = [&](const std::string& blob) -> std::optional<TensorInfo> {
    const std::string& name = blob == "timestep" ? blob : renamed_.at(blob);
    if (const auto value = graph.last.find(name); value != graph.last.end()) return graph.values[value->second].info;
    const auto input = inputs.find(name);
    return input == inputs.end() ? std::nullopt : std::optional(input->second);
  };
  const OperatorDef& op = cell().op(k);
  if (error.code() == ErrorCode::kTypeMismatch) {
    std::vector<std::optional<DType>> dtypes(op.input_size());
    for (int i = 0; i < op.input_size(); ++i) {
      const std::optional<TensorInfo> info = info_of(op.input(i));
      const std::string& name = step_.op(first_op_ + k).input(i);
      const bool is_meant = info && error.message().find(StrCat(name, " is ", info->dtype)) != std::string::npos;
      if (is_meant) dtypes[i] = info->dtype;
    }
    const bool works_on_floats = error.message().find(StrCat(" works on ", DType::kFloat)) != std::string::npos;
    return AdviceOnTypes(cell(), k, dtypes, works_on_floats);
  }
  const std::string on_axis = AdviceOnAxis(op);
  const ShapeOfBlob shape_of = [&](const std::string& blob) -> std::optional<Shape> {
    const std::optional<TensorInfo> info = info_of(blob);
    return info ? std::optional(info->shape) : std::nullopt;
  };
  return AdviceOnProduct(*context_.cell, k) + (on_axis.empty() ? "" : "\n  " + on_axis) +
         AdviceOnOuterProduct(cell(), k, shape_of);
}

// Operators of the step net that come from the cell are `first_op_` and following, in the cell's order.
void CellLayer::ThrowAtOperator(const Error& error, const std::map<std::string, TensorInfo>& inputs) const {
  const int k = error.places().empty() ? -1 : error.places().front().op_index - first_op_;
  const bool is_of_cell = k >= 0 && k < cell().op_size();
  const CellPart part = is_of_cell ? CellPart::kOperator : CellPart::kCell;
  const int index = is_of_cell ? k : 0;
  const std::string advice = is_of_cell ? AdviceOn(k, error, inputs) : "";
  Error told(error.code(), error.message() + advice + context_.cell->Line(part, index));
  for (const Place& place : error.places()) told.At(place);
  throw told.At({.file = context_.cell->Place(part, index)});
}

// A product that multiplies no vectors has a gradient also where matrices are repeated, if that is said of it.
void CellLayer::SayWhereMatrices(const StepGraph& graph) {
  for (const StepNode& node : graph.nodes) {
    if (node.op_index < 0) continue;
    OperatorDef& op = *step_.mutable_op(node.op_index);
    if (op.type() != "BatchMatMul" || FindArgument(op, "broadcast") == nullptr) continue;
    const auto is_vector = [&](int value) { return graph.values[value].info.shape.rank() < 2; };
    if (FindArgument(op, "matrices") == nullptr && std::ranges::none_of(node.inputs, is_vector)) {
      OpBuilder(&op).Int("matrices", 1);
    }
  }
}

// Stands for B a number that is no other size, so that dimensions are not mistaken for it; what is wrong is said of the
// batch that the user gave, or of any.
void CellLayer::InferShapes() {
  try {
    InferShapesOfBatch();
    InferShapesOfAnotherBatch();
  } catch (const Error& error) {
    const std::int64_t wanted = context_.use->batch;
    if (wanted == batch_) throw;
    if (wanted > 0) {
      batch_ = wanted;
      InferShapesOfBatch();  // right by chance, where it returns
    }
    ThrowOfAnyBatch(error.code());
    throw;
  }
}

// Sizes that the step makes, as of three copies, can be those of a batch by chance: another batch tells.
void CellLayer::InferShapesOfAnotherBatch() {
  item_has_batch_.assign(output_items_.size(), false);
  const auto is_state = [&](const CellOutput& output) { return IndexOfName(cell().state(), output.blob()) >= 0; };
  if (std::ranges::all_of(cell().output(), is_state)) return;
  const std::vector<Shape> items = output_items_;
  ChooseBatch(batch_ + 1);
  InferShapesOfBatch();
  for (size_t k = 0; k < items.size(); ++k) item_has_batch_[k] = output_items_[k] != items[k];
}

// Throws unless that meets another error: shapes can be too large for their sizes to be counted.
void CellLayer::ThrowOfAnyBatch(ErrorCode code) {
  batch_ = kAnyBatch;
  try {
    InferShapesOfBatch();
  } catch (const Error& error) {
    if (error.code() == code) throw OfAnyBatch(error);
  }
}

void CellLayer::InferShapesOfBatch() {
  const CellSource& source = *context_.cell;
  const std::map<std::string, TensorInfo> inputs = StepInputs();
  StepGraph graph;
  try {
    graph = ImportStep(step_, inputs);
  } catch (const Error& error) {
    if (!error.places().empty()) CheckBefore(error.places().front().op_index, inputs);
    ThrowAtOperator(error, inputs);
  }
  const auto value = [&](const std::string& blob) -> const StepValue& { return graph.values[graph.last.at(blob)]; };
  CheckSlices(graph);
  CheckStateWrites(graph);
  SayWhereMatrices(graph);
  output_blobs_.clear();
  output_infos_.clear();
  output_items_.clear();
  for (int k = 0; k < cell().output_size(); ++k) {
    const std::string& blob = cell().output(k).blob();
    if (const int state = IndexOfName(cell().state(), blob); state >= 0) {
      output_blobs_.push_back(next_[state]);
      output_infos_.push_back(value(next_[state]).info);
      output_items_.push_back(StateShape(state));
      continue;
    }
    const StepValue& written = value(renamed_.at(blob));
    const Shape& shape = written.info.shape;
    const bool has_step = HasStep(shape);
    if (written.dynamic || (!has_step && (shape.rank() < 1 || shape[0] != batch_))) {
      throw Error(ErrorCode::kShapeMismatch,
                  source.Fault(CellPart::kOutput, k,
                               StrCat("the output \"", blob, "\" is ",
                                      written.dynamic ? "of a shape that only a run tells" : written.info.Description(),
                                      " in a step of a batch of ", batch_, "; it must be [1, B, …] or [B, …]")));
    }
    output_blobs_.push_back(renamed_.at(blob));
    output_infos_.push_back(written.info);
    output_items_.push_back(has_step ? shape.Tail().Tail() : shape.Tail());
  }
}

}  // namespace stepnet
