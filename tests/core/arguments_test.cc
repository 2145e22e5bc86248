#include "stepnet/core/arguments.h"

#include <cmath>
#include <limits>

#include "stepnet/core/number_text.h"
#include "stepnet/core/operator.h"
#include "stepnet/io/proto_io.h"
#include "stepnet/proto/net.pb.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

const Registration every_argument = Operator("test.EveryArgument")
                                        .Arg("float", 0.5f, "", AtLeast(0))
                                        .Arg("int", 3, "", Between(-2, 5))
                                        .Arg("bool", true, "")
                                        .Arg("string", "a", "", OneOf({"a", "b"}))
                                        .Arg("floats", std::vector<float>{1, 2}, "")
                                        .Arg("ints", std::vector<std::int64_t>{4}, "", AtLeast(1))
                                        .Arg("strings", std::vector<std::string>{"x"}, "")
                                        .NumberArg("number", 7, "", AtLeast(1))
                                        .NetArg("net", "")
                                        .Arg("*.rename", "", "");

const Registration number_argument = Operator("test.NumberArgument").NumberArg("tenth", 0.1, "");

const Registration required_argument =
    Operator("test.RequiredArgument").RequiredArg("axis", ArgumentType::kInt, "the dimension to work along");

OperatorCall Init(const std::string& arguments, const std::string& type = "test.EveryArgument") {
  OperatorDef def;
  ParseMessageText("type: '" + type + "' " + arguments, "test", &def);
  return OperatorCall(def);
}

void Refuses(const std::string& argument, const std::string& message) {
  ExpectError([&] { Init("arg { " + argument + " }"); }, "invalid argument: test.EveryArgument" + message);
}

TEST(Arguments, HaveDefaults) {
  const OperatorCall op = Init("");
  EXPECT_EQ(op.Float("float"), 0.5f);
  EXPECT_EQ(op.Int("int"), 3);
  EXPECT_TRUE(op.Bool("bool"));
  EXPECT_EQ(op.String("string"), "a");
  EXPECT_EQ(op.Floats("floats"), (std::vector<float>{1, 2}));
  EXPECT_EQ(op.Ints("ints"), std::vector<std::int64_t>{4});
  EXPECT_EQ(op.Strings("strings"), std::vector<std::string>{"x"});
  EXPECT_EQ(op.Number("number"), 7);
  EXPECT_EQ(Init("", "test.NumberArgument").Number("tenth"), 0.1) << "with all digits of a double";
  EXPECT_EQ(op.Net("net"), nullptr);
  EXPECT_FALSE(op.HasArg("float"));
}

TEST(Arguments, AreReadFromTheirFields) {
  const OperatorCall op = Init(
      "arg { name: 'float' f: 1.5 } arg { name: 'int' i: -2 } arg { name: 'bool' i: 0 } arg { name: 'string' s: 'b' } "
      "arg { name: 'floats' floats: [3, 4] } arg { name: 'ints' ints: [5, 6] } arg { name: 'strings' strings: ['p', "
      "''] "
      "} arg { name: 'number' f: 2.5 } arg { name: 'net' n { name: 'inner' } } arg { name: 'x.rename' s: 'y' }");
  EXPECT_EQ(op.Float("float"), 1.5f);
  EXPECT_EQ(op.Int("int"), -2);
  EXPECT_FALSE(op.Bool("bool"));
  EXPECT_EQ(op.String("string"), "b");
  EXPECT_EQ(op.Floats("floats"), (std::vector<float>{3, 4}));
  EXPECT_EQ(op.Ints("ints"), (std::vector<std::int64_t>{5, 6}));
  EXPECT_EQ(op.Strings("strings"), (std::vector<std::string>{"p", ""}));
  EXPECT_EQ(op.Number("number"), 2.5);
  EXPECT_EQ(op.Net("net")->name(), "inner");
  EXPECT_EQ(op.String("x.rename"), "y");
  EXPECT_TRUE(op.HasArg("float"));
}

