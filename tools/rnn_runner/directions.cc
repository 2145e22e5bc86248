#include "stepnet/tools/rnn_runner/directions.h"

#include <algorithm>
#include <cmath>

#include "stepnet/core/random.h"
#include "stepnet/nets/backward.h"
#include "stepnet/nets/backward_step.h"
#include "stepnet/nets/double_net.h"
#include "stepnet/tools/rnn_runner/inputs.h"
#include "stepnet/tools/rnn_runner/losses.h"
#include "stepnet/tools/rnn_runner/tensor_text.h"

namespace stepnet::runner {
namespace {

std::unique_ptr<Workspace> RunFrom(const TensorMap& tensors, const NetDef& net, const RunOptions& options) {
  auto workspace = std::make_unique<Workspace>();
  FeedCopies(tensors, *workspace);
  RunNetOnce(net, *workspace, options);
  return workspace;
}

bool HoldsDouble(const std::string& blob, const Workspace& workspace) {
  const Blob* found = workspace.FindBlob(blob);
  return found != nullptr && found->HasTensor() && found->GetTensor().dtype() == DType::kDouble;
}

std::vector<Loss> LossesOf(const NetDef& net, const NetDef& forward, const Workspace& after) {
  std::vector<Loss> losses;
  for (const Loss& loss : SeededLosses(net)) losses.push_back({.blob = loss.blob});
  if (!losses.empty()) return losses;
  for (const std::string& blob : UnreadBlobs(forward)) {
    if (HoldsDouble(blob, after)) losses.push_back({.blob = blob});
  }
  return losses;
}

Tensor RandomDirection(const Shape& shape, std::uint64_t number) {
  Tensor direction(DType::kDouble, shape);
  const RandomStream random(/*seed=*/1, number, /*run=*/0, /*step=*/0);
  for (std::int64_t i = 0; i < direction.size(); ++i) direction.data<double>()[i] = 2 * random.Uniform(i) - 1;
  return direction;
}

}  // namespace

std::vector<Direction> CompareDirections(const NetDef& net, const Workspace& start, const RunOptions& options) {
  const TensorMap tensors = DoubleTensors(start);
  const auto is_floating = [&](const std::string& blob) {
    const auto found = tensors.find(blob);
    return found == tensors.end() || found->second.dtype() == DType::kDouble;
  };
  const NetDef whole = InDouble(net);
  const NetDef forward = WithoutGradients(whole);
  const std::vector<Loss> losses = LossesOf(whole, forward, *RunFrom(tensors, forward, options));
  std::vector<std::string> blobs, inputs;
  for (const Loss& loss : losses) blobs.push_back(loss.blob);
  for (const std::string& input : ReadFirst(forward)) {
    if (tensors.contains(input) && is_floating(input)) inputs.push_back(input);
  }
  NetDef with_steps = forward;
  AddBackwardStepNets(&with_steps, is_floating);
  const NetWithGradients made = AddGradients(with_steps, blobs, inputs);
  const std::unique_ptr<Workspace> after = RunFrom(tensors, made.net, options);
  const double noise = 1e-9 * std::max(1.0, std::abs(LossValue(losses, *after)));
  std::vector<Direction> directions;
  for (const auto& [input, gradient] : made.gradients) {
    if (gradient.dense.empty()) continue;
    const Tensor& value = tensors.at(input);
    const Tensor direction = RandomDirection(value.shape(), directions.size());
    constexpr double kStep = 1e-6;
    const auto loss_at = [&](double step) {
      TensorMap moved = tensors;
      Tensor& tensor = moved[input] = value.Clone();
      for (std::int64_t i = 0; i < tensor.size(); ++i) {
        tensor.data<double>()[i] += step * direction.data<double>()[i];
      }
      return LossValue(losses, *RunFrom(moved, forward, options));
    };
    Direction& result = directions.emplace_back(Direction{.input = input});
    result.difference = (loss_at(kStep) - loss_at(-kStep)) / (2 * kStep);
    const Tensor found = after->GetTensor(gradient.dense).To({});
    double scale = 0;
    for (std::int64_t i = 0; i < std::min(found.size(), direction.size()); ++i) {
      const double term = found.data<double>()[i] * direction.data<double>()[i];
      result.gradient += term;
      scale += std::abs(term);
    }
    result.allowed = 1e-5 * scale + noise;
  }
  return directions;
}

}  // namespace stepnet::runner
