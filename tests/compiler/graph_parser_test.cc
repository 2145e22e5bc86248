// What is no text of a graph is refused with its line.
#include "stepnet/compiler/graph_text.h"
#include "stepnet/core/strings.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

TEST(GraphParser, WhatIsLentIsSoInAllLines) {
  const std::string x = "  x: float [1] at 0[4 * t] lent\n";
  for (const char* other : {"  y: float [1] at 0[4 * (t + 1)]\n", "  after the last step:\n  ^y at 1 = ^x at 0\n"}) {
    ExpectError([&] { ParseGraph(StrCat("step s {\n", x, other, "}\n")); },
                "…base 0 is lent in one line and not in another");
  }
}

TEST(GraphParser, WhatIsNoGraphIsRefusedWithItsLine) {
  const auto expect = [](const std::string& text, const std::string& what) {
    ExpectError([&] { ParseGraph(text); }, what);
  };
  expect("", "syntax error: line 1 of a step graph: the graph does not end");
  expect("step s {\n", "syntax error: line 2 of a step graph: the graph does not end");
  expect("step s {\n}\nx", "syntax error: line 3 of a step graph: the graph has ended before \"x\"");
  const auto expect_line = [&](const std::string& line, const std::string& what) {
    expect(StrCat("step s {\n  x: float [1] at 0\n  ", line, "\n}\n"),
           StrCat("syntax error: line 3 of a step graph: ", what));
  };
  expect_line("x: float [1] at 1", "\"x\" has this value already before \": float [1] at 1\"");
  expect_line("y.1: float [1] = Tanh(z) @0 {}", "\"z\" has no such value so far before \") @0 {}\"");
  expect_line("y.1: floats [1] = x", "there is no dtype \"floats\" before \" [1] = x\"");
  expect_line("y.1: float [1] = Tanh(x) @0 {arg { name }}",
              "the arguments cannot be read: 1:12: Expected \":\", found \"}\".");
  expect_line("y.1: float [1] = Tanh(x) @99999999999 {}", "99999999999 is out of range before \" {}\"");
  expect_line("y.1: float [1] at 0[4 * (t + 99999999999999999999)] = x",
              "a number is missing before \"99999999999999999999)] = x\"");
  expect_line("\"y", "the line ends");
  expect_line("y.1: float [1] = product x [1, 1] by Tanh(x) @0 {}", "\" * \" is missing before \" by Tanh(x) @0 {}\"");
  expect_line("y.1: float [1] = product x [1, 1] * x by Tanh(x) @0 {}",
              "\" [\" is missing before \" by Tanh(x) @0 {}\"");
  expect_line("y.1: float [1] = product x [1, 1] * x [1, 1] by Sqrt() @0 {}",
              "a product is of what the operator does not read before \" @0 {}\"");
  expect("step s {\n  y.1: float [1] = packed x for @0\n}\n", "…\"x\" has no such value so far before \" for @0\"");
}

TEST(GraphParser, LinesThatSayWhatCannotBeAreRefused) {
  const auto expect = [](const std::string& lines, const std::string& what) {
    ExpectError([&] { ParseGraph(StrCat("step s {\n  x: float [1] at 0\n", lines, "}\n")); }, "…" + what);
  };
  expect("  y: int32 [2] {1} at 1\n", "line 3 of a step graph: int32 [2] has other elements before \" at 1\"");
  expect("  y: int32 [1] {3000000000} at 1\n", "line 3 of a step graph: elements are out of range before \" at 1\"");
  expect("  y: float [1] {1} at 1\n", "line 3 of a step graph: elements of float [1] are not known before \" at 1\"");
  expect("  region {\n    y.1: float [1] = x\n  }\n", "line 4 of a step graph: a region is made of operators");
  expect("  region {\n    y.1: float [1] = region Gelu(x) @0 {}\n  }\n",
         "line 4 of a step graph: a region is made of operators");
  expect("  region {\n", "line 4 of a step graph: \"    \" is missing before \"}\"");
  expect("  in each step: x\n", "line 3 of a step graph: the line should have ended before \" x\"");
  expect("  y.1: float [1] = Tanh(x) @0 {\n", "line 3 of a step graph: the arguments do not end");
  expect("  ^p: uint8 [64] once = packed x for @4\n", "a step graph packs for @4, which is not there");
  expect("  not kept: x, y\n", "line 3 of a step graph: what is not kept has no value at the end before \"y\"");
  expect("  a.1: float [1] kept = Tanh(x) @0 {}\n  at the end: no a\n  not kept: a\n",
         "line 5 of a step graph: what is not kept has no value at the end before \"a\"");
  expect("  other memory outside: x\n", "line 3 of a step graph: a number is missing before \"x\"");
  expect("  in place of base 0: x\n", "line 3 of a step graph: \": \" is missing before \" place of base 0: x\"");
}

