#include "stepnet/compiler/passes/passes.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "stepnet/compiler/graph_text.h"
#include "stepnet/compiler/verify_graph.h"

namespace stepnet {
namespace {

constexpr Pass kPasses[] = {
    {.name = "copy_equal_sums", .opt_level = 0, .run = CopyEqualSums},
    {.name = "drop_moves", .opt_level = 0, .run = DropMoves},
    {.name = "expand", .opt_level = 0, .run = Expand},
    {.name = "split_homes", .opt_level = 0, .run = SplitHomes},
    {.name = "merge_equal", .opt_level = 1, .run = MergeEqual},
    {.name = "add_terms", .opt_level = 2, .run = AddTerms},
    {.name = "drop_zeros", .opt_level = 1, .run = DropZeros},
    {.name = "write_only_terms", .opt_level = 2, .run = WriteOnlyTerms},
    {.name = "fold_sums", .opt_level = 0, .run = FoldSums},
    {.name = "simplify", .opt_level = 1, .run = Simplify},
    {.name = "drop_outputs", .opt_level = 0, .run = DropOutputs},
    {.name = "fold_biases", .opt_level = 2, .run = FoldBiases},
    {.name = "add_in_place", .opt_level = 2, .run = AddInPlace},
    {.name = "copy_inputs", .opt_level = 0, .required = true, .run = CopyInputs},
    {.name = "copy_lent", .opt_level = 0, .required = true, .run = CopyLent},
    {.name = "hoist", .opt_level = 1, .run = Hoist},
    {.name = "merge_products", .opt_level = 2, .run = MergeProducts},
    {.name = "form_stages", .opt_level = 2, .run = FormStages},
    {.name = "pack_weights", .opt_level = 2, .run = PackWeights},
    {.name = "write_first_terms", .opt_level = 2, .run = WriteFirstTerms},
    {.name = "fuse_regions", .opt_level = 1, .run = FuseRegions},
};

std::mutex extra_mutex;
std::function<void(StepGraph*)> extra_pass;  // guarded by extra_mutex

std::function<void(StepGraph*)> TheExtraPass() {
  const std::lock_guard lock(extra_mutex);
  return extra_pass;
}

}  // namespace

ExtraPass::ExtraPass(std::function<void(StepGraph*)> run) {
  const std::lock_guard lock(extra_mutex);
  extra_pass = std::move(run);
}

ExtraPass::~ExtraPass() {
  const std::lock_guard lock(extra_mutex);
  extra_pass = nullptr;
}

std::span<const Pass> Passes() { return kPasses; }

void CheckDisabledPasses(const std::set<std::string>& names) {
  for (const std::string& name : names) {
    const auto pass = std::ranges::find(kPasses, name, &Pass::name);
    if (pass != std::end(kPasses) && !pass->required) continue;
    std::vector<std::string> others;
    for (const Pass& other : kPasses) {
      if (!other.required) others.emplace_back(other.name);
    }
    const std::string what = pass == std::end(kPasses) ? StrCat("there is no pass \"", name, "\"")
                                                       : StrCat("the pass \"", name, "\" cannot be disabled");
    throw Error(ErrorCode::kInvalidArgument, StrCat(what, "; what can be disabled is ", Join(others, ", ")));
  }
}

void RunPasses(const RunOptions& options, StepGraph* graph) {
  CheckDisabledPasses(options.disabled_passes);
  const std::function<void(StepGraph*)> extra = TheExtraPass();
  // Whoever looks at passes, or adds one, wants to know all that is wrong.
  const bool is_thorough = options.on_pass || extra;
  GraphVerifier verifier(is_thorough);
  const auto look = [&](const std::string& pass) {
    verifier.Verify(*graph, pass);
    if (options.on_pass) options.on_pass(pass, *graph);
  };
  look("import");
  for (const Pass& pass : kPasses) {
    if (options.opt_level < pass.opt_level || options.disabled_passes.contains(pass.name)) continue;
    const std::string before = is_thorough ? GraphText(*graph) : std::string();
    const bool is_changed = pass.run(graph);
    if (is_thorough && !is_changed && GraphText(*graph) != before) {
      throw Error(ErrorCode::kInternal, StrCat("the pass ", pass.name, " changed the graph and says that it did not"));
    }
    if (is_changed || is_thorough) look(pass.name);
  }
  if (!extra) return;
  extra(graph);
  look("extra");
}

}  // namespace stepnet
