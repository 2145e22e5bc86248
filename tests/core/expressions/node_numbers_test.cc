#include "stepnet/core/expressions/node_numbers.h"

#include <gtest/gtest.h>

#include <vector>

#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

TEST(NodeNumbers, KeepTheFirstNumberOfEachOfManyNodes) {
  std::vector<Expr> exprs;
  for (int i = 0; i < 1000; ++i) exprs.push_back(Expr::Input(i, StrCat("x", i), DType::kFloat));
  NodeNumbers numbers;
  EXPECT_EQ(numbers.Find(exprs[0].node()), -1);
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(numbers.Add(exprs[i].node(), i + 7)) << i;
    ASSERT_FALSE(numbers.Add(exprs[i].node(), 3)) << i;
    ASSERT_EQ(numbers.Find(exprs[999].node()), i == 999 ? 1006 : -1) << i;
    for (int k = 0; k <= i; k += 37) ASSERT_EQ(numbers.Find(exprs[k].node()), k + 7) << i;
  }
}

}  // namespace
}  // namespace stepnet
