// NEEDS_USUAL_PLANS: begins tests of what the passes of all levels make, under the names that the net gives. They skip
// where the suite runs under a lower level or with plans made of texts (docs/step_graph.md).
#pragma once

#include <gtest/gtest.h>

#include "stepnet/compiler/passes/passes.h"

#define NEEDS_USUAL_PLANS()                                           \
  if (::stepnet::TestedOptLevel() < 2 || ::stepnet::TestsGraphText()) \
  GTEST_SKIP() << "it is about plans of level 2 and names of the net, and the suite runs with others"

// Begins tests of what the passes of all levels make, whatever it is called there.
#define NEEDS_ALL_PASSES()             \
  if (::stepnet::TestedOptLevel() < 2) \
  GTEST_SKIP() << "it is about plans of level 2, and the suite runs with a lower one"
