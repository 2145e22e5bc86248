#include "pass_case.h"

namespace stepnet {
namespace {

constexpr char kInputs[] =
    "  x: float [1, 2] at 0[8 * t]\n"
    "  w: float [2, 2] at 2\n";
const std::string kProduct = "product x [1, 2] * w [2, 2]^T by FC(x, w)";

void ExpectUnchanged(const std::string& lines) {
  const std::string before = Step(kInputs + lines);
  EXPECT_EQ(After("merge_equal", before), before);
}

TEST(MergeEqual, ComputesOnceWhatIsComputedTwice) {
  EXPECT_EQ(
      After("merge_equal",
            Step(std::string(kInputs) + "  a.1: float [1, 2] = " + kProduct + " @0 {}\n" +
                 "  b.1: float [1, 2] = region Tanh(a.1) @1 {}\n" +  //
                 "  c.1: float [1, 2] = " + kProduct + " @2 {}\n" + "  d.1: float [1, 2] = region Tanh(c.1) @3 {}\n" +
                 "  e.1: float [1, 2] = region Sigmoid(c.1) @4 {}\n" +
                 "  f.1: float [1, 2] = region Mul(d.1, e.1) @5 {}\n" +
                 "  y.1: float [1, 2] at 1[8 * t] = region Sum(b.1, f.1) @6 {}\n")),
      Step(std::string(kInputs) + "  a.1: float [1, 2] = " + kProduct + " @0 {}\n" +
           "  b.1: float [1, 2] = region Tanh(a.1) @1 {}\n" + "  e.1: float [1, 2] = region Sigmoid(a.1) @4 {}\n" +
           "  f.1: float [1, 2] = region Mul(b.1, e.1) @5 {}\n" +
           "  y.1: float [1, 2] at 1[8 * t] = region Sum(b.1, f.1) @6 {}\n"));
}

// y and z are one row: what is read of z is another value once y has been written.
TEST(MergeEqual, WhatIsWrittenByAnotherNameInBetweenIsReadAgain) {
  const std::string z = "  z: float [1, 2] at 1[8 * t]\n",
                    write = "  y.1: float [1, 2] at 1[8 * t] = region Sum(x, a.1) @1 {}\n";
  const std::string a = "  a.1: float [1, 2] = region Tanh(z) @0 {}\n",
                    b = "  b.1: float [1, 2] = region Tanh(z) @2 {}\n";
  const std::string use = "  c.1: float [1, 2] kept = region Sum(a.1, b.1) @3 {}\n";
  ExpectUnchanged(z + a + write + b + use);
  EXPECT_EQ(After("merge_equal", Step(kInputs + z + a + b + write + use)),
            Step(kInputs + z + a + write + "  c.1: float [1, 2] kept = region Sum(a.1, a.1) @3 {}\n"));
}

const std::string kReadBoth = "  y.1: float [1, 2] at 1[8 * t] = region Sum(a.1, b.1) @9 {}\n";

// Each of them adds what it computes to a sum itself, once moves are folded into operators (fold_sums): terms one after
// the other, in another order than a value that is added when it is there.
TEST(MergeEqual, WhatIsAddedOutsideStaysApart) {
  const std::string both =
      "  a.1: float [1, 2] = " + kProduct + " @0 {}\n  b.1: float [1, 2] = " + kProduct + " @1 {}\n";
  ExpectUnchanged(both + "  ^p: float [1, 2] added at 3 = a.1\n  ^q: float [1, 2] added at 4 = b.1\n");
}

TEST(MergeEqual, KeepsWhatIsOtherwise) {
  const std::string one = "  a.1: float [1, 2] = region Scale(x) @0 {arg { name: \"scale\" f: 2 }}\n";
  ExpectUnchanged(one + "  b.1: float [1, 2] = region Scale(x) @1 {arg { name: \"scale\" f: 3 }}\n" + kReadBoth);
  ExpectUnchanged(one + "  b.1: float [1, 2] = region Scale(x) @1 {}\n" + kReadBoth);
  ExpectUnchanged("  a.1: float [1, 2] = region Tanh(x) @0 {}\n  b.1: float [1, 2] = region Sigmoid(x) @1 {}\n" +
                  kReadBoth);
}

TEST(MergeEqual, KeepsWhatIsSeenOutsideOrLater) {
  const std::string one = "  a.1: float [1, 2] = region Tanh(x) @0 {}\n";
  ExpectUnchanged(one + "  b.1: float [1, 2] kept = region Tanh(x) @1 {}\n" + kReadBoth);
  ExpectUnchanged(one + "  b.1: float [1, 2] at 3[8 * t] = region Tanh(x) @1 {}\n" + kReadBoth);
  ExpectUnchanged("  a.1: float [1, 2] kept = region Tanh(x) @0 {}\n  b.1: float [1, 2] = region Tanh(x) @1 {}\n" +
                  kReadBoth);
}

TEST(MergeEqual, KeepsWhatIsOverwritten) {
  ExpectUnchanged(
      "  a.1: float [1, 2] = region Tanh(x) @0 {}\n"
      "  a.2: float [1, 2] in a.1 = region Tanh(a.1) @1 {}\n"
      "  b.1: float [1, 2] = region Tanh(x) @2 {}\n"
      "  y.1: float [1, 2] at 1[8 * t] = region Sum(a.2, b.1) @9 {}\n");
}

TEST(MergeEqual, KeepsRandomNumbersApart) {
  const std::string ratio = "{arg { name: \"ratio\" f: 0.5 }}\n";
  ExpectUnchanged("  a.1: float [1, 2], m.1: bool [1, 2] = region Dropout(x) @0 " + ratio +
                  "  b.1: float [1, 2], n.1: bool [1, 2] = region Dropout(x) @1 " + ratio + kReadBoth);
}

}  // namespace
}  // namespace stepnet
