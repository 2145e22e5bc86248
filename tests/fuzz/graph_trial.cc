#include "stepnet/compiler/graph_text.h"
#include "stepnet/compiler/verify_graph.h"
#include "trials.h"

namespace stepnet {
namespace {

// Returns false for what is a graph and means nothing.
bool IsVerified(const StepGraph& graph) {
  try {
    VerifyGraph(graph, "parse");
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

TrialResult TryGraph(const std::string& text) {
  std::string printed;
  bool means_something = false;
  try {
    const StepGraph graph = ParseGraph(text);
    printed = GraphText(graph);
    means_something = IsVerified(graph);
  } catch (const Error& error) {
    return RefusedBy(error);
  }
  try {
    const StepGraph again = ParseGraph(printed);
    if (GraphText(again) != printed) return {.fault = "is printed in two ways", .ran = true};
    return {.fault = IsVerified(again) == means_something ? "" : "means something else when it is read", .ran = true};
  } catch (const Error& error) {
    return {.fault = std::string("is printed as what is refused: ") + error.what()};
  }
}

}  // namespace stepnet
