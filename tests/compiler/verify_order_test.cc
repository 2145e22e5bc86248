// Graphs in which a pass has changed the order of reads and writes are refused.
#include "stepnet/compiler/verify_order.h"

#include "stepnet/compiler/graph_text.h"
#include "stepnet/compiler/verify_graph.h"
#include "stepnet/core/strings.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

std::string StepOf(const std::string& lines) { return StrCat("step s {\n", lines, "}\n"); }

void ExpectKept(const std::string& before, const std::string& after) {
  GraphVerifier verifier;
  verifier.Verify(ParseGraph(StepOf(before)), "import");
  verifier.Verify(ParseGraph(StepOf(after)), "fuse_regions");
}

void ExpectBroken(const std::string& before, const std::string& after, const std::string& what) {
  GraphVerifier verifier;
  verifier.Verify(ParseGraph(StepOf(before)), "import");
  ExpectError([&] { verifier.Verify(ParseGraph(StepOf(after)), "fuse_regions"); },
              StrCat("internal error: after the pass fuse_regions: ", what, "\n  in net \"s\""));
}

const char* const kInputs = "  x: float [1, 2] at 0[8 * t]\n  z: float [1, 2] at 1[8 * t]\n";
// Overwrites what x shows, under another name.
const char* const kWrite = "  ^w: float [1, 2] at 0[8 * (t + 0)] = z\n";

TEST(OrderVerifier, FindsAReadAndAWriteThatWereSwapped) {
  const std::string read = "  y.1: float [1, 2] = Tanh(x) @0 {}\n", out = "  ^out: float [1, 2] at 2[8 * t] = y.1\n";
  ExpectKept(kInputs + read + kWrite + out, kInputs + read + out + kWrite);
  ExpectBroken(kInputs + read + kWrite + out, kInputs + (kWrite + read) + out,
               "^w is given after x is read no more; they share memory");
  ExpectBroken(kInputs + (kWrite + read) + out, kInputs + read + kWrite + out,
               "^w is given before x is read no more; they share memory");
}

TEST(OrderVerifier, LooksAtBytes) {
  const std::string read = "  y.1: float [1, 2] = Tanh(x) @0 {}\n";
  const std::string next = "  ^w: float [1, 2] at 0[8 * (t + 1)] = z\n", half = "  ^w: float [1, 1] at 0[8 * t] = v\n";
  const std::string out = "  ^out: float [1, 2] at 2[8 * t] = y.1\n", v = "  v: float [1, 1] at 3[4 * t]\n";
  ExpectKept(kInputs + read + next + out, kInputs + (next + read) + out);
  ExpectBroken(kInputs + v + read + half + out, kInputs + v + half + read + out,
               "^w is given after x is read no more; they share memory");
}

TEST(OrderVerifier, TellsReadersApart) {
  const std::string a = "  a.1: float [1, 2] = Tanh(x) @0 {}\n", b = "  b.1: float [1, 2] = Tanh(x) @1 {}\n";
  const std::string w = kWrite;
  const std::string rest = "  ^a: float [1, 2] at 2[8 * t] = a.1\n  ^b: float [1, 2] at 3[8 * t] = b.1\n";
  ExpectKept(kInputs + a + w + b + rest, kInputs + a + w + b + rest);
  ExpectBroken(kInputs + a + w + b + rest, kInputs + b + w + a + rest,
               "^w is given after x is read no more; they share memory");
  // A new reader comes before the write where all have.
  const std::string c = "  c.1: float [1, 2] = Tanh(x) @2 {}\n", c_out = "  ^c: float [1, 2] at 4[8 * t] = c.1\n";
  const std::string d = "  c.1: float [1, 2] = Tanh(a.1) @2 {}\n";
  const std::string z_out = "  ^z: float [1, 2] at 5[8 * t] = z\n";
  ExpectKept(kInputs + a + d + w + c_out + z_out, kInputs + a + c + w + c_out + z_out);
  ExpectBroken(kInputs + a + w + d + c_out + z_out, kInputs + a + w + c + c_out + z_out,
               "^w is given after x is read no more; they share memory");
}

TEST(OrderVerifier, FindsWritesThatWereSwapped) {
  const std::string x = "  ^o: float [1, 2] at 2[8 * t] = x\n", z = "  ^p: float [1, 2] at 2[8 * (t + 0)] = z\n";
  ExpectBroken(kInputs + x + z, kInputs + z + x, "^o is given before ^p is given no more; they share memory");
  const std::string first = "  ^o: float [1, 2] at 2[8 * t] = x\n";
  const std::string second = "  ^o.1: float [1, 2] in ^o = z\n";
  const std::string second_first = "  ^o.1: float [1, 2] at 2[8 * t] = z\n  ^o: float [1, 2] in ^o.1 = x\n";
  ExpectBroken(kInputs + first + second, kInputs + second_first,
               "^o is given before ^o.1 is given no more; they share memory");
}

