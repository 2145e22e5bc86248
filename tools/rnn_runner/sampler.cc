#include "stepnet/tools/rnn_runner/sampler.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "stepnet/compiler/forward_plan.h"
#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/nets/completion.h"
#include "stepnet/nets/model.h"
#include "stepnet/nets/net_check.h"
#include "stepnet/nets/recurrent_spec.h"

namespace stepnet::runner {
namespace {

using CarriedStates = std::vector<std::pair<std::string, std::string>>;

// Gives 1 for an initial state that nothing fills: the run will tell.
std::int64_t NumInitialRows(const std::string& initial, const Workspace& workspace) {
  const Blob* blob = workspace.FindBlob(initial);
  return blob != nullptr && blob->HasTensor() ? stepnet::NumInitialRows(blob->GetTensor().shape()) : 1;
}

void AddStatesOf(const OperatorDef& op, const Workspace& workspace, const RunOptions& options, CarriedStates* states) {
  const std::shared_ptr<const RecurrentSpec> spec = RecurrentSpecOf(OperatorCall(op, options));
  for (const RecurrentState& state : spec->states) {
    const bool is_read = std::ranges::any_of(
        spec->links, [&](const Link& link) { return link.external == state.name && link.offset == 0; });
    if (!is_read) continue;  // an output that Caffe2's operator gives as a state
    const std::string& initial = op.input(state.initial);
    // The last rows, as many as the state starts from; the net may give the very last one, too.
    const std::int64_t rows = NumInitialRows(initial, workspace);
    const auto last = std::ranges::find_if(
        spec->aliases, [&](const OffsetAlias& alias) { return alias.source == state.name && alias.offset == -rows; });
    if (last == spec->aliases.end()) {
      throw Error(ErrorCode::kInvalidNet,
                  StrCat("the net does not give ", rows == 1 ? "" : StrCat("the last ", rows, " rows of "),
                         "its state \"", state.name, "\" at the end, so that it cannot be carried on"));
    }
    states->emplace_back(initial, last->destination);
  }
}

// Every state, with the blob that it starts from, which `workspace` holds, and the one that holds it at the end.
CarriedStates CarriedStatesOf(const NetDef& net, const Workspace& workspace, const RunOptions& options) {
  CarriedStates states;
  for (int k = 0; k < net.op_size(); ++k) {
    if (net.op(k).type() != "RecurrentNetwork") continue;
    try {
      AddStatesOf(net.op(k), workspace, options, &states);
    } catch (...) {
      throw CurrentError().At({.net = net.name(), .op_index = k, .op_text = OperatorText(net.op(k))});
    }
  }
  return states;
}

// Throws, also where a run has not come to its first model.
Vocabulary ReadVocabulary(const std::string& folder) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(folder, ignored)) {
    throw Error(ErrorCode::kInputOutput, StrCat(folder,
                                                " is a file; the folder in which `rnn_runner train` writes a model "
                                                "is needed"));
  }
  const auto has = [&](const char* file) { return std::filesystem::exists(folder + file, ignored); };
  const bool has_model = has("/vocabulary.json") && has("/net.pb") && has("/init_net.pb");
  if (!has_model && has("/checkpoints")) {
    throw Error(
        ErrorCode::kInputOutput,
        StrCat(folder, " holds no model yet: the run writes the first one when it validates for the first time, ",
               "after validate_every iterations; the same `rnn_runner train` goes on to there"));
  }
  return Vocabulary::Read(folder + "/vocabulary.json");
}

}  // namespace

std::int64_t Draw(std::span<const float> probabilities, const SamplingOptions& options, double uniform) {
  std::vector<std::int64_t> order(probabilities.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater(), [&](std::int64_t i) { return probabilities[i]; });
  if (options.temperature == 0) return order.front();
  if (options.top_k > 0 && options.top_k < std::ssize(order)) order.resize(options.top_k);
  // Relative to the greatest, so that low temperatures do not make all of them 0.
  std::vector<double> weights;
  for (const std::int64_t i : order) {
    weights.push_back(
        std::pow(static_cast<double>(probabilities[i]) / probabilities[order.front()], 1 / options.temperature));
  }
  double left = uniform * std::accumulate(weights.begin(), weights.end(), 0.0);
  for (size_t i = 0; i < weights.size(); ++i) {
    if ((left -= weights[i]) < 0) return order[i];
  }
  return order.front();  // rounding left nothing to fall on
}

Sampler::Sampler(const std::string& folder, const RunOptions& options, const Prepare& prepare)
    : folder_(folder), vocabulary_(ReadVocabulary(folder)) {
  const Model model = LoadModel(folder + "/net.pb", folder + "/init_net.pb");
  try {
    const auto& inputs = model.net.external_input();
    if (std::ranges::find(inputs, "tokens") == inputs.end()) {
      throw Error(ErrorCode::kInvalidNet, "the net has no input \"tokens\"; `rnn_runner train` writes such models");
    }
    ThrowIfProblems(CheckNet(*Completed(model.net)));  // with every fault, before one of them is met
    model.Initialize(workspace_, options);
    if (prepare) prepare(model, workspace_);
    states_ = CarriedStatesOf(model.net, workspace_, options);
    SetConstant(FilledBy(model), model.net, workspace_);
    workspace_.CreateBlob("tokens");
    net_ = Net::Create(model.net, workspace_, options);
  } catch (...) {
    throw CurrentError().At({.file = folder + "/net.pb"});
  }
}

std::span<const float> Sampler::Read(const std::vector<std::int32_t>& characters) {
  num_read_ += std::ssize(characters);
  const Shape shape = {static_cast<std::int64_t>(characters.size()), 1};
  workspace_.SetTensor("tokens", Tensor::Of<std::int32_t>(shape, characters));
  net_->Run();
  // Copies, because the next run writes over what its outputs hold.
  for (const auto& [initial, last] : states_) workspace_.SetTensor(initial, workspace_.GetTensor(last).Clone());
  workspace_.SetTensor("probabilities", workspace_.GetTensor("probabilities").To({}));  // they are read here
  const Tensor& probabilities = workspace_.GetTensor("probabilities");
  if (probabilities.shape() != Shape({shape[0], 1, vocabulary_.size()})) {
    throw Error(ErrorCode::kInvalidNet, StrCat("probabilities is ", probabilities.Description(), " for tokens ", shape,
                                               " and ", vocabulary_.size(), " characters"));
  }
  const std::span<const float> last(probabilities.data<float>() + probabilities.size() - vocabulary_.size(),
                                    static_cast<size_t>(vocabulary_.size()));
  // A sum of numbers that are no number, or infinite, is neither.
  if (!std::isfinite(std::accumulate(last.begin(), last.end(), 0.0))) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("\"probabilities\" of the character behind the first ", num_read_,
                       " are not all finite: a parameter is not, or what follows from them is too "
                       "large"))
        .At({.file = folder_ + "/net.pb"});
  }
  return last;
}

}  // namespace stepnet::runner
