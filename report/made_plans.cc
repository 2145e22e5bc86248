#include "stepnet/report/made_plans.h"

#include <utility>

namespace stepnet {
namespace {

std::set<std::string> BiasesOfProducts(const StepGraph& graph) {
  std::set<std::string> blobs;
  for (const StepNode& node : graph.nodes) {
    for (const auto& product : node.products) {
      if (product && product->bias >= 0) blobs.insert(graph.values[node.inputs[product->bias]].blob);
    }
  }
  return blobs;
}

}  // namespace

void MadePlans::Watch(RunOptions* options) {
  options->on_pass = [this, before = options->on_pass](const std::string& name, const StepGraph& graph) {
    if (before) before(name, graph);
    NotePass(name, graph);
  };
  options->on_plan = [this, before = options->on_plan](const StepPlan& plan) {
    if (before) before(plan);
    NotePlan(plan);
  };
}

void MadePlans::NotePass(const std::string& name, const StepGraph& graph) {
  const std::lock_guard lock(mutex_);
  if (name == "import") {
    last_[std::this_thread::get_id()] = plans_.size();
    plans_.push_back({.imported = graph});
  }
  MadePlan& made = plans_[last_.at(std::this_thread::get_id())];
  if (name == "merge_products") made.unmerged = std::move(made.graph);
  if (name == "fold_biases") {
    made.folded = BiasesOfProducts(graph);
    for (const std::string& blob : BiasesOfProducts(made.graph)) made.folded.erase(blob);
  }
  made.graph = graph;
  made.passes.insert(name);
}

void MadePlans::NotePlan(const StepPlan& plan) {
  const std::lock_guard lock(mutex_);
  plans_[last_.at(std::this_thread::get_id())].plan = plan;
}

}  // namespace stepnet
