// What stages are, and in which order they come, is tested with tests/compiler/find_stages_test.cc.
#include "pass_case.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

constexpr char kInputs[] =
    "  x: float [1, 1, 8] at 0[32 * t]\n"
    "  w: float [8, 8] at 1\n"
    "  b: float [8] at 2\n"
    "  h_prev: float [1, 1, 8] at 3[32 * t]\n";

TEST(FormStages, TakesAProjectionOutOfTheLoopAndPassesWhatItGives) {
  const std::string projection = " = FC(x, w, b) @0 {arg { name: \"axis\" i: 2 }}\n";
  const std::string loop =
      "  s.1: float [1, 1, 8] = Sum(p.1, h_prev) @1 {}\n"
      "  h.1: float [1, 1, 8] at 3[32 * (t + 1)] = Tanh(s.1) @2 {}\n";
  EXPECT_EQ(After("form_stages", Step(kInputs + ("  p.1: float [1, 1, 8]" + projection) + loop)),
            Step(kInputs + ("  for 64 steps at once:\n  p.1: float [1, 1, 8] passed" + projection) +
                 "  in each step:\n" + loop));
}

// Backward steps give to sums over all steps, and on a GPU stages go through all of them.
TEST(FormStages, KeepsWhatIsPassedWhereThereAreNoBlocks) {
  const auto step = [](const std::string& title, const std::string& kept, const std::string& loop) {
    return "backward " + Step(StrCat("  x: float [1, 1, 8] at 0[32 * t]\n  w: float [8, 8] at 1\n  b: float [8] at 2\n",
                                     "  h_prev: float [1, 1, 8] at 3[32 * (t + 1)]\n", title, "  p.1: float [1, 1, 8]",
                                     kept, " = FC(x, w, b) @0 {arg { name: \"axis\" i: 2 }}\n", loop,
                                     "  s.1: float [1, 1, 8] = Sum(p.1, h_prev) @1 {}\n"
                                     "  h.1: float [1, 1, 8] at 3[32 * t] = Tanh(s.1) @2 {}\n"));
  };
  EXPECT_EQ(After("form_stages", step("", "", "")), step("  for 64 steps at once:\n", " kept", "  in each step:\n"));
}

// The elements of the mean and of x are not read: they may lie anywhere, without a row for each step.
TEST(FormStages, WhatIsReadForItsShapeAloneNeedsNoRows) {
  const std::string inputs =
      "  dy: float [1, 1, 8] at 0[32 * t]\n"
      "  y: float [1, 1, 8] at 1[32 * t]\n"
      "  mean: float [1, 1, 1] at 0\n"
      "  std: float [1, 1, 1] at 2[4 * t]\n"
      "  x: float [1, 1, 8] at 0\n"
      "  h_prev: float [1, 1, 8] at 3[32 * t]\n";
  const std::string gradient = " = LayerNormGradient(dy, y, mean, std, x) @0 {arg { name: \"axis\" i: 2 }}\n";
  const std::string loop = "  h.1: float [1, 1, 8] at 3[32 * (t + 1)] = Sum(dx.1, h_prev) @1 {}\n";
  EXPECT_EQ(
      After("form_stages", Step(inputs + "  dx.1: float [1, 1, 8]" + gradient + loop), &kCallsCostMore),
      Step(inputs + "  for 64 steps at once:\n  dx.1: float [1, 1, 8] passed" + gradient + "  in each step:\n" + loop));
}

