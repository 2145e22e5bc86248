#include "stepnet/nets/bfloat16_weights.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "stepnet/core/error.h"
#include "stepnet/core/floating.h"
#include "stepnet/core/memory_for.h"
#include "stepnet/core/strings.h"
#include "stepnet/nets/net_check.h"
#include "stepnet/nets/placement.h"
#include "stepnet/nets/recurrent_spec.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

// Who uses a blob.
struct WeightUse {
  bool is_weights = false;  // of a product
  std::string gradient;     // an operator that computes a gradient with it
  std::string other;        // somebody else, and what he does
};

class WeightUses {
 public:
  WeightUses(const NetDef& net, const RunOptions& options) : options_(options) {
    AddNet(net, nullptr);
    for (const std::string& output : net.external_output()) NoteOther(output, "the net gives it");
  }

  // Null: nobody uses it.
  const WeightUse* Find(const std::string& blob) const {
    const auto found = uses_.find(blob);
    return found == uses_.end() ? nullptr : &found->second;
  }

 private:
  // A step net runs on the device of its operator.
  void AddNet(const NetDef& net, const Device* device) {
    for (int k = 0; k < net.op_size(); ++k) {
      const OperatorDef& op = net.op(k);
      const std::string of_net = net.name().empty() ? "" : StrCat(" of net \"", net.name(), "\"");
      const std::string place = StrCat(op.type(), ", op ", k, of_net);
      try {
        const Device runs_on = device != nullptr ? *device : DeviceAskedFor(op, net).value_or(options_.device());
        op.type() == "RecurrentNetwork" ? AddRecurrent(op, place, runs_on) : AddReads(op, place, runs_on);
      } catch (Error& error) {
        throw error.At({.net = net.name(), .op_index = k, .op_text = OperatorText(op)});
      }
      for (const std::string& output : op.output()) NoteOther(output, StrCat(place, ", writes it"));
    }
  }

  void AddReads(const OperatorDef& op, const std::string& place, const Device& device) {
    const OperatorSchema* schema = FindOperator(op.type());
    const Kernel* kernel = schema == nullptr ? nullptr : schema->FindKernel(device.kind);
    const bool is_gradient = op.is_gradient_op() || op.type().ends_with("Gradient");
    for (int i = 0; i < op.input_size(); ++i) {
      WeightUse& use = uses_[op.input(i)];
      if (is_gradient) {
        use.gradient = place;
      } else if (kernel != nullptr && std::ranges::count(kernel->bfloat16_weights, i) > 0) {
        use.is_weights = true;
      } else {
        NoteOther(op.input(i), StrCat(place, device.IsHost() ? "" : StrCat(" on ", device), ", reads it too"));
      }
    }
  }

  // What the operator itself reads are initial states and what links show, steps read the rest by its name.
  void AddRecurrent(const OperatorDef& op, const std::string& place, const Device& device) {
    const std::shared_ptr<const RecurrentSpec> spec = RecurrentSpecOf(OperatorCall(op, options_));
    std::set<std::string> own;
    if (op.input_size() > 0) own.insert(op.input(0));
    for (const RecurrentState& state : spec->states) own.insert(op.input(state.initial));
    for (const Link& link : spec->links) own.insert(link.external);
    for (const std::string& input : op.input()) {
      if (own.contains(input)) NoteOther(input, StrCat(place, ", has it as sequence or initial state"));
    }
    AddNet(*spec->step_net, &device);
  }

  void NoteOther(const std::string& blob, const std::string& what) {
    std::string& other = uses_[blob].other;
    if (other.empty()) other = what;
  }

  const RunOptions& options_;
  std::map<std::string, WeightUse> uses_;
};

Tensor Rounded(const Tensor& weights) {
  Tensor rounded(DType::kBFloat16, weights.shape());
  const float* from = weights.data<float>();
  std::transform(from, from + weights.size(), rounded.data<BFloat16>(), [](float value) { return ToBFloat16(value); });
  return rounded;
}

// Finite elements that bfloat16 cannot hold: they would be infinite.
std::int64_t NumTooLarge(const Tensor& weights) {
  const float* from = weights.data<float>();
  return std::count_if(from, from + weights.size(),
                       [](float value) { return std::isfinite(value) && std::isinf(ToFloat(ToBFloat16(value))); });
}