TEST(Arguments, WholeNumbersServeAsFloats) {
  EXPECT_EQ(Init("arg { name: 'float' i: 2 }").Float("float"), 2);
  EXPECT_EQ(Init("arg { name: 'number' i: 9007199254740993 }").Number("number"), 9007199254740992.0);
  EXPECT_EQ(Init("arg { name: 'floats' ints: [2, 3] }").Floats("floats"), (std::vector<float>{2, 3}));
}

TEST(Arguments, EmptyListsAreWrittenWithoutAField) {
  const OperatorCall op = Init("arg { name: 'ints' } arg { name: 'strings' } arg { name: 'floats' }");
  EXPECT_TRUE(op.Ints("ints").empty());
  EXPECT_TRUE(op.Strings("strings").empty());
  EXPECT_TRUE(op.Floats("floats").empty());
}

TEST(Arguments, WrongFieldsAreErrorsNotDefaults) {
  Refuses("name: 'int' f: 2.5", ": int is 2.5, of type float (f), must be of type int (i)");
  Refuses("name: 'int' s: '2'", ": int is \"2\", must be of type int (i)");
  Refuses("name: 'int'", ": int is nothing, must be of type int (i)");
  Refuses("name: 'float' s: 'x'", ": float is \"x\", must be of type float (f)");
  Refuses("name: 'bool' f: 1", ": bool is 1, of type float (f), must be of type bool (i)");
  Refuses("name: 'string' i: 1", ": string is 1, of type int (i), must be of type string (s)");
  Refuses("name: 'ints' floats: [1, 2]", ": ints is [1, 2], of type floats, must be of type ints");
  Refuses("name: 'ints' i: 1", ": ints is 1, of type int (i), must be of type ints");
  Refuses("name: 'floats' f: 1", ": floats is 1, of type float (f), must be of type floats");
  Refuses("name: 'strings' s: 'x'", ": strings is \"x\", must be of type strings");
  Refuses("name: 'strings' ints: 1", ": strings is [1], of type ints, must be of type strings");
  Refuses("name: 'number' strings: ['x', 'y']", ": number is [\"x\", \"y\"], must be of type number (f or i)");
  Refuses("name: 'net' i: 1", ": net is 1, of type int (i), must be of type net (n)");
  Refuses("name: 'float' n { }", ": float is a net, must be of type float (f)");
}

TEST(Arguments, ValuesKeepTheirBounds) {
  Refuses("name: 'float' f: -0.5", ": float is -0.5, must be at least 0");
  Refuses("name: 'float' f: nan", ": float is NaN");
  Refuses("name: 'int' i: 6", ": int is 6, must be between -2 and 5");
  Refuses("name: 'int' i: -3", ": int is -3, must be between -2 and 5");
  Refuses("name: 'bool' i: 2", ": bool is 2, must be 0 or 1");
  Refuses("name: 'string' s: 'c'", ": string is \"c\", must be one of a, b");
  Refuses("name: 'ints' ints: [1, 0]", ": ints is 0, must be at least 1");
  Refuses("name: 'number' i: 0", ": number is 0, must be at least 1");
  EXPECT_EQ(Init("arg { name: 'float' f: inf }").Float("float"), std::numeric_limits<float>::infinity());
}

TEST(Arguments, WholeNumbersAreShownWithAllTheirDigits) {
  Refuses("name: 'int' i: 4294967296", ": int is 4294967296, must be between -2 and 5");
  Refuses("name: 'ints' ints: -9223372036854775807", ": ints is -9223372036854775807, must be at least 1");
  Refuses("name: 'number' f: -0.5", ": number is -0.5, must be at least 1");
  EXPECT_EQ(NumberText(4294967295.0), "4294967295");
  EXPECT_EQ(NumberText(-2147483648.0), "-2147483648");
  EXPECT_EQ(NumberText(0), "0");
  EXPECT_EQ(NumberText(0.25), "0.25");
  EXPECT_EQ(NumberText(1e300), "1e+300");
  EXPECT_EQ(NumberText(std::numeric_limits<double>::infinity()), "inf");
}

