// What names look like where people read them.
#include "stepnet/core/printable.h"

#include <gtest/gtest.h>

namespace stepnet {
namespace {

TEST(Printable, KeepsTextOfAnyLanguage) {
  for (const std::string text : {"", "plain", "Größe", "日本語", "🙂", "a\\b\"c'", "x\ny"})
    EXPECT_EQ(Printable(text), text);
}

TEST(Printable, EscapesWhatDrivesATerminal) {
  EXPECT_EQ(Printable("a\x1b[2Jb\r\t\x7f"), "a\\x1b[2Jb\\x0d\\x09\\x7f");
  EXPECT_EQ(Printable(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(Printable("\xc2\x9b"
                      "2J"),
            "\\xc2\\x9b2J")
      << "the control characters beyond ASCII";
}

TEST(Printable, EscapesWhatHidesWhatStandsThere) {
  EXPECT_EQ(Printable("\xe2\x80\xae"
                      "cba"),
            "\\xe2\\x80\\xaecba")
      << "right to left";
  EXPECT_EQ(Printable("\xe2\x81\xa6"), "\\xe2\\x81\\xa6");
  EXPECT_EQ(Printable("\xe2\x80\xa8"), "\\xe2\\x80\\xa8") << "another end of a line";
}

TEST(Printable, EscapesWhatIsNoUtf8) {
  EXPECT_EQ(Printable("\xff\xfe"), "\\xff\\xfe");
  EXPECT_EQ(Printable("a\xc3"), "a\\xc3") << "cut off";
  EXPECT_EQ(Printable("\xc3("), "\\xc3(");
  EXPECT_EQ(Printable("\xc0\x9b"), "\\xc0\\x9b") << "longer than need be";
  EXPECT_EQ(Printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "half of a pair of UTF-16";
  EXPECT_EQ(Printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "beyond the last character";
}

TEST(Printable, EscapesWhatNobodySees) {
  for (const std::uint32_t code :
       {0xadU,   0x61cU,  0x180eU, 0x200bU, 0x200eU, 0x200fU, 0x2028U, 0x202aU,  0x202eU,  0x2060U,  0x2064U,
        0x2066U, 0x2069U, 0x206aU, 0x206fU, 0xfeffU, 0xfff9U, 0xfffbU, 0x1d173U, 0xe0001U, 0xe0041U, 0xe007fU}) {
    EXPECT_TRUE(DrivesTerminals(code)) << std::hex << code;
  }
  for (const std::uint32_t code :
       {0x20U, 0xa0U, 0x600U, 0x61dU, 0x200cU, 0x200dU, 0x2010U, 0x202fU, 0xfffcU, 0xe0100U}) {
    EXPECT_FALSE(DrivesTerminals(code)) << std::hex << code;
  }
  EXPECT_EQ(Printable("a\xe2\x80\x8b"), "a\\xe2\\x80\\x8b");
  EXPECT_EQ(Printable("\xf3\xa0\x81\x81"), "\\xf3\\xa0\\x81\\x81");
}

TEST(Printable, NamesOfFilesStayInTheirFolder) {
  EXPECT_EQ(FileNameOf("../scope/x\x1b[31m\n"), "..__scope__x\\x1b[31m\\x0a");
}

TEST(Printable, StringsOfDotEndWhereTheyShall) {
  EXPECT_EQ(DotText(R"(y = "a\b")"), R"("y = \"a\\b\"")");
  EXPECT_EQ(DotText("a\x1b\nb"), R"("a\\x1b\\x0ab")");
}

TEST(Printable, ALineHasNoLineFeed) { EXPECT_EQ(PrintableLine("a\nb"), "a\\x0ab"); }

}  // namespace
}  // namespace stepnet
