// Texts of graphs: what is written is read, and what is no graph is refused with its line.
#include "stepnet/compiler/graph_text.h"

#include "stepnet/compiler/verify_graph.h"
#include "stepnet/core/strings.h"
#include "stepnet/tests/compiler/graph_facts.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

void ExpectRoundTrip(const std::string& text) { EXPECT_EQ(GraphText(ParseGraph(text)), text); }

// What passes make, of which a text is printed first.
void ExpectReadBack(const StepGraph& graph) { EXPECT_EQ(Difference(ParseGraph(GraphText(graph)), graph), ""); }

TEST(GraphText, EveryHomeIsReadBack) {
  ExpectRoundTrip(
      "backward step \"a step\" {\n"
      "  w: float [3, 3] at 2\n"
      "  h_prev: float [1, 2, 3] at 0[24 * t]\n"
      "  later: float [1, 2, 3] at 0[24 * (t + 12)]\n"
      "  earlier: float [1, 2, 3] at 0[24 * (t - 1)]\n"
      "  wide: float [1, 2, 3] at 3[48 * t], 48 bytes\n"
      "  \"layer.1/x\": int64 [] at 4\n"
      "  labels: unknown blob of list 1\n"
      "  ^more: float [1, 2, 3] at 5[24 * t]\n"
      "  g.1: float [1, 2, 3] = Tanh(h_prev) @0 {}\n"
      "  g.2: float [1, 2, 3] added in g.1 = ^more\n"
      "  g.3: float [1, 6] in g.1 = Reshape(g.2) by blobs @1 {arg { name: \"shape\" ints: 1 ints: 6 }}\n"
      "  k.1: float [1, 2, 3] kept = Tanh(later) @2 {}\n"
      "  p.1: float [1, 2, 3] passed = Tanh(later) @2 {}\n"
      "  u.1: unknown blob = Copy(labels) by blobs @3 {}\n"
      "  v.1: unknown kept blob = Copy(u.1) by blobs @4 {}\n"
      "  ^sum: float [1, 2, 3] added at 6 from zero = k.1\n"
      "}\n");
}

TEST(GraphText, WhatIsKnownOfElementsIsReadBack) {
  const std::string text =
      "step s {\n"
      "  shape: int64 [2] {3, -1} at 0\n"
      "  narrow: int32 [1, 1] {7} at 1\n"
      "  none: int32 [0] {} at 2\n"
      "  free: int64 [2] at 3\n"
      "}\n";
  ExpectRoundTrip(text);
  const StepGraph graph = ParseGraph(text);
  EXPECT_EQ(graph.values[0].info.value.data<std::int64_t>()[1], -1);
  EXPECT_EQ(graph.values[1].info.value.data<std::int32_t>()[0], 7);
  EXPECT_TRUE(graph.values[2].info.value.defined());
  EXPECT_FALSE(graph.values[3].info.value.defined());
  const auto expect = [](const std::string& info, const std::string& what) {
    ExpectError([&] { ParseGraph(StrCat("step s {\n  x: ", info, " at 0\n}\n")); },
                StrCat("syntax error: line 2 of a step graph: ", what));
  };
  expect("int64 [2] {3}", "int64 [2] has other elements before \" at 0\"");
  expect("float [1] {3}", "elements of float [1] are not known before \" at 0\"");
  expect("int32 [1] {3000000000}", "elements are out of range before \" at 0\"");
  expect("int64 [1] {", "a number is missing before \" at 0\"");
}

TEST(GraphText, WhatBlobsEndAsIsReadBack) {
  const std::string text =
      "step s {\n"
      "  a: float [1] at 0\n"
      "  a.1: float [1] at 0 = Tanh(a) @0 {}\n"
      "  b.1: float [1] = Tanh(a.1) @1 {}\n"
      "  c.1: float [1] = Tanh(a.1) @2 {}\n"
      "  at the end: a, no b\n"
      "}\n";
  ExpectRoundTrip(text);
  StepGraph graph = ParseGraph(text);
  EXPECT_EQ(graph.last, (std::map<std::string, int>{{"a", 0}, {"c", 3}}));
  graph.ForgetLast(3);
  EXPECT_NE(GraphText(graph).find("  at the end: a, no b, no c\n"), std::string::npos);
}

