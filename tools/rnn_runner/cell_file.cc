#include "stepnet/tools/rnn_runner/cell_file.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iostream>
#include <set>

#include "stepnet/cells/cell_inputs.h"
#include "stepnet/cells/cell_options.h"
#include "stepnet/cells/parameter_names.h"
#include "stepnet/core/floating.h"
#include "stepnet/core/memory_for.h"
#include "stepnet/core/random.h"
#include "stepnet/io/minidb.h"
#include "stepnet/nets/op_arguments.h"
#include "stepnet/report/text.h"
#include "stepnet/tools/rnn_runner/common_flags.h"
#include "stepnet/tools/rnn_runner/inputs.h"
#include "stepnet/tools/rnn_runner/tensor_text.h"

DEFINE_string(size, "", "sizes of a cell, in place of those that it declares: H=128,D=65");
DEFINE_string(option, "", "options of a cell, in place of those in its text: layers=2,direction=reverse");
DEFINE_bool(training, false, "a cell as it is trained: dropout drops, zoneout draws; for cells that have either");
DEFINE_string(
    dtype, "float32",
    "what a cell computes in: float32, or float64, with all parameters, inputs and the numbers written in it");
DEFINE_int64(steps, 5, "steps of the inputs that are generated for a cell");
DEFINE_int64(batch, 3, "batch of the inputs that are generated for a cell");

