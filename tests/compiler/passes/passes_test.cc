// The list of passes.
#include "stepnet/compiler/passes/passes.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "pass_case.h"
#include "stepnet/core/cancellation.h"
#include "stepnet/core/strings.h"
#include "stepnet/tests/core/source_path.h"

namespace stepnet {
namespace {

TEST(Passes, AreInTheTableOfTheDocs) {
  std::ifstream file(SourcePath("docs/step_graph.md"));
  ASSERT_TRUE(file.is_open());
  std::stringstream text;
  text << file.rdbuf();
  size_t at = 0;
  for (const Pass& pass : Passes()) {
    const std::string row = StrCat("| `", pass.name, "` | ", pass.opt_level, " | ");
    const size_t found = text.str().find(row);
    ASSERT_NE(found, std::string::npos) << row;
    EXPECT_GT(found, at) << pass.name << " runs behind what the table has below it";
    at = found;
  }
}

TEST(Passes, AreVerifiedThoroughlyInTests) { EXPECT_TRUE(VerifiesAll()); }

TEST(Passes, HaveOnePlaceEach) {
  std::vector<int> places;
  for (const Pass& pass : Passes()) places.push_back(pass.place);
  EXPECT_TRUE(std::ranges::is_sorted(places));
  EXPECT_EQ(std::ranges::adjacent_find(places), places.end());
}

// In a process of its own, whose list of passes no other test sees.
TEST(Passes, SayWhenTheyChangeTheGraph) {
  const auto run = [] {
    const auto rename = [](StepGraph* graph) {
      graph->values[0].blob = "renamed";
      graph->last = {{"renamed", 0}};
      return false;
    };
    const PassRegistration registration({.name = "silent", .place = 1, .opt_level = 0, .run = rename});
    StepGraph graph = ParseGraph(Step("  x: float [4, 3] at 0\n"));
    try {
      RunPasses({}, &graph);
      std::exit(0);
    } catch (const Error& error) {
      std::fputs(error.what(), stderr);
      std::exit(1);
    }
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(1), "the pass silent changed the graph and says that it did not");
}

TEST(Passes, StopBetweenEachOther) {
  StepGraph graph =
      ParseGraph(Step("  x: float [4, 3] at 0\n  y.1: float [4, 3] = Tanh(x) @0 {}\n  ^y: float [4, 3] at 1 = y.1\n"));
  Cancellation cancellation;
  const CancellationScope scope(&cancellation);
  std::vector<std::string> seen;
  RunOptions options;
  options.on_pass = [&](const std::string& pass, const StepGraph&) {
    seen.push_back(pass);
    if (seen.size() == 3) cancellation.Cancel();
  };
  try {
    RunPasses(options, &graph);
    ADD_FAILURE() << "nothing stopped them";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCancelled) << error.what();
  }
  EXPECT_EQ(seen.size(), 3u);
}

}  // namespace
}  // namespace stepnet