// A gain is repeated over time between what goes over time, and otherwise in the loop, whether a step has one row or
// two.
TEST(FormStages, InputsAreRepeatedOverTimeWhereOthersAreThere) {
  for (const int rows : {1, 2}) {
    const std::string shape = StrCat(": float [1, ", rows, ", 8]"), at = StrCat("[", 32 * rows, " * t]\n");
    const std::string next = StrCat("[", 32 * rows, " * (t + 1)]");
    const std::string inputs = StrCat("  x", shape, " at 0", at, "  w: float [8, 8] at 1\n  gain: float [8] at 2\n",
                                      "  h_prev", shape, " at 3", at);
    const std::string first = " = FCTransposed(x, w) @0 {arg { name: \"axis\" i: 2 }}\n";
    const std::string gain = " = region Mul(p.1, gain) @1 {}\n";
    const std::string second = " = FCTransposed(s.1, w) @2 {arg { name: \"axis\" i: 2 }}\n";
    const std::string chunks = StrCat("  for ", 64 / rows, " steps at once:\n"), loop = "  in each step:\n";
    const auto over_time = [&](const std::string& title, const std::string& home, const std::string& last) {
      return Step(StrCat(inputs, title, "  p.1", shape, home, first, "  s.1", shape, home, gain, "  q.1", shape, home,
                         second, last, "  h.1", shape, " at 3", next, " = Sum(q.1, h_prev) @3 {}\n"));
    };
    EXPECT_EQ(After("form_stages", over_time("", "", ""), &kCallsCostMore), over_time(chunks, " passed", loop));
    const auto in_loop = [&](const std::string& title, const std::string& home, const std::string& last) {
      return Step(StrCat(inputs, title, "  p.1", shape, home, first, last, "  s.1", shape, gain, "  h.1", shape,
                         " at 3", next, " = Sum(s.1, h_prev) @2 {}\n"));
    };
    EXPECT_EQ(After("form_stages", in_loop("", "", ""), &kCallsCostMore), in_loop(chunks, " passed", loop));
  }
}

// Copies of what goes over time, for what does: halves of a projection, a number of its shape, a dimension more.
TEST(FormStages, CopiesGoOverTimeBetweenOthers) {
  const auto step = [](const std::string& title, const std::string& home, const std::string& last) {
    const std::string ints = "{arg { name: \"dims\" ints: 2 }}\n", axis = "{arg { name: \"axis\" i: 2 }}\n";
    return Step(
        StrCat("  x: float [1, 2, 8] at 0[64 * t]\n  w: float [8, 8] at 1\n  h_prev: float [1, 2, 1, 4] at 2[32 * t]\n",
               title, "  p.1: float [1, 2, 8]", home, " = FCTransposed(x, w) @0 ", axis, "  q.1: float [1, 2, 4]", home,
               ", k.1: float [1, 2, 4]", home, " = region Split(p.1) @1 ", axis, "  n.1: float [1, 2, 4]", home,
               " = region ConstantFill(k.1) @2 {arg { name: \"value\" f: 2 }}\n  s.1: float [1, 2, 4]", home,
               " = region Add(k.1, n.1) @3 {}\n  e.1: float [1, 2, 1, 4]", home, " = region ExpandDims(s.1) @4 ", ints,
               "  g.1: float [1, 2, 1, 4]", home, " = region Tanh(e.1) @5 {}\n", last,
               "  h.1: float [1, 2, 1, 4] at 2[32 * (t + 1)] = Sum(g.1, h_prev) @6 {}\n"));
  };
  EXPECT_EQ(After("form_stages", step("", "", ""), &kCallsCostMore),
            step("  for 32 steps at once:\n", " passed", "  in each step:\n"));
}

// What is computed over time and is no product, as an outer product, leaves a chunk some steps, however many rows it
// has, here 64. Bytes bound it.
TEST(FormStages, RowsOfProductsAreCounted) {
  const auto step = [](const std::string& title, const std::string& home, const std::string& last) {
    return Step(
        StrCat("  x: float [1, 1, 64] at 0[256 * t]\n  w: float [64, 64] at 1\n",
               "  h_prev: float [1, 1, 64, 64] at 2[16384 * t]\n", title, "  p.1: float [1, 1, 64]", home,
               " = FCTransposed(x, w) @0 {arg { name: \"axis\" i: 2 }}\n  c.1: float [1, 1, 64, 1]", home,
               " = region ExpandDims(p.1) @1 {arg { name: \"dims\" ints: 3 }}\n  r.1: float [1, 1, 1, 64]", home,
               " = region ExpandDims(p.1) @2 {arg { name: \"dims\" ints: 2 }}\n  o.1: float [1, 1, 64, 64]", home,
               " = region Mul(c.1, r.1) @3 {}\n  g.1: float [1, 1, 64, 64]", home, " = region Tanh(o.1) @4 {}\n", last,
               "  h.1: float [1, 1, 64, 64] at 2[16384 * (t + 1)] = Sum(g.1, h_prev) @5 {}\n"));
  };
  const auto after = [&](const Target& target) { return After("form_stages", step("", "", ""), &target); };
  EXPECT_EQ(after(kCallsCostMore), step("  for 16 steps at once:\n", " passed", "  in each step:\n"));
  constexpr Target kAll = {.min_steps_of_rows = 1, .takes_all_over_time = true};
  EXPECT_EQ(after(kAll), step("  for 4 steps at once:\n", " passed", "  in each step:\n")) << "64 rows are a chunk";
  constexpr Target kFewBytes = {.max_chunk_bytes = 256 << 10, .takes_all_over_time = true};
  EXPECT_EQ(after(kFewBytes), step("  for 4 steps at once:\n", " passed", "  in each step:\n")) << "33 KB a step";
}