namespace stepnet::runner {
namespace {

CellSizes SizesFromFlags() {
  CellSizes sizes;
  for (const std::string& item : SplitList(FLAGS_size)) {
    const size_t equals = item.find('=');
    std::int64_t value = 0;
    const char* const end = item.data() + item.size();
    const bool has_value = equals != std::string::npos && equals > 0;
    const auto [rest, fault] =
        has_value ? std::from_chars(item.data() + equals + 1, end, value) : std::from_chars(end, end, value);
    if (fault == std::errc::result_out_of_range && rest == end) {
      throw UsageError(StrCat("--size has \"", item, "\", a number beyond 64 bits"));
    }
    if (fault != std::errc() || rest != end)
      throw UsageError(StrCat("--size has \"", item, "\"; it takes NAME=NUMBER"));
    if (!sizes.emplace(item.substr(0, equals), value).second) {
      throw UsageError(StrCat("--size gives ", item.substr(0, equals), " twice"));
    }
  }
  return sizes;
}

CellSource ReadCellAsUsed(const std::string& path) {
  CellSource cell = ReadCell(path);
  return IsGiven("option") ? WithOptions(std::move(cell), ParseCellOptions(FLAGS_option, "--option")) : cell;
}

bool IsInDoubleByFlag() {
  const std::vector<std::string> names = {"float32", "float64"};
  if (FLAGS_dtype == names[0] || FLAGS_dtype == names[1]) return FLAGS_dtype == names[1];
  throw UsageError(
      StrCat("no dtype \"", FLAGS_dtype, "\" of cells, must be ", Join(names, " or "), DidYouMean(FLAGS_dtype, names)));
}

// Which sequence an element of lengths or of a mask is of.
std::int64_t SequenceOf(const CellNetInput& input, const Shape& shape, std::int64_t i) {
  const bool is_batch_first = input.dims.front() == CellNetInput::kBatch;
  return is_batch_first ? i / shape.SizeFrom(1) : i % shape[1];
}

// An element of an input: lengths are int32, masks bool. Of random ones the first sequence has all steps, since short
// ones say nothing about what several steps make of a parameter.
double Element(const CellNetInput& input, const Shape& shape, MadeUpLengths lengths, const RandomStream& random,
               std::int64_t i, std::int64_t steps) {
  if (IsFloatOrDouble(input.dtype)) return 2.0 * random.Uniform(i) - 1;
  const bool is_whole = lengths == MadeUpLengths::kWhole || SequenceOf(input, shape, i) == 0;
  if (input.dtype == DType::kBool) return is_whole || random.Uniform(i) < 0.75F ? 1 : 0;
  return is_whole ? static_cast<double>(steps) : std::floor(random.Uniform(i) * static_cast<double>(steps + 1));
}

// "x is random, float [5, 3, 8]", "lengths is 5 throughout, int32 [3]", "lengths is random, int32 [3]: 4, 0, 2".
std::string MadeUpText(const std::string& name, const Tensor& tensor, MadeUpLengths lengths, std::int64_t steps) {
  constexpr std::int64_t kMaxShown = 16;
  const bool is_whole = lengths == MadeUpLengths::kWhole;
  std::string what = "random", values;
  if (is_whole && tensor.dtype() == DType::kInt32) what = StrCat(steps, " throughout");
  if (is_whole && tensor.dtype() == DType::kBool) what = "true throughout";
  for (std::int64_t i = 0; !is_whole && tensor.dtype() == DType::kInt32 && i < tensor.size(); ++i) {
    values += StrCat(i == 0 ? ": " : ", ", i == kMaxShown ? "…" : StrCat(tensor.data<std::int32_t>()[i]));
    if (i == kMaxShown) break;
  }
  return StrCat(name, " is ", what, ", ", tensor.Description(), values);
}

// Adds what a net and its step nets call the blobs of `names`, as links do.
void AddStepNames(const NetDef& net, std::set<std::string>* names) {
  for (const OperatorDef& op : net.op()) {
    const Argument* internal = FindArgument(op, "link_internal");
    const Argument* external = FindArgument(op, "link_external");
    if (internal == nullptr || external == nullptr) continue;
    for (int i = 0; i < std::min(internal->strings_size(), external->strings_size()); ++i) {
      if (names->contains(external->strings(i))) names->insert(internal->strings(i));
    }
  }
}

// Whether operators that make whole numbers of what they are given read one of the blobs, and no others do.
struct Readers {
  bool any_casts = false;
  bool any_others = false;
};

void AddReaders(const NetDef& net, const std::set<std::string>& names, Readers* readers) {
  for (const OperatorDef& op : net.op()) {
    const Argument* step_net = FindArgument(op, "step_net");
    if (NetDef step; step_net != nullptr && NetOfArgument(*step_net, &step)) {
      AddReaders(step, names, readers);
      continue;  // which reads it as its sequence
    }
    if (std::ranges::none_of(op.input(), [&](const std::string& blob) { return names.contains(blob); })) continue;
    const Argument* to = op.type() == "Cast" ? FindArgument(op, "to") : nullptr;
    const bool is_whole = to != nullptr && (to->s() == "int32" || to->s() == "int64");
    (is_whole ? readers->any_casts : readers->any_others) = true;
  }
}

// What to say where random numbers in [-1, 1) are 0 to whoever reads them; "" elsewhere.
std::string WholeNumbersHint(const NetDef& net, const CellNetInput& input, const Tensor& tensor) {
  std::set<std::string> names = {input.blob};
  AddStepNames(net, &names);
  Readers readers;
  AddReaders(net, names, &readers);
  if (!IsFloatOrDouble(input.dtype) || !readers.any_casts || readers.any_others) return "";
  return StrCat(", and read as whole numbers, which are all 0; --shape=", NameText(input.blob), "=",
                Join(tensor.shape().dims(), "x"), "=integers:0:9 gives it others");
}

// The batch of the cell's first input, where that was given.
std::optional<std::int64_t> BatchOf(const CellDef& cell, const NamedTensors& fed) {
  if (cell.input_size() == 0) return std::nullopt;
  const auto found = std::ranges::find(fed, cell.input(0).name(), &NamedTensors::value_type::first);
  if (found == fed.end() || found->second.shape().rank() < 2) return std::nullopt;
  return found->second.shape()[cell.options().batch_major() ? 0 : 1];
}

// What to do where a file has the cell's parameters under other names; "" where it has not.
std::string OtherNamesHint(const std::vector<std::string>& names, const std::vector<std::string>& parameters) {
  const std::vector<OtherNames> found = FindOtherNames(names, parameters);
  if (found.empty()) return "";
  if (found.front().are_torch) return OtherNamesText(found, parameters.front());
  if (!found.front().prefix.ends_with('/')) {
    return StrCat(OtherNamesText(found, parameters.front()),
                  "; `rnn_runner convert --params IN OUT --prefix=", found.front().prefix, "` writes them with these");
  }
  return StrCat("all the cell's parameters are there with ", Quoted(found.front().prefix), " before their names, ",
                Quoted(NameIn(found.front(), parameters.front())), " for ", Quoted(parameters.front()),
                ": they are of a net with the cell in it; run that net, not the cell");
}

// Throws where the cell is the same as it is used and as it is trained: whoever says --training expects a difference.
void RefuseIdleTraining(const CellSource& source, CellUse use, const CellNet& trained, const std::string& path) {
  use.training = false;
  if (ExpandCell(source, use).net.SerializeAsString() != trained.net.SerializeAsString()) return;
  throw UsageError(StrCat("--training changes nothing of ", path,
                          ", which draws nothing: it has no dropout between layers or of a state, no zoneout, and no "
                          "Dropout in its step; leave the flag out"));
}

// The size that an input was given with. Throws where the command line says another one, which would not be heeded.
std::int64_t SizeOf(const char* flag, std::int64_t value, std::int64_t size, const CellNetInput& input) {
  if (!IsGiven(flag) || value == size) return size;
  throw UsageError(
      StrCat("--", flag, " is ", value, ", and the input ", NameText(input.blob), " that was given says ", size));
}

bool FitsParameter(const Blob& blob, const Tensor& parameter) {
  if (!blob.HasTensor() || blob.GetTensor().shape() != parameter.shape()) return false;
  const DType dtype = blob.GetTensor().dtype();
  return dtype == parameter.dtype() || (IsStoredFloat(dtype) && parameter.dtype() == DType::kFloat);
}

constexpr std::int64_t kUnknown = -1;  // of steps or a batch

// The tensor of this blob that somebody gave, null where nobody did.
const Tensor* GivenIn(const Workspace& workspace, const std::string& name) {
  const Blob* blob = workspace.FindBlob(name);
  return blob != nullptr && blob->HasTensor() ? &blob->GetTensor() : nullptr;
}

// The batch of an initial state that has a row for each sequence, kUnknown where none has.
std::int64_t BatchOfStarts(const CellNet& cell, const Workspace& workspace) {
  for (const CellNetInput& start : cell.starts) {
    const Tensor* given = GivenIn(workspace, start.blob);
    const std::int64_t batch_dim = given == nullptr ? -1 : given->shape().rank() - (std::ssize(start.dims) - 1);
    if (batch_dim >= 0 && given->dim(static_cast<int>(batch_dim)) != 1) return given->dim(static_cast<int>(batch_dim));
  }
  return kUnknown;
}

// Whether all is double that a cell's nets are filled with and given, so that they compute in double.
bool IsInDouble(const CellNet& cell, const Workspace& workspace) {
  std::vector<std::string> names = FilledByCell(cell);
  for (const CellNetInput& input : cell.inputs) {
    if (input.dtype == DType::kFloat) names.push_back(input.blob);
  }
  return std::ranges::all_of(names, [&](const std::string& name) {
    const Blob* blob = workspace.FindBlob(name);
    return blob != nullptr && blob->HasTensor() && blob->GetTensor().dtype() == DType::kDouble;
  });
}

// How an array becomes one of floats or doubles; "" for other dtypes.
std::string HowToCast(const std::string& name, DType dtype) {
  if (!IsFloatOrDouble(dtype)) return "";
  const bool is_double = dtype == DType::kDouble;
  return StrCat("; in NumPy ", name, ".astype(\"", is_double ? "float64" : "float32", "\") is it, in PyTorch ", name,
                is_double ? ".double()" : ".float()");
}

std::string InfoText(const Blob& blob) { return blob.HasTensor() ? blob.GetTensor().Description() : "no tensor"; }

}  // namespace

FlagUse CellSizeFlag() { return {.name = "size", .value = "NAME=N,…", .is_list = true}; }

FlagUse CellOptionFlag() { return {.name = "option", .value = "NAME=VALUE,…", .is_list = true}; }

FlagUse CellTrainingFlag() { return {.name = "training"}; }

FlagUse CellDTypeFlag() { return {.name = "dtype", .value = "float32|float64"}; }

std::vector<FlagUse> CellFlags() {
  return {CellSizeFlag(),
          CellOptionFlag(),
          CellTrainingFlag(),
          CellDTypeFlag(),
          {.name = "steps", .value = "N", .min = 0},
          {.name = "batch", .value = "N", .min = 0}};
}

std::string AdviceOnOptions(const std::string& flag) {
  if (CellOptions::descriptor()->FindFieldByName(flag) == nullptr) return "";
  return StrCat("it is an option of cells: --option=", flag, "=…");
}

void RefuseCellFlags(const std::string& path) {
  for (const FlagUse& flag : CellFlags()) {
    if (IsGiven(flag.name.c_str())) throw UsageError(StrCat("--", flag.name, " is for cells, and ", path, " is none"));
  }
}

std::optional<CellNet> ExpandCellFile(const std::string& path, CellUse use, const NamedTensors& fed) {
  const bool is_db = LooksLikeMiniDb(path);
  if (is_db || !IsCell(ReadFile(path), path)) {
    const bool are_given =
        std::ranges::any_of(CellFlags(), [](const FlagUse& flag) { return IsGiven(flag.name.c_str()); });
    // A text that nobody can read may be meant as a cell: what is wrong is the text, not the flags.
    if (are_given && !is_db) ReadAnyMessage(path);
    RefuseCellFlags(path);
    return std::nullopt;
  }
  use.sizes = SizesFromFlags();
  use.training = FLAGS_training;
  use.in_double = IsInDoubleByFlag();
  const CellSource source = ReadCellAsUsed(path);
  use.batch = BatchOf(source.def, fed).value_or(use.batch);
  std::optional<CellNet> cell;
  try {
    cell = ExpandCell(source, use);
  } catch (...) {
    Error error = CurrentError();
    if (std::string_view(error.what()).find(path) != std::string_view::npos) throw error;
    throw error.At({.file = path});
  }
  if (use.training) RefuseIdleTraining(source, use, *cell, path);
  return cell;
}

AnyMessage ReadNetFile(const std::string& path) {
  std::optional<CellNet> cell = ExpandCellFile(path);
  if (!cell) return ReadAnyMessage(path);
  return {.kind = MessageKind::kNetDef, .message = std::make_unique<NetDef>(std::move(cell->net))};
}

void PrintCellWarnings(const std::string& path) {
  if (LooksLikeMiniDb(path) || !IsCell(ReadFile(path), path)) return;
  for (const std::string& warning : WarningsOf(ReadCellAsUsed(path))) {
    std::cerr << Printable("warning: " + warning) << "\n";
  }
}

Model CellModel(const CellNet& cell) {
  Model model{.init_net = cell.init_net, .net = cell.net, .parameters = {}, .inputs = {}, .outputs = cell.outputs};
  for (const CellNetInput& input : cell.inputs) model.inputs.push_back(input.blob);
  for (const CarriedState& state : cell.states) model.outputs.push_back(state.last);
  return model;
}

Model ReadParameters(const std::string& path) {
  constexpr const char* kTakes = "and --init_net takes a net that fills parameters, or a file of tensors";
  Model model;
  try {
    model = LoadParameters(path);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInputOutput || LooksLikeMiniDb(path) || !IsCell(ReadFile(path), path)) throw;
    throw Error(ErrorCode::kInvalidArgument, StrCat(path, " is a cell, ", kTakes));
  }
  std::vector<std::string> read = ReadFirst(model.init_net);
  std::erase_if(read, [&](const std::string& blob) { return model.parameters.contains(blob); });
  if (read.empty()) return model;
  throw Error(ErrorCode::kInvalidArgument, StrCat(path, " is a net that reads ", Quoted(read.front()),
                                                  ", which nothing fills (is it the model?), ", kTakes));
}

