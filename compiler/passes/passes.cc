#include "stepnet/compiler/passes/passes.h"

namespace stepnet {
namespace {

constexpr Pass kPasses[] = {
    {.name = "add_terms", .opt_level = 1, .run = AddTerms},
    {.name = "fold_sums", .opt_level = 0, .run = FoldSums},
    {.name = "drop_outputs", .opt_level = 0, .run = DropOutputs},
};

}  // namespace

std::span<const Pass> Passes() { return kPasses; }

void RunPasses(StepDraft* draft) {
  for (const Pass& pass : kPasses) {
    if (draft->request.options.opt_level >= pass.opt_level) pass.run(draft);
  }
}

}  // namespace stepnet
