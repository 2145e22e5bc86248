// What a pass makes of a graph, as texts (compiler/graph_text.h):
//
//   EXPECT_EQ(After("fold_sums", before), after);
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "stepnet/compiler/graph_text.h"
#include "stepnet/compiler/passes/passes.h"
#include "stepnet/compiler/verify_graph.h"

namespace stepnet {

// Returns what the pass does.
inline bool RunPass(const std::string& name, StepGraph* graph) { return FindPass(name).value().run(graph); }

// Where calls cost more than copies, as on a GPU.
inline constexpr Target kCallsCostMore = {.takes_all_over_time = true};

// The texts that these tests write are what graphs print.
inline std::string After(const std::string& pass, const std::string& before, const Target* target = nullptr) {
  StepGraph graph = ParseGraph(before);
  EXPECT_EQ(GraphText(graph), before);
  if (target != nullptr) graph.target = target;
  GraphVerifier verifier;
  verifier.Verify(graph, "parse");
  const bool is_changed = RunPass(pass, &graph);
  verifier.Verify(graph, "the tested one");
  const std::string after = GraphText(graph);
  EXPECT_EQ(is_changed, after != before) << "what the pass says of it";
  return after;
}

// A graph named "step" of these lines.
inline std::string Step(const std::string& lines) { return "step step {\n" + lines + "}\n"; }

}  // namespace stepnet
