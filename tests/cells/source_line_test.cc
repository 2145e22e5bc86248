#include "stepnet/cells/source_line.h"

#include "stepnet/core/strings.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

TEST(SourceLine, PutsACaretBelowThePlace) {
  EXPECT_EQ(SourceLine("first\nsecond\nthird", 2, 4), "\n  2 | second\n    |    ^");
  EXPECT_EQ(SourceLine("first", 1, 1), "\n  1 | first\n    | ^");
  EXPECT_EQ(SourceLine(std::string(9, '\n') + "tenth", 10, 6), "\n  10 | tenth\n     |      ^");
  EXPECT_EQ(SourceLine("", 1, 1), "\n  1 | \n    | ^");
}

TEST(SourceLine, CountsCharactersAndNotBytes) {
  EXPECT_EQ(SourceLine("\t\"größe\" ^\r\n", 1, 12), "\n  1 |  \"größe\" ^\n    |          ^");
  EXPECT_EQ(SourceLine("a\x1b[31m^", 1, 7), "\n  1 | a?[31m^\n    |       ^");
}

TEST(SourceLine, ShowsThePartOfALongLineAroundThePlace) {
  const std::string line = std::string(500, 'a') + "^" + std::string(500, 'b');
  EXPECT_EQ(SourceLine(line, 1, 501),
            "\n  1 | …" + std::string(60, 'a') + "^" + std::string(29, 'b') + "…\n    | " + std::string(61, ' ') + "^");
}

TEST(SourceLine, ShowsLinesThatFitAsAWhole) {
  EXPECT_EQ(SourceLine(std::string(90, 'a'), 1, 2), "\n  1 | " + std::string(90, 'a') + "\n    |  ^");
  EXPECT_EQ(SourceLine(std::string(90, 'a'), 1, 80),
            "\n  1 | " + std::string(90, 'a') + "\n    | " + std::string(79, ' ') + "^");
  EXPECT_EQ(SourceLine(std::string(91, 'a'), 1, 2), "\n  1 | " + std::string(90, 'a') + "…\n    |  ^");
}

TEST(SourceLine, IsNothingForAPlaceThatTheTextDoesNotHave) {
  for (const auto& [line, column] : {std::pair(0, 1), {1, 0}, {1, 7}, {2, 1}}) {
    EXPECT_EQ(SourceLine("first", line, column), "") << line << ":" << column;
  }
}

}  // namespace
}  // namespace stepnet