std::vector<std::string> FilledByCell(const CellNet& cell) {
  std::vector<std::string> names;
  for (const OperatorDef& op : cell.init_net.op()) names.insert(names.end(), op.output().begin(), op.output().end());
  return names;
}

std::vector<std::string> TakeCellParameters(const CellNet& cell, const std::string& path, Workspace& workspace,
                                            const RunOptions& options) {
  const Model model = ReadParameters(path);
  Workspace given;
  model.Initialize(given, options);
  const std::vector<std::string> names = NamesGivenBy(model);
  const std::vector<std::string> known = FilledByCell(cell);
  std::vector<std::string> faults;
  for (const std::string& name : cell.parameters) {
    if (std::ranges::find(names, name) != names.end()) continue;
    faults.push_back(StrCat("\"", name, "\" is missing, ", workspace.GetTensor(name).Description()));
  }
  for (const std::string& name : names) {
    const Blob& blob = given.GetBlob(name);
    if (std::ranges::find(known, name) == known.end()) {
      faults.push_back(StrCat("the cell has no parameter \"", name, "\"", DidYouMean(name, known)));
    } else if (!FitsParameter(blob, workspace.GetTensor(name))) {
      faults.push_back(
          StrCat("\"", name, "\" is ", InfoText(blob), ", must be ", workspace.GetTensor(name).Description()));
    } else {
      workspace.SetTensor(name, blob.GetTensor());
    }
  }
  if (faults.empty()) return names;
  if (std::string hint = OtherNamesHint(names, cell.parameters); !hint.empty()) faults.push_back(std::move(hint));
  throw Error(ErrorCode::kInvalidArgument,
              StrCat("these are not the parameters of the cell:\n  ", Join(faults, "\n  ")));
}