TEST(GraphText, WhatIsDoneAroundTheLoopIsReadBack) {
  ExpectRoundTrip(
      "step s {\n"
      "  before the first step:\n"
      "  ^h at 0[0:2] = ^\"h init\" at 4 lent\n"
      "  ^h at 0[2:] = zero\n"
      "  ^dh at 1[-3:-1] = ^dy at 5 lent\n"
      "  ^dx at 2[T:] = zero\n"
      "  ^dw at 3 = zero, in runs of no steps\n"
      "  ^timestep at 6 = numbers\n"
      "  ^x at 9 = lend\n"
      "  ^c at 10[0:1] in turns = ^c_init at 4 lent\n"
      "  ^w: float [1] at 7 lent\n"
      "  ^dw: float [1] at 3 from zero lent\n"
      "  after the last step:\n"
      "  ^dh0 at 8 += ^dh at 1[0:2]\n"
      "}\n");
}

TEST(GraphText, ClearedSumsAreReadBack) {
  const std::string text =
      "backward step s {\n"
      "  before the first step:\n"
      "  ^dp at 1 = zero\n"
      "  dw.2 = zero\n"
      "  x: float [4] at 0[16 * t]\n"
      "  ^w: float [4] at 2\n"
      "  in each step:\n"
      "  dw.2: float [4] added summed = x\n"
      "  dw.1: float [4] added in dw.2 = x\n"
      "  once behind all steps:\n"
      "  ^dp: float [4] added at 1 from zero = dw.1\n"
      "}\n";
  ExpectRoundTrip(text);
  const StepGraph graph = ParseGraph(text);
  VerifyGraph(graph, "sum_before_linear");
  EXPECT_EQ(graph.before[1].to.sum, graph.values[2].home);
  ExpectError([] { ParseGraph("step s {\n  before the first step:\n  dw.2 = zero\n}\n"); },
              "syntax error: line 3 of a step graph: \"dw\" has no such value so far before \"dw.2 = zero\"");
}

TEST(GraphText, MemoryThatNothingMentionsIsReadBack) {
  StepGraph graph = ParseGraph("step s {\n  x: float [4] at 2 lent\n}\n");
  EXPECT_EQ(graph.num_bases, 3);
  graph.num_bases = 6;
  graph.num_lists = 2;
  graph.lent = {1, 2, 5};
  EXPECT_EQ(GraphText(graph),
            "step s {\n  x: float [4] at 2 lent\n"
            "  other memory outside: 1 lent, 5 lent, list 1\n}\n");
  ExpectReadBack(graph);
}

TEST(GraphText, WhatMemoryIsTooShortForIsReadBack) {
  const std::string forward =
      "step s {\n"
      "  x: float [4] at 0[16 * t]\n"
      "  a.1: float [4] kept = region Tanh(x) @0 {}\n"
      "  \"b c\".1: float [4] kept = region Tanh(a.1) @1 {}\n"
      "  not kept: a, \"b c\"\n"
      "}\n";
  ExpectRoundTrip(forward);
  StepGraph graph = ParseGraph(forward);
  VerifyGraph(graph, "parse");
  EXPECT_EQ(graph.not_kept, (std::set<std::string>{"a", "b c"}));
  ExpectReadBack(graph);
  const std::string backward =
      "backward step back {\n"
      "  before the first step:\n"
      "  ^dx at 2 = zero\n"
      "  a: float [4] at 3[16 * t] lent\n"
      "  ^dx: float [4] added at 2 from zero = a\n"
      "  other memory outside: 1 lent\n"
      "}\n"
      "again step \"a step\" {\n"
      "  x: float [4] at 1[16 * t] lent\n"
      "  b.1: float [4] = region Tanh(x) @0 of \"a step\" {}\n"
      "  a.1: float [4] = region Tanh(b.1) @1 of \"a step\" {}\n"
      "  in place of base 3: a.1\n"
      "}\n";
  ExpectRoundTrip(backward);
  graph = ParseGraph(backward);
  VerifyGraph(graph, "parse");
  ASSERT_NE(graph.recomputation, nullptr);
  EXPECT_EQ(graph.recomputation->given, (std::map<int, int>{{3, 2}}));
  EXPECT_EQ(graph.recomputation->part.nodes.size(), 2u);
  ExpectReadBack(graph);
}

