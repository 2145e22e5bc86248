#include "stepnet/compiler/passes/merge_products.h"

#include "pass_case.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

constexpr char kInputs[] = R"(  h: float [1, 2] at 0[8 * t]
  x: float [1, 4] at 1[16 * t]
  a: float [3] at 2
  b: float [1] at 3
  u: float [3, 2] at 4
  v: float [1, 2] at 5
  w: float [3, 4] at 6
  z: float [1, 4] at 7
  g: float [1, 1] at 12
)";
constexpr char kFirst[] = "  p.1: float [1, 3] = product h [1, 2] * u [3, 2]^T by FC(h, u) @0 {}\n";
constexpr char kSecond[] = "  q.1: float [1, 1] = product h [1, 2] * v [1, 2]^T by FC(h, v) @2 {}\n";
constexpr char kReaders[] = R"(  ^y: float [1, 3] at 8[12 * t] = p.1
  ^r: float [1, 1] at 9[4 * t] = q.1
)";

std::string AfterLines(const std::string& lines) { return After("merge_products", Step(kInputs + lines)); }

void ExpectUnchanged(const std::string& lines) { EXPECT_EQ(AfterLines(lines), Step(kInputs + lines)); }

TEST(MergeProducts, ThoseOfOneValueBecomeOne) {
  const std::string between = "  t.1: float [1, 3] = region Tanh(p.1) @1 {}\n";
  EXPECT_EQ(AfterLines(StrCat(kFirst, between, kSecond, "  ^r: float [1, 1] at 9[4 * t] = q.1\n")),
            Step(StrCat(kInputs, R"(  once for all steps:
  ^"u|v": float [4, 2] once, ^"u|v sizes": int32 [2] once = region Concat(u, v) @0 {arg { name: "axis" i: 0 }}
  in each step:
  "p|q".1: float [1, 4] = product h [1, 2] * ^"u|v" [4, 2]^T by FC(h, ^"u|v") @0 {}
  p.1: float [1, 3], q.1: float [1, 1] = region Split("p|q".1) @0 {arg { name: "axis" i: -1 } arg { name: "split" ints: 3 ints: 1 }}
  t.1: float [1, 3] = region Tanh(p.1) @1 {}
  ^r: float [1, 1] at 9[4 * t] = q.1
  at the end: no "p|q"
)")));
}

// The step keeps a value for its gradient, so weights change from run to run.
TEST(MergeProducts, WeightsStayWhereTheyAreInTraining) {
  const std::string kept = "  k.1: float [1, 2] kept = region Tanh(h) @4 {}\n";
  const std::string lines = R"(  s.1: float [1, 3] = product x [1, 4] * w [3, 4]^T + a by FC(x, w, a) @0 {}
  p.1: float [1, 3] added in s.1 = product h [1, 2] * u [3, 2]^T by FC(h, u) @1 {}
  t.1: float [1, 1] = product x [1, 4] * z [1, 4]^T + b by FC(x, z, b) @2 {}
  q.1: float [1, 1] added in t.1 = product h [1, 2] * v [1, 2]^T by FC(h, v) @3 {}
)";
  EXPECT_EQ(AfterLines(StrCat(kept, lines, kReaders, "  at the end: no s, no t\n")),
            Step(StrCat(kInputs, R"(  once for all steps:
  ^"a|b": float [4] once, ^"a|b sizes": int32 [2] once = region Concat(a, b) @0 {arg { name: "axis" i: 0 }}
  in each step:
  k.1: float [1, 2] kept = region Tanh(h) @4 {}
  "s|t".1: float [1, 4] = FCOfPartsWithBias(x, ^"a|b", w, z) @0 {}
  "p|q".1: float [1, 4] added in "s|t".1 = FCOfParts(h, u, v) @1 {}
  p.1: float [1, 3], q.1: float [1, 1] = region Split("p|q".1) @1 {arg { name: "axis" i: -1 } arg { name: "split" ints: 3 ints: 1 }}
  ^y: float [1, 3] at 8[12 * t] = p.1
  ^r: float [1, 1] at 9[4 * t] = q.1
  at the end: no "p|q", no "s|t"
)")));
  EXPECT_EQ(AfterLines(StrCat(kept, kFirst, kSecond, kReaders)),
            Step(StrCat(kInputs, kept, R"(  "p|q".1: float [1, 4] = FCOfParts(h, u, v) @0 {}
  p.1: float [1, 3], q.1: float [1, 1] = region Split("p|q".1) @0 {arg { name: "axis" i: -1 } arg { name: "split" ints: 3 ints: 1 }}
)",
                        kReaders, "  at the end: no \"p|q\"\n")));
}

TEST(MergeProducts, SumsOfThemDo) {
  const std::string lines = R"(  s.1: float [1, 3] = product x [1, 4] * w [3, 4]^T + a by FC(x, w, a) @0 {}
  p.1: float [1, 3] added in s.1 = product h [1, 2] * u [3, 2]^T by FC(h, u) @1 {}
  t.1: float [1, 1] = product x [1, 4] * z [1, 4]^T + b by FC(x, z, b) @2 {}
  q.1: float [1, 1] added in t.1 = product h [1, 2] * v [1, 2]^T by FC(h, v) @3 {}
)";
  EXPECT_EQ(AfterLines(StrCat(lines, kReaders, "  at the end: no s, no t\n")),
            Step(StrCat(kInputs, R"(  once for all steps:
  ^"w|z": float [4, 4] once, ^"w|z sizes": int32 [2] once = region Concat(w, z) @0 {arg { name: "axis" i: 0 }}
  ^"a|b": float [4] once, ^"a|b sizes": int32 [2] once = region Concat(a, b) @0 {arg { name: "axis" i: 0 }}
  ^"u|v": float [4, 2] once, ^"u|v sizes": int32 [2] once = region Concat(u, v) @1 {arg { name: "axis" i: 0 }}
  in each step:
  "s|t".1: float [1, 4] = product x [1, 4] * ^"w|z" [4, 4]^T + ^"a|b" by FC(x, ^"w|z", ^"a|b") @0 {}
  "p|q".1: float [1, 4] added in "s|t".1 = product h [1, 2] * ^"u|v" [4, 2]^T by FC(h, ^"u|v") @1 {}
  p.1: float [1, 3], q.1: float [1, 1] = region Split("p|q".1) @1 {arg { name: "axis" i: -1 } arg { name: "split" ints: 3 ints: 1 }}
  ^y: float [1, 3] at 8[12 * t] = p.1
  ^r: float [1, 1] at 9[4 * t] = q.1
  at the end: no "p|q", no "s|t"
)")));
}

TEST(MergeProducts, WeightsByRowsLieSideBySideInColumns) {
  const std::string given = "  c: float [2, 3] at 10\n  d: float [2, 1] at 11\n";
  EXPECT_EQ(AfterLines(StrCat(given, R"(  p.1: float [1, 3] = product h [1, 2] * c [2, 3] by MatMul(h, c) @0 {}
  q.1: float [1, 1] = product h [1, 2] * d [2, 1] by MatMul(h, d) @1 {}
)",
                              kReaders)),
            Step(StrCat(kInputs, given, R"(  once for all steps:
  ^"c|d": float [2, 4] once, ^"c|d sizes": int32 [2] once = region Concat(c, d) @0 {arg { name: "axis" i: 1 }}
  in each step:
  "p|q".1: float [1, 4] = product h [1, 2] * ^"c|d" [2, 4] by MatMul(h, ^"c|d") @0 {}
  p.1: float [1, 3], q.1: float [1, 1] = region Split("p|q".1) @0 {arg { name: "axis" i: -1 } arg { name: "split" ints: 3 ints: 1 }}
)",
                        kReaders, "  at the end: no \"p|q\"\n")));
}

TEST(MergeProducts, LeavesOthersAlone) {
  const std::string readers = kReaders;
  for (const std::string& lines : std::vector<std::string>{
           kFirst + std::string("  ^y: float [1, 3] at 8[12 * t] = p.1\n"),  // one alone
           // The values differ.
           StrCat(kFirst, "  q.1: float [1, 1] = product x [1, 4] * z [1, 4]^T by FC(x, z) @2 {}\n", readers),
           // The kinds differ, or one has a bias.
           StrCat(kFirst,
                  "  q.1: float [1, 1] = product h [1, 2] * v [1, 2]^T by FC(h, v) @2 {arg { name: \"axis\" i: -1 "
                  "}}\n",
                  readers),
           StrCat(kFirst, "  q.1: float [1, 1] = product h [1, 2] * v [1, 2]^T + b by FC(h, v, b) @2 {}\n", readers),
           // With weights or a bias that the step writes.
           StrCat(kFirst, kSecond, readers, "  v.1: float [1, 2] at 5 = Tanh(h) @3 {}\n"),
           StrCat(kFirst, "  v.1: float [1, 2] = Tanh(h) @1 {}\n",
                  "  q.1: float [1, 1] = product h [1, 2] * v.1 [1, 2]^T by FC(h, v.1) @2 {}\n", readers),
           // Kept, or where somebody else looks.
           StrCat(kFirst, "  q.1: float [1, 1] kept = product h [1, 2] * v [1, 2]^T by FC(h, v) @2 {}\n", readers),
           StrCat(kFirst, "  q.1: float [1, 1] at 9[4 * t] = product h [1, 2] * v [1, 2]^T by FC(h, v) @2 {}\n",
                  "  ^y: float [1, 3] at 8[12 * t] = p.1\n"),
           // Added to what is no product.
           StrCat("  s.1: float [1, 1] = region Tanh(g) @1 {}\n", kFirst,
                  "  q.1: float [1, 1] added in s.1 = product h [1, 2] * v [1, 2]^T by FC(h, v) @2 {}\n", readers,
                  "  at the end: no s\n")}) {
    ExpectUnchanged(lines);
  }
}

TEST(MergeProducts, LeavesLargeWeightsAlone) {
  const std::string inputs =
      "  h: float [1, 1024] at 0[4096 * t]\n  u: float [512, 1024] at 1\n  v: float [1, 1024] at 2\n";
  const std::string lines =
      StrCat(inputs, R"(  p.1: float [1, 512] = product h [1, 1024] * u [512, 1024]^T by FC(h, u) @0 {}
  q.1: float [1, 1] = product h [1, 1024] * v [1, 1024]^T by FC(h, v) @1 {}
  ^y: float [1, 512] at 3[2048 * t] = p.1
  ^r: float [1, 1] at 4[4 * t] = q.1
)");
  EXPECT_EQ(After("merge_products", Step(lines)), Step(lines));
}

// "h: why" for each product that stays alone beside others of its value.
std::vector<std::string> Apart(const std::string& lines) {
  std::vector<std::string> texts;
  for (const ProductApart& apart : FindProductsApart(ParseGraph(Step(lines)))) {
    texts.push_back(StrCat("op ", apart.op_index, " of ", apart.value, ": ", apart.why));
  }
  return texts;
}

std::string Second(const std::string& text) { return StrCat(kInputs, kFirst, text, kReaders); }

TEST(FindProductsApart, HasNoneOfThoseThatBecomeOne) {
  EXPECT_TRUE(Apart(StrCat(kInputs, kFirst, kSecond, kReaders)).empty());
  EXPECT_TRUE(Apart(StrCat(kInputs, kFirst, "  ^y: float [1, 3] at 8[12 * t] = p.1\n")).empty());
}

TEST(FindProductsApart, SaysWhyOnceForTwo) {
  using Texts = std::vector<std::string>;
  EXPECT_EQ(Apart(Second("  q.1: float [1, 1] = product h [1, 2] * v [1, 2]^T + b by FC(h, v, b) @2 {}\n")),
            Texts{"op 2 of h: one has a bias, and one has none"});
  EXPECT_EQ(
      Apart(Second("  q.1: float [1, 1] = product h [1, 2] * v [1, 2]^T by FC(h, v) @2 {arg { name: \"axis\" i: -1 "
                   "}}\n")),
      Texts{"op 2 of h: they are operators of different types or arguments"});
  EXPECT_EQ(Apart(Second("  v.1: float [1, 2] = Tanh(h) @1 {}\n"
                         "  q.1: float [1, 1] = product h [1, 2] * v.1 [1, 2]^T by FC(h, v.1) @2 {}\n")),
            Texts{"op 2 of h: weights of one change from step to step"});
  EXPECT_EQ(Apart(Second("  q.1: float [1, 1] kept = product h [1, 2] * v [1, 2]^T by FC(h, v) @2 {}\n")),
            Texts{"op 2 of h: one is a state or an output, or is kept for the gradient"});
  EXPECT_EQ(Apart(Second("  s.1: float [1, 1] = region Tanh(g) @1 {}\n"
                         "  q.1: float [1, 1] added in s.1 = product h [1, 2] * v [1, 2]^T by FC(h, v) @2 {}\n") +
                  "  at the end: no s\n"),
            Texts{"op 2 of h: one is added to what is no product"});
  EXPECT_EQ(Apart(Second("  s.1: float [1, 1] = product x [1, 4] * z [1, 4]^T by FC(x, z) @1 {}\n"
                         "  q.1: float [1, 1] added in s.1 = product h [1, 2] * v [1, 2]^T by FC(h, v) @2 {}\n") +
                  "  at the end: no s\n"),
            Texts{"op 2 of h: one is in a sum of more products"});
}

TEST(FindProductsApart, SaysHowLargeWeightsAre) {
  EXPECT_EQ(Apart(R"(  h: float [1, 1024] at 0[4096 * t]
  u: float [256, 1024] at 1
  v: float [256, 1024] at 2
  p.1: float [1, 256] = product h [1, 1024] * u [256, 1024]^T by FC(h, u) @0 {}
  q.1: float [1, 256] = product h [1, 1024] * v [256, 1024]^T by FC(h, v) @1 {}
  ^y: float [1, 256] at 3[1024 * t] = p.1
  ^r: float [1, 256] at 4[1024 * t] = q.1
)"),
            std::vector<std::string>{
                "op 1 of h: their weights have 2048 KB in all, and up to 1024 KB are laid side by side"});
}

TEST(FindProductsApart, SaysWhereAWeightLiesBesideOthers) {
  EXPECT_EQ(
      Apart(StrCat(R"(  d: float [1, 2] at 19
  k: float [1, 2] at 13[8 * t]
)",
                   kInputs, kFirst, kSecond, R"(  m.1: float [1, 3] = product k [1, 2] * u [3, 2]^T by FC(k, u) @3 {}
  n.1: float [1, 1] = product k [1, 2] * d [1, 2]^T by FC(k, d) @4 {}
)",
                   kReaders, "  ^s: float [1, 3] at 15[12 * t] = m.1\n  ^t: float [1, 1] at 16[4 * t] = n.1\n")),
      std::vector<std::string>{"op 2 of h: a copy of weights of theirs lies beside others"});
}