void CheckParameter(const CellNet& cell, const std::string& name, const Tensor& given, const Workspace& workspace) {
  const bool is_start = std::ranges::count(cell.starts, name, &CellNetInput::blob) > 0;  // FeedCellInputs looks at it
  if (is_start || std::ranges::count(cell.parameters, name) == 0) return;
  const Shape& shape = workspace.GetTensor(name).shape();
  if (given.shape() == shape) return;
  throw Error(ErrorCode::kShapeMismatch,
              StrCat("the parameter ", Quoted(name), " is ", given.Description(), "; it must be ", shape));
}

void CheckCellTypes(const CellNet& cell, const Workspace& workspace, bool becomes_double) {
  const bool may_be_double = becomes_double || IsInDouble(cell, workspace);
  const auto check = [&](const char* kind, const std::string& name, DType wanted) {
    const Blob* blob = workspace.FindBlob(name);
    if (blob == nullptr || !blob->HasTensor()) return;
    const DType dtype = blob->GetTensor().dtype();
    const bool is_lengths = wanted == DType::kInt32;
    const bool fits = dtype == wanted || (is_lengths && dtype == DType::kInt64) ||
                      (wanted == DType::kFloat && dtype == DType::kDouble && may_be_double);
    if (fits) return;
    throw Error(ErrorCode::kTypeMismatch,
                StrCat("the ", kind, " ", Quoted(name), " is ", blob->GetTensor().Description(), "; it must be ",
                       wanted, is_lengths ? " or int64" : "", HowToCast(name, wanted)));
  };
  for (const CellNetInput& input : cell.inputs) {
    check(input.is_state ? "initial state" : "input", input.blob, input.dtype);
  }
  for (const CellNetInput& start : cell.starts) check("initial state", start.blob, start.dtype);
  for (const std::string& name : cell.parameters) {
    const bool is_double = workspace.GetTensor(name).dtype() == DType::kDouble;  // others are as a fill makes them
    if (is_double) check("parameter", name, DType::kFloat);
  }
}

