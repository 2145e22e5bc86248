#include "stepnet/python/src/loaded_net.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "stepnet/cells/cell.h"
#include "stepnet/cells/cell_expand.h"
#include "stepnet/core/error.h"
#include "stepnet/core/floating.h"
#include "stepnet/core/memory_for.h"
#include "stepnet/core/printable.h"
#include "stepnet/core/strings.h"
#include "stepnet/io/file.h"
#include "stepnet/io/minidb.h"
#include "stepnet/io/proto_io.h"
#include "stepnet/io/tensor_io.h"
#include "stepnet/nets/backward.h"
#include "stepnet/nets/backward_step.h"
#include "stepnet/nets/net_blobs.h"
#include "stepnet/nets/op_arguments.h"
#include "stepnet/nets/training_net.h"
#include "stepnet/python/src/device_calls.h"
#include "stepnet/python/src/names.h"
#include "stepnet/python/src/with_file.h"

namespace nb = nanobind;

namespace stepnet::python {
namespace {

// The blobs that hold the record of a run, which is no tensor.
std::set<std::string> RecordsOf(const NetDef& net) {
  std::set<std::string> records;
  for (const OperatorDef& op : net.op()) {
    if (op.type() == "RecurrentNetwork" && !op.output().empty()) records.insert(*op.output().rbegin());
  }
  return records;
}

bool IsFloatingBlob(const Workspace& workspace, const std::string& blob) {
  return workspace.GetBlob(blob).HasTensor() && IsFloating(workspace.GetTensor(blob).dtype());
}

// What is trained where it is named alone: what recurrent networks of a net start from, but for what it says is
// learned, and what it says are defaults of inputs.
std::vector<std::string> TrainedIfNamed(const NetDef& net) {
  std::vector<std::string> blobs;
  std::set<std::string> learned;
  for (const Argument& argument : net.arg()) {
    if (argument.name() == kLearnedStates) learned.insert(argument.strings().begin(), argument.strings().end());
    if (argument.name() == kDefaultsOfInputs) blobs.assign(argument.strings().begin(), argument.strings().end());
  }
  for (const OperatorDef& op : net.op()) {
    const Argument* const ids = FindArgument(op, "initial_recurrent_state_ids");
    if (op.type() != "RecurrentNetwork" || ids == nullptr) continue;
    for (const std::int64_t id : ids->ints()) {
      if (id >= 0 && id < op.input_size()) blobs.push_back(op.input(static_cast<int>(id)));
    }
  }
  std::erase_if(blobs, [&](const std::string& blob) { return learned.contains(blob); });
  return blobs;
}

// Returns those of the candidates that the loss is a function of.
std::vector<std::string> ParametersOf(NetDef net, const std::string& loss, const std::vector<std::string>& candidates) {
  AddBackwardStepNets(&net, candidates);
  const NetWithGradients made = AddGradients(net, {loss}, candidates);
  std::vector<std::string> parameters;
  for (const std::string& candidate : candidates) {
    if (made.gradients.contains(candidate)) parameters.push_back(candidate);
  }
  if (parameters.empty()) {
    throw Error(ErrorCode::kInvalidArgument, StrCat("the loss \"", loss, "\" depends on none of what is filled: ",
                                                    candidates.empty() ? "nothing is" : Join(candidates, ", ")));
  }
  return parameters;
}

// Throws kInvalidArgument for a loss that the net does not compute.
void CheckLoss(const NetDef& net, const std::string& loss) {
  std::vector<std::string> written;
  for (const OperatorDef& op : net.op()) written.insert(written.end(), op.output().begin(), op.output().end());
  if (std::ranges::count(written, loss) > 0) return;
  throw Error(ErrorCode::kInvalidArgument,
              StrCat("the loss \"", loss, "\" is nothing that the net computes", DidYouMean(loss, written)));
}

// The net in a text, which says something.
void ParseNet(const std::string& text, const std::string& what, NetDef* net) {
  ParseMessageText(text, what, net);
  if (net->ByteSizeLong() == 0) throw Error(ErrorCode::kInputOutput, StrCat(what, " is empty, a NetDef is needed"));
}

// Throws kInvalidArgument for a name that nothing of the model knows. A file may hold more than a net needs, as a
// checkpoint does; a name that a caller writes, and that no net knows, is a mistake.
void CheckIsUsed(const std::map<std::string, Tensor>& params, const Model& model) {
  if (params.empty()) return;
  std::set<std::string> blobs = BlobsOf(model.net);
  blobs.merge(BlobsOf(model.init_net));
  for (const auto& [name, tensor] : params) {
    if (blobs.contains(name)) continue;
    const std::string net = model.net.name().empty() ? "the net" : StrCat("the net \"", model.net.name(), "\"");
    throw Error(
        ErrorCode::kInvalidArgument,
        StrCat("init has \"", PrintableLine(name), "\", which ", PrintableLine(net), " neither reads nor writes",
               DidYouMean(name, std::vector<std::string>(blobs.begin(), blobs.end())), "; leave it out"));
  }
}

// Throws kInvalidArgument for the number of an iteration behind which there is none.
void CheckCanBeCounted(const std::string& name, std::int64_t iteration) {
  constexpr std::int64_t kLast = std::numeric_limits<std::int64_t>::max();
  if (iteration >= 0 && iteration < kLast) return;
  throw Error(ErrorCode::kInvalidArgument,
              StrCat("\"", name, "\" is ", iteration, "; it must be from 0 to ", kLast - 1));
}

bool HoldsCell(const GivenNet& given, const std::string& name) {
  if (!given.text.empty()) return IsCell(given.text, name);
  return !HoldsOnlyTensors(given.file) && !LooksLikeMiniDb(given.file) && IsCell(ReadFile(given.file), name);
}

void RefuseCellAsInit(const GivenNet& init) {
  if (init.text.empty() && init.file.empty()) return;
  const std::string name = init.text.empty() ? init.file : "the text of init";
  if (!HoldsCell(init, name)) return;
  throw Error(ErrorCode::kInvalidArgument,
              StrCat(name, " is a cell; stepnet.expand(…, init=True) makes the net of it that fills parameters"));
}

}  // namespace

ModelOfFiles ReadModel(const GivenNet& net, const GivenNet& init, const std::map<std::string, Tensor>& params) {
  const std::string name = net.file.empty() ? "the text" : net.file;
  if (HoldsCell(net, name)) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat(name, " is a cell; stepnet.cell takes it, and stepnet.expand makes a net of it"));
  }
  RefuseCellAsInit(init);
  Model model;
  if (!init.text.empty()) {
    ParseNet(init.text, "the text of init", &model.init_net);
  } else if (!init.file.empty()) {
    model = LoadParameters(init.file);
    for (auto& [name, tensor] : model.parameters) {
      if (IsStoredFloat(tensor.dtype())) tensor = WithMemoryFor("the parameter", name, [&] { return Widened(tensor); });
    }
  }
  for (const auto& [parameter, tensor] : params) model.parameters[parameter] = tensor;
  if (net.text.empty()) {
    model = LoadModel(net.file, std::move(model));
  } else {
    ParseNet(net.text, name, &model.net);
    model.outputs.assign(model.net.external_output().begin(), model.net.external_output().end());
  }
  WithFile(net.file, [&] { CheckIsUsed(params, model); });
  return {
      .model = std::move(model), .net_file = net.file, .init_file = init.text.empty() ? init.file : "the text of init"};
}

