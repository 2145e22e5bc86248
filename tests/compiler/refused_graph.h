// ExpectProblem: what a graph is refused with.
#pragma once

#include <string>

#include "stepnet/compiler/graph_text.h"
#include "stepnet/compiler/verify_graph.h"
#include "stepnet/core/strings.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {

// What the text of a graph of these lines is refused with.
inline void ExpectProblem(const std::string& lines, const std::string& what) {
  const std::string text = StrCat("step s {\n", lines, "}\n");
  const StepGraph graph = ParseGraph(text);
  EXPECT_EQ(GraphText(graph), text);
  ExpectError([&] { VerifyGraph(graph, "fold_sums"); },
              StrCat("internal error: after the pass fold_sums: ", what, "\n  in net \"s\""));
}

}  // namespace stepnet
