// NEEDS_LEVEL_2: begins tests of what passes of level 2 make. They skip where the suite runs under a lower one
// (STEPNET_TEST_OPT_LEVEL, docs/step_graph.md).
#pragma once

#include <gtest/gtest.h>

#include "stepnet/compiler/passes/passes.h"

#define NEEDS_LEVEL_2() \
  if (::stepnet::TestedOptLevel() < 2) GTEST_SKIP() << "it is about level 2, and the suite runs under a lower one"