LoadedNet::LoadedNet(const ModelOfFiles& files, const RunOptions& options) : file_(files.net_file) {
  Load(files, options);
  WithFile(file_, [&] {
    SetConstant(filled_, def_.net, def_.shared->workspace);
    program_ = std::make_shared<Program>(def_);
  });
}

LoadedNet::LoadedNet(const ModelOfFiles& files, const RunOptions& options, const Training& training)
    : file_(files.net_file) {
  Load(files, options);
  WithFile(file_, [&] { Train(files.model.net, options, training); });
}

void LoadedNet::Train(const NetDef& net, const RunOptions& options, const Training& training) {
  CheckLoss(net, training.loss);
  for (const std::string& name : training.parameters) {
    if (std::ranges::count(training.parameters, name) > 1) {
      throw Error(ErrorCode::kInvalidArgument, StrCat("the parameter \"", name, "\" is named twice"));
    }
    if (std::ranges::count(parameters_, name) > 0) continue;
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("\"", name, "\" is no parameter of ", Described(), DidYouMean(name, parameters_),
                       "; those that are filled are ", Join(parameters_, ", ")));
  }
  trained_ = training.parameters;
  if (trained_.empty()) {
    const std::vector<std::string> left_out = TrainedIfNamed(net);
    std::ranges::copy_if(parameters_, std::back_inserter(trained_),
                         [&](const std::string& name) { return std::ranges::count(left_out, name) == 0; });
    trained_ = ParametersOf(net, training.loss, trained_);
  }
  const bool in_double = std::ranges::all_of(trained_, [&](const std::string& name) {
    return def_.shared->workspace.GetTensor(name).dtype() == DType::kDouble;
  });
  const TrainingNet made = MakeTrainingNet(net, training.loss, trained_, training.optimizer, in_double, training.exact);
  RunNetOnce(made.init_net, def_.shared->workspace, options);
  state_ = made.state;
  iteration_ = made.iteration;
  if (std::ranges::count(outputs_, training.loss) == 0) outputs_.push_back(training.loss);
  loss_net_ = net;
  def_.net = made.net;
  def_.outputs = outputs_;
  program_ = std::make_shared<Program>(def_);
}

