#include "op_test.h"

namespace stepnet {
namespace {

TEST(Relu, FollowsItsFormula) { OpTest("Relu").Input("x", {4}, {-2, -0.5, 0, 3}).Gives({4}, {0, 0, 0, 3}); }

TEST(Relu, GradientMatchesDifferences) { OpTest("Relu").Random("x", {3, 5}, 7, {0}).GradientMatches(); }

TEST(Relu, AcceptsNoElements) { OpTest("Relu").Input("x", {0, 5}, {}).Gives({0, 5}, {}); }

TEST(Relu, KeepsNaN) { OpTest("Relu").Input("x", {2}, {std::nan(""), -1}).Gives({2}, {std::nan(""), 0}); }

TEST(Relu, RefusesIntegers) {
  ExpectError(
      [] {
        OpTest("Relu").Input("x", Tensor::Of<std::int32_t>({2}, {1, 2})).Run();
      },
      "type mismatch: Relu works on float, double, float16 and bfloat16; x is int32 [2]\n"
      "  at op 0 `output0 = Relu(x)` with x int32 [2]\n"
      "  in net \"test\"");
}

}  // namespace
}  // namespace stepnet
