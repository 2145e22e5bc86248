// The list of passes.
#include "stepnet/compiler/passes/passes.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

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

}  // namespace
}  // namespace stepnet
