#include "stepnet/cells/size_expression.h"

#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

const CellSizes kSizes = {{"D", 6}, {"H", 8}, {"num_heads", 2}};

using Faults = std::vector<std::pair<std::string, std::string>>;  // a text, and what is wrong with it

template <typename Reader>
void ExpectFaults(const Faults& faults, const Reader& read) {
  for (const auto& [text, message] : faults) ExpectError([&] { read(text); }, "invalid argument: " + message);
}

void ReadSize(const std::string& text) { EvaluateSize(text, kSizes); }
void ReadNumber(const std::string& text) { EvaluateNumber(text, kSizes); }

TEST(SizeExpression, FollowsArithmetic) {
  const std::vector<std::pair<std::string, std::int64_t>> cases = {
      {"7", 7},           {"H", 8},        {"4*H", 32},     {"D + H", 14},     {" H - D ", 2},
      {"H/num_heads", 4}, {"2*H + D", 22}, {"D + 2*H", 22}, {"(D + 2)*H", 64}, {"H - D - 1", 1},
      {"16/H/2", 1},      {"-D + H", 2},   {"-(D - H)", 2}, {"H*D/4", 12},     {"9223372036854775807", INT64_MAX}};
  for (const auto& [text, value] : cases) EXPECT_EQ(EvaluateSize(text, kSizes), value) << text;
}

TEST(SizeExpression, NamesEachOnceInTheirOrder) {
  EXPECT_EQ(NamesInSize("H*(D + H)/num_heads"), (std::vector<std::string>{"H", "D", "num_heads"}));
  EXPECT_EQ(NamesInSize("H/0"), (std::vector<std::string>{"H"}));  // values are not looked at
}

TEST(SizeExpression, RefusesWhatIsNone) {
  const Faults faults = {{"", "\"\" is no size: it is empty"},
                         {"4*", "\"4*\" is no size: it ends too early"},
                         {"4 H", "\"4 H\" is no size: 'H' is not expected"},
                         {"2^H", "\"2^H\" is no size: '^' is not expected"},
                         {"(H", "\"(H\" is no size: a bracket is not closed"},
                         {"H)", "\"H)\" is no size: ')' is not expected"},
                         {"1.5", "\"1.5\" is no size: '.' is not expected"},
                         {"99999999999999999999", "\"99999999999999999999\" is no size: it is too large"}};
  ExpectFaults(faults, ReadSize);
  ExpectFaults(faults, NamesInSize);
}

TEST(SizeExpression, RefusesWhatHasNoValue) {
  const Faults faults = {
      {"2*Hh", "the size Hh in \"2*Hh\" has no value; did you mean \"H\"?"},
      {"zzz", "the size zzz has no value"},
      {"D/4", "\"D/4\" is no size: 6 cannot be divided by 4"},
      {"D/(H - 8)", "\"D/(H - 8)\" is no size: it divides by 0"},
      {"9223372036854775807 + 1", "\"9223372036854775807 + 1\" is no size: it is too large"},
      {"-9223372036854775807 - 2", "\"-9223372036854775807 - 2\" is no size: it is too large"},
      {"4000000000*4000000000", "\"4000000000*4000000000\" is no size: it is too large"},
      {"-(-9223372036854775807 - 1)", "\"-(-9223372036854775807 - 1)\" is no size: it is too large"}};
  ExpectFaults(faults, ReadSize);
}

TEST(SizeExpression, ComputesNumbersThatAreNoIntegers) {
  const std::vector<std::pair<std::string, double>> cases = {{"-1/H", -0.125},
                                                             {"1.5*(D + H)/4", 5.25},
                                                             {"-1/sqrt(2*H)", -0.25},
                                                             {"sqrt(sqrt(16))*1e-1", 0.2},
                                                             {"1/-H", -0.125}};
  for (const auto& [text, value] : cases) EXPECT_DOUBLE_EQ(EvaluateNumber(text, kSizes), value) << text;
  EXPECT_EQ(NamesInNumber("D/sqrt(0.5*H - D)"), (std::vector<std::string>{"D", "H"}));
  const Faults faults = {{"1/(D - 6)", "\"1/(D - 6)\" is no number: it divides by 0"},
                         {"sqrt(D - H)", "\"sqrt(D - H)\" is no number: it takes the root of -2"},
                         {"sqrt(D", "\"sqrt(D\" is no number: a bracket is not closed"},
                         {"cos(D)", "the size cos in \"cos(D)\" has no value"},
                         {"1e30*1e30", "\"1e30*1e30\" is no number: it is beyond what a float can hold"}};
  ExpectFaults(faults, ReadNumber);
  ExpectError([] { NamesInSize("sqrt(H)"); }, "…\"sqrt(H)\" is no size: sqrt(…) is for arguments that take a float");
}

TEST(SizeExpression, DoesNotNestForEver) {
  for (const char bracket : {'(', '-'}) {
    ExpectError([&] { EvaluateSize(std::string(100'000, bracket) + "H", kSizes); }, "… is no size: it nests too deep");
  }
  EXPECT_EQ(EvaluateSize(std::string(40, '(') + "H" + std::string(40, ')'), kSizes), 8);
}

}  // namespace
}  // namespace stepnet
