#include "stepnet/compiler/passes/passes.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <utility>

#include "stepnet/compiler/graph_text.h"
#include "stepnet/compiler/verify_graph.h"
#include "stepnet/core/cancellation.h"

namespace stepnet {
namespace {

struct Registry {
  std::mutex mutex;
  std::vector<Pass> passes;  // by place
  bool is_checked = true;    // since the last one was registered
};

Registry& TheRegistry() {
  static Registry registry;
  return registry;
}

// Throws where two have one name or one place: which of them would run first, or which one is meant, nobody knows.
void CheckRegistered() {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  if (registry.is_checked) return;
  const std::vector<Pass>& passes = registry.passes;
  std::vector<std::string_view> names;
  for (const Pass& pass : passes) names.emplace_back(pass.name);
  std::ranges::sort(names);
  if (const auto twice = std::ranges::adjacent_find(names); twice != names.end()) {
    throw Error(ErrorCode::kInternal, StrCat("two passes are registered as ", *twice));
  }
  for (size_t i = 1; i < passes.size(); ++i) {
    if (passes[i - 1].place != passes[i].place) continue;
    throw Error(ErrorCode::kInternal, StrCat("the passes ", passes[i - 1].name, " and ", passes[i].name,
                                             " are both registered for place ", passes[i].place));
  }
  registry.is_checked = true;
}

// Returns those that run, in their order.
std::vector<Pass> PassesOf(const RunOptions& options) {
  CheckDisabledPasses(options.disabled_passes);
  CheckRegistered();
  const int opt_level = std::min(options.opt_level, TestedOptLevel());
  std::vector<Pass> passes = Passes();
  std::erase_if(passes, [&](const Pass& pass) {
    return opt_level < pass.opt_level || options.disabled_passes.contains(pass.name);
  });
  return passes;
}

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

PassRegistration::PassRegistration(const Pass& pass) {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  registry.passes.insert(std::ranges::upper_bound(registry.passes, pass.place, {}, &Pass::place), pass);
  registry.is_checked = false;
}

bool VerifiesAll() {
  static const bool verifies_all = std::getenv("STEPNET_VERIFY_PASSES") != nullptr;
  return verifies_all;
}

int TestedOptLevel() {
  static const int level = [] {
    const char* const text = std::getenv("STEPNET_TEST_OPT_LEVEL");
    if (text == nullptr) return kMaxOptLevel;
    const std::string_view digit = text;
    if (digit.size() == 1 && digit[0] >= '0' && digit[0] <= '0' + kMaxOptLevel) return digit[0] - '0';
    throw Error(ErrorCode::kInvalidArgument, StrCat("STEPNET_TEST_OPT_LEVEL is \"", text,
                                                    "\" in the environment; it must be between 0 and ", kMaxOptLevel));
  }();
  return level;
}

bool TestsGraphText() {
  static const bool tests = std::getenv("STEPNET_TEST_GRAPH_TEXT") != nullptr;
  return tests;
}

std::vector<Pass> Passes() {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  return registry.passes;
}

std::optional<Pass> FindPass(const std::string& name) {
  for (const Pass& pass : Passes()) {
    if (pass.name == name) return pass;
  }
  return std::nullopt;
}

void CheckDisabledPasses(const std::set<std::string>& names) {
  for (const std::string& name : names) {
    const std::optional<Pass> pass = FindPass(name);
    if (pass && !pass->required) continue;
    std::vector<std::string> others;
    for (const Pass& other : Passes()) {
      if (!other.required) others.emplace_back(other.name);
    }
    const std::string what =
        pass ? StrCat("the pass \"", name, "\" cannot be disabled") : StrCat("there is no pass \"", name, "\"");
    throw Error(ErrorCode::kInvalidArgument, StrCat(what, "; what can be disabled is ", Join(others, ", ")));
  }
}

void RunPassesBefore(const std::string& name, const RunOptions& options, StepGraph* graph) {
  for (const Pass& pass : PassesOf(options)) {
    CheckCancelled();
    if (pass.name == name) return;
    pass.run(graph);
  }
}

void RunPasses(const RunOptions& options, StepGraph* graph, const std::function<void(StepGraph*)>& before_recompute) {
  const std::vector<Pass> passes = PassesOf(options);
  const std::function<void(StepGraph*)> extra = TheExtraPass();
  // Whoever looks at passes, or adds one, wants to know all that is wrong.
  const bool is_looked_at = options.on_pass || extra || VerifiesAll();
  GraphVerifier verifier(/*thorough=*/is_looked_at);
  const auto look = [&](const std::string& pass) {
    CheckCancelled();
    verifier.Verify(*graph, pass);
    if (TestsGraphText()) *graph = ParseGraph(GraphText(*graph), options);
    if (options.on_pass) options.on_pass(pass, *graph);
  };
  look("import");
  for (const Pass& pass : passes) {
    CheckCancelled();
    if (before_recompute && pass.name == std::string_view("recompute")) before_recompute(graph);
    const std::string before = is_looked_at ? GraphText(*graph) : std::string();
    CheckCancelled();
    const bool is_changed = pass.run(graph);
    if (is_looked_at && !is_changed && GraphText(*graph) != before) {
      throw Error(ErrorCode::kInternal, StrCat("the pass ", pass.name, " changed the graph and says that it did not"));
    }
    if (is_changed || is_looked_at) look(pass.name);
  }
  if (extra) {
    extra(graph);
    look("extra");
  }
}

}  // namespace stepnet
