#include "stepnet/python/src/cell.h"

#include <algorithm>
#include <set>

#include "stepnet/cells/cell_inputs.h"
#include "stepnet/cells/parameter_names.h"
#include "stepnet/compiler/import_step.h"
#include "stepnet/core/error.h"
#include "stepnet/core/floating.h"
#include "stepnet/core/memory_for.h"
#include "stepnet/core/strings.h"
#include "stepnet/io/proto_io.h"
#include "stepnet/nets/needed_operators.h"
#include "stepnet/nets/op_arguments.h"
#include "stepnet/nets/side_effects.h"
#include "stepnet/proto/net.pb.h"
#include "stepnet/python/src/arrays.h"
#include "stepnet/python/src/names.h"

namespace nb = nanobind;

namespace stepnet::python {
namespace {

const char* KindOf(const Cell::Argument& argument) {
  if (argument.is_parameter) return "parameter";
  return argument.is_start || argument.input.is_state ? "initial state" : "input";
}

// Lengths, the one input of whole numbers, may be of either size.
bool Fits(DType dtype, DType expected) {
  return dtype == expected || (expected == DType::kInt32 && dtype == DType::kInt64);
}

std::string QuotedList(const std::vector<std::string>& names) {
  std::vector<std::string> quoted;
  for (const std::string& name : names) quoted.push_back(StrCat("\"", name, "\""));
  return Join(quoted, ", ");
}

// What to say where the cell's parameters are given under other names.
std::string OtherNamesHint(const nb::dict& given, const std::vector<std::string>& parameters) {
  std::vector<std::string> names;
  for (const nb::handle key : given.keys()) names.push_back(Utf8Of(key));
  const std::vector<OtherNames> found = FindOtherNames(names, parameters);
  return found.empty() ? "" : StrCat("; ", OtherNamesText(found, parameters.front()));
}

}  // namespace

Cell::Cell(const CellSource& source, const CellUse& use, const RunOptions& options)
    : name_(source.def.name()),
      doc_(source.def.doc()),
      text_(LooksLikeText(source.text) ? source.text : PrintMessageText(source.def)),
      warnings_(WarningsOf(source)),
      net_(ExpandCell(source, use)),
      options_(options) {
  CheckBlobNames(net_.net);
  CheckBlobNames(net_.init_net);
  draws_ = DrawsRandomNumbers(net_.net);
  outputs_ = net_.outputs;
  output_dtypes_ = net_.output_dtypes;
  // Parameters may be large, and are not filled: shape rules say what they are.
  const StepGraph fills = ImportStep(net_.init_net, {});
  std::set<std::string> starts;
  for (const CellNetInput& start : net_.starts) starts.insert(start.blob);
  for (const std::string& parameter : net_.parameters) starts.erase(parameter);
  Workspace filled;
  RunNetOnce(WithNeededOperators(net_.init_net, starts), filled, options_);
  const auto add = [&](const CellNetInput& input, bool is_parameter, bool is_start) {
    Argument argument{.input = input, .is_parameter = is_parameter, .is_start = is_start};
    if (is_parameter) {
      const TensorInfo& info = fills.values[fills.last.at(input.blob)].info;
      argument.input.dtype = info.dtype;
      argument.shape = info.shape;
    } else if (is_start) {
      argument.start = filled.GetTensor(input.blob).To({});
      argument.start.SetConstant();
      argument.input.dtype = argument.start.dtype();
      if (!options_.device().IsHost()) {
        argument.start_there =
            WithMemoryFor("the initial state", input.blob, [&] { return argument.start.To(options_.device()); });
      }
    }
    arguments_.push_back(std::move(argument));
  };
  for (const std::string& parameter : net_.parameters) {
    const auto start = std::ranges::find(net_.starts, parameter, &CellNetInput::blob);
    const CellNetInput plain{.blob = parameter, .dtype = DType::kFloat, .dims = {}};
    add(start == net_.starts.end() ? plain : *start, /*is_parameter=*/true, start != net_.starts.end());
  }
  for (const CellNetInput& input : net_.inputs) add(input, /*is_parameter=*/false, /*is_start=*/false);
  for (const CellNetInput& start : net_.starts) {
    const bool is_learned = std::ranges::count(net_.parameters, start.blob) > 0;
    if (!is_learned) add(start, /*is_parameter=*/false, /*is_start=*/true);
  }
  for (const CarriedState& state : net_.states) {
    outputs_.push_back(state.last);
    output_dtypes_.push_back(use.in_double ? DType::kDouble : DType::kFloat);
  }
  program_ = std::make_shared<Program>(MakeProgramDef());
}

ProgramDef Cell::MakeProgramDef(const std::vector<int>& arguments, const GradientRequests& requests) const {
  ProgramDef def{.net = net_.net, .outputs = outputs_, .options = options_, .num_runs = num_runs_};
  for (const Argument& argument : arguments_) def.inputs.push_back(argument.input.blob);
  if (arguments.empty()) return def;
  std::vector<bool> is_floating;
  for (const DType dtype : output_dtypes_) is_floating.push_back(IsFloating(dtype));
  std::vector<std::string> names;
  for (const int i : arguments) names.push_back(def.inputs[i]);
  return WithGradients(std::move(def), is_floating, names, requests);
}

std::shared_ptr<Program> Cell::ProgramWithGradients(const std::vector<int>& arguments,
                                                    const GradientRequests& requests) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Program>& program = with_gradients_[{arguments, requests}];
  if (program == nullptr) program = std::make_shared<Program>(MakeProgramDef(arguments, requests));
  return program;
}

