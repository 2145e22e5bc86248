#include "op_test.h"

namespace stepnet {
namespace {

TEST(AddGradient, AddsInPlace) {
  OpTest("AddGradient")
      .Input("sum", {3}, {1, -2, 0})
      .Input("gradient", {3}, {0.5, 2, -3})
      .InPlace(0, 0)
      .Gives({3}, {1.5, 0, -3});
  OpTest("AddGradient")
      .Random("sum", {3, 700}, 1)
      .Random("gradient", {3, 700}, 2)
      .InPlace(0, 0)
      .Follows([](const auto& in) {
        std::vector<double> sum;
        for (size_t i = 0; i < in[0].size(); ++i) sum.push_back(in[0][i] + in[1][i]);
        return sum;
      });
}

TEST(AddGradient, AcceptsNoElements) {
  OpTest("AddGradient").Input("sum", {0, 2}, {}).Input("gradient", {0, 2}, {}).InPlace(0, 0).Gives({0, 2}, {});
}

// Add would repeat the rows of the one, or of the other.
TEST(AddGradient, RefusesAnotherShapeOrType) {
  for (const Shape& shape : {Shape({3}), Shape({1, 3}), Shape({2, 3, 1}), Shape({})}) {
    ExpectError(
        [&] {
          OpTest("AddGradient").Random("w_grad", shape, 1).Random("part", {2, 3}, 2).InPlace(0, 0).Run();
        },
        StrCat("…shape mismatch: gradient_requests says add for \"w_grad\", which holds float ", shape,
               " and must hold float [2, 3], as the gradient is; for a new sum fill it with zeros of that "
               "shape and type\n"));
  }
  const auto run = [](const Tensor& sum, const Tensor& gradient) {
    OpTest("AddGradient").Input("w_grad", sum).Input("part", gradient).InPlace(0, 0).Run();
  };
  ExpectError([&] { run(Tensor::Of<double>({1}, {1}), Tensor::Of<float>({1}, {1})); },
              "…type mismatch: gradient_requests says add for \"w_grad\", which holds double [1] and must hold float "
              "[1], as the gradient is; for a new sum fill it with zeros of that shape and type\n");
  ExpectError([&] { run(Tensor::Of<int>({1}, {1}), Tensor::Of<int>({1}, {1})); },
              "…AddGradient works on float, double, float16 and bfloat16; part is int32 [1]");
}

}  // namespace
}  // namespace stepnet