SequenceSizes CheckCellInputs(const CellNet& cell, const Workspace& workspace) {
  // Defaults of flags count where nothing is given, and are nothing that an input has to fit.
  SequenceSizes sizes{.steps = IsGiven("steps") ? FLAGS_steps : kUnknown,
                      .batch = IsGiven("batch") ? FLAGS_batch : BatchOfStarts(cell, workspace)};
  // What was given says how long and how wide the others are; the first one decides.
  for (size_t i = cell.inputs.size(); i-- > 0;) {
    const CellNetInput& input = cell.inputs[i];
    const Tensor* given = GivenIn(workspace, input.blob);
    if (given == nullptr || given->shape().rank() != std::ssize(input.dims)) continue;
    for (int d = 0; d < given->shape().rank(); ++d) {
      if (input.dims[d] == CellNetInput::kSteps) sizes.steps = SizeOf("steps", FLAGS_steps, given->dim(d), input);
      if (input.dims[d] == CellNetInput::kBatch) sizes.batch = SizeOf("batch", FLAGS_batch, given->dim(d), input);
    }
  }
  for (const CellNetInput& input : cell.inputs) {
    if (const Tensor* given = GivenIn(workspace, input.blob)) CheckCellInput(input, *given, sizes.steps, sizes.batch);
  }
  for (const CellNetInput& start : cell.starts) {
    if (const Tensor* given = GivenIn(workspace, start.blob)) CheckCellStart(start, *given, sizes.steps, sizes.batch);
  }
  if (sizes.steps == kUnknown) sizes.steps = FLAGS_steps;
  if (sizes.batch == kUnknown) sizes.batch = FLAGS_batch;
  return sizes;
}