TEST(Arguments, UnknownNamesAreErrorsWithTheNearestName) {
  Refuses("name: 'flaot' f: 1", " has no argument \"flaot\"; did you mean \"float\"?");
  const std::string names = "; it has float, int, bool, string, floats, ints, strings, number, net, *.rename";
  Refuses("name: 'else' f: 1", " has no argument \"else\"" + names);
  Refuses("f: 1", " has no argument \"\"" + names);
}

TEST(Arguments, HintsForCaffe2sBackEndsAreAccepted) {
  EXPECT_NO_THROW(
      Init("arg { name: 'use_cudnn' i: 1 } arg { name: 'order' s: 'NCHW' } arg { name: 'init_params' i: 1 }"));
}

TEST(Arguments, TheSameTwiceIsFineAndOtherwiseAnError) {
  EXPECT_EQ(Init("arg { name: 'int' i: 1 } arg { name: 'int' i: 1 }").Int("int"), 1);
  Refuses("name: 'int' i: 1 } arg { name: 'int' i: 2", " has the argument \"int\" twice, with different values");
  Refuses("name: 'int' i: 1 f: 1", " has values of several kinds for the argument \"int\"");
}

TEST(Arguments, RequiredOnesAreAskedFor) {
  ExpectError([] { Init("", "test.RequiredArgument"); },
              "invalid argument: test.RequiredArgument needs the argument \"axis\": the dimension to work along");
  EXPECT_EQ(Init("arg { name: 'axis' i: 1 }", "test.RequiredArgument").Int("axis"), 1);
}

TEST(Arguments, UndeclaredOnesAreABugOfTheOperator) {
  const OperatorCall op = Init("");
  ExpectError([&] { op.Int("float"); },
              "internal error: test.EveryArgument reads an argument \"float\" of type int, and declares it as float, "
              "as its default 0.5 is");
  ExpectError([&] { op.String("none"); },
              "internal error: test.EveryArgument reads an argument \"none\" of type string, and declares none");
  ExpectError(
      [&] { op.Number("int"); },
      "internal error: test.EveryArgument reads an argument \"int\" of type number, and declares it as int, as its "
      "default 3 is; the default 3.0f makes it a number");
}

TEST(Arguments, LongTextIsCutInMessages) {
  Refuses("name: 'string' s: '" + std::string(1000, 'x') + "'",
          ": string is \"" + std::string(80, 'x') + "…\", must be one of a, b");
}

TEST(Arguments, TypesHaveNames) {
  EXPECT_STREQ(ArgumentTypeName(ArgumentType::kFloat), "float");
  EXPECT_STREQ(ArgumentTypeName(ArgumentType::kNumber), "number");
  EXPECT_STREQ(ArgumentTypeName(ArgumentType::kStrings), "strings");
}

TEST(OperatorCall, IdentifiesAnOperatorForRandomNumbers) {
  const auto id = [](const std::string& text) { return Init(text).random_id(); };
  EXPECT_EQ(id("output: 'y'"), id("output: 'y' arg { name: 'int' i: 1 }"));
  EXPECT_NE(id("output: 'y'"), id("output: 'z'"));
  EXPECT_NE(id("output: ['a', 'b']"), id("output: 'ab'"));
  EXPECT_NE(id("output: 'y'"), Init("output: 'y' arg { name: 'axis' i: 1 }", "test.RequiredArgument").random_id());
  EXPECT_EQ(Init("device_option { random_seed: 5 }").seed(), 5u);
  OperatorDef def;
  def.set_type("test.EveryArgument");
  EXPECT_EQ(OperatorCall(def, {.seed = 9}).seed(), 9u);
}

TEST(OperatorCall, PrintsTheOperator) {
  EXPECT_EQ(Init("input: ['x', 'w'] output: ['y', 'z']").Text(), "y, z = test.EveryArgument(x, w)");
  EXPECT_EQ(Init("").Text(), "test.EveryArgument()");
}

}  // namespace
}  // namespace stepnet
