#include "op_test.h"
#include "stepnet/core/formulas/formula_cache.h"
#include "stepnet/tests/executor/recurrent_case.h"

namespace stepnet {
namespace {

const std::vector<std::string> kCopies = {"Copy", "CopyFromCPUInput", "EnsureCPUOutput", "Alias", "StopGradient"};

TEST(Copy, GivesItsInput) {
  for (const std::string& type : kCopies) {
    OpTest(type).Input("x", {2, 2}, {1, 2, 3, 4}).Gives({2, 2}, {1, 2, 3, 4});
    OpTest(type).Input("x", {0, 2}, {}).Gives({0, 2}, {});
    OpTest(type).Input("x", {}, {7}).Gives({}, {7});
  }
  OpTest("CopyOnDeviceLike")
      .Input("x", {2}, {1, 2})
      .Input("like", Tensor::Of<std::int32_t>({3}, {1, 2, 3}))
      .Gives({2}, {1, 2});
}

TEST(Copy, CopiesEveryType) {
  const std::vector<Tensor> tensors = {Tensor::Of<std::string>({2}, {"a", "a long text that needs memory of its own"}),
                                       Tensor::Of<std::int64_t>({2}, {1, -2}), Tensor::Of<bool>({1}, {true})};
  for (const Tensor& x : tensors) {
    for (const std::string& type : kCopies) OpTest(type).Input("x", x).GivesExactly(x);
  }
}

TEST(Copy, GradientMatchesDifferences) {
  for (const std::string type : {"Copy", "CopyFromCPUInput", "EnsureCPUOutput", "Alias"}) {
    OpTest(type).Random("x", {2, 3}, 1).GradientMatches();
  }
  OpTest("CopyOnDeviceLike").Random("x", {2, 3}, 1).Random("like", {1}, 2).GradientMatches({}, {0});
}

// So a step keeps no elements for the gradient of a copy, which becomes part of what is around it.
TEST(Copy, GradientReadsNoElementsOfItsInput) {
  const OperatorDef def = ParseOp("dx = CopyOnDeviceLike(dy, x)");
  const OperatorCall op(def);
  const std::vector<TensorInfo> inputs(2, {.dtype = DType::kFloat, .shape = {2, 3}});
  EXPECT_TRUE(op.schema().ReadsShapeAlone(1));
  EXPECT_FALSE(op.schema().ReadsShapeAlone(0));
  EXPECT_EQ(FindParts(ShapeQuery(op, inputs))->parts.size(), 1u);
}

TEST(Copy, WorksInPlaceWhereItIsAnotherName) {
  OpTest("Alias").Input("x", {2}, {1, 2}).InPlace(0, 0).Gives({2}, {1, 2});
  OpTest("StopGradient").Input("x", {2}, {1, 2}).InPlace(0, 0).Gives({2}, {1, 2});
  ExpectError(
      [] {
        OpTest("Copy").Input("x", {2}, {1, 2}).InPlace(0, 0).Run();
      },
      "invalid net: Copy cannot work in place: \"x\" is an input and output 0\n"
      "  at op 0 `x = Copy(x)`\n"
      "  in net \"test\"");
}

TEST(Copy, BetweenDevicesNeedsAnotherDevice) {
  for (const std::string type : {"CopyCPUToGPU", "CopyGPUToCPU"}) {
    ExpectError([&] { OpTest(type).Input("x", {1}, {1}).Run(); },
                StrCat("invalid net: ", type, " has no kernel for cpu\n  at op 0 `output0 = ", type,
                       "(x)`\n  in net \"test\""));
  }
}

}  // namespace
}  // namespace stepnet
