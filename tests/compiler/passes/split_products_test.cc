#include "pass_case.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

constexpr char kGiven[] =
    "  h: float [2, 4] at 1[32 * t]\n"
    "  x: float [2, 3] at 0[24 * t]\n"
    "  b: float [4] at 3\n"
    "  w: float [4, 7] at 2\n";
constexpr char kJoined[] =
    "  j.1: float [2, 7], sizes.1: int32 [2] {3, 4} = region Concat(x, h) @0 {arg { name: \"axis\" i: -1 }}\n";
constexpr char kProduct[] = "  s.1: float [2, 4] = product j.1 [2, 7] * w [4, 7]^T + b by FC(j.1, w, b) @1 {}\n";
constexpr char kOnce[] =
    "  once for all steps:\n"
    "  ^\"w 1\": float [4, 3] once, ^\"w 2\": float [4, 4] once = region Split(w) @1 {arg { name: \"axis\" i: 1 } "
    "arg { name: \"split\" ints: 3 ints: 4 }}\n"
    "  in each step:\n";
constexpr char kTerms[] =
    "  s.2: float [2, 4] = product x [2, 3] * ^\"w 1\" [4, 3]^T + b by FC(x, ^\"w 1\", b) @1 {}\n"
    "  s.1: float [2, 4] added in s.2 = product h [2, 4] * ^\"w 2\" [4, 4]^T by FC(h, ^\"w 2\") @1 {}\n";
constexpr char kLoop[] = "  h.1: float [2, 4] at 1[32 * (t + 1)] = region Tanh(s.1) @2 {}\n";

std::string AfterLines(const std::string& lines) { return After("split_products", Step(StrCat(kGiven, lines))); }

TEST(SplitProducts, WhatNoStepWaitsForHasAProductOfItsOwn) {
  EXPECT_EQ(AfterLines(StrCat(kJoined, kProduct, kLoop)), Step(StrCat(kGiven, kOnce, kTerms, kLoop)));
}

TEST(SplitProducts, WhoReadsTheJoinedValueStillFindsIt) {
  const std::string reader = "  ^y: float [2, 7] at 4[56 * t] = j.1\n";
  EXPECT_EQ(AfterLines(StrCat(kJoined, kProduct, reader, kLoop)),
            Step(StrCat(kGiven, kOnce, kTerms, kJoined, reader, kLoop)));
}

TEST(SplitProducts, WhatNoStepReadsIsTakenFromAProductOfItsOwn) {
  const std::string product = "  d.1: float [2, 7] = product h [2, 4] * w [4, 7] by MatMul(h, w) @0 {}\n";
  const std::string apart =
      "  p.1: float [2, 3] at 4[24 * t], q.1: float [2, 4] = region Split(d.1) @1 {arg { name: \"axis\" i: -1 } "
      "arg { name: \"split\" ints: 3 ints: 4 }}\n";
  std::string once = kOnce;
  once.replace(once.find("@1"), 2, "@0");
  const std::string loop = "  h.1: float [2, 4] at 1[32 * (t + 1)] = region Tanh(q.1) @2 {}\n";
  EXPECT_EQ(AfterLines(StrCat(product, apart, loop)),
            Step(StrCat(kGiven, once,
                        "  p.1: float [2, 3] at 4[24 * t] = product h [2, 4] * ^\"w 1\" [4, 3] by FCTransposed(h, ^\"w "
                        "1\") @1 {arg { name: \"axis\" i: -1 }}\n"
                        "  q.1: float [2, 4] = product h [2, 4] * ^\"w 2\" [4, 4] by FCTransposed(h, ^\"w 2\") @1 "
                        "{arg { name: \"axis\" i: -1 }}\n",
                        loop)));
}

