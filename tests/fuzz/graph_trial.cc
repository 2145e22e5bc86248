#include "stepnet/compiler/graph_text.h"
#include "stepnet/compiler/verify_graph.h"
#include "trials.h"

namespace stepnet {

TrialResult TryGraph(const std::string& text) {
  std::string printed;
  try {
    const StepGraph graph = ParseGraph(text);
    printed = GraphText(graph);
    try {
      VerifyGraph(graph, "parse");
    } catch (const Error&) {  // of what is a graph and means nothing
    }
  } catch (const Error& error) {
    return RefusedBy(error);
  }
  try {
    return {.fault = GraphText(ParseGraph(printed)) == printed ? "" : "is printed in two ways", .ran = true};
  } catch (const Error& error) {
    return {.fault = std::string("is printed as what is refused: ") + error.what()};
  }
}

}  // namespace stepnet
