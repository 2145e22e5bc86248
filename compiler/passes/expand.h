// Expand: what operators say that they are made of.
#pragma once

#include "stepnet/compiler/step_graph.h"

namespace stepnet {

// Operators that have a formula or only copy and fill become regions, one each, which passes may join
// (compiler/region_nodes.h), and those that say which products they are made of (FC, MatMul; core/expansion.h)
// products. Others stay calls. Returns whether it has changed the graph: the pass "expand", and what passes do with
// operators that they add.
bool Expand(StepGraph* graph);

}  // namespace stepnet