CallGradients::Of Cell::OfGradients(const std::vector<int>& arguments, const GradientRequests& requests) const {
  CallGradients::Of of{.text = name_, .device = options_.device(), .outputs = outputs_};
  for (const int i : arguments) {
    const std::string& name = arguments_[i].input.blob;
    const auto request = requests.find(name);
    if (request != requests.end() && request->second == GradientRequest::kNone) continue;
    of.differentiated.push_back(name);
    of.is_parameter.push_back(arguments_[i].is_parameter);
  }
  return of;
}

std::vector<int> Cell::IndicesOf(const std::vector<std::string>& names) const {
  std::vector<int> indices;
  std::vector<std::string> known;
  for (int i = 0; i < std::ssize(arguments_); ++i) {
    const CellNetInput& input = arguments_[i].input;
    if (!IsFloating(input.dtype)) continue;
    known.push_back(input.blob);
    if (names.empty() || std::ranges::count(names, input.blob) > 0) indices.push_back(i);
  }
  for (const std::string& name : names) {
    if (std::ranges::count(known, name) > 0) continue;
    throw Error(ErrorCode::kInvalidArgument, StrCat("wrt names \"", name, "\"", DidYouMean(name, known),
                                                    "; gradients of ", name_, " are by ", QuotedList(known)));
  }
  return indices;
}

std::vector<int> Cell::WholeOutputs() const {
  std::vector<int> indices;
  for (int i = 0; i < std::ssize(output_dtypes_); ++i) {
    if (!IsFloating(output_dtypes_[i])) indices.push_back(i);
  }
  return indices;
}

std::map<std::string, Tensor> Cell::Init(std::uint64_t seed) const {
  RunOptions options = options_;
  options.seed = seed;
  Workspace filled;
  RunNetOnce(net_.init_net, filled, options);
  std::map<std::string, Tensor> parameters;
  for (const std::string& parameter : net_.parameters) {
    parameters[parameter] =
        WithMemoryFor("a copy of the parameter", parameter, [&] { return filled.GetTensor(parameter).To({}); });
  }
  return parameters;
}

std::vector<std::string> Cell::NamesOf(bool parameters) const {
  std::vector<std::string> names;
  for (const Argument& argument : arguments_) {
    if (argument.is_parameter == parameters) names.push_back(argument.input.blob);
  }
  return names;
}

