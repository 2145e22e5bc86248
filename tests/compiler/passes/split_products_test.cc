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
