#include "stepnet/tools/rnn_runner/error_text.h"

#include "stepnet/tests/operators/op_test.h"

namespace stepnet::runner {
namespace {

const char kMessage[] = "c:1:3: 'x ^ y'\x1b\n  1 | x ^ 2\n    |   ^";

TEST(ErrorText, IsPlain) {
  EXPECT_EQ(ErrorText("rnn_runner check", Error(ErrorCode::kSyntaxError, kMessage), /*in_colour=*/false),
            "rnn_runner check: syntax error: c:1:3: 'x ^ y'\\x1b\n  1 | x ^ 2\n    |   ^\n");
}

TEST(ErrorText, HasColourInTheKindOfErrorAndInTheCaret) {
  EXPECT_EQ(ErrorText("rnn_runner check", Error(ErrorCode::kSyntaxError, kMessage), /*in_colour=*/true),
            "rnn_runner check: \033[1;31msyntax error\033[0m: c:1:3: 'x ^ y'\\x1b\n  1 | x ^ 2\n    |   "
            "\033[1;31m^\033[0m\n");
}

}  // namespace
}  // namespace stepnet::runner
