// The picture of a learning curve: whatever a text is called, it is a title and nothing else.
#include "stepnet/tools/rnn_runner/learning_curve.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>

#include "stepnet/core/error.h"
#include "stepnet/tests/core/temp_dir.h"

namespace stepnet::runner {
namespace {

constexpr const char* kCsv =
    "iteration,loss,bits_per_character,learning_rate,gradient_norm,validation_bits\n"
    "1,1,1.44269504,0.1,,\n2,0.75,1.08202128,0.1,,1.75\n";

class LearningCurve : public testing::Test {
 protected:
  void SetUp() override {
    if (std::system("gnuplot --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "there is no gnuplot";
    dir_.Put("metrics.csv", kCsv);
  }
  // Whether a picture was drawn, and nothing else done.
  bool Draws(const std::string& title) {
    const bool is_drawn = DrawLearningCurve(dir_.Path("metrics.csv"), dir_.Path("curve.png"), title);
    EXPECT_EQ(dir_.Names().size(), 2u) << "after the title " << title;
    return is_drawn && dir_.Get("curve.png").starts_with("\x89PNG");
  }
  TempDir dir_;
};

TEST_F(LearningCurve, IsDrawn) { EXPECT_TRUE(Draws("input.txt")); }

TEST_F(LearningCurve, TitlesAreNeverCommands) {
  const std::string touch = "touch " + dir_.Path("pwned");
  EXPECT_TRUE(Draws("a\n!" + touch + "\n#"));
  EXPECT_TRUE(Draws("a'\nsystem('" + touch + "')\n#"));
  EXPECT_TRUE(Draws("a\r!" + touch + "\r"));
  EXPECT_TRUE(Draws("a' . system('" + touch + "') . '"));
  EXPECT_TRUE(Draws("`" + touch + "`"));
  EXPECT_TRUE(Draws("a\\"));
  EXPECT_TRUE(Draws(std::string("a\0b @c $d {/Symbol e}", 22)));
}

TEST_F(LearningCurve, PathsAreNeverCommands) {
  EXPECT_TRUE(DrawLearningCurve(dir_.Path("metrics.csv"), dir_.Path("|touch it's"), "a"));
  EXPECT_EQ(dir_.Names().size(), 2u);
}

// Gnuplot says nothing of a picture that it cannot write to its end.
TEST_F(LearningCurve, ThatWasCutIsNone) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit = {.rlim_cur = 4096, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  std::string message;
  try {
    DrawLearningCurve(dir_.Path("metrics.csv"), dir_.Path("curve.png"), "input.txt");
  } catch (const Error& error) {
    message = error.what();
  }
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(message, "input/output error: cannot write " + dir_.Path("curve.png") +
                         ": the picture that gnuplot drew has no end; is there space for temporary files?");
  EXPECT_EQ(dir_.Names().size(), 1u);
}

}  // namespace
}  // namespace stepnet::runner
