#include "stepnet/tools/rnn_runner/corpus.h"

#include "stepnet/tests/core/temp_dir.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet::runner {
namespace {

using Characters = std::vector<std::string>;

TEST(SplitCharacters, TakesCodePointsOfEveryLength) {
  EXPECT_EQ(SplitCharacters("aß€𝄞\n", "text"), (Characters{"a", "ß", "€", "𝄞", "\n"}));
  EXPECT_EQ(SplitCharacters("", "text"), Characters{});
  EXPECT_EQ(SplitCharacters("\u0800\uffff\U00010000\U0010ffff", "text").size(), 4U);
}

// The Unicode Standard, table 3-7: well-formed UTF-8 byte sequences.
TEST(SplitCharacters, RefusesWhatIsNoUtf8) {
  const Characters wrong = {"\x80",
                            "\xbf",
                            "\xc0\x80",
                            "\xc1\xbf",
                            "\xc2",
                            "\xc2\x41",
                            "\xe0\x9f\xbf",
                            "\xe2\x82",
                            "\xed\xa0\x80",
                            "\xf0\x8f\xbf\xbf",
                            "\xf0\x9d\x84",
                            "\xf4\x90\x80\x80",
                            "\xf5\x80\x80\x80",
                            "\xff"};
  for (const std::string& bytes : wrong) {
    ExpectError([&] { SplitCharacters("ab\ncd" + bytes + "e", "notes.txt"); },
                "input/output error: notes.txt is not UTF-8 at byte 5 (line 2)");
  }
}

TEST(Vocabulary, IsInTheOrderOfCodePoints) {
  const Vocabulary vocabulary = Vocabulary::Of(SplitCharacters("b𝄞€aab", "text"));
  EXPECT_EQ(vocabulary.Json(), "[\"a\",\"b\",\"\\u20ac\",\"\\ud834\\udd1e\"]");
  EXPECT_EQ(vocabulary.NumberOf("€"), 2);
  EXPECT_EQ(vocabulary.character(3), "𝄞");
  ExpectError([&] { static_cast<void>(vocabulary.NumberOf("c")); },
              "invalid argument: the model does not know the character \"c\"; it knows [\"a\",\"b\",\"€\",\"𝄞\"]");
}

TEST(Vocabulary, ReadsWhatItWrites) {
  const TempDir dir;
  const Vocabulary vocabulary({"\n", "\"", "x"});
  const std::string path = dir.Put("vocabulary.json", vocabulary.Json());
  EXPECT_EQ(Vocabulary::Read(path).Json(), vocabulary.Json());
  for (const char* wrong : {"", "[]", "{", "[1]", "[\"a\", \"a\"]", "\"a\""}) {
    dir.Put("vocabulary.json", wrong);
    ExpectError([&] { Vocabulary::Read(path); }, "…is no JSON list of characters, each of them once");
  }
}

TEST(Streams, LieSideBySide) {
  const std::vector<std::int32_t> text = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  const Streams streams(text, 2);
  ASSERT_EQ(streams.length(), 4);  // 9 characters have one behind them
  std::vector<std::int32_t> tokens(4);
  std::vector<std::int32_t> targets(4);
  streams.Fill(2, 2, tokens.data(), targets.data());
  EXPECT_EQ(tokens, (std::vector<std::int32_t>{2, 6, 3, 7}));
  EXPECT_EQ(targets, (std::vector<std::int32_t>{3, 7, 4, 8}));
}

TEST(ReadCorpus, SplitsOffTheLastPart) {
  const TempDir dir;
  const Corpus corpus = ReadCorpus(dir.Put("text", "abcabcabcä"), 0.25);
  EXPECT_EQ(corpus.vocabulary.size(), 4);
  EXPECT_EQ(corpus.training().size(), 8U);
  ASSERT_EQ(corpus.validation().size(), 2U);
  EXPECT_EQ(corpus.validation()[1], 3);
}

TEST(ReadCorpus, RefusesAnEmptyFile) {
  const TempDir dir;
  const std::string path = dir.Put("text", "");
  ExpectError([&] { ReadCorpus(path, 0.1); }, "input/output error: " + path + " is empty");
}

}  // namespace
}  // namespace stepnet::runner
