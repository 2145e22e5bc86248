#include "stepnet/compiler/recurrent_plan.h"

#include <algorithm>
#include <bit>
#include <iostream>

#include "stepnet/compiler/schedule_text.h"
#include "stepnet/core/executor_registry.h"
#include "stepnet/core/printable.h"
#include "stepnet/nets/net_blobs.h"

namespace stepnet {

BoundBlob BindLink(const Link& link, int base, DType dtype, const Shape& row) {
  const std::int64_t row_bytes = row.size() * DTypeBytes(dtype);
  // Beforehand: where an aggregate throws behind a string, GCC 12 frees the string twice.
  const TensorInfo info{.dtype = dtype, .shape = row.Inserted(0, link.window)};
  return {.home = {.kind = Home::Kind::kOutside,
                   .slot = {.blob = link.internal,
                            .storage_class = StorageClass::kLinked,
                            .base = base,
                            .offset = link.offset,
                            .row_bytes = row_bytes,
                            .bytes = row_bytes * link.window}},
          .info = info};
}

BoundBlob BindWhole(const std::string& blob, int base, const TensorInfo& info) {
  return {.home = {.kind = Home::Kind::kOutside,
                   .slot = {.blob = blob,
                            .storage_class = StorageClass::kShared,
                            .base = base,
                            .bytes = info.size_bytes()}},
          .info = info};
}

int BaseOfInput(int input, std::vector<std::pair<int, int>>* bases, StepGraph* graph) {
  for (const auto& [known, base] : *bases) {
    if (known == input) return base;
  }
  bases->emplace_back(input, graph->AddBase(/*is_lent=*/true));
  return bases->back().second;
}

int AddTimestep(const std::string& blob, StepGraph* graph) {
  const int base = graph->AddBase(/*is_lent=*/false);
  graph->before.push_back({.kind = RowMove::Kind::kNumbers, .to = {.name = blob, .base = base}});
  return base;
}

int BindTimestep(const std::string& blob, StepBindings* bindings, StepGraph* graph) {
  const int base = AddTimestep(blob, graph);
  const Link link{.internal = blob, .external = blob};
  bindings->blobs.push_back(BindLink(link, base, DType::kInt32, Shape()));
  return base;
}

void CheckLinkInBounds(const Link& link, std::int64_t num_rows, std::int64_t num_steps) {
  if (num_steps == 0 || num_steps - 1 + link.offset + link.window <= num_rows) return;
  throw Error(ErrorCode::kShapeMismatch,
              StrCat("step ", num_steps - 1, " of ", num_steps, " would see rows [", num_steps - 1 + link.offset, ", ",
                     num_steps - 1 + link.offset + link.window, ") of \"", link.external, "\" as \"", link.internal,
                     "\" (link offset ", link.offset, ", window ", link.window, "), which has ", num_rows, " rows"));
}

void CheckLinkInState(const Link& link, std::int64_t num_initial) {
  const std::int64_t needed = link.offset + link.window - 1;
  if (needed <= num_initial) return;
  throw Error(ErrorCode::kShapeMismatch,
              StrCat("step t would see rows [t + ", link.offset, ", t + ", link.offset + link.window, ") of \"",
                     link.external, "\" as \"", link.internal, "\" (link offset ", link.offset, ", window ",
                     link.window, "), and the last row that there is then is t + ", num_initial,
                     "; the state must start with ", needed, " rows, as [", needed, ", B, …]"));
}

std::vector<bool> SeenByRows(const std::vector<std::string>& inputs, const std::vector<Link>& links,
                             const NetDef& step_net) {
  const std::vector<std::string> captured = BlobsReadFirst(step_net);
  std::vector<bool> seen_by_rows;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool is_linked = std::ranges::count(links, inputs[i], &Link::external) > 0;
    const bool is_captured = std::ranges::count(captured, inputs[i]) > 0;
    seen_by_rows.push_back((is_linked || i == 0) && !is_captured);
  }
  return seen_by_rows;
}

std::vector<TensorInfo> PlanKey(std::vector<TensorInfo> inputs, const std::vector<bool>& seen_by_rows) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (seen_by_rows[i] && inputs[i].shape.rank() > 0) inputs[i].shape = inputs[i].shape.With(0, 0);
  }
  return inputs;
}

PlanSettings PlanSettingsOf(const RecurrentSpec& spec) {
  PlanSettings settings{.options = spec.options, .max_steps = spec.num_workspaces, .max_queues = spec.max_streams};
  if (ExecutorPropertiesOf(spec.options).follows_schedules) {
    settings.ring_rows = std::bit_ceil(
        static_cast<std::uint64_t>(spec.num_workspaces > 0 ? spec.num_workspaces : spec.options.target->ring_rows));
  }
  if (!spec.prints_schedules) return settings;
  settings.options.on_plan = [given = spec.options.on_plan](const StepPlan& plan) {
    if (given) given(plan);
    if (plan.IsScheduled()) std::cerr << Printable(ScheduleText(plan));
  };
  return settings;
}

}  // namespace stepnet