// 64 KB of weights, four times what 8 rows have, and beside more than that not worth the caches.
TEST(FormStages, LeavesAProjectionOfManyRowsInTheLoop) {
  const auto step = [](int rows, const std::string& title, const std::string& passed, const std::string& loop) {
    const std::string shape = StrCat(": float [1, ", rows, ", 512]");
    const int bytes = rows * 2048;
    return Step(StrCat("  x", shape, " at 0[", bytes,
                       " * t]\n  w: float [512, 512] at 1\n  b: float [512] at 2\n  h_prev", shape, " at 3[", bytes,
                       " * t]\n", title, "  p.1", shape, passed, " = FC(x, w, b) @0 {arg { name: \"axis\" i: 2 }}\n",
                       loop, "  s.1", shape, " = Sum(p.1, h_prev) @1 {}\n  h.1", shape, " at 3[", bytes,
                       " * (t + 1)] = Tanh(s.1) @2 {}\n"));
  };
  const std::string loop = "  in each step:\n";
  EXPECT_EQ(After("form_stages", step(15, "", "", "")), step(15, "  for 4 steps at once:\n", " passed", loop));
  EXPECT_EQ(After("form_stages", step(33, "", "", "")), step(33, loop, "", ""));  // with fewer by the second cache
}

TEST(FormStages, CutsAnOperatorWhoseSumsCanWait) {
  const std::string inputs =
      "  x: float [1, 8] at 0[32 * t]\n"
      "  w: float [8, 8] at 1\n"
      "  dy: float [1, 8] at 2[32 * (t + 1)]\n";
  EXPECT_EQ(
      After("form_stages", "backward " + Step(inputs + "  ^dw: float [8, 8] added at 3, ^db: float [8] added at 4, "
                                                       "dx.1: float [1, 8] = FCGradient(x, w, dy) @0 {}\n"
                                                       "  ^dy: float [1, 8] added at 2[32 * t] = dx.1\n")),
      "backward " +
          Step(inputs + "  in each step:\n"
                        "  _, _, dx.1: float [1, 8] = FCGradient(x, w, dy) @0 {}\n"
                        "  ^dy: float [1, 8] added at 2[32 * t] = dx.1\n"
                        "  once for all steps:\n"
                        "  ^dw: float [8, 8] added at 3, ^db: float [8] added at 4, _ = FCGradient(x, w, dy) @0 {}\n"));
}

TEST(FormStages, SumsThatAreReadBehindAllStepsLeaveTheLoop) {
  const std::string inputs =
      "  before the first step:\n"
      "  dw.1 = zero\n"
      "  x: float [1, 8] at 0[32 * t]\n"
      "  w: float [8, 8] at 1\n"
      "  dy: float [1, 8] at 2[32 * (t + 1)]\n";
  const std::string behind =
      "  once behind all steps:\n"
      "  ^dp: float [8, 8] at 3 = TanhGradient(w, dw.1) @1 {}\n";
  const std::string add_dx = "  ^dy: float [1, 8] added at 2[32 * t] = dx.1\n", loop = "  in each step:\n";
  EXPECT_EQ(After("form_stages", "backward " + Step(inputs + loop +
                                                    "  dw.1: float [8, 8] added summed, _, dx.1: float [1, 8] = "
                                                    "FCGradient(x, w, dy) @0 {}\n" +
                                                    add_dx + behind)),
            "backward " + Step(inputs + loop + "  _, _, dx.1: float [1, 8] = FCGradient(x, w, dy) @0 {}\n" + add_dx +
                               "  once for all steps:\n"
                               "  dw.1: float [8, 8] added summed, _, _ = FCGradient(x, w, dy) @0 {}\n" +
                               behind));
}

