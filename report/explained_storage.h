// Where the values of a step lie, for people.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "stepnet/report/explanation.h"

namespace stepnet {

// Says of the plan of a graph, an instruction for each node: the kinds of memory that a run of so many steps has, or,
// where that is not said, a run of some steps.
std::vector<ExplainedStorage> StorageOf(const StepGraph& graph, const StepPlan& plan,
                                        std::optional<std::int64_t> num_steps);

}  // namespace stepnet