void LoadedNet::Load(const ModelOfFiles& files, const RunOptions& options) {
  const Model& model = files.model;
  name_ = PrintableLine(model.net.name());
  WithFile(file_, [&] {
    CheckBlobNames(model.net);
    for (const auto& [name, tensor] : model.parameters) CheckBlobName(name);
    std::ranges::for_each(model.outputs, CheckBlobName);
    CheckBlobNames(model.init_net);
  });
  def_ = {.net = model.net, .options = options, .shared = std::make_shared<SharedBlobs>()};
  WithFile(files.init_file.empty() ? file_ : files.init_file,
           [&] { model.Initialize(def_.shared->workspace, options); });
  filled_ = FilledBy(model);
  const std::set<std::string> filled(filled_.begin(), filled_.end());
  for (const std::string& blob : ReadFirst(model.net)) {
    if (!def_.shared->workspace.HasBlob(blob)) {
      inputs_.push_back(blob);
    } else if (filled.contains(blob) && IsFloatingBlob(def_.shared->workspace, blob)) {
      parameters_.push_back(blob);
    }
  }
  outputs_ = model.outputs;
  if (outputs_.empty()) {
    outputs_ = UnreadBlobs(model.net);
    const std::set<std::string> records = RecordsOf(model.net);
    std::erase_if(outputs_, [&](const std::string& blob) { return records.contains(blob); });
  }
  std::set<std::string> seen;
  std::erase_if(outputs_, [&](const std::string& blob) { return !seen.insert(blob).second; });
  WithFile(file_, [&] {
    for (const auto* names : {&inputs_, &outputs_, &parameters_}) {
      if (std::ranges::count(*names, "") == 0) continue;
      throw Error(ErrorCode::kInvalidNet, "a blob that the net reads or gives has an empty name");
    }
  });
  def_.inputs = inputs_;
  def_.outputs = outputs_;
}

NetDef LoadedNet::GivenNetDef() const {
  NetDef net = iteration_.empty() ? def_.net : loss_net_;
  net.mutable_external_output()->Assign(outputs_.begin(), outputs_.end());
  return net;
}

std::map<std::string, Tensor> LoadedNet::KeptTensors(std::uint64_t* num_runs) const {
  const std::set<std::string> used = BlobsOf(GivenNetDef());
  std::vector<std::string> names = state_;
  std::ranges::copy_if(filled_, std::back_inserter(names), [&](const auto& name) { return used.contains(name); });
  for (const std::string& name : names) {
    const Blob* const blob = def_.shared->workspace.FindBlob(name);
    const bool has_numbers = blob != nullptr && blob->HasTensor() && blob->GetTensor().dtype() != DType::kString &&
                             blob->GetTensor().dtype() != DType::kBFloat16;
    if (has_numbers) continue;
    throw Error(ErrorCode::kInvalidArgument,
                StrCat(Described(), " keeps \"", name,
                       "\", which is no array of NumPy, so it cannot be copied or pickled; ", "load its files again"));
  }
  return program_->ReadShared(names, num_runs);
}

