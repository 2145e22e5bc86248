// The page and the text that char_lm shades.
#include "stepnet/examples/char_lm/shading.h"

#include <gtest/gtest.h>

namespace {

std::vector<SeenCharacter> Text() {
  return {{'a', 1.0f, {}},
          {'<', 0.3f, {{'"', 0.4f}, {'<', 0.3f}}},
          {'\n', 0.0005f, {{' ', 0.9f}}},
          {'b', 0.01f, {{'b', 0.01f}}}};
}

TEST(ShadedText, PutsMarksUnderTheCharactersWhereThereAreNoColors) {
  EXPECT_EQ(ShadedText(Text(), ColorMode::kNone), "a<\n .#\nb\no\n");
}

TEST(ShadedText, ChangesColorWhereTheLevelChanges) {
  const std::vector<SeenCharacter> text = {{'a', 1, {}}, {'b', 0.5f, {}}, {'c', 0.4f, {}}, {'\n', 0.4f, {}}};
  EXPECT_EQ(ShadedText(text, ColorMode::k256), "\x1b[38;5;231;48;5;22mab\x1b[38;5;231;48;5;58mc \x1b[0m\n");
}

TEST(ShadedPage, HoldsTheTextWithWhatWasExpected) {
  const std::string page = ShadedPage(Text(), "a & b");
  EXPECT_NE(page.find("<h1>a &amp; b</h1>"), std::string::npos) << page;
  EXPECT_NE(page.find("<pre><span class=\"l0\" title=\"a 100%\">a</span>"
                      "<span class=\"l1\" title=\"&lt; 30%; expected &quot; 40% &lt; 30%\">&lt;</span>"
                      "<span class=\"l5\" title=\"\\n 0.05%; expected space 90%\"><i>↵</i></span>\n"
                      "<span class=\"l3\" title=\"b 1%; expected b 1%\">b</span></pre>"),
            std::string::npos)
      << page;
}

}  // namespace