std::string Cell::AdviceOnInput(const std::string& name) const {
  static const std::set<std::string> kOfLengths = {"length",     "lengths",        "seqlen",         "seqlens",
                                                   "seqlengths", "sequencelength", "sequencelengths"};
  static const std::set<std::string> kOfMasks = {"mask", "paddingmask", "attentionmask"};
  static const std::set<std::string> kOfStarts = {
      "h", "c", "h0", "c0", "hx", "cx", "hinit", "cinit", "state", "initialstate", "initialstates", "hidden", "states"};
  std::string said(name);
  std::erase(said, '_');
  const auto inputs = [&](const auto& is_meant) {
    std::vector<std::string> found;
    for (const Argument& argument : arguments_) {
      if (!argument.is_parameter && is_meant(argument)) found.push_back(argument.input.blob);
    }
    return found;
  };
  if (kOfStarts.contains(said)) {
    const std::vector<std::string> starts = inputs([](const Argument& of) { return of.is_start || of.input.is_state; });
    return starts.empty() ? "" : StrCat("; what states start from is ", QuotedList(starts));
  }
  const bool is_lengths = kOfLengths.contains(said);
  if (!is_lengths && !kOfMasks.contains(said)) return "";
  const char* const option = is_lengths ? "lengths" : "mask";
  const DType dtype = is_lengths ? DType::kInt32 : DType::kBool;
  const std::vector<std::string> there = inputs([&](const Argument& of) { return of.input.dtype == dtype; });
  if (!there.empty()) return StrCat("; its ", option, " is ", QuotedList(there));
  return StrCat("; it has no ", option, ": the line `option ", option, " = ", name, "` in its text declares ",
                is_lengths ? "them, or lengths=True of stepnet.layers and from_torch" : "one");
}

// Throws for the first name in `given` that no argument has.
void Cell::CheckNames(const nb::dict& given, bool parameters) const {
  const std::vector<std::string> names = NamesOf(parameters);
  for (const nb::handle key : given.keys()) {
    const std::string name = Utf8Of(key);
    if (std::ranges::count(names, name) > 0) continue;
    const char* what = parameters ? "parameter" : "input";
    const std::string others = parameters ? OtherNamesHint(given, names) : "";
    std::string advice = parameters ? "" : AdviceOnInput(name);
    if (advice.empty() && others.empty()) advice = DidYouMean(name, names);
    if (const std::vector<std::string> there = NamesOf(!parameters); std::ranges::count(there, name) > 0) {
      advice = parameters
                   ? StrCat("; it is an input, which is given by name, ", name, "=…, or in a dictionary of inputs")
                   : StrCat("; it is a parameter, and these are one dictionary: {**params, \"", name, "\": …}");
    }
    throw Error(ErrorCode::kInvalidArgument, StrCat(name_, " has no ", what, " \"", name, "\"", advice, "; its ", what,
                                                    "s are ", QuotedList(names), others));
  }
}

// Those on the device are lent anew, so that a run finds as many holders of the memory as the one before did.
void Cell::AddStarts(std::vector<Tensor>* tensors) const {
  const bool are_there = std::ranges::any_of(*tensors, IsOnDevice);
  for (size_t i = 0; i < arguments_.size(); ++i) {
    Tensor& tensor = (*tensors)[i];
    const Tensor& there = arguments_[i].start_there;
    if (tensor.defined()) continue;
    tensor = arguments_[i].start;
    if (!are_there) continue;
    tensor = Tensor::Wrap(
        there.raw(there.device()), there.dtype(), there.shape(), [there] {}, there.device());
  }
}

