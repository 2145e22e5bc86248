#include "stepnet/core/cost.h"

#include <algorithm>

namespace stepnet {

namespace {

// Also of a tensor that no memory holds, which nobody has refused yet.
double BytesOf(const TensorInfo& tensor) {
  return static_cast<double>(tensor.shape.size()) * static_cast<double>(DTypeBytes(tensor.dtype));
}

}  // namespace

double BytesMoved(const ShapeQuery& query, std::span<const TensorInfo> outputs) {
  double bytes = 0;
  for (int i = 0; i < query.num_inputs(); ++i) bytes += BytesOf(query.In(i));
  for (const TensorInfo& output : outputs) bytes += BytesOf(output);
  return bytes;
}

Cost EstimateCost(const OperatorCall& op, std::span<const TensorInfo> inputs, std::span<const TensorInfo> outputs) {
  const ShapeQuery query(op, inputs);
  if (const CostRule& rule = op.schema().cost) return rule(query, outputs);
  Cost cost{.bytes = BytesMoved(query, outputs)};
  if (!op.schema().elementwise) return cost;
  for (const TensorInfo& output : outputs) cost.flops += static_cast<double>(output.shape.size());
  return cost;
}

double EstimateMicroseconds(const Cost& cost, const Target& target) {
  return target.microseconds_of_call +
         std::max(cost.flops / target.flops_per_microsecond, cost.bytes / target.bytes_per_microsecond);
}

}  // namespace stepnet
