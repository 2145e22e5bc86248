#include "stepnet/core/strings.h"

#include <gtest/gtest.h>

namespace stepnet {
namespace {

TEST(Strings, Concatenates) { EXPECT_EQ(StrCat("x is ", 3, " and ", 0.5f, '!'), "x is 3 and 0.5!"); }

TEST(Strings, Joins) {
  EXPECT_EQ(Join(std::vector<int>{}, ", "), "");
  EXPECT_EQ(Join(std::vector<int>{1}, ", "), "1");
  EXPECT_EQ(Join(std::vector<std::string>{"a", "", "c"}, "/"), "a//c");
}

TEST(Strings, FindsTheNearestName) {
  const std::vector<std::string> types = {"Tanh", "Sigmoid", "FC", "RecurrentNetwork"};
  EXPECT_EQ(NearestName("Tahn", types), "Tanh");   // neighbours swapped
  EXPECT_EQ(NearestName("Tan", types), "Tanh");    // one missing
  EXPECT_EQ(NearestName("Tanhh", types), "Tanh");  // one too many
  EXPECT_EQ(NearestName("Tamh", types), "Tanh");   // one replaced
  EXPECT_EQ(NearestName("tanh", types), "Tanh");   // case
  EXPECT_EQ(NearestName("fc", types), "FC");       // case, of a short name
  EXPECT_EQ(NearestName("RecurentNetwrk", types), "RecurrentNetwork");
  EXPECT_EQ(NearestName("Relu", types), "");
  EXPECT_EQ(NearestName("Tanh", {"Tanh"}), "");  // is there already
}

TEST(Strings, FindsTheSameNameInAnyOrder) {
  EXPECT_EQ(NearestName("gate", {"gates", "date", "late", "gat"}), "date");
  EXPECT_EQ(NearestName("gate", {"gat", "late", "date", "gates"}), "date");
}

TEST(Strings, SuggestsNothingForNamesOfOtherLetters) {
  EXPECT_EQ(NearestName("x", {"y", "z"}), "");
  EXPECT_EQ(NearestName("xy", {"yz"}), "");
  EXPECT_EQ(NearestName("", {"a", ""}), "");
  EXPECT_EQ(NearestName("", {}), "");
}

TEST(Strings, GivesUpOnHugeNamesAndLists) {
  const std::string huge(100000, 'a');
  EXPECT_EQ(NearestName(huge, {huge + "b"}), "");
  EXPECT_EQ(NearestName("abc", {huge}), "");
  std::vector<std::string> many(100000, "abcd");
  EXPECT_EQ(NearestName("abcde", many), "");
}

TEST(Strings, AsksInASentence) {
  EXPECT_EQ(DidYouMean("Tahn", {"Tanh"}), "; did you mean \"Tanh\"?");
  EXPECT_EQ(DidYouMean("Relu", {"Tanh"}), "");
}

}  // namespace
}  // namespace stepnet
