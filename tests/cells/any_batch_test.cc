#include "stepnet/cells/any_batch.h"

#include <gtest/gtest.h>

#include "stepnet/cells/cell_expand.h"
#include "stepnet/core/strings.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

std::string Said(const std::string& message) { return OfAnyBatch(Error(ErrorCode::kShapeMismatch, message)).message(); }

TEST(AnyBatch, IsCalledB) {
  EXPECT_EQ(Said(StrCat("x is float [1, ", kAnyBatch, ", 8]")), "x is float [1, B, 8]");
  EXPECT_EQ(Said(StrCat("[", kAnyBatch * 48, "] and ", kAnyBatch, " x 2")), "[B*48] and B x 2");
  EXPECT_EQ(Said(StrCat("[", kAnyBatch + 1, ", ", 2 * kAnyBatch - 1, "]")), "[B + 1, B*2 - 1]");
}

TEST(AnyBatch, LeavesTheRestAsItIs) {
  const std::string names = StrCat("x", kAnyBatch, " and ", kAnyBatch, "_t and op 3, [5, 9223372036854775807]");
  EXPECT_EQ(Said(names), names);
  const std::string line = StrCat("the sizes differ\n  5 | size D = ", kAnyBatch);
  EXPECT_EQ(Said(line), line);
}

TEST(AnyBatch, IsThatOfPlacesToo) {
  Error error(ErrorCode::kShapeMismatch, "sizes");
  error.At({.net = "n", .op_index = 3, .op_text = "y = FC(x)", .blobs = StrCat("x float [1, ", kAnyBatch, "]")});
  EXPECT_STREQ(OfAnyBatch(error).what(),
               "shape mismatch: sizes\n  at op 3 `y = FC(x)` with x float [1, B]\n  in net \"n\"");
}

// What only some batches get right is wrong, and said of none.
TEST(AnyBatch, IsSaidOfWhatIsRightByChance) {
  const CellSource cell = ParseCell("cell c(x[3]; h[3]) {\n  h = Transpose(x, axes=[0, 2, 1])\n  output h\n}", "c");
  for (const std::int64_t batch : {0, 3}) {
    ExpectError([&] { ExpandCell(cell, {.batch = batch}); },
                "…the state \"h\" is declared as [3], which is float [1, B, 3] in a step of a batch of B, and the step "
                "writes float [1, 3, B]");
  }
}

}  // namespace
}  // namespace stepnet
