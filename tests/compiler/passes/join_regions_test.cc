#include <string>

#include "pass_case.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

// On a device that has such kernels (tests/poison_device).
std::string OnDevice(const std::string& lines) { return StrCat("step step on private {\n", lines, "}\n"); }
std::string After(const std::string& lines) { return stepnet::After("join_regions", OnDevice(lines)); }
void ExpectUnchanged(const std::string& lines) { EXPECT_EQ(After(lines), OnDevice(lines)); }

constexpr char kInputs[] =
    "  x: float [2, 3, 8] at 0[192 * t]\n"
    "  h_prev: float [2, 3, 2] at 1[48 * t]\n";
constexpr char kLast[] = " {arg { name: \"axis\" i: -1 }}\n";

TEST(JoinRegions, RowsOfTwoLengthsAreOneKernel) {
  const std::string normalise = "_, s.1: float [2, 3, 1], d.1: float [2, 3, 1]";
  const std::string split =
      "a.1: float [2, 3, 2] local, b.1: float [2, 3, 2] local, c.1: float [2, 3, 2] local, d.1: float [2, 3, 2] local";
  EXPECT_EQ(After(StrCat(kInputs, "  n.1: float [2, 3, 8] = region Softmax(x) @0", kLast, "  region {\n    ", split,
                         " = Split(n.1) @1", kLast,
                         "    h.1: float [2, 3, 2] at 1[48 * (t + 1)] = Mul(a.1, h_prev) @2 {}\n  }\n")),
            OnDevice(StrCat(kInputs, "  region {\n    n.1: float [2, 3, 8] = Softmax(x) @0", kLast, "  } then {\n    ",
                            split, " = Split(n.1) @1", kLast,
                            "    h.1: float [2, 3, 2] at 1[48 * (t + 1)] = Mul(a.1, h_prev) @2 {}\n  }\n")));
}

// The softmax waits for nothing that the other one gives.
TEST(JoinRegions, WhatWaitsForNoneOfThemStaysApart) {
  ExpectUnchanged(StrCat(kInputs, "  n.1: float [2, 3, 8] = region Softmax(x) @0", kLast,
                         "  h.1: float [2, 3, 2] at 1[48 * (t + 1)] = region Softmax(h_prev) @1", kLast));
}

TEST(JoinRegions, ProductsStandBetween) {
  ExpectUnchanged(StrCat("  h_prev: float [3, 4] at 0[48 * t]\n  w: float [4, 4] at 1\n",
                         "  a.1: float [3, 4] = region Softmax(h_prev) @0 {}\n",
                         "  b.1: float [3, 4] = product a.1 [3, 4] * w [4, 4]^T by FC(a.1, w) @1 {}\n",
                         "  h.1: float [3, 4] at 0[48 * (t + 1)] = region Softmax(b.1) @2 {}\n"));
}

}  // namespace
}  // namespace stepnet
