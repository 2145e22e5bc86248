// Which nodes of random steps keep their order, in a step and around the loop, against the bytes that their plans
// touch.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>

#include "stepnet/compiler/components.h"
#include "stepnet/compiler/dependencies.h"
#include "stepnet/compiler/emit.h"
#include "stepnet/compiler/node_order.h"
#include "stepnet/nets/net.h"
#include "stepnet/tests/compiler/node_pairs.h"
#include "stepnet/tests/compiler/passes/pass_case.h"
#include "stepnet/tests/executor/random_step.h"

namespace stepnet {
namespace {

constexpr unsigned kSeeds = 150;

// Calls `look` with what each pass leaves of random step nets, forward and backward.
void ForEachGraph(unsigned num_seeds, StepOperators operators,
                  const std::function<void(const StepGraph&, const std::string& what)>& look) {
  for (unsigned seed = 0; seed < num_seeds; ++seed) {
    const RandomStep step(seed, 3, operators);
    RunOptions options{.executor = "serial"};
    options.on_pass = [&](const std::string& pass, const StepGraph& graph) {
      if (testing::Test::HasFailure()) return;
      look(graph, StrCat("seed ", seed, " after ", pass, "\n", GraphText(graph)));
    };
    Workspace workspace;
    for (const auto& [name, tensor] : step.Feeds(3)) workspace.SetTensor(name, tensor);
    Net::Create(operators == StepOperators::kAny ? step.Recurrent() : step.Training(), workspace, options)->Run();
    if (testing::Test::HasFailure()) return;
  }
}

// Calls `look` with each stage that takes one step at a time, and what the bytes of its plan order, in which each
// temporary has memory of its own.
void ForEachLoop(unsigned num_seeds, StepOperators operators,
                 const std::function<void(const StepGraph& graph, const Stage& stage, const Dependencies& of_bytes,
                                          const std::string& what)>& look) {
  ForEachGraph(num_seeds, operators, [&](const StepGraph& graph, const std::string& what) {
    const StepPlan plan = EmitPlan(graph, {.is_draft = true});
    for (const Stage& stage : plan.stages) {
      if (stage.steps_at_once == 1) look(graph, stage, FindDependencies(plan, stage), what);
    }
  });
}

// Whether two homes have some bytes in common and not all. What shares bytes with one of them then keeps its order with
// what shares bytes with the other one, also where the two share none.
bool ShowsRowsInTwoWays(const StepGraph& graph) {
  for (const Home& a : graph.homes) {
    for (const Home& b : graph.homes) {
      const bool is_same = a.slot.BeginInBase() == b.slot.BeginInBase() && a.slot.bytes == b.slot.bytes;
      if (ShareBytes(a, b) && !is_same) return true;
    }
  }
  return false;
}

// What one step orders, numbered from the begin of the stage.
Pairs OfOneStep(const Dependencies& dependencies, const Stage& stage) {
  Followers followers(stage.end - stage.begin);
  for (const Dependency& edge : dependencies.edges) {
    if (edge.delta == 0) followers[edge.from - stage.begin].push_back(edge.to - stage.begin);
  }
  return AllOf(followers);
}

TEST(NodeOrder, OfRandomStepsIsThatOfTheirBytes) {
  int num_pairs = 0, num_exact = 0;
  ForEachLoop(
      NumSeeds(kSeeds), StepOperators::kKnownShapes,
      [&](const StepGraph& graph, const Stage& stage, const Dependencies& of_bytes, const std::string& what) {
        const Pairs expected = OfOneStep(of_bytes, stage);
        num_pairs += static_cast<int>(expected.size());
        const Pairs found = AllOf(FollowersByBytes(graph, stage.begin, stage.end));
        for (const auto& [earlier, later] : expected) {
          ASSERT_TRUE(found.contains({earlier, later})) << "missing " << earlier << " -> " << later << " of " << what;
        }
        if (ShowsRowsInTwoWays(graph)) return;
        ++num_exact;
        ASSERT_EQ(found, expected) << what;
      });
  EXPECT_GT(num_pairs, MinOfSeeds(10000, kSeeds));
  EXPECT_GT(num_exact, MinOfSeeds(100, kSeeds));
}

// What goes through blobs keeps its order in plans, whatever it touches; nodes know more, what may fail.
TEST(NodeOrder, OfRandomStepsImpliesThatOfTheirPlans) {
  int num_more = 0;
  ForEachLoop(NumSeeds(kSeeds), StepOperators::kAny,
              [&](const StepGraph& graph, const Stage& stage, const Dependencies& of_bytes, const std::string& what) {
                const Pairs all = AllOf(FollowersOf(graph, stage.begin, stage.end));
                const Pairs of_plan = OfOneStep(of_bytes, stage);
                num_more += static_cast<int>(all.size() - of_plan.size());
                for (const auto& [earlier, later] : of_plan) {
                  ASSERT_TRUE(all.contains({earlier, later})) << earlier << " before " << later << " of " << what;
                }
              });
  EXPECT_GT(num_more, MinOfSeeds(1000, kSeeds));
}

// The number of the component of each node, by the edges that `counts`; -1 of nodes that do not reach themselves.
std::vector<int> ComponentsOf(const Dependencies& dependencies, const Stage& stage,
                              const std::function<bool(const Dependency&)>& counts) {
  Followers edges(stage.end - stage.begin);
  std::vector<int> component_of(edges.size(), -1);
  int number = 0;
  for (const Dependency& edge : dependencies.edges) {
    if (!counts(edge)) continue;
    edges[edge.from - stage.begin].push_back(edge.to - stage.begin);
    if (edge.from == edge.to) component_of[edge.from - stage.begin] = number++;
  }
  for (const std::vector<int>& component : StronglyConnectedComponents(edges)) {
    ++number;
    if (component.size() == 1) continue;
    for (const int node : component) component_of[node] = number;
  }
  return component_of;
}

// Whether nodes write two rows of one base. All of these count as written by all of them, around the loop.
bool WritesTwoRowsOfABase(const StepGraph& graph) {
  std::map<int, std::int64_t> rows;  // by base
  for (const StepValue& value : graph.values) {
    const Home& home = graph.homes[value.home];
    if (value.producer < 0 || home.kind != Home::Kind::kOutside) continue;
    const std::int64_t begin = home.slot.BeginInBase();
    if (rows.emplace(home.slot.base, begin).first->second != begin) return true;
  }
  return false;
}

// What waits for what other steps give is on a cycle; and nodes of a cycle wait for each other by their bytes, too.
TEST(NodeOrder, CyclesOfRandomStepsAreThoseOfTheirBytes) {
  int num_in_cycles = 0, num_alone = 0, num_exact = 0;
  ForEachLoop(NumSeeds(kSeeds), StepOperators::kPlain,
              [&](const StepGraph& graph, const Stage& stage, const Dependencies& of_bytes, const std::string& what) {
                if (ShowsRowsInTwoWays(graph)) return;
                const std::vector<int> cycles =
                    CyclesOf(graph, stage.begin, stage.end, FollowersByBytes(graph, stage.begin, stage.end));
                const bool is_exact = !WritesTwoRowsOfABase(graph);
                num_exact += is_exact ? 1 : 0;
                const std::vector<int> of_all = ComponentsOf(of_bytes, stage, [](const Dependency&) { return true; });
                const std::vector<int> of_reads = ComponentsOf(of_bytes, stage, [](const Dependency& edge) {
                  return edge.delta == 0 || edge.kind == DependencyKind::kReadAfterWrite;
                });
                for (size_t a = 0; a < cycles.size(); ++a) {
                  ++(cycles[a] == kNoCycle ? num_alone : num_in_cycles);
                  ASSERT_TRUE(cycles[a] != kNoCycle || of_reads[a] < 0) << "node " << a << " of " << what;
                  ASSERT_TRUE(cycles[a] == kNoCycle || !is_exact || of_all[a] >= 0) << "node " << a << " of " << what;
                  for (size_t b = 0; b < a; ++b) {
                    const bool is_one = cycles[a] == cycles[b] && cycles[a] != kNoCycle;
                    const bool must_be_one = of_reads[a] >= 0 && of_reads[a] == of_reads[b];
                    const bool may_be_one = !is_exact || of_all[a] == of_all[b];
                    ASSERT_TRUE(is_one ? may_be_one : !must_be_one) << "nodes " << a << " and " << b << " of " << what;
                  }
                }
              });
  EXPECT_GT(num_in_cycles, MinOfSeeds(1000, kSeeds));
  EXPECT_GT(num_alone, MinOfSeeds(1000, kSeeds));
  EXPECT_GT(num_exact, MinOfSeeds(500, kSeeds));
}

}  // namespace
}  // namespace stepnet
