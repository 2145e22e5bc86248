// Arguments that do not go together are found when a net is checked, not when shapes are known.
#include <google/protobuf/text_format.h>

#include "op_test.h"
#include "stepnet/core/strings.h"
#include "stepnet/nets/net_check.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

std::vector<std::string> Messages(const std::string& op) {
  NetDef net;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString("op { " + op + " }", &net)) << op;
  std::vector<std::string> messages;
  for (const NetProblem& problem : CheckNet(net)) messages.push_back(problem.message);
  return messages;
}

TEST(ArgumentChecks, FindWhatDoesNotGoTogether) {
  const auto expect = [](const std::string& op, const std::string& message) {
    EXPECT_EQ(Messages(op), std::vector<std::string>{message}) << op;
  };
  const std::string binary = "input: 'a' input: 'b' output: 'c' arg { name: 'axis' i: 1 }";
  for (const char* type : {"Add", "Mul", "EQ", "LT", "And"}) {
    expect(StrCat("type: '", type, "' ", binary), StrCat(type, ": axis and axis_str mean nothing without broadcast=1"));
  }
  expect("type: 'Slice' input: 'x' output: 'y'",
         "Slice needs starts and ends, either both as arguments or both as inputs");
  expect("type: 'SliceGradient' input: 'x' input: 'dy' output: 'dx'",
         "SliceGradient needs starts and ends, either both as arguments or both as inputs");
  expect("type: 'Cast' input: 'x' output: 'y' arg { name: 'to' s: 'flaot' }",
         "Cast: to is \"flaot\", must name one of float, double, float16, bfloat16, int8, int16, int32, int64, uint8, "
         "uint16, bool");
  expect("type: 'DropoutGrad' input: 'dy' output: 'dx' arg { name: 'ratio' f: 0.5 }",
         "DropoutGrad needs the mask as a second input, or is_test");
  expect("type: 'Split' input: 'x' input: 's' output: 'y' output: 'z' arg { name: 'split' ints: 1 ints: 1 }",
         "Split has its sizes both as an input and as the argument split");
  expect("type: 'ConstantFill' input: 'x' output: 'y' arg { name: 'shape' ints: 2 }",
         "ConstantFill has its shape both as an argument and as an input");
  expect("type: 'Conv' input: 'x' input: 'w' output: 'y' arg { name: 'kernel' i: 3 } arg { name: 'pad' i: -1 }",
         "Conv: pad is -1, must be at least 0 and fit 32 bits");
}

TEST(ArgumentChecks, LeaveTheRestToTheShapes) {
  EXPECT_TRUE(
      Messages("type: 'Add' input: 'a' input: 'b' output: 'c' arg { name: 'axis' i: 1 } arg { name: 'broadcast' "
               "i: 1 }")
          .empty());
  EXPECT_TRUE(Messages("type: 'Slice' input: 'x' input: 's' input: 'e' output: 'y'").empty());
  EXPECT_TRUE(Messages("type: 'ConstantFill' input: 'x' output: 'y'").empty());
}

}  // namespace
}  // namespace stepnet