TEST(GraphParser, WhatIsComputedAgainIsReadWithItsLine) {
  const auto expect = [](const std::string& part, const std::string& what) {
    ExpectError([&] { ParseGraph("step s {\n  x: float [1] at 0 lent\n}\n" + part); }, "…of a step graph: " + what);
  };
  expect("again\n", "the graph has ended before \"again\"");
  expect("again s {\n}\n", "\"step \" is missing before \"s {\"");
  expect("again step s {\n  in place of base 0: x\n}\n", "\"x\" has no such value so far");
  expect("again step s {\n  y: float [1] at 0\n}\n", "base 0 is lent in one line and not in another");
  expect("again step s {\n  y.1: float [1] = Tanh(x) @0 {}\n}\n", "\"x\" has no such value so far before \") @0 {}\"");
  ExpectError([] { ParseGraph("step s {\n}\nagain step s {\n  y.1: float [1] = NoType() @0 {}\n}\n"); },
              "invalid net: line 4 of a step graph: no operator type \"NoType\"");
  expect("again step s {\n  y: float [1] at 1\n  in place of base 0: y\n  in place of base 0: y\n}\n",
         "something is read in place of that base already");
  expect("again step s {\n}\nagain step s {\n}\n", "the graph has ended before \"again step s {\"");
}

// What is read and then not printed again would be lost without a word.
TEST(GraphParser, WhatTheGrammarDoesNotHaveIsRefused) {
  const auto expect = [](const std::string& lines, const std::string& what) {
    ExpectError([&] { ParseGraph(StrCat("step s {\n", lines, "}\n")); }, "…line " + what);
  };
  const std::string x = "  x: float [1] at 0\n";
  expect("  \"a\\n\": float [1] at 0\n",
         "2 of a step graph: \\ stands before what is none of \\, \" and x before \"n\": float [1] at 0\"");
  expect("  9x: float [1] at 0\n", "2 of a step graph: a name is missing before \"9x: float [1] at 0\"");
  for (const auto& [argument, field] :
       {std::pair("type: \"Exp\"", "type"), {"input: \"q\"", "input"}, {"output: \"q\"", "output"}}) {
    expect(StrCat(x, "  y.1: float [1] = Tanh(x) @0 {", argument, "}\n"),
           StrCat("3 of a step graph: the arguments say \"", field, "\", which stands before them"));
  }
  const std::string before = "  before the first step:\n  ^h at 1[0:1] = zero\n";
  const std::string after = "  after the last step:\n  ^h at 1[0:1] = zero\n";
  expect(x + before, "3 of a step graph: row moves before the first step come first");
  expect(after + x, "4 of a step graph: row moves after the last step come last before \"x: float [1] at 0\"");
  expect(after + after, "4 of a step graph: row moves after the last step have begun");
  expect(before + x + "  ^h at 1[0:1] = zero\n", "5 of a step graph: \": \" is missing before");
  expect("  before the first step:\n" + x, "3 of a step graph: no row move stands before");
  expect("  after the last step:\n", "3 of a step graph: no row move stands before");
  const std::string loop = "  in each step:\n", y = "  y.1: float [1] = Tanh(x) @0 {}\n";
  expect(x + loop + loop + y, "4 of a step graph: the stage before has no line");
  expect(x + loop + y + loop, "6 of a step graph: the stage before has no line");
  expect(x + "  in each step, in runs of -3 steps or more:\n" + y, "3 of a step graph: -3 is out of range");
  expect(x + "  at the end: no z\n", "3 of a step graph: \"z\" has no value at the end");
  expect(x + "  ^z: float [1] once\n  at the end: ^z\n", "4 of a step graph: what is outside is no blob of the step");
}

TEST(GraphParser, WhatIsWrongWithShapesAndOperatorsHasItsLine) {
  const auto expect = [](const std::string& line, const std::string& what) {
    ExpectError([&] { ParseGraph(StrCat("step s {\n  x: float [1] at 0\n  ", line, "\n}\n")); }, what);
  };
  expect("y: float [-1] at 1", "shape mismatch: line 3 of a step graph: dimension 0 of [-1] is negative");
  expect("y.1: float [1] = Tahn(x) @0 {}",
         "invalid net: line 3 of a step graph: no operator type \"Tahn\"; did you mean \"Tanh\"?");
}

TEST(GraphParser, NumbersOfAnySizeAreReadOrRefused) {
  for (const char* offset : {"- 9223372036854775808", "- -9223372036854775808", "+ 9223372036854775807",
                             "- 9223372036854775807", "+ -9223372036854775808", "+ 1000000000000000000"}) {
    ExpectError([&] { ParseGraph(StrCat("step s {\n  x: float [4] at 0[16 * (t ", offset, ")]\n}\n")); },
                "…line 2 of a step graph: ");
  }
  for (const char* line : {"x: float [4] at 0[9223372036854775807 * t]", "x: float [4] at 0[-16 * t]",
                           "x: float [4] at 0[16 * t], 9223372036854775807 bytes",
                           "x: float [4611686018427387904] at 0", "for 9223372036854775807 steps at once:"}) {
    ExpectError([&] { ParseGraph(StrCat("step s {\n  ", line, "\n}\n")); }, "…line 2 of a step graph: ");
  }
  ParseGraph("step s {\n  x: float [4] at 0[16 * (t - 1000000)]\n}\n");
}

TEST(GraphParser, ArgumentsThatNestDeeplyAreRefused) {
  constexpr int kDepth = 100'000;
  std::string nested;
  for (int i = 0; i < kDepth; ++i) nested += "arg { name: \"n\" n { op { ";
  for (int i = 0; i < kDepth; ++i) nested += "} } }";
  ExpectError(
      [&] { ParseGraph(StrCat("step s {\n  x: float [1] at 0\n  y.1: float [1] = Tanh(x) @0 {", nested, "}\n}\n")); },
      "…the arguments cannot be read");
}

}  // namespace
}  // namespace stepnet