TEST(OrderVerifier, LetsTermsOfASumComeInAnyOrder) {
  const std::string zero = "  before the first step:\n  ^d at 2 = zero\n", is_first = " at 2 from zero = ";
  const std::string x = "  ^d.1: float [1, 2] added", z = "  ^d.2: float [1, 2] added";
  const std::string read = "  ^e: float [1, 2] at 3[8 * t] = ";
  ExpectKept(zero + kInputs + x + is_first + "x\n" + z + " in ^d.1 = z\n",
             zero + kInputs + z + is_first + "z\n" + x + " in ^d.2 = x\n");
  ExpectBroken(zero + kInputs + x + is_first + "x\n" + read + "^d.1\n" + z + " in ^d.1 = z\n",
               zero + kInputs + z + is_first + "z\n" + x + " in ^d.2 = x\n" + read + "^d.1\n",
               "^d.2 is given after ^d.1 is read no more; they share memory");
}

TEST(OrderVerifier, LooksIntoRegions) {
  const std::string in = kInputs, w = kWrite;
  const std::string a = "  a.1: float [1, 2] = region Tanh(x) @0 {}\n",
                    b = "  b.1: float [1, 2] = region Tanh(z) @1 {}\n";
  const std::string rest = "  ^a: float [1, 2] at 2[8 * t] = a.1\n  ^b: float [1, 2] at 3[8 * t] = b.1\n";
  const std::string both =
      "  region {\n    b.1: float [1, 2] = Tanh(z) @1 {}\n    a.1: float [1, 2] = Tanh(x) @0 {}\n  }\n";
  ExpectKept(in + a + w + b + rest, in + both + w + rest);
  ExpectBroken(in + a + w + b + rest, in + w + both + rest, "^w is given after x is read no more; they share memory");
  // What one operator of a region gives another one reads behind it.
  const std::string y = "  y.1: float [1, 2] at 0[8 * (t + 0)] = region Tanh(z) @0 {}\n";
  const std::string c = "  c.1: float [1, 2] = region Tanh(y.1) @1 {}\n",
                    out = "  ^c: float [1, 2] at 2[8 * t] = c.1\n";
  const std::string v = "  v: float [1, 2] at 3[8 * t]\n", over = "  ^v: float [1, 2] at 0[8 * (t + 0)] = v\n";
  const std::string yc =
      "  region {\n    y.1: float [1, 2] at 0[8 * (t + 0)] = Tanh(z) @0 {}\n    c.1: float [1, 2] = Tanh(y.1) @1 {}\n"
      "  }\n";
  ExpectKept(in + v + y + c + over + out, in + v + yc + over + out);
  ExpectBroken(in + v + y + over + c + out, in + v + yc + over + out,
               "^v is given before y.1 is read no more; they share memory");
}

TEST(OrderVerifier, FindsValuesThatMoved) {
  const std::string out = "  ^out: float [1, 2] at 2[8 * t] = y.1\n  ^v: float [1, 2] at 3[8 * (t + 2)] = z\n";
  ExpectBroken(kInputs + ("  y.1: float [1, 2] = Tanh(x) @0 {}\n" + out),
               kInputs + ("  y.1: float [1, 2] at 3[8 * t] = Tanh(x) @0 {}\n" + out),
               "y.1 comes to live at 3[8 * t], 8 bytes; before the pass it does not");
  ExpectBroken(kInputs + ("  y.1: float [1, 2] at 3[8 * t] = Tanh(x) @0 {}\n" + out),
               kInputs + ("  y.1: float [1, 2] at 3[8 * (t + 1)] = Tanh(x) @0 {}\n" + out),
               "y.1 comes to live at 3[8 * (t + 1)], 8 bytes; before the pass it does not");
}

TEST(OrderVerifier, FindsWhatRunsOnceAndReadsWhatStepsWrite) {
  const auto graph = [](const std::string& base) {
    return ParseGraph(StepOf(StrCat("  w: float [2, 2] at 1\n  x: float [2, 2] at 0[16 * t]\n  once for all steps:\n",
                                    "  a.1: float [2, 2] once = region Tanh(w) @0 {}\n  in each step:\n",
                                    "  ^v: float [2, 2] at ", base, " = a.1\n")));
  };
  VerifyGraph(graph("2"), "hoist");
  ExpectError(
      [&] { VerifyGraph(graph("1"), "hoist"); },
      "…after the pass hoist: w is read once, before the first step, and steps write its memory\n  in net \"s\"");
}

}  // namespace
}  // namespace stepnet
