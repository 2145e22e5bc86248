// Transitive reduction of the edges between instructions of all steps.
#pragma once

#include <vector>

#include "stepnet/compiler/dependencies.h"

namespace stepnet {

// Removes the edges that a path of others with the same sum of deltas implies. `edges` are sorted by from, delta, to.
// Takes bounded time: edges over many steps, and in plans of some ten thousand instructions all, may stay though they
// are implied, which does no harm.
void RemoveImplied(int num_instructions, std::vector<Dependency>* edges);

}  // namespace stepnet
