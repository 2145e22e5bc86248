#include "pass_case.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

constexpr char kInputs[] =
    "  x: float [1, 2] at 0[8 * t]\n"
    "  p: float [2] at 2\n";

void ExpectUnchanged(const std::string& lines) {
  const std::string before = Step(kInputs + lines);
  EXPECT_EQ(After("hoist", before), before);
}

TEST(Hoist, ComputesOnceWhatFollowsFromParameters) {
  EXPECT_EQ(
      After("hoist", Step(std::string(kInputs) + "  in each step:\n"
                                                 "  a.1: float [1, 2] = region Tanh(x) @0 {}\n"
                                                 "  q.1: float [2] = region Sigmoid(p) @1 {}\n"
                                                 "  r.1: float [2] = region Tanh(q.1) @2 {}\n"
                                                 "  y.1: float [1, 2] at 1[8 * t] = region Mul(a.1, r.1) @3 {}\n")),
      Step(std::string(kInputs) + "  once for all steps:\n"
                                  "  q.1: float [2] once = region Sigmoid(p) @1 {}\n"
                                  "  r.1: float [2] once = region Tanh(q.1) @2 {}\n"
                                  "  in each step:\n"
                                  "  a.1: float [1, 2] = region Tanh(x) @0 {}\n"
                                  "  y.1: float [1, 2] at 1[8 * t] = region Mul(a.1, r.1) @3 {}\n"));
}

// A fill that steps alone read costs a region nothing.
TEST(Hoist, TakesFillsForWhatIsComputedOnce) {
  const std::string fill = "region ConstantFill() @0 {arg { name: \"shape\" ints: 2 } arg { name: \"value\" f: 2 }}\n";
  const std::string use = "  y.1: float [1, 2] at 1[8 * t] = region Mul(x, q.1) @2 {}\n";
  EXPECT_EQ(After("hoist", Step(StrCat(kInputs, "  f.1: float [2] = ", fill,
                                       "  q.1: float [2] = region Mul(p, f.1) @1 {}\n", use))),
            Step(StrCat(kInputs, "  once for all steps:\n  f.1: float [2] once = ", fill,
                        "  q.1: float [2] once = region Mul(p, f.1) @1 {}\n  in each step:\n", use)));
  ExpectUnchanged(StrCat("  q.1: float [2] = ", fill, use));
}

TEST(Hoist, ACastIsComputedOnce) {
  const std::string cast = "region Cast(p) @0 {arg { name: \"to\" s: \"double\" }}\n",
                    use = "  y.1: double [2] kept = region Tanh(q.1) @1 {}\n";
  const std::string after = After("hoist", Step(StrCat(kInputs, "  q.1: double [2] = ", cast, use)));
  EXPECT_NE(after.find("  q.1: double [2] once = region Cast(p)"), std::string::npos) << after;
}

TEST(Hoist, LeavesWhatStepsChange) {
  const std::string loop = "  in each step:\n", use = "  y.1: float [1, 2] at 1[8 * t] = region Mul(x, q.1) @3 {}\n";
  ExpectUnchanged(loop + "  q.1: float [1, 2] = region Sigmoid(x) @1 {}\n" + use);
  ExpectUnchanged(loop + "  q.1: float [2] = region Sigmoid(p) @1 {}\n" + use + "  p.1: float [2] at 2 = q.1\n");
  ExpectUnchanged(loop + "  q.1: float [2], m.1: bool [2] = region Dropout(p) @1 {arg { name: \"ratio\" f: 0.5 }}\n" +
                  use);
}

// For the gradient: one value is there for all steps.
TEST(Hoist, WhatIsKeptNeedsNoRowAStep) {
  const std::string use = "  y.1: float [1, 2] at 1[8 * t] = region Mul(x, q.1) @3 {}\n";
  EXPECT_EQ(After("hoist", Step(StrCat(kInputs, "  q.1: float [2] kept = region Sigmoid(p) @1 {}\n", use))),
            Step(StrCat(kInputs, "  once for all steps:\n  q.1: float [2] once = region Sigmoid(p) @1 {}\n",
                        "  in each step:\n", use)));
}

TEST(Hoist, TakesAStepWithoutStagesForALoop) {
  const std::string use = "  y.1: float [1, 2] at 1[8 * t] = region Mul(x, q.1) @3 {}\n";
  EXPECT_EQ(After("hoist", Step(StrCat(kInputs, "  q.1: float [2] = region Sigmoid(p) @1 {}\n", use))),
            Step(StrCat(kInputs, "  once for all steps:\n  q.1: float [2] once = region Sigmoid(p) @1 {}\n",
                        "  in each step:\n", use)));
  ExpectUnchanged("  y.1: float [1, 2] at 1[8 * t] = region Tanh(x) @3 {}\n");
}

}  // namespace
}  // namespace stepnet
