#include "stepnet/python/src/explain.h"

#include <memory>
#include <utility>

#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/report/explanation.h"
#include "stepnet/report/made_plans.h"

namespace stepnet::python {
namespace {

std::shared_ptr<SharedBlobs> CopyOf(SharedBlobs& shared) {
  auto copy = std::make_shared<SharedBlobs>();
  const std::lock_guard lock(shared.mutex);
  for (const std::string& name : shared.workspace.LocalBlobs()) {
    const Blob& blob = shared.workspace.GetBlob(name);
    if (blob.HasTensor()) copy->workspace.SetTensor(name, blob.GetTensor().Clone());
  }
  return copy;
}

}  // namespace

std::string ExplanationOf(ProgramDef def, const std::vector<Tensor>& inputs, const std::string& format,
                          const std::string& title) {
  if (format != "text" && format != "html" && format != "json") {
    throw Error(ErrorCode::kInvalidArgument, StrCat("format is \"", format, "\"; it must be text, html or json"));
  }
  MadePlans made;
  made.Watch(&def.options);
  if (def.shared != nullptr) def.shared = CopyOf(*def.shared);
  def.num_runs = std::make_shared<RunCount>(0);
  const bool has_gradients = !def.differentiated.empty();
  const auto program = std::make_shared<Program>(std::move(def));
  if (has_gradients) {
    const auto [outputs, pullback] = program->RunForGradients(inputs);
    pullback->Run(std::vector<Tensor>(outputs.size()));
  } else {
    program->Run(inputs);
  }
  if (made.plans().empty()) throw Error(ErrorCode::kInvalidNet, StrCat(title, " runs no step net"));
  std::vector<Explanation> explanations;
  for (const MadePlan& plan : made.plans()) explanations.push_back(Explain(plan, std::nullopt, nullptr));
  if (format == "html") return ExplanationsHtml(StrCat("What the compiler has made of ", title), explanations);
  return format == "json" ? ExplanationsJson(explanations) : ExplanationsText(explanations);
}

}  // namespace stepnet::python
