#include "pass_case.h"
#include "stepnet/core/formulas/formula.h"

namespace stepnet {
namespace {

constexpr char kX[] = "  x: float [1, 2] at 0[8 * t]\n", kOut[] = "  ^y: float [1, 2] at 1[8 * t] = a.1\n";

std::string Tanh(const std::string& result) { return "  " + result + " = region Tanh(x) @0 {}\n"; }

void ExpectUnchanged(const std::string& lines) {
  const std::string before = Step(kX + lines);
  EXPECT_EQ(After("simplify", before), before);
}

TEST(Simplify, TakesAwayWhatNobodyReadsAndWhatWasMadeForIt) {
  EXPECT_EQ(After("simplify", Step(kX + Tanh("a.1: float [1, 2]") +
                                   "  b.1: float [1, 2] = region Sigmoid(a.1) @1 {}\n"
                                   "  c.1: float [1, 2] = b.1\n"
                                   "  d.1: float [1, 2] = region Sum(b.1, c.1) @2 {}\n" +
                                   kOut)),
            Step(kX + Tanh("a.1: float [1, 2]") + kOut));
}

TEST(Simplify, TakesAwayProductsThatNobodyReads) {
  const std::string w = "  w: float [2, 2] at 2\n";
  EXPECT_EQ(After("simplify", Step(kX + w + Tanh("a.1: float [1, 2]") +
                                   "  b.1: float [1, 2] = product x [1, 2] * w [2, 2]^T by FC(x, w) @1 {}\n" + kOut)),
            Step(kX + w + Tanh("a.1: float [1, 2]") + kOut));
}

TEST(Simplify, KeepsWhatIsReadLater) {
  ExpectUnchanged(Tanh("a.1: float [1, 2]") + kOut);
  ExpectUnchanged(Tanh("a.1: float [1, 2] kept"));
  ExpectUnchanged(Tanh("a.1: float [1, 2] at 1[8 * t]"));
}

TEST(Simplify, KeepsWhatAnotherValueIsAddedTo) {
  ExpectUnchanged(
      "  g.1: float [1, 2] = x\n  g.2: float [1, 2] added in g.1 = x\n  ^y: float [1, 2] at 1[8 * t] = g.2\n");
}

TEST(Simplify, KeepsWhatGivesSomethingThatIsRead) {
  ExpectUnchanged(
      "  c: bool [1, 2] at 2[2 * t]\n"
      "  a.1: float [1, 2], b.1: float [1, 2] = region WhereGradient(c, x) @0 {}\n" +
      std::string(kOut));
}

TEST(Simplify, KeepsRegionsOfSeveralOperators) {
  ExpectUnchanged(
      "  region {\n    a.1: float [1, 2] local = Tanh(x) @0 {}\n    b.1: float [1, 2] = Tanh(a.1) @1 {}\n  }\n");
}

const Registration counted =
    Operator("test.ShowsItself").Input("x", "").Output("y", "").HasSideEffects().Formula([](Formula& f) {
      f.Out({f.In("x") + 1});
    });

constexpr Target kElsewhere = {.device = DeviceKind{99}};  // which nobody knows

TEST(Simplify, KeepsWhatHasNoKernelOnTheDevice) {
  const std::string before = Step(kX + Tanh("a.1: float [1, 2]"));
  StepGraph graph = ParseGraph(before);
  graph.target = &kElsewhere;
  RunPass("simplify", &graph);
  graph.target = &kCpuTarget;
  EXPECT_EQ(GraphText(graph), before);
}

TEST(Simplify, KeepsWhatMayDoMoreThanItsOutputsShow) {
  ExpectUnchanged("  a.1: float [1, 2] = Tanh(x) @0 {}\n");                  // a call, of which no formula tells
  ExpectUnchanged("  a.1: unknown blob = Copy(x) by blobs @0 {}\n");         // likewise
  ExpectUnchanged("  a.1: float [1, 2] = region test.Positive(x) @0 {}\n");  // finds bad values
  ExpectUnchanged("  a.1: float [1, 2] = region test.ShowsItself(x) @0 {}\n");
}

}  // namespace
}  // namespace stepnet