Cell::Given Cell::FindArguments(const nb::dict& parameters, const nb::dict& inputs) const {
  Given given;
  given.reserve(arguments_.size());
  size_t num_parameters = 0, num_inputs = 0;
  for (const Argument& argument : arguments_) {
    const std::string& name = argument.input.blob;
    const nb::dict& from = argument.is_parameter ? parameters : inputs;
    const bool may_be_left_out = argument.is_start && !argument.is_parameter;
    nb::object value = nb::borrow(PyDict_GetItem(from.ptr(), StrOf(name).ptr()));
    if (value.is_valid()) {
      ++(argument.is_parameter ? num_parameters : num_inputs);
    } else if (!may_be_left_out) {
      CheckNames(parameters, true);  // a name may be misspelled, or in the wrong place
      CheckNames(inputs, false);
      const std::string shape =
          argument.is_parameter ? argument.shape.ToString() : ExpectedShapeText(argument.input, -1, -1);
      throw Error(ErrorCode::kInvalidArgument,
                  StrCat("the ", KindOf(argument), " \"", name, "\" of ", name_, " is missing; it is ",
                         NumpyName(argument.input.dtype), " ", shape));
    }
    if (may_be_left_out && value.is_none()) value = nb::object();
    given.push_back(std::move(value));
  }
  if (num_parameters != parameters.size()) CheckNames(parameters, true);
  if (num_inputs != inputs.size()) CheckNames(inputs, false);
  return given;
}

std::vector<Tensor> Cell::TakeArguments(const Given& given, const ArrayPlace& place) const {
  std::vector<Tensor> tensors;
  std::vector<LentArray> lent(arguments_.size());
  tensors.reserve(arguments_.size());
  for (size_t i = 0; i < arguments_.size(); ++i) {
    const CellNetInput& input = arguments_[i].input;
    const ArrayRole role{KindOf(arguments_[i]), input.blob, /*is_time_major=*/false, input.dtype};
    if (given[i].is_valid()) lent[i] = LentOf(given[i], role, place);
    tensors.push_back(lent[i].tensor);
  }
  AddStarts(&tensors);
  CheckArguments(tensors);
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (lent[i].why_copied == nullptr) continue;
    const CellNetInput& input = arguments_[i].input;
    const bool is_time_major = !input.dims.empty() && input.dims[0] == CellNetInput::kSteps;
    tensors[i] = Contiguous(lent[i], {KindOf(arguments_[i]), input.blob, is_time_major}, place);
  }
  return tensors;
}

void Cell::CheckArguments(const std::vector<Tensor>& tensors) const {
  std::int64_t steps = -1, batch = -1;  // the first input that says so decides
  for (size_t i = 0; i < arguments_.size(); ++i) {
    const Argument& argument = arguments_[i];
    const CellNetInput& input = argument.input;
    const Shape& shape = tensors[i].shape();
    if (argument.is_parameter || argument.is_start || input.is_state || shape.rank() != std::ssize(input.dims))
      continue;
    for (int d = 0; d < shape.rank(); ++d) {
      if (steps < 0 && input.dims[d] == CellNetInput::kSteps) steps = shape[d];
      if (batch < 0 && input.dims[d] == CellNetInput::kBatch) batch = shape[d];
    }
  }
  for (size_t i = 0; i < arguments_.size(); ++i) {
    const Argument& argument = arguments_[i];
    const CellNetInput& input = argument.input;
    const Tensor& tensor = tensors[i];
    if (!Fits(tensor.dtype(), input.dtype)) {
      throw Error(ErrorCode::kTypeMismatch,
                  StrCat("the ", KindOf(argument), " \"", input.blob, "\" of ", name_, " is ",
                         NumpyName(tensor.dtype()), " ", tensor.shape(), "; it must be ", NumpyName(input.dtype),
                         input.dtype == DType::kInt32 ? " or int64" : "",
                         argument.is_parameter && IsStoredFloat(tensor.dtype())
                             ? "; load_params(PATH, widen=True) reads it so from a file"
                             : ""));
    }
    if (argument.is_parameter && !argument.is_start) {
      if (tensor.shape() == argument.shape) continue;
      throw Error(ErrorCode::kShapeMismatch,
                  StrCat("the parameter \"", input.blob, "\" of ", name_, " is ", NumpyName(tensor.dtype()), " ",
                         tensor.shape(), "; it must be ", argument.shape));
    }
    if (argument.is_start) {
      CheckCellStart(input, tensor, steps, batch, NumpyName);
    } else {
      CheckCellInput(input, tensor, steps, batch, NumpyName);
    }
  }
}

}  // namespace stepnet::python
