#include "pass_case.h"

namespace stepnet {
namespace {

TEST(CopyEqualSums, CopiesWhatWasNotRepeated) {
  EXPECT_EQ(After("copy_equal_sums", Step("  like: float [1, 2]\n"
                                          "  x: float [1, 2]\n"
                                          "  d.1: float [1, 2] = SumReduceLike(x, like) @0 {}\n"
                                          "  f.1: float [1, 2] = Mul(d.1, x) @1 {}\n")),
            Step("  x: float [1, 2]\n"
                 "  d.1: float [1, 2] = x\n"
                 "  f.1: float [1, 2] = Mul(d.1, x) @1 {}\n"));
}

TEST(CopyEqualSums, KeepsSumsOfWhatWasRepeated) {
  const std::string before = Step(
      "  b: float [2]\n"
      "  x: float [1, 2]\n"
      "  e.1: float [2] = SumReduceLike(x, b) @0 {}\n");
  EXPECT_EQ(After("copy_equal_sums", before), before);
}

TEST(CopyEqualSums, KeepsWhatOthersReadOfTheShapesGiver) {
  EXPECT_EQ(After("copy_equal_sums", Step("  like: float [1, 2]\n"
                                          "  x: float [1, 2]\n"
                                          "  d.1: float [1, 2] = SumReduceLike(x, like) @0 {}\n"
                                          "  f.1: float [1, 2] = Mul(d.1, like) @1 {}\n")),
            Step("  like: float [1, 2]\n"
                 "  x: float [1, 2]\n"
                 "  d.1: float [1, 2] = x\n"
                 "  f.1: float [1, 2] = Mul(d.1, like) @1 {}\n"));
}

TEST(CopyEqualSums, KeepsOperatorsOfBlobs) {
  const std::string before = Step(
      "  x: float [1, 2]\n"
      "  d.1: unknown blob = SumReduceLike(x, x) by blobs @0 {}\n");
  EXPECT_EQ(After("copy_equal_sums", before), before);
}

}  // namespace
}  // namespace stepnet
