// What a graph cannot leave out or compute again is found.
#include "stepnet/compiler/verify_recomputation.h"

#include <memory>

#include "stepnet/tests/compiler/refused_graph.h"

namespace stepnet {
namespace {

TEST(VerifyRecomputation, FindsWhatIsNotKeptAnyway) {
  const std::string x = "  x: float [4] at 0[16 * t]\n";
  ExpectProblem(x + "  a.1: float [4] = Tanh(x) @0 {}\n  not kept: a\n", "a is not to be kept, and is not kept anyway");
  ExpectProblem(x + "  a.1: float [4] at 1[16 * t] = Tanh(x) @0 {}\n  not kept: a\n",
                "a is not to be kept, and is not kept anyway");
}

TEST(VerifyRecomputation, FindsWhatNothingComputes) {
  StepGraph graph = ParseGraph(
      "step back {\n  a: float [4] at 0[16 * t] lent\n  b.1: float [4] = Tanh(a) @0 {}\n}\n"
      "again step forward {\n  x: float [4] at 1[16 * t] lent\n  in place of base 0: x\n}\n");
  ExpectError([&] { VerifyGraph(graph, "parse"); }, "…nothing computes x again");
  Recomputation other = *graph.recomputation;
  other.given = {{7, 0}};
  graph.recomputation = std::make_shared<const Recomputation>(other);
  ExpectError([&] { VerifyGraph(graph, "parse"); }, "…there is no base 7 to compute again for");
}

}  // namespace
}  // namespace stepnet
