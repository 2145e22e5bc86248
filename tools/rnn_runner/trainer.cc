#include "stepnet/tools/rnn_runner/trainer.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/nets/op_builder.h"

namespace stepnet::runner {
namespace {

// Throws unless the text has enough characters.
void CheckLength(const TrainJob& job, const Corpus& corpus) {
  const std::int64_t needed = job.config.batch() * job.config.steps() + 1;
  const auto has = static_cast<std::int64_t>(corpus.training().size());
  if (has < needed) {
    throw Error(ErrorCode::kInputOutput, StrCat(job.text, " has ", has, " characters to train on; ", job.config.batch(),
                                                " parts of ", job.config.steps(), " (batch, steps) need ", needed));
  }
  const auto validates = static_cast<std::int64_t>(corpus.validation().size());
  if (validates >= 2) return;
  throw Error(ErrorCode::kInputOutput, StrCat(job.text, " has ", validates, " characters to measure the model with ",
                                              "(validation), it needs at least 2"));
}

std::int64_t ValidationBatch(const TrainJob& job, const Corpus& corpus) {
  const auto characters = static_cast<std::int64_t>(corpus.validation().size()) - 1;
  return std::clamp<std::int64_t>(characters / job.config.steps(), 1, job.config.batch());
}

double LastOf(const Workspace& workspace, const std::string& blob) {
  return workspace.GetTensor(blob).To({}).data<float>()[0];
}

}  // namespace

Trainer::Trainer(const TrainJob& job, const Corpus& corpus, RunOptions options)
    : job_(job),
      options_(std::move(options)),
      model_(MakeLanguageModel(job.model, ModelUse::kTraining)),
      training_(MakeTrainingNet(model_.net, "loss", model_.parameters, job.config.optimizer())),
      text_(corpus.training(), job.config.batch()),
      validation_text_(corpus.validation(), ValidationBatch(job, corpus)),
      iterations_per_epoch_(text_.length() / job.config.steps()) {
  CheckLength(job, corpus);
  options_.seed = job.config.seed();
  const Shape batch = {job.config.steps(), job.config.batch()};
  for (const char* blob : {"tokens", "targets"}) workspace_.SetTensor(blob, Tensor::Zeros(DType::kInt32, batch));
  StartAnew();
  for (const CarriedState& state : model_.states) AddOp(&training_.net, "Copy", {state.last}, {state.initial});
  net_ = Net::Create(training_.net, workspace_, options_);

  for (const std::string& parameter : model_.parameters) validation_workspace_.CreateBlob(parameter);
  for (const std::string& blob : Constants()) validation_workspace_.SetTensor(blob, workspace_.GetTensor(blob));
  for (const char* blob : {"tokens", "targets"}) validation_workspace_.CreateBlob(blob);
  ResetStates(validation_workspace_, validation_text_.batch());
  validation_net_ =
      Net::Create(MakeLanguageModel(job.model, ModelUse::kValidation).net, validation_workspace_, options_);
}

void Trainer::StartAnew() {
  RunNetOnce(model_.init_net, workspace_, options_);
  RunNetOnce(training_.init_net, workspace_, options_);
  ResetStates(workspace_, text_.batch());
  iteration_ = 0;
}

std::int64_t Trainer::num_parameters() const {
  std::int64_t elements = 0;
  for (const std::string& parameter : model_.parameters) elements += workspace_.GetTensor(parameter).size();
  return elements;
}

void Trainer::ResetStates(Workspace& workspace, std::int64_t batch) const {
  for (const CarriedState& state : model_.states) {
    const Shape shape = state.item.Inserted(0, batch).Inserted(0, state.rows);
    const Tensor start(DType::kFloat, shape);
    std::fill_n(start.data<float>(), start.size(), state.start);
    workspace.SetTensor(state.initial, start);
  }
}

// Sets tokens and targets, on the host: a net that runs elsewhere takes them there.
void Trainer::FillText(const Streams& text, std::int64_t begin, std::int64_t steps, Workspace& workspace) {
  const Shape shape = {steps, text.batch()};
  const Tensor& tokens = workspace.CreateBlob("tokens").MakeTensor(DType::kInt32, shape);
  const Tensor& targets = workspace.CreateBlob("targets").MakeTensor(DType::kInt32, shape);
  text.Fill(begin, steps, tokens.data<std::int32_t>(), targets.data<std::int32_t>());
}

IterationMetrics Trainer::Iterate() {
  const std::int64_t part = iteration_ % iterations_per_epoch_;
  if (part == 0) ResetStates(workspace_, text_.batch());
  FillText(text_, part * job_.config.steps(), job_.config.steps(), workspace_);
  net_->SetRunCounter(static_cast<std::uint64_t>(iteration_));
  net_->Run();
  ++iteration_;
  IterationMetrics metrics{.iteration = iteration_, .loss = LastOf(workspace_, "loss")};
  metrics.learning_rate = std::abs(LastOf(workspace_, training_.learning_rate));
  if (!training_.gradient_norm.empty()) metrics.gradient_norm = LastOf(workspace_, training_.gradient_norm);
  return metrics;
}

double Trainer::Validate() {
  // Lent for as long as it takes: what others share is not overwritten in place.
  for (const std::string& parameter : model_.parameters) {
    validation_workspace_.SetTensor(parameter, workspace_.GetTensor(parameter));
  }
  ResetStates(validation_workspace_, validation_text_.batch());
  double nats = 0;
  for (std::int64_t begin = 0; begin < validation_text_.length(); begin += job_.config.steps()) {
    const std::int64_t steps = std::min(job_.config.steps(), validation_text_.length() - begin);
    nats += static_cast<double>(steps) * ValidateSteps(begin, steps);
  }
  for (const std::string& parameter : model_.parameters) validation_workspace_.GetBlob(parameter).Reset();
  return nats / static_cast<double>(validation_text_.length()) * std::numbers::log2e;
}

double Trainer::ValidateSteps(std::int64_t begin, std::int64_t steps) {
  FillText(validation_text_, begin, steps, validation_workspace_);
  validation_net_->Run();
  for (const CarriedState& state : model_.states) {
    validation_workspace_.SetTensor(state.initial, validation_workspace_.GetTensor(state.last).Clone());
  }
  return LastOf(validation_workspace_, "loss");
}

// What init_net fills beside parameters, and nothing changes.
std::vector<std::string> Trainer::Constants() const {
  std::vector<std::string> constants;
  for (const OperatorDef& op : model_.init_net.op()) {
    const std::string& blob = op.output(0);
    if (std::ranges::find(model_.parameters, blob) == model_.parameters.end()) constants.push_back(blob);
  }
  return constants;
}

std::vector<std::string> Trainer::TensorNames() const {
  std::vector<std::string> names = model_.parameters;
  names.insert(names.end(), training_.state.begin(), training_.state.end());
  for (const CarriedState& state : model_.states) names.push_back(state.initial);
  return names;
}

NamedTensors Trainer::Tensors() const {
  NamedTensors tensors;
  for (const std::string& name : TensorNames()) tensors.emplace_back(name, workspace_.GetTensor(name));
  return tensors;
}

void Trainer::Restore(const SavedCheckpoint& checkpoint) {
  const std::int64_t iteration = checkpoint.state.iteration();
  const NamedTensors places = Tensors();
  const std::vector<std::string> names = TensorNames();
  std::vector<std::string> faults;
  for (const auto& [name, saved] : checkpoint.tensors) {
    if (std::ranges::find(names, name) != names.end()) continue;
    faults.push_back(
        StrCat(saved.Description(), " for ", name, ", which is none of its blobs", DidYouMean(name, names)));
  }
  for (const auto& [name, now] : places) {
    const auto found = std::ranges::find(checkpoint.tensors, name, &NamedInfos::value_type::first);
    const bool is_there = found != checkpoint.tensors.end();
    if (is_there && found->second.dtype == now.dtype() && found->second.shape == now.shape()) continue;
    faults.push_back(
        StrCat(is_there ? found->second.Description() : "nothing", " for ", name, ", which is ", now.Description()));
  }
  if (iteration < 0) faults.push_back(StrCat("the iteration ", iteration));
  if (faults.empty()) {  // counters say how often they counted
    const auto is_counter = [&](const std::string& name) {
      const auto place = std::ranges::find(places, name, &NamedTensors::value_type::first);
      return place != places.end() && place->second.dtype() == DType::kInt64;
    };
    for (const auto& [name, counter] : ReadTensors(checkpoint.path, is_counter)) {
      const std::int64_t count = counter.data<std::int64_t>()[0];
      if (count == iteration) continue;
      faults.push_back(StrCat("iteration ", count, " for ", name, ", and ", iteration, " are done"));
    }
  }
  if (!faults.empty()) {
    throw Error(ErrorCode::kInputOutput, StrCat("the checkpoint holds ", Join(faults, "\n  ")));
  }
  ReadTensorsInto(checkpoint.path, places);
  iteration_ = iteration;
}

NetDef Trainer::ModelInitNet(bool with_values) const {
  NetDef net;
  net.set_name("language_model_parameters");
  std::vector<std::string> filled = model_.parameters;
  for (const std::string& blob : Constants()) filled.push_back(blob);
  for (const std::string& blob : filled) {
    const Tensor tensor = workspace_.GetTensor(blob).To({});
    AddOp(&net, "GivenTensorFill", {}, {blob}).Ints("shape", tensor.shape().ToVector());
    Argument& values = *net.mutable_op(net.op_size() - 1)->add_arg();
    values.set_name("values");
    if (with_values) values.mutable_floats()->Assign(tensor.data<float>(), tensor.data<float>() + tensor.size());
  }
  for (const CarriedState& state : model_.states) {
    AddOp(&net, "ConstantFill", {}, {state.initial})
        .Ints("shape", state.item.Inserted(0, 1).Inserted(0, state.rows).ToVector())
        .Float("value", state.start);
  }
  for (const OperatorDef& op : net.op()) net.add_external_output(op.output(0));
  return net;
}

NetDef Trainer::ModelNet() const { return MakeLanguageModel(job_.model, ModelUse::kPrediction).net; }

}  // namespace stepnet::runner
