#include "stepnet/compiler/step_draft.h"

#include <algorithm>

namespace stepnet {
namespace {

std::string PlaceText(const Slot& slot) {
  if (slot.storage_class != StorageClass::kLinked) return StrCat("base ", slot.base);
  const std::string row = slot.offset == 0 ? "t" : StrCat("t + ", slot.offset);
  const std::int64_t window = slot.row_bytes > 0 ? slot.bytes / slot.row_bytes : 1;
  return StrCat("base ", slot.base, "[", row, window == 1 ? "]" : StrCat(", ", window, " rows]"));
}

std::string TransferText(const Transfer& transfer) {
  const bool adds = transfer.kind == Transfer::Kind::kAddIn || transfer.kind == Transfer::Kind::kAddOut;
  const char* how = adds ? " += " : " = ";
  const std::string outside = StrCat("\"", transfer.outside.blob, "\" in ", PlaceText(transfer.outside));
  return GoesIn(transfer) ? StrCat(transfer.blob, how, outside) : StrCat(outside, how, transfer.blob);
}

}  // namespace

bool GoesIn(const Transfer& transfer) {
  return transfer.kind == Transfer::Kind::kCopyIn || transfer.kind == Transfer::Kind::kAddIn;
}

StepDraft ImportStep(StepPlanRequest request) {
  std::map<std::string, StepInput> inputs;
  for (const BoundBlob& bound : request.bound) {
    if (bound.readable) inputs[bound.slot.blob] = {.info = bound.info, .dynamic = false};
  }
  for (const auto& [blob, list] : request.bound_dynamic) inputs[blob] = {.info = {}, .dynamic = true};
  for (const Transfer& transfer : request.transfers) {
    if (GoesIn(transfer)) inputs.try_emplace(transfer.blob, StepInput{.info = transfer.info, .dynamic = false});
  }
  std::map<std::string, TensorInfo> linked;
  for (const BoundBlob& bound : request.bound) linked[bound.slot.blob] = bound.info;
  StepGraph graph = ImportStepNet(*request.net, inputs, request.options, linked);
  return {.request = std::move(request), .graph = std::move(graph)};
}

bool StepDraft::RunsWithBlobs(const StepNode& node) const {
  const auto is_dynamic = [&](int value) {
    const std::string& blob = graph.values[value].blob;
    return request.bound_dynamic.contains(blob) || graph.dynamic_blobs.contains(blob);
  };
  return node.dynamic || std::ranges::any_of(node.inputs, is_dynamic) || std::ranges::any_of(node.outputs, is_dynamic);
}

std::string StepDraft::ToString() const {
  std::string text = graph.ToString();
  for (const BoundBlob& bound : request.bound) {
    text += StrCat(bound.slot.blob, " is bound to ", PlaceText(bound.slot), "\n");
  }
  for (size_t k = 0; k < request.transfers.size(); ++k) {
    const auto direct = direct_sums.find(request.transfers[k].blob);
    const bool is_direct = direct != direct_sums.end() && direct->second == static_cast<int>(k);
    text += StrCat(TransferText(request.transfers[k]), is_direct ? ", by its operator\n" : "\n");
  }
  for (const int value : unneeded) text += StrCat(graph.NameOf(value), " is not needed\n");
  return text;
}

}  // namespace stepnet
