#include "op_test.h"

namespace stepnet {
namespace {

TEST(SumElements, FollowsItsFormula) {
  for (const std::int64_t n : {1, 7, 100, 1000}) {
    for (const bool average : {false, true}) {
      const auto sum_of = [&](auto element) {
        return [=](const auto& in) {
          double sum = 0;
          for (const double x : in[0]) sum += element(x);
          return std::vector<double>{average ? sum / static_cast<double>(n) : sum};
        };
      };
      const int flag = average ? 1 : 0;
      OpTest("SumElements").Arg("average", flag).Random("x", {n}, 1).Follows(sum_of([](double x) { return x; }));
      OpTest("SumSqrElements").Arg("average", flag).Random("x", {n}, 1).Follows(sum_of([](double x) { return x * x; }));
    }
  }
}

TEST(SumElements, GradientMatchesDifferences) {
  for (const char* type : {"SumElements", "SumSqrElements"}) {
    for (const int average : {0, 1}) {
      OpTest(type).Arg("average", average).Random("x", {2, 3}, 1).GradientMatches();
      OpTest(type).Arg("average", average).Input("x", {0, 3}, {}).GradientMatches();
    }
  }
}

TEST(SumElements, OfNoElementsIsZero) {
  for (const char* type : {"SumElements", "SumSqrElements"}) {
    for (const int average : {0, 1}) OpTest(type).Arg("average", average).Input("x", {0, 3}, {}).Gives({}, {0});
  }
}

TEST(SumElements, RefusesBadInput) {
  ExpectError([] { OpTest("SumElements").Input("x", Tensor::Of<std::int32_t>({1}, {1})).Run(); },
              "type mismatch: SumElements works on float, double, float16 and bfloat16; x is int32 [1]\n"
              "  at op 0 `output0 = SumElements(x)` with x int32 [1]\n"
              "  in net \"test\"");
  ExpectError([] { OpTest("SumElementsGradient").Random("x", {2}, 1).Random("dy", {2}, 1).Run(); },
              "…shape mismatch: SumElementsGradient needs dy like what SumElements gives, float []; dy is float [2]\n");
}

}  // namespace
}  // namespace stepnet