std::vector<Tensor> LoadedNet::TakeInputs(const nb::dict& given) const {
  const auto check_names = [&] {
    for (const nb::handle key : given.keys()) {
      const std::string name = Utf8Of(key);
      if (std::ranges::count(inputs_, name) > 0) continue;
      if (std::ranges::count(filled_, name) > 0) {
        throw Error(
            ErrorCode::kInvalidArgument,
            StrCat(Described(), " has no input \"", name, "\": what fills the net gives it (init, or its own file); ",
                   std::ranges::count(parameters_, name) > 0 ? "net.restore changes it, or " : "",
                   "leave it out there to give it to each call"));
      }
      throw Error(ErrorCode::kInvalidArgument,
                  StrCat(Described(), " has no input \"", name, "\"", DidYouMean(name, inputs_), "; its inputs are ",
                         Join(inputs_, ", ")));
    }
  };
  std::vector<LentArray> lent;
  for (const std::string& input : inputs_) {
    const nb::object array = nb::borrow(PyDict_GetItem(given.ptr(), StrOf(input).ptr()));
    if (!array.is_valid()) {
      check_names();  // a name may be misspelled
      throw Error(ErrorCode::kInvalidArgument, StrCat("the input \"", input, "\" of ", Described(),
                                                      " is missing; nothing that fills the net gives it"));
    }
    lent.push_back(LentOf(array, {"input", input}, place()));
  }
  if (lent.size() != given.size()) check_names();
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < lent.size(); ++i) tensors.push_back(Contiguous(lent[i], {"input", inputs_[i]}, place()));
  return tensors;
}

std::vector<std::string> LoadedNet::Differentiable(const std::vector<std::string>& names,
                                                   const std::vector<Tensor>& inputs) const {
  std::vector<std::string> known;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (IsFloating(inputs[i].dtype())) known.push_back(inputs_[i]);
  }
  known.insert(known.end(), parameters_.begin(), parameters_.end());
  for (const std::string& name : names) {
    if (std::ranges::count(known, name) > 0) continue;
    throw Error(ErrorCode::kInvalidArgument, StrCat("wrt names \"", name, "\"", DidYouMean(name, known),
                                                    "; gradients of ", Described(), " are by ", Join(known, ", ")));
  }
  return names.empty() ? known : names;
}

std::shared_ptr<Program> LoadedNet::ProgramWithGradients(const std::vector<std::string>& names,
                                                         const GradientRequests& requests,
                                                         const std::vector<Tensor>& inputs) {
  if (program_->has_state()) {
    throw Error(ErrorCode::kInvalidNet,
                StrCat(Described(), " changes what it keeps from run to run; it has no gradients"));
  }
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Program>& program = with_gradients_[{names, requests}];
  if (program != nullptr) return program;
  std::vector<bool> is_floating;
  for (const Tensor& output : program_->Run(inputs, /*draw=*/0)) {
    is_floating.push_back(output.defined() && IsFloating(output.dtype()));
  }
  program = std::make_shared<Program>(WithGradients(def_, is_floating, names, requests));
  return program;
}

void LoadedNet::Restore(const nb::dict& tensors) {
  std::vector<std::string> known = parameters_;
  known.insert(known.end(), state_.begin(), state_.end());
  const std::map<std::string, Tensor> before = CallOnDevice(place(), [&] { return program_->ReadShared(known); });
  std::map<std::string, Tensor> restored;
  for (const nb::handle item : tensors.items()) {
    const nb::object key = item[0], value = item[1];
    const std::string name = Utf8Of(key);
    const auto found = before.find(name);
    if (found == before.end()) {
      throw Error(ErrorCode::kInvalidArgument, StrCat(Described(), " has no parameter and no state \"", name, "\"",
                                                      DidYouMean(name, known), "; it has ", Join(known, ", ")));
    }
    const LentArray lent = LentOf(value, {"tensor", name}, place());
    const Tensor& tensor = lent.tensor;
    const Tensor& expected = found->second;
    if (tensor.dtype() != expected.dtype() || tensor.shape() != expected.shape()) {
      const bool is_shape = tensor.dtype() == expected.dtype();
      throw Error(is_shape ? ErrorCode::kShapeMismatch : ErrorCode::kTypeMismatch,
                  StrCat("\"", name, "\" is ", NumpyName(tensor.dtype()), " ", tensor.shape(), "; it must be ",
                         NumpyName(expected.dtype()), " ", expected.shape()));
    }
    restored[name] = Contiguous(lent, {"tensor", name}, place());
  }
  CallOnDevice(place(), [&] {
    std::optional<std::int64_t> num_runs;
    const auto iteration = restored.find(iteration_);
    if (!iteration_.empty() && iteration != restored.end()) {
      num_runs = *iteration->second.To({}).data<std::int64_t>();
      CheckCanBeCounted(iteration_, *num_runs);
    }
    program_->WriteShared(restored, num_runs);
    return true;
  });
}

}  // namespace stepnet::python