TensorInfo MadeUpInfo(const CellNetInput& input, const SequenceSizes& sizes) {
  std::vector<std::int64_t> dims = input.dims;
  std::ranges::replace(dims, CellNetInput::kSteps, sizes.steps);
  std::ranges::replace(dims, CellNetInput::kBatch, sizes.batch);
  return {.dtype = input.dtype, .shape = Shape(dims)};
}

std::vector<std::string> FeedCellInputs(const CellNet& cell, MadeUpLengths lengths, Workspace& workspace) {
  const SequenceSizes sizes = CheckCellInputs(cell, workspace);
  std::vector<std::string> made_up;
  std::uint64_t number = 1'000'000;  // beyond those of --shape
  for (const CellNetInput& input : cell.inputs) {
    ++number;
    if (GivenIn(workspace, input.blob) != nullptr) continue;
    const RandomStream random(FLAGS_seed, number, /*run=*/0, /*step=*/0);
    const TensorInfo info = MadeUpInfo(input, sizes);
    Tensor tensor = WithMemoryFor("the input", input.blob, [&] { return Tensor(info.dtype, info.shape); });
    FillFromNumbers(tensor,
                    [&](std::int64_t i) { return Element(input, tensor.shape(), lengths, random, i, sizes.steps); });
    std::cerr << PrintableLine(MadeUpText(input.blob, tensor, lengths, sizes.steps) +
                               WholeNumbersHint(cell.net, input, tensor))
              << "\n";
    workspace.SetTensor(input.blob, std::move(tensor));
    made_up.push_back(input.blob);
  }
  return made_up;
}

}  // namespace stepnet::runner