// Why a weight of products cannot be stored; "": it can.
std::string WhyKept(const std::string& name, const WeightUse& use, const Tensor& weights) {
  if (!use.gradient.empty()) {
    throw Error(ErrorCode::kInvalidNet,
                StrCat("weights in bfloat16 are for inference, and ", use.gradient, ", computes a gradient with \"",
                       name, "\"; run the net without its gradient operators, or keep weights in float"));
  }
  if (weights.dtype() == DType::kDouble) {
    throw Error(ErrorCode::kTypeMismatch, StrCat("the weights \"", name, "\" are ", weights.Description(),
                                                 ", and weights in bfloat16 are for nets that compute in float"));
  }
  if (weights.dtype() != DType::kFloat && weights.dtype() != DType::kBFloat16) {
    return StrCat("it is ", weights.Description());
  }
  if (!use.other.empty() || weights.dtype() == DType::kBFloat16) return use.other;
  const std::int64_t too_large = NumTooLarge(weights);
  return too_large == 0 ? "" : StrCat("of its elements ", too_large, " would be infinite");
}

[[noreturn]] void ThrowNothingStored(const std::vector<FloatWeight>& kept) {
  std::string text =
      "no parameter of the net can be stored in bfloat16: that is for weights of products (of FC and MatMul), which "
      "nothing else reads";
  for (const FloatWeight& weight : kept) text += StrCat("\n  \"", weight.name, "\" stays float: ", weight.reason);
  throw Error(ErrorCode::kInvalidArgument, text);
}

}  // namespace

std::vector<std::string> BFloat16Candidates(const NetDef& net, const std::vector<std::string>& parameters,
                                            const RunOptions& options) {
  const WeightUses uses(net, options);
  std::vector<std::string> candidates;
  for (const std::string& name : parameters) {
    const WeightUse* use = uses.Find(name);
    if (use != nullptr && use->is_weights && use->gradient.empty() && use->other.empty()) candidates.push_back(name);
  }
  return candidates;
}

BFloat16Weights StoreWeightsInBFloat16(const NetDef& net, const std::vector<std::string>& parameters,
                                       Workspace& workspace, const RunOptions& options) {
  if (!options.device().IsHost()) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("weights in bfloat16 are for nets on the CPU, and this one runs on ", options.device()));
  }
  const WeightUses uses(net, options);
  BFloat16Weights result;
  for (const std::string& name : std::set(parameters.begin(), parameters.end())) {
    const WeightUse* use = uses.Find(name);
    Blob* const blob = workspace.FindBlob(name);
    if (use == nullptr || !use->is_weights || blob == nullptr || !blob->HasTensor()) continue;
    const Tensor& weights = blob->GetTensor();
    const std::string reason = WhyKept(name, *use, weights);
    if (!reason.empty()) {
      result.kept.push_back({.name = name, .reason = reason});
    } else {
      result.stored.push_back(name);
    }
  }
  if (result.stored.empty()) ThrowNothingStored(result.kept);
  for (const std::string& name : result.stored) {
    Blob& blob = workspace.GetBlob(name);
    if (blob.GetTensor().dtype() == DType::kFloat) {
      blob.SetTensor(WithMemoryFor("the weights in bfloat16", name, [&] { return Rounded(blob.GetTensor()); }));
    }
    result.bytes += blob.GetTensor().size_bytes();
  }
  return result;
}

void WidenParameters(const std::vector<std::string>& parameters, const NetDef* net, Workspace& workspace,
                     const RunOptions& options) {
  std::set<std::string> stored, in_bfloat16;
  for (const std::string& name : parameters) {
    const Blob& blob = workspace.GetBlob(name);
    if (!blob.HasTensor() || !IsStoredFloat(blob.GetTensor().dtype())) continue;
    stored.insert(name);
    if (blob.GetTensor().dtype() == DType::kBFloat16) in_bfloat16.insert(name);
  }
  if (net != nullptr && !in_bfloat16.empty()) {
    for (const std::string& kept : BFloat16Candidates(*net, {in_bfloat16.begin(), in_bfloat16.end()}, options)) {
      stored.erase(kept);
    }
  }
  for (const std::string& name : stored) {
    Blob& blob = workspace.GetBlob(name);
    blob.SetTensor(WithMemoryFor("the parameter", name, [&] { return Widened(blob.GetTensor()); }));
  }
}

}  // namespace stepnet