// r and z of the input, to which the loop adds what they are of the state.
struct TermsCase {
  std::string given =
      "  h: float [2, 4] at 1[32 * t]\n"
      "  x: float [2, 3] at 0[24 * t]\n"
      "  b: float [7] at 3\n"
      "  u: float [4, 4] at 4\n"
      "  v: float [3, 4] at 5\n"
      "  w: float [7, 3] at 2\n";
  std::string product = "  p.1: float [2, 7] = product x [2, 3] * w [7, 3]^T + b by FC(x, w, b) @0 {}\n";
  std::string parts =
      "  q.1: float [2, 4], r.1: float [2, 3] = region Split(p.1) @1 {arg { name: \"axis\" i: -1 } arg { name: "
      "\"split\" ints: 4 ints: 3 }}\n";
  std::string first = "  s.1: float [2, 4] added in q.1 = product h [2, 4] * u [4, 4]^T by FC(h, u) @2 {}\n";
  std::string second = "  o.1: float [2, 3] added in r.1 = product h [2, 4] * v [3, 4]^T by FC(h, v) @3 {}\n";
  std::string loop =
      "  h.1: float [2, 4] at 1[32 * (t + 1)] = region Tanh(s.1) @4 {}\n"
      "  ^y: float [2, 3] at 6[24 * t] = o.1\n";

  std::string Text() const { return Step(StrCat(given, product, parts, first, second, loop)); }
};

TEST(SplitProducts, TermsThatTheLoopAddsToAreProductsOfTheirOwnWhereCallsCostMore) {
  const TermsCase of;
  const std::string once =
      "  once for all steps:\n"
      "  ^\"w 1\": float [4, 3] once, ^\"w 2\": float [3, 3] once = region Split(w) @0 {arg { name: \"axis\" i: 0 } "
      "arg { name: \"split\" ints: 4 ints: 3 }}\n"
      "  ^\"b 1\": float [4] once, ^\"b 2\": float [3] once = region Split(b) @0 {arg { name: \"axis\" i: 0 } "
      "arg { name: \"split\" ints: 4 ints: 3 }}\n"
      "  in each step:\n";
  const std::string products =
      "  q.1: float [2, 4] = product x [2, 3] * ^\"w 1\" [4, 3]^T + ^\"b 1\" by FC(x, ^\"w 1\", ^\"b 1\") @0 {}\n"
      "  r.1: float [2, 3] = product x [2, 3] * ^\"w 2\" [3, 3]^T + ^\"b 2\" by FC(x, ^\"w 2\", ^\"b 2\") @0 {}\n";
  EXPECT_EQ(After("split_products", of.Text(), &kCallsCostMore),
            Step(StrCat(of.given, once, products, of.first, of.second, of.loop)));
  EXPECT_EQ(After("split_products", of.Text()), of.Text()) << "elsewhere they are copied";
}

TEST(SplitProducts, TermsStayTogetherWhereOneIsOnlyReadOrTheLoopGivesThem) {
  TermsCase read;  // a region reads its columns where they are
  read.second = "  o.1: float [2, 3] = region Tanh(r.1) @3 {}\n";
  TermsCase kept;  // somebody looks at the product later
  kept.product.replace(kept.product.find(" ="), 2, " kept =");
  TermsCase of_state;
  of_state.product = "  p.1: float [2, 7] = product g [2, 3] * w [7, 3]^T + b by FC(g, w, b) @0 {}\n";
  of_state.given.replace(of_state.given.find("  x:"), std::string("  x: float [2, 3] at 0[24 * t]\n").size(),
                         "  g: float [2, 3] at 6[24 * t]\n");
  of_state.loop.replace(of_state.loop.find("24 * t"), 6, "24 * (t + 1)");
  for (const TermsCase& of : {read, kept, of_state}) {
    EXPECT_EQ(After("split_products", of.Text(), &kCallsCostMore), of.Text());
  }
}

TEST(SplitProducts, LeavesOthersAlone) {
  for (const std::string& lines : std::vector<std::string>{
           // No step waits for it, or for all that it is of.
           StrCat(kJoined, kProduct, "  ^y: float [2, 4] at 4[32 * t] = s.1\n"),
           StrCat(kJoined, kProduct, kLoop, "  x.1: float [2, 3] at 0[24 * (t + 1)] = region Tanh(x) @3 {}\n"),
           // Others look where the sum is to be.
           StrCat(kJoined, "  s.1: float [2, 4] kept = product j.1 [2, 7] * w [4, 7]^T + b by FC(j.1, w, b) @1 {}\n",
                  kLoop)}) {
    EXPECT_EQ(AfterLines(lines), Step(StrCat(kGiven, lines)));
  }
}

}  // namespace
}  // namespace stepnet
