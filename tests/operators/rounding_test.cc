#include <cmath>
#include <limits>

#include "op_test.h"

namespace stepnet {
namespace {

TEST(Rounding, GoesToWholeNumbers) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> x = {-2.5, -1.5, -0.25, 0, 0.5, 1.5, 2.5, 1e30, inf, nan};
  OpTest("Floor").Input("x", {10}, x).Gives({10}, {-3, -2, -1, 0, 0, 1, 2, 1e30, inf, nan});
  OpTest("Ceil").Input("x", {10}, x).Gives({10}, {-2, -1, 0, 0, 1, 2, 3, 1e30, inf, nan});
  OpTest("Round").Input("x", {10}, x).Gives({10}, {-2, -2, 0, 0, 0, 2, 2, 1e30, inf, nan});
}

TEST(Rounding, TakesNoElementsAndRefusesBadInput) {
  for (const char* type : {"Floor", "Ceil", "Round"}) {
    OpTest(type).Input("x", {0, 5}, {}).Gives({0, 5}, {});
    ExpectError([&] { OpTest(type).Input("x", Tensor::Of<std::int32_t>({1}, {1})).Run(); },
                StrCat("…", type, " works on float, double, float16 and bfloat16; x is int32 [1]"));
  }
}

TEST(Mod, KeepsTheSignOfXOrIsAtLeast0) {
  OpTest("Mod").Arg("divisor", 3).Input("x", {5}, {-4, -3, 0, 4.5, 7}).Gives({5}, {-1, 0, 0, 1.5, 1});
  OpTest("Mod").Arg("divisor", 3).Arg("sign_follow_divisor", 1).Input("x", {3}, {-4, -3, 5}).Gives({3}, {2, 0, 2});
  const Tensor whole = OpTest("Mod").Arg("divisor", 5).Input("x", Tensor::Of<std::int64_t>({3}, {-7, 12, 5})).Run()[0];
  EXPECT_EQ(ToDoubles(whole), (std::vector<double>{-2, 2, 0}));
}

TEST(Mod, TakesNoElementsAndRefusesBadInput) {
  OpTest("Mod").Arg("divisor", 3).Input("x", {0, 5}, {}).Gives({0, 5}, {});
  ExpectError([] { OpTest("Mod").Arg("divisor", 3).Input("x", Tensor::Of<bool>({1}, {true})).Run(); },
              "…x is bool [1]");
}

TEST(Mod, PassesItsGradientOn) {
  for (const int follows : {0, 1}) {
    const OpTest mod = OpTest("Mod").Arg("divisor", 3).Arg("sign_follow_divisor", follows);
    OpTest(mod).Input("x", {6}, {-7.5, -4, -0.5, 0.5, 4, 7.5}).GradientMatches();
  }
}

TEST(Mod, RefusesADivisorOf0) {
  const auto rounded = [](const Tensor& x, int divisor) {
    return [=] { OpTest("Mod").Arg("divisor", divisor).Input("x", x).Run(); };
  };
  ExpectError(rounded(Tensor::Of<float>({1}, {1}), 16777217), "…Mod: divisor is 16777217, which is no float");
  EXPECT_NO_THROW(rounded(Tensor::Of<double>({1}, {1}), 16777217)());
  EXPECT_NO_THROW(rounded(Tensor::Of<float>({1}, {1}), 16777218)());
  ExpectError([] { OpTest("Mod").Arg("divisor", 0).Input("x", {1}, {1}).Run(); }, "…divisor is 0, must be at least 1");
}

}  // namespace
}  // namespace stepnet
