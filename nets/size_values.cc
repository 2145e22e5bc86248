#include "stepnet/nets/size_values.h"

#include <algorithm>

#include "stepnet/core/error.h"
#include "stepnet/core/workspace.h"
#include "stepnet/nets/net_operator.h"
#include "stepnet/nets/side_effects.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

bool IsSmall(const Shape& shape) { return shape.size() <= kMaxKnownElements; }

// Whether its outputs follow from its inputs, and a kernel of the host computes them.
bool ComputesAlone(const OperatorDef& op) {
  const OperatorSchema& schema = GetOperator(op.type());
  return !HasSideEffects(op) && !DrawsRandomNumbers(op) && !schema.files && !schema.TakesBlobs(DeviceKind::kCpu) &&
         schema.FindKernel(DeviceKind::kCpu) != nullptr;
}

}  // namespace

std::set<std::string> BlobsOfSizes(const NetDef& net) {
  std::set<std::string> blobs;
  for (int k = net.op_size() - 1; k >= 0; --k) {
    const OperatorDef& op = net.op(k);
    const OperatorSchema* schema = FindOperator(op.type());
    if (schema == nullptr) continue;
    const bool computes = std::ranges::any_of(op.output(), [&](const auto& output) { return blobs.contains(output); });
    for (int i = 0; i < op.input_size(); ++i) {
      const bool decides = std::ranges::count(schema->shape_value_inputs, i) > 0;
      if (decides || (computes && !schema->ReadsShapeAlone(i))) blobs.insert(op.input(i));
    }
  }
  return blobs;
}

std::vector<Tensor> ValuesOfOutputs(const OperatorDef& op, const std::vector<Tensor>& inputs,
                                    const std::vector<TensorInfo>& outputs) {
  const bool are_known = std::ranges::all_of(inputs, [](const Tensor& x) { return x.defined() && IsSmall(x.shape()); });
  const bool are_small = std::ranges::all_of(outputs, [](const TensorInfo& y) { return IsSmall(y.shape); });
  if (!are_known || !are_small || !ComputesAlone(op)) return {};
  Workspace workspace;
  for (size_t i = 0; i < inputs.size(); ++i) {
    workspace.CreateBlob(op.input(static_cast<int>(i))).SetTensor(inputs[i].Clone());
  }
  std::vector<Tensor> values;
  try {
    RunContext context;
    NetOperator(OperatorCall(op, {.threads = 1}), workspace).Run(context);
    for (const std::string& output : op.output()) values.push_back(workspace.GetTensor(output));
  } catch (const Error&) {  // the run says it, if there is one
    return {};
  }
  return values;
}

}  // namespace stepnet
