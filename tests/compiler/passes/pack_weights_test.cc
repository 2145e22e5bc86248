#include "pass_case.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

constexpr char kInputs[] =
    "  h_prev: float [1, 64] at 0[256 * t]\n"
    "  w: float [64, 64] at 1\n"
    "  b: float [64] at 2\n";
constexpr char kProduct[] = "  h.1: float [1, 64] at 0[256 * (t + 1)] = FC(h_prev, w, b) @0 {}\n";

std::string Product(const std::string& more) { return Step(std::string(kInputs) + kProduct + more); }

TEST(PackWeights, PacksOnceBeforeTheFirstStep) {
  EXPECT_EQ(After("pack_weights", Product("")),
            Step(std::string(kInputs) +
                 "  once for all steps, in runs of 16 steps or more:\n"
                 "  ^\"w packed\": uint8 [16384] once = packed w for @0\n"
                 "  in each step:\n"
                 "  h.1: float [1, 64] at 0[256 * (t + 1)] = FC(h_prev, w, b) with ^\"w packed\" @0 {}\n"));
}

// As substeps of a solver do.
TEST(PackWeights, EqualProductsReadThePackedOnesOfTheFirst) {
  const std::string given = "  h_prev: float [1, 64] at 0[256 * t]\n  w: float [64, 64] at 1\n";
  const auto products = [](const char* packed, const char* last) {
    return StrCat("  a.1: float [1, 64] = FC(h_prev, w)", packed, " @0 {}\n  b.1: float [1, 64] = FC(a.1, w)", packed,
                  " @1 {}\n  h.1: float [1, 64] at 0[256 * (t + 1)] = ", last);
  };
  const auto packed = [](const char* more) {
    return StrCat("  once for all steps, in runs of 16 steps or more:\n",
                  "  ^\"w packed\": uint8 [16384] once = packed w for @0\n", more, "  in each step:\n");
  };
  const std::string with = " with ^\"w packed\"";
  EXPECT_EQ(After("pack_weights", Step(given + products("", "FC(b.1, w) @2 {}\n"))),
            Step(given + packed("") + products(with.c_str(), "FC(b.1, w) with ^\"w packed\" @2 {}\n")));
  // Other arguments, another operator.
  EXPECT_EQ(After("pack_weights", Step(given + products("", "FCTransposed(b.1, w) @2 {}\n"))),
            Step(given + packed("  ^\"w packed\".1: uint8 [16384] once = packed w for @2\n") +
                 products(with.c_str(), "FCTransposed(b.1, w) with ^\"w packed\".1 @2 {}\n")));
}

TEST(PackWeights, LeavesWhatTakesManyStepsAtOnce) {
  const std::string before = Step(std::string(kInputs) +
                                  "  for 64 steps at once:\n"
                                  "  a.1: float [1, 64] kept = FC(h_prev, w, b) @0 {}\n"
                                  "  in each step:\n"
                                  "  h.1: float [1, 64] at 3[256 * (t + 1)] = Tanh(a.1) @1 {}\n");
  EXPECT_EQ(After("pack_weights", before), before);
}

TEST(PackWeights, LeavesWeightsThatTheStepWrites) {
  const std::string before = Product("  w.1: float [64, 64] at 1 = Tanh(w) @1 {}\n");
  EXPECT_EQ(After("pack_weights", before), before);
}

}  // namespace
}  // namespace stepnet
