#include "stepnet/compiler/recomputation.h"

#include <memory>
#include <utility>

namespace stepnet {
namespace {

Home RowsOf(const std::string& blob, int base, const TensorInfo& info) {
  return {.kind = Home::Kind::kOutside,
          .slot = {.blob = blob,
                   .storage_class = StorageClass::kLinked,
                   .base = base,
                   .row_bytes = info.size_bytes(),
                   .bytes = info.size_bytes()}};
}

StepGraph PartOf(const ForwardRun& forward) {
  const StepToRecompute step = MakeStepToRecompute(*forward.op, forward.inputs);
  return StepAgain(step.graph, step.bases).PartThatGives(BlobsOf(forward.recomputed));
}

}  // namespace

RecomputationMaker::RecomputationMaker(const ForwardRun& forward, BackwardPlan* plan, StepGraph* graph)
    : forward_(*forward.plan),
      timestep_(forward.op->spec->timestep),
      values_(forward.recomputed.begin(), forward.recomputed.end()),
      plan_(*plan),
      graph_(*graph),
      part_(PartOf(forward)) {}

BoundBlob RecomputationMaker::Bind(const std::string& blob) {
  const int value = part_.last.at(blob), base = graph_.AddBase(/*is_lent=*/true);
  given_.emplace(base, value);
  const TensorInfo& info = part_.values[value].info;
  return {.home = RowsOf(blob, base, info), .info = info};
}

void RecomputationMaker::Finish() {
  std::vector<bool> is_done(part_.homes.size(), false);
  for (const StepNode& node : part_.nodes) {
    for (const int value : node.given()) is_done[part_.values[value].home] = true;
  }
  for (size_t v = 0; v < part_.values.size(); ++v) {
    const int home = part_.values[v].home;
    if (!is_done[home]) part_.homes[home] = HomeOfSource(static_cast<int>(v));
    is_done[home] = true;
  }
  part_.last.clear();  // nobody asks what its blobs end as
  part_.num_bases = graph_.num_bases;
  part_.lent = graph_.lent;
  part_.in_turns.clear();
  graph_.recomputation =
      std::make_shared<const Recomputation>(Recomputation{.part = std::move(part_), .given = std::move(given_)});
}

// The base of memory that the run forward was lent.
int RecomputationMaker::BaseOf(int base_of_forward) {
  const auto num_states = static_cast<int>(forward_.states.size());
  if (base_of_forward < num_states) return num_states + base_of_forward;
  for (const auto& [input, base] : forward_.inputs) {
    if (base == base_of_forward) return BaseOfInput(input, &plan_.inputs, &graph_);
  }
  if (plan_.timestep_base < 0) plan_.timestep_base = AddTimestep(timestep_, &graph_);
  return plan_.timestep_base;
}

// Where the step back finds what the step forward had there.
Home RecomputationMaker::HomeOfSource(int value) {
  const StepValue& source = part_.values[value];
  Home home = part_.homes[source.home];
  const auto base_of_slot = [&](int slot) {
    return BaseOfKept(forward_.steps->slots[static_cast<size_t>(slot)].base, &plan_, &graph_);
  };
  switch (home.kind) {
    case Home::Kind::kOutside: home.slot.base = BaseOf(home.slot.base); return home;
    case Home::Kind::kOnce:
      return BindWhole(source.blob, base_of_slot(forward_.steps->once.at(part_.NameOf(value))), source.info).home;
    default: return RowsOf(source.blob, base_of_slot(forward_.steps->finals.at(source.blob).slot), source.info);
  }
}

int BaseOfKept(int base_of_forward, BackwardPlan* plan, StepGraph* graph) {
  for (const auto& [known, base] : plan->stacked) {
    if (known == base_of_forward) return base;
  }
  plan->stacked.emplace_back(base_of_forward, graph->AddBase(/*is_lent=*/true));
  return plan->stacked.back().second;
}

}  // namespace stepnet