// A third product beside two that become one.
TEST(FindProductsApart, SpeaksOfTheOneThatIsLeft) {
  EXPECT_EQ(Apart(StrCat(kInputs, R"(  o.1: float [1, 1] = product h [1, 2] * v [1, 2]^T + b by FC(h, v, b) @4 {}
)",
                         kFirst, kSecond, kReaders, "  ^s: float [1, 1] at 13[4 * t] = o.1\n")),
            std::vector<std::string>{"op 4 of h: one has a bias, and one has none"});
}

// So that all copies together take no more than the weights: 40 of them make 780 pairs.
TEST(MergeProducts, AWeightLiesBesideOthersOnce) {
  const std::string others = R"(  m.1: float [1, 3] = product k [1, 2] * u [3, 2]^T by FC(k, u) @3 {}
  n.1: float [1, 1] = product k [1, 2] * v [1, 2]^T by FC(k, v) @4 {}
)";
  const std::string more = R"(  o.1: float [1, 3] = product l [1, 2] * u [3, 2]^T by FC(l, u) @5 {}
  s.1: float [1, 1] = product l [1, 2] * d [1, 2]^T by FC(l, d) @6 {}
)";
  const std::string readers = R"(  ^s: float [1, 3] at 15[12 * t] = m.1
  ^t: float [1, 1] at 16[4 * t] = n.1
  ^o: float [1, 3] at 17[12 * t] = o.1
  ^p: float [1, 1] at 18[4 * t] = s.1
)";
  const std::string given = "  d: float [1, 2] at 19\n  k: float [1, 2] at 13[8 * t]\n  l: float [1, 2] at 14[8 * t]\n";
  // h and k have the same two, l has another two.
  EXPECT_EQ(AfterLines(StrCat(given, kFirst, kSecond, others, more, kReaders, readers)),
            Step(StrCat(kInputs, given, R"(  once for all steps:
  ^"u|v": float [4, 2] once, ^"u|v sizes": int32 [2] once = region Concat(u, v) @0 {arg { name: "axis" i: 0 }}
  in each step:
  "p|q".1: float [1, 4] = product h [1, 2] * ^"u|v" [4, 2]^T by FC(h, ^"u|v") @0 {}
  p.1: float [1, 3], q.1: float [1, 1] = region Split("p|q".1) @0 {arg { name: "axis" i: -1 } arg { name: "split" ints: 3 ints: 1 }}
  "m|n".1: float [1, 4] = product k [1, 2] * ^"u|v" [4, 2]^T by FC(k, ^"u|v") @3 {}
  m.1: float [1, 3], n.1: float [1, 1] = region Split("m|n".1) @3 {arg { name: "axis" i: -1 } arg { name: "split" ints: 3 ints: 1 }}
)",
                        more, kReaders, readers, "  at the end: no \"m|n\", no \"p|q\"\n")));
}

// A pass before may have left what is computed once.
TEST(MergeProducts, WeightsMayBeComputedOnce) {
  const std::string once = "  once for all steps:\n  c.1: float [1, 2] once = region Tanh(v) @1 {}\n";
  EXPECT_EQ(
      AfterLines(StrCat(once, "  in each step:\n", kFirst,
                        "  q.1: float [1, 1] = product h [1, 2] * c.1 [1, 2]^T by FC(h, c.1) @2 {}\n", kReaders)),
      Step(StrCat(
          kInputs, once,
          R"(  ^"u|c": float [4, 2] once, ^"u|c sizes": int32 [2] once = region Concat(u, c.1) @0 {arg { name: "axis" i: 0 }}
  in each step:
  "p|q".1: float [1, 4] = product h [1, 2] * ^"u|c" [4, 2]^T by FC(h, ^"u|c") @0 {}
  p.1: float [1, 3], q.1: float [1, 1] = region Split("p|q".1) @0 {arg { name: "axis" i: -1 } arg { name: "split" ints: 3 ints: 1 }}
)",
          kReaders, "  at the end: no \"p|q\"\n")));
}

}  // namespace
}  // namespace stepnet