TEST(GraphText, StagesAndPackedWeightsAreReadBack) {
  ExpectRoundTrip(
      "step s {\n"
      "  x: float [1, 3] at 0[12 * t]\n"
      "  w: float [2, 3] at 1\n"
      "  b: float [2] at 2\n"
      "  once for all steps, in runs of 64 steps or more:\n"
      "  ^\"w packed\": uint8 [4096] once = packed w for @7\n"
      "  for 16 steps at once:\n"
      "  a.1: float [1, 3] kept = Tanh(x) @0 {}\n"
      "  in each step:\n"
      "  y.1: float [1, 2] = FC(a.1, w, b) with ^\"w packed\" @7 {}\n"
      "  _, _, dx.1: float [1, 3] = FCGradient(a.1, w, y.1) @8 {}\n"
      "}\n");
}

TEST(GraphText, APackingMayBeOfSeveralWeights) {
  const std::string text =
      "step s {\n"
      "  h: float [1, 64] at 0[256 * t]\n"
      "  u: float [64, 64] at 1\n"
      "  v: float [32, 64] at 2\n"
      "  once for all steps, in runs of 16 steps or more:\n"
      "  ^\"u|v packed\": uint8 [24576] once = packed u, v for @0\n"
      "  in each step:\n"
      "  a.1: float [1, 96] = FCOfParts(h, u, v) with ^\"u|v packed\" @0 {}\n"
      "}\n";
  ExpectRoundTrip(text);
  VerifyGraph(ParseGraph(text), "pack_weights");
  std::string other = text;
  other.replace(other.find("packed u, v for"), 15, "packed v, u for");
  ExpectError([&] { VerifyGraph(ParseGraph(other), "pack_weights"); }, "…u|v packed is not made of u, v");
}

TEST(GraphText, APackingIsForTheOperatorThatReadsIt) {
  const std::string text =
      "step s {\n"
      "  h: float [1, 64] at 0[256 * t]\n"
      "  u: float [64, 64] at 1\n"
      "  v: float [64, 64] at 2\n"
      "  once for all steps:\n"
      "  ^\"u|v\": float [128, 64] once, ^\"u|v sizes\": int32 [2] once = region Concat(u, v) @0 {arg { name: \"axis\" "
      "i: 0 }}\n"
      "  ^\"u|v packed\": uint8 [32768] once = packed ^\"u|v\" for @0\n"
      "  in each step:\n"
      "  a.1: float [1, 128] = product h [1, 64] * ^\"u|v\" [128, 64]^T by FC(h, ^\"u|v\") with ^\"u|v packed\" @0 "
      "{}\n"
      "}\n";
  ExpectRoundTrip(text);
  VerifyGraph(ParseGraph(text), "pack_weights");
}

TEST(GraphText, ProductsAreReadBack) {
  ExpectRoundTrip(
      "backward step s {\n"
      "  x: float [1, 2, 3] at 0[24 * t]\n"
      "  sum: float [2, 3] at 1\n"
      "  b: float [2] at 2\n"
      "  product: float [1, 2, 2] at 3[16 * t]\n"
      "  y.1: float [1, 2, 2] = product x [2, 3] * sum [2, 3]^T + b by FC(x, sum, b) @7 {}\n"
      "  _, db.1: float [2] added at 4 from zero, _ = product _; sum y.1 [2, 2]; y.1 [2, 2] * sum [2, 3] "
      "by FCGradient(x, sum, y.1) @8 {}\n"
      "  z.1: float [1, 2, 2] = product\n"
      "  u.1: float [2, 2] = product sum [2, 3] * sum [2, 3]^T by MatMul(sum, sum) @9 {arg { name: \"trans_b\" i: 1 "
      "}}\n"
      "}\n");
}

TEST(GraphText, AnyNameIsReadBack) {
  ExpectRoundTrip(
      "step \"\" {\n"
      "  \"_\": float [1] at 0\n"
      "  \"1\": float [1] at 1\n"
      "  \"a, b = \\\"c\\\\\\x0a\\xc3\\xa9\": float [1] at 2\n"
      "  \"in each step:\": float [1] at 3\n"
      "  packed: float [1] at 4\n"
      "  ^packed: float [1] at 5 = packed\n"
      "}\n");
}

TEST(GraphText, NamesTheDevice) {
  const std::string text = "backward step s on private {\n  x: float [4] at 0[16 * t]\n}\n";
  const StepGraph graph = ParseGraph(text);
  EXPECT_EQ(graph.target->device, DeviceKind::kPrivate);
  EXPECT_EQ(GraphText(graph), text);
  ExpectError([] { ParseGraph("step s on tpu {\n}\n"); }, "…\"tpu\" is no device");
}

}  // namespace
}  // namespace stepnet
