#include "stepnet/nets/kept_outputs.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>

#include "stepnet/core/formulas/formula_cache.h"
#include "stepnet/core/formulas/formula_program.h"
#include "stepnet/nets/rename.h"
#include "stepnet/nets/side_effects.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {

KeptOutputs::Constant KeptOutputs::Constant::Of(const Blob& blob) {
  if (!blob.HasTensor()) return {};
  const Tensor& tensor = blob.GetTensor();
  const std::uint64_t id = tensor.device().IsHost() ? tensor.ConstantId() : 0;
  if (id == 0) return {};
  return {.id = id, .address = tensor.raw(), .dtype = tensor.dtype(), .shape = tensor.shape()};
}

std::vector<bool> KeptOutputs::MayBe(const NetDef& net) {
  std::unordered_map<std::string_view, int> times_written;
  times_written.reserve(static_cast<size_t>(net.op_size()));
  for (const OperatorDef& op : net.op()) {
    for (const std::string& output : op.output()) ++times_written[output];
  }
  std::vector<bool> may_be;
  for (const OperatorDef& op : net.op()) {
    const auto is_apart = [&](const std::string& output) {
      return times_written[output] == 1 && std::ranges::count(op.input(), output) == 0;
    };
    may_be.push_back(op.input_size() > 0 && !HoldsNets(op) && !HasSideEffects(op) &&
                     std::ranges::all_of(op.output(), is_apart));
  }
  return may_be;
}

bool KeptOutputs::AreAll(const std::vector<Constant>& constants, std::span<Blob* const> blobs) {
  return std::ranges::equal(constants, blobs,
                            [](const Constant& constant, const Blob* blob) { return constant == Constant::Of(*blob); });
}

bool KeptOutputs::Hold() const {
  return !inputs_.empty() && AreAll(inputs_, op_.inputs()) && AreAll(outputs_, op_.outputs());
}

void KeptOutputs::Keep() {
  inputs_.clear();
  const auto is_constant = [](const Blob* blob) { return Constant::Of(*blob).id != 0; };
  if (!std::ranges::all_of(op_.inputs(), is_constant) || !DependsOnInputsAlone()) return;
  outputs_.clear();
  for (const Blob* blob : op_.outputs()) {
    if (!blob->HasTensor()) return;
    blob->GetTensor().SetConstant();
    outputs_.push_back(Constant::Of(*blob));
  }
  for (const Blob* blob : op_.inputs()) inputs_.push_back(Constant::Of(*blob));
}

// No random numbers, and nothing that depends on the number of the run. Kernels say nothing of this: what an operator
// computes must be known by its formula or its expansion.
bool KeptOutputs::DependsOnInputsAlone() const {
  const OperatorSchema& schema = op_.call().schema();
  std::vector<TensorInfo> infos;
  for (const Blob* blob : op_.inputs()) {
    infos.push_back({.dtype = blob->GetTensor().dtype(), .shape = blob->GetTensor().shape()});
  }
  for (const int i : schema.shape_value_inputs) {
    if (i < op_.call().num_inputs()) infos[i].value = op_.inputs()[i]->GetTensor();
  }
  const ShapeQuery query(op_.call(), infos);
  if (!schema.formula || !FormulaApplies(query, {})) return schema.expansion != nullptr;
  return std::ranges::none_of(FindFormula(query)->formula().inputs, IsRunValue);
}

}  // namespace stepnet