// The product comes last then, in place of the other term of the sum.
TEST(FormStages, WhatRunsBehindAllStepsReadsTheTermThatComesLast) {
  const auto inputs_with = [](const std::string& first_term) {
    return "  before the first step:\n  " + first_term + " = zero\n" +
           "  x: float [1, 8] at 0[32 * t]\n"
           "  w: float [8, 8] at 1\n"
           "  dy: float [1, 8] at 2[32 * (t + 1)]\n"
           "  r: float [2, 8, 8] at 4[512 * t]\n";
  };
  const auto behind = [](const std::string& sum) {
    return StrCat("  once behind all steps:\n  ^dp: float [8, 8] at 3 = TanhGradient(w, ", sum,
                  ") @2 {}\n  at the end: no dw\n");
  };
  const std::string loop = "  in each step:\n", product = " = FCGradient(x, w, dy) @0 {}\n";
  const std::string add_dx = "  ^dy: float [1, 8] added at 2[32 * t] = dx.1\n";
  EXPECT_EQ(After("form_stages",
                  "backward " +
                      Step(StrCat(inputs_with("dw.1"), loop, "  dw.1: float [8, 8] added summed, _, dx.1: float [1, 8]",
                                  product, add_dx, "  dw.2: float [8, 8] added in dw.1 = SumReduceLike(r, w) @1 {}\n",
                                  behind("dw.2")))),
            "backward " + Step(StrCat(inputs_with("dw.2"), loop, "  _, _, dx.1: float [1, 8]", product, add_dx,
                                      "  dw.2: float [8, 8] added summed = SumReduceLike(r, w) @1 {}\n",
                                      "  once for all steps:\n  dw.1: float [8, 8] added in dw.2, _, _", product,
                                      behind("dw.1"))));
}

// No bytes say so; the order of the program does.
TEST(FormStages, ReadersOfAnEmptyValueComeBehindWhatGivesIt) {
  const std::string inputs =
      "  h_prev: float [1, 2, 16] at 0[128 * t]\n"
      "  encoder: float [0, 2, 16] at 1\n"
      "  u: float [16, 16] at 2\n";
  const std::string loop =
      "  query.1: float [1, 2, 16] = FC(h_prev, u) @0 {arg { name: \"axis\" i: -1 }}\n"
      "  query.2: float [2, 1, 16] = Transpose(query.1) @1 {arg { name: \"axes\" ints: 1 ints: 0 ints: 2 }}\n"
      "  values.1: float [2, 0, 16] = Transpose(encoder) @2 {arg { name: \"axes\" ints: 1 ints: 0 ints: 2 }}\n"
      "  scores.1: float [2, 1, 0] = BatchMatMul(query.2, values.1) @3 {arg { name: \"trans_b\" i: 1 }}\n"
      "  of_values.1: float [2, 1, 0] = Softmax(scores.1) @4 {arg { name: \"axis\" i: -1 }}\n"
      "  weights.1: float [1, 2, 0] = Transpose(of_values.1) @5 {arg { name: \"axes\" ints: 1 ints: 0 ints: 2 }}\n"
      "  ^weights: float [1, 2, 0] at 3[0 * t] = weights.1\n"
      "  context.1: float [2, 1, 16] = BatchMatMul(of_values.1, values.1) @6 {}\n"
      "  h.1: float [1, 2, 16] at 0[128 * (t + 1)] = Transpose(context.1) @7 {arg { name: \"axes\" ints: 1 ints: 0 "
      "ints: 2 }}\n";
  EXPECT_EQ(After("form_stages", Step(inputs + loop)), Step(inputs + "  in each step:\n" + loop));
}

// Whose bytes nobody reads. q, which has rows of all steps, could else come before the loop that gives e.
TEST(FormStages, ReadersOfAShapeComeBehindWhatGivesTheValue) {
  const std::string loop =
      "  e.1: float [1, 1, 8] = Sum(x, h_prev) @0 {}\n"
      "  h.1: float [1, 1, 8] at 3[32 * (t + 1)] = Tanh(e.1) @1 {}\n";
  const std::string reader = "  r.1: float [1, 1, 8]";
  const std::string product = "  q.1: float [1, 1, 8] passed = FC(r.1, w) @3 {arg { name: \"axis\" i: 2 }}\n";
  EXPECT_EQ(After("form_stages", Step(kInputs + loop + reader + " = SumReduceLike(x, e.1) @2 {}\n" + product)),
            Step(kInputs + ("  in each step:\n" + loop) + reader + " passed = SumReduceLike(x, e.1) @2 {}\n" +
                 "  for 64 steps at once:\n" + product));
}

}  // namespace
}  // namespace stepnet
