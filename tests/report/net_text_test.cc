#include "stepnet/report/net_text.h"

#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "stepnet/core/strings.h"
#include "stepnet/tests/executor/recurrent_case.h"

namespace stepnet {
namespace {

NetDef RunningSum(const std::string& sequence) {
  RecurrentCase net;
  net.Sequence(sequence, "x_t").State("s", "s0", "s_prev", "s_next").Step("s_next = Sum(x_t, s_prev)");
  return net.Output("s_all", "s", 1).Build();
}

// Lines of the text that the pattern matches, each as its groups.
std::vector<std::smatch> LinesLike(const std::string& text, const std::regex& pattern) {
  return {std::sregex_iterator(text.begin(), text.end(), pattern), std::sregex_iterator()};
}

TEST(PicturesOfNets, HaveArrowsBetweenWhatTheyDraw) {
  const std::string dot = NetAsDot(RunningSum("x"));
  std::set<std::string> drawn;
  for (const std::smatch& node : LinesLike(dot, std::regex(R"(\n\s*(n\d+) \[)"))) drawn.insert(node[1]);
  const std::vector<std::smatch> arrows = LinesLike(dot, std::regex(R"(\n\s*(n\d+) -> (n\d+))"));
  EXPECT_GE(arrows.size(), 5U);
  for (const std::smatch& arrow : arrows) {
    EXPECT_TRUE(drawn.contains(arrow[1])) << arrow[0];
    EXPECT_TRUE(drawn.contains(arrow[2])) << arrow[0];
  }
}

TEST(PicturesOfNets, ShowWhatAStateCarriesToTheNextStep) {
  const std::string dot = NetAsDot(RunningSum("x"));
  EXPECT_EQ(LinesLike(dot, std::regex(R"(label="s: next step")")).size(), 1U);
}

// A name ends no string of the picture, whatever is in it.
TEST(PicturesOfNets, QuoteNames) {
  const std::string dot = NetAsDot(RunningSum("x\"]; n0 -> \\"));
  const std::regex string(R"re("([^"\\]|\\.)*")re");
  const std::string without_strings = std::regex_replace(dot, string, "S");
  EXPECT_EQ(without_strings.find('"'), std::string::npos) << without_strings;
  EXPECT_EQ(without_strings.find('\\'), std::string::npos) << without_strings;
}

TEST(TextsOfNets, HaveALineForEachOperator) {
  const std::string text = NetAsText(RunningSum("x"));
  EXPECT_EQ(LinesLike(text, std::regex(R"(\n\s*s_next = Sum\(x_t, s_prev\))")).size(), 1U) << text;
  EXPECT_EQ(LinesLike(text, std::regex(R"( = RecurrentNetwork\()")).size(), 1U) << text;
}

TEST(TextsOfNets, QuoteNamesThatWouldReadAsSomethingElse) {
  const std::string text = NetAsText(RunningSum("x, y\n}"));
  EXPECT_EQ(text.find("x, y\n"), std::string::npos) << text;
  EXPECT_NE(text.find(R"("x, y\n}")"), std::string::npos) << text;
}

}  // namespace
}  // namespace stepnet
