#include "stepnet/compiler/verify_recomputation.h"

#include <string>

#include "stepnet/compiler/verify_operators.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

void CheckNotKept(const StepGraph& graph, const std::string& blob) {
  const auto last = graph.last.find(blob);
  if (last != graph.last.end()) {
    const Home& home = graph.homes[graph.values[last->second].home];
    if (home.kind == Home::Kind::kTemporary && home.kept) return;
  }
  throw GraphFault{StrCat(blob, " is not to be kept, and is not kept anyway")};
}

void CheckBase(int base, const StepGraph& graph) {
  if (base < 0 || base >= graph.num_bases) throw GraphFault{StrCat("there is no base ", base, " to compute again for")};
}

}  // namespace

void VerifyRecomputation(const StepGraph& graph) {
  for (const std::string& blob : graph.not_kept) CheckNotKept(graph, blob);
  if (graph.recomputation == nullptr) return;
  const auto& [part, given] = *graph.recomputation;
  for (const Home& home : part.homes) {
    if (home.kind == Home::Kind::kOutside) CheckBase(home.slot.base, graph);
  }
  for (const auto& [base, value] : given) {
    CheckBase(base, graph);
    if (part.values[value].producer >= 0) continue;
    throw GraphFault{StrCat("nothing computes ", part.NameOf(value), " again")};
  }
}

}  // namespace stepnet
