#include "stepnet/report/graph_drawing.h"

#include <gtest/gtest.h>

#include "stepnet/compiler/graph_text.h"
#include "stepnet/core/strings.h"
#include "stepnet/tests/compiler/passes/pass_case.h"

namespace stepnet {
namespace {

std::string Drawing(const std::string& lines) { return GraphDrawing(ParseGraph(Step(lines))); }

int Count(const std::string& text, const std::string& what) {
  int count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

TEST(GraphDrawing, ShowsWhatIsReadAndWhatTheNextStepFinds) {
  const std::string svg = Drawing(
      "  h_prev: float [1, 4] at 0[16 * t]\n  x_t: float [1, 4] at 1[16 * t]\n"
      "  a.1: float [1, 4] = region Tanh(h_prev) @0 {}\n"
      "  h_t.1: float [1, 4] at 0[16 * (t + 1)] = region Add(a.1, x_t) @1 {}\n");
  EXPECT_EQ(Count(svg, "<rect"), 5) << svg;
  EXPECT_EQ(Count(svg, "<path"), 4) << svg;
  EXPECT_EQ(Count(svg, "<g class=region>"), 2);
  EXPECT_EQ(Count(svg, "<g class=value>"), 3);
  EXPECT_NE(svg.find("<title>h_t = Add(a, x_t)</title>"), std::string::npos) << svg;
  EXPECT_NE(svg.find(">h_t, then h_prev</text>"), std::string::npos) << svg;
}

// Through the layer of b: the arrow from a to the sum is cut in two, with a straight piece between.
TEST(GraphDrawing, ArrowsGoAroundTheLayersBetween) {
  const std::string svg = Drawing(
      "  x: float [1, 4] at 0[16 * t]\n  a.1: float [1, 4] = region Tanh(x) @0 {}\n"
      "  b.1: float [1, 4] = region Relu(a.1) @1 {}\n"
      "  y.1: float [1, 4] at 1[16 * t] = region Add(a.1, b.1) @2 {}\n");
  EXPECT_EQ(Count(svg, "<rect"), 5) << svg;
  EXPECT_EQ(Count(svg, "<path"), 7) << svg;
}

TEST(GraphDrawing, EscapesNames) {
  const std::string svg =
      Drawing("  x: float [1, 4] at 0[16 * t]\n  \"<b>&\".1: float [1, 4] at 1[16 * t] = region Tanh(x) @0 {}\n");
  EXPECT_NE(svg.find("&lt;b&gt;&amp;"), std::string::npos) << svg;
  EXPECT_EQ(svg.find("<b>"), std::string::npos) << svg;
}

TEST(GraphDrawing, LeavesOutWhatNobodyCouldFollow) {
  EXPECT_EQ(GraphDrawing(StepGraph()), "");
  std::string lines = "  x: float [1, 4] at 0[16 * t]\n  y.1: float [1, 4] = region Tanh(x) @0 {}\n";
  for (int i = 1; i < 150; ++i) lines += StrCat("  y.", i + 1, ": float [1, 4] = region Tanh(y.", i, ") @", i, " {}\n");
  EXPECT_NE(Drawing(lines), "");
  EXPECT_EQ(Drawing(lines + "  y.151: float [1, 4] = region Tanh(y.150) @150 {}\n"), "");
}

}  // namespace
}  // namespace stepnet
