#include "stepnet/core/regions/region_in_place.h"

#include <algorithm>

namespace stepnet {
namespace {

bool LieInOnePlace(const RegionOutput& written, const RegionOperand& from) {
  const RegionOperand& to = written.memory;
  return written.kind == RegionOutputKind::kElements && from.dtype == to.dtype && from.offset == to.offset &&
         from.strides == to.strides;
}

// Whether the value depends on another input that lies in the tensor of this one.
bool ReadsOthers(const ComposedRegion& composed, const Expr& value, size_t input) {
  return std::ranges::any_of(ExprNodes({&value, 1}), [&](const ExprNode* node) {
    return node->op == ExprOp::kInput && node->number != static_cast<int>(input) &&
           composed.inputs[node->number] == composed.inputs[input];
  });
}

}  // namespace

bool ShareMemory(int read, int written, ComposedRegion* composed) {
  const auto num_outputs = std::ranges::count(composed->outputs, written);
  const auto num_inputs = std::ranges::count(composed->inputs, read);
  if (num_outputs == 0 || num_inputs == 0) return true;  // it is not both
  Region& region = composed->region;
  std::ptrdiff_t pairs = 0;
  for (size_t o = 0; o < region.outputs.size(); ++o) {
    for (size_t i = 0; i < region.inputs.size(); ++i) {
      if (composed->outputs[o] != written || composed->inputs[i] != read ||
          !LieInOnePlace(region.outputs[o], region.inputs[i]) || ReadsOthers(*composed, region.outputs[o].value, i)) {
        continue;
      }
      region.in_place.push_back({.input = static_cast<int>(i), .output = static_cast<int>(o)});
      ++pairs;
    }
  }
  return pairs == num_outputs && pairs == num_inputs;
}

}  // namespace stepnet
