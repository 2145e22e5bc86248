#include "stepnet/core/index_of.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace stepnet {
namespace {

TEST(IndexOf, IsThatOfTheFirstOrMinusOne) {
  const std::vector<std::string> names = {"x", "w", "x"};
  EXPECT_EQ(IndexOf(names, "x"), 0);
  EXPECT_EQ(IndexOf(names, std::string("w")), 1);
  EXPECT_EQ(IndexOf(names, "b"), -1);
}

TEST(IndexOf, LooksAtAField) {
  struct Named {
    std::string name;
  };
  EXPECT_EQ(IndexOf(std::vector<Named>{{"x"}, {"w"}}, "w", &Named::name), 1);
}

}  // namespace
}  // namespace stepnet
