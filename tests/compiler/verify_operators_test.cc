// Nodes that say something else of operators than their declarations are found.
#include "stepnet/compiler/verify_operators.h"

#include "stepnet/tests/compiler/refused_graph.h"

namespace stepnet {
namespace {

TEST(OperatorVerifier, FindsOperatorsThatDoNotDoWhatIsSaid) {
  const std::string x = "  x: float [1, 4] at 0[16 * t]\n", z = "  z: float [1, 7] at 1[28 * t]\n";
  ExpectProblem(x + "  a.1: float [1, 9] = region Tanh(x) @0 {}\n",
                "node 0, a = Tanh(x): a.1 is float [1, 9]; Tanh gives float [1, 4]");
  ExpectProblem(x + "  a.1: int64 [1, 4] = region Tanh(x) @0 {}\n",
                "node 0, a = Tanh(x): a.1 is int64 [1, 4]; Tanh gives float [1, 4]");
  ExpectProblem(x + "  ^y: float [1, 5] at 2 = Copy(x) @0 {}\n",
                "node 0, y = Copy(x): ^y is float [1, 5]; Copy gives float [1, 4]");
  ExpectProblem(x + "  a.1: float [1, 4] = Copy(x, x) @0 {}\n",
                "node 0, a = Copy(x, x): Copy does not take 2 inputs and give 1 outputs");
  const StepGraph mul = ParseGraph("step s {\n" + x + z + "  a.1: float [1, 4] = region Mul(x, z) @0 {}\n}\n");
  ExpectError([&] { VerifyGraph(mul, "import"); },
              "…after the pass import: node 0, a = Mul(x, z): Mul cannot read this: ");
  ExpectProblem(x + "  b.1: float [1, 4] = region Tanh(x) @0 {}\n  b.2: float [4, 1] in b.1 = Transpose(b.1) @1 {}\n",
                "node 1, b = Transpose(b): Transpose cannot work in place: b.2 is where it reads b.1");
  ExpectProblem(
      x + "  region {\n    a.1: float [1, 4] local = Gelu(x) @0 {}\n    b.1: float [1, 5] = Erf(a.1) @1 {}\n  }\n",
      "node 0, a region to b.1: b.1 is float [1, 5]; Erf gives float [1, 4]");
}

TEST(OperatorVerifier, FindsOperatorsThatGiveNothing) {
  const std::string x = "  x: float [1, 4] at 0[16 * t]\n";
  ExpectProblem(x + "  _ = Tanh(x) @0 {}\n", "node 0, _ = Tanh(x): Tanh gives nothing of what it has");
}

TEST(OperatorVerifier, FindsOperatorsThatRunWithBlobsAndGiveMemory) {
  const std::string x = "  x: float [1, 4] at 0[16 * t]\n";
  const std::string fault = "node 0, a = Tanh(x): Tanh runs with blobs, and what it gives lives elsewhere";
  ExpectProblem(x + "  a.1: float [1, 4] = Tanh(x) by blobs @0 {}\n", fault);
  ExpectProblem(x + "  a.1: float [1, 4] at 1[16 * t] = Tanh(x) by blobs @0 {}\n", fault);
}

TEST(OperatorVerifier, FindsWeightsThatArePackedForNobody) {
  const std::string inputs = "  x: float [1, 4] at 0[16 * t]\n  w: float [4, 4] at 1\n  v: float [4, 4] at 3\n";
  const std::string once = "  once for all steps:\n  ^p: uint8 [64] once = packed ", loop = "  in each step:\n";
  ExpectProblem(inputs + once + "w for @0\n" + loop + "  a.1: float [1, 4] = region Tanh(x) @0 {}\n",
                "node 0, a packing to ^p: Tanh packs nothing");
  ExpectProblem(inputs + once + "v for @0\n" + loop + "  a.1: float [1, 4] = FC(x, w) with ^p @0 {}\n",
                "node 1, a = FC(x, w): ^p is not made of w");
  ExpectProblem(
      inputs + "  in each step:\n  ^p: uint8 [64] once = packed w for @0\n  a.1: float [1, 4] = FC(x, w) @0 {}\n",
      "node 0, a packing to ^p: weights are packed once for all steps");
}

TEST(OperatorVerifier, FindsProductsThatAreNot) {
  const auto expect = [](const std::string& lines, const std::string& what) {
    const StepGraph graph = ParseGraph(StrCat("step s {\n", lines, "}\n"));
    ExpectError([&] { VerifyGraph(graph, "expand"); }, StrCat("…after the pass expand: ", what, "\n  in net \"s\""));
  };
  const auto expect_product = [&](const std::string& product, const std::string& what) {
    expect(StrCat("  y: float [2, 2] at 3\n  w: float [2, 2] at 1\n  b: float [2] at 2\n  a.1: float [2, 2] = product ",
                  product, " by FC(y, w, b) @0 {}\n"),
           "node 0, a = FC(y, w, b): a.1 is " + what);
  };
  expect_product("y [2, 3] * w [2, 2]", "no such product: a factor is no matrices that an input holds");
  expect_product("y [4] * w [2, 2]", "no such product: a factor is no matrices that an input holds");
  expect_product("y [4, 1] * w [2, 2]", "no such product: factors have 1 columns and 2 rows");
  expect_product("y [4, 1, 1] * w [2, 2, 1, 1]", "no such product: factors have other batches");
  expect_product("y [1, 4] * w [4, 1]", "no such product: it has 1 elements, its output 4");
  expect_product("y [2, 2] * w [2, 2]^T + y", "no such product: its bias is not one element a column");
  expect_product("sum y [1, 2, 2]", "no such product: rows of a batch are summed");
  expect_product("sum y [2, 2]", "no such product: it has 2 elements, its output 4");
  expect_product("y [2, 2] * w [2, 2]^T", "another product, as FC says");
  expect_product("y [2, 2] * w [2, 2] + b", "another product, as FC says");
  expect("  w: float [2, 2] at 1\n  a.1: float [2, 2] = product w [2, 2] * w [2, 2]; _ by MatMul(w, w) @0 {}\n",
         "node 0, a = MatMul(w, w): MatMul says of 2 outputs what they are; it has 1");
}

TEST(OperatorVerifier, FindsRegionsThatAreNot) {
  const auto expect = [](const std::string& lines, const std::string& what) {
    const std::string inputs = "  x: float [1, 4] at 0[16 * t]\n  h_prev: float [1, 4] at 1[16 * t]\n";
    ExpectError([&] { VerifyGraph(ParseGraph(StrCat("step step {\n", inputs, lines, "}\n")), "parse"); }, what);
  };
  expect("  region {\n  }\n",
         "…after the pass parse: node 0, a region: it is a region of no operator\n  in net \"step\"");
  expect(
      "  region {\n    a.1: float [1, 4] = CopyFromCPUInput(x) @0 {}\n    b.1: float [1, 4] = Gelu(a.1) @1 {}\n  }\n",
      "…CopyFromCPUInput has no formula and is in a region\n  in net \"step\"");
  expect("  a.1: float [1, 4] = region CopyFromCPUInput(x) @0 {}\n",
         "…CopyFromCPUInput has no formula and is a region\n  in net \"step\"");
  expect("  a.1: float [1, 4] local = region Gelu(x) @0 {}\n", "…a.1 is in no memory and an output\n  in net \"step\"");
  expect(
      "  region {\n    a.1: float [1, 4] local = Gelu(x) @0 {}\n    b.1: float [1, 4] = Gelu(a.1) @1 {}\n  }\n"
      "  c.1: float [1, 4] = region Gelu(a.1) @2 {}\n",
      "…node 1, c = Gelu(a): a.1 is read and is in no memory\n  in net \"step\"");
  expect(
      "  region {\n    h_prev.1: float [1, 4] in h_prev = Gelu(x) @0 {}\n    b.1: float [1, 4] = Gelu(h_prev) @1 {}\n"
      "  }\n",
      "…operators of a region do not read what is there, or give what is: h_prev\n  in net \"step\"");
  expect("  region {\n  } then {\n    a.1: float [1, 4] = Gelu(x) @0 {}\n  }\n",
         "…regions of it have no operator\n  in net \"step\"");
  expect(
      "  region {\n    a.1: float [1, 4] local = Gelu(x) @0 {}\n  } then {\n    b.1: float [1, 4] = Gelu(a.1) @1 {}\n"
      "  }\n",
      "…a.1 is in no memory, and another region reads it\n  in net \"step\"");
}

TEST(OperatorVerifier, FindsOperatorsThatRunOtherwiseThanTheyCan) {
  const std::string x = "  x: float [1, 4] at 0[16 * t]\n";
  ExpectProblem(x + "  a.1: unknown blob = Copy(x) @0 {}\n",
                "node 0, a = Copy(x): Copy has blobs and does not run with them");
  ExpectProblem(x + "  _, a.1: float [1, 2] = Split(x) @0 {arg { name: \"axis\" i: 1 }}\n",
                "node 0, _, a = Split(x): Split gives all of its outputs");
  ExpectProblem(x + "  p: uint8 [64] at 1\n  a.1: float [1, 4] = region Tanh(x) with p @0 {}\n",
                "node 0, a = Tanh(x): Tanh reads no packed p");
  ExpectProblem(x + "  y: float [1, 4] at 1[16 * t]\n  a.1: float [1, 4] = AddGradient(x, y) @0 {}\n",
                "node 0, a = AddGradient(x, y): AddGradient works in place: a.1 must be where x is");
  StepGraph graph = ParseGraph(StrCat("step s {\n", x, "  a.1: float [1, 4] = Tanh(x) @0 {}\n}\n"));
  graph.nodes[0].def = nullptr;
  ExpectError([&] { VerifyGraph(graph, "expand"); },
              "…after the pass expand: node 0, a = Tanh(x): an operator is without its definition\n  in net \"s\"");
}

}  // namespace
}  // namespace stepnet
