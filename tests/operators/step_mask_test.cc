#include "op_test.h"
#include "stepnet/nets/gradient.h"

namespace stepnet {
namespace {

TEST(StepMask, MarksTheStepsOfEachSequence) {
  const Tensor expected = Tensor::Of<bool>({3, 4}, {true, true, false, true,   //
                                                    true, false, false, true,  //
                                                    true, false, false, false});
  OpTest("StepMask")
      .Random("x", {3, 4, 5}, 1)
      .Input("lengths", Tensor::Of<std::int32_t>({4}, {3, 1, 0, 2}))
      .GivesExactly(expected);
  OpTest("StepMask")
      .Input("x", Tensor::Zeros(DType::kString, {3, 4}))
      .Input("lengths", Tensor::Of<std::int64_t>({4}, {3, 1, 0, 2}))
      .GivesExactly(expected);
}

TEST(StepMask, AcceptsNoStepsAndNoSequences) {
  OpTest("StepMask")
      .Random("x", {0, 2, 5}, 1)
      .Input("lengths", Tensor::Of<std::int32_t>({2}, {0, 3}))  // looked at for each step
      .GivesExactly(Tensor::Of<bool>({0, 2}, std::vector<bool>()));
  OpTest("StepMask")
      .Random("x", {2, 0, 5}, 1)
      .Input("lengths", Tensor::Of<std::int32_t>({0}, std::vector<std::int32_t>()))
      .GivesExactly(Tensor::Of<bool>({2, 0}, std::vector<bool>()));
}

TEST(StepMask, GivesItsInputsNoGradient) {
  OperatorDef op;
  op.set_type("StepMask");
  op.add_input("x");
  op.add_input("n");
  op.add_output("mask");
  const OperatorGradient gradient = MakeGradient(op, {{.dense = "dmask"}});
  EXPECT_TRUE(gradient.ops.empty());
  EXPECT_TRUE(gradient.input_gradients[0].absent());
}

TEST(StepMask, RefusesBadInput) {
  const auto run = [](const Shape& x, const Tensor& lengths) {
    OpTest("StepMask").Random("x", x, 1).Input("n", lengths).Run();
  };
  ExpectError(
      [&] {
        run({3, 2}, Tensor::Of<std::int32_t>({2}, {3, 4}));
      },
      "invalid argument: element 1 of n is 4; lengths here are from 0 to 3\n"
      "  at op 0 `output0 = StepMask(x, n)` with x float [3, 2], n int32 [2]\n"
      "  in net \"test\"");
  ExpectError([&] { run({3, 2}, Tensor::Of<std::int64_t>({2}, {-1, 0})); }, "…element 0 of n is -1");
  ExpectError(
      [&] {
        run({3, 2}, Tensor::Of<std::int32_t>({1}, {1}));
      },
      "…StepMask needs lengths int32 or int64 [2]; n is int32 [1]");
  ExpectError([&] { run({3}, Tensor::Of<std::int32_t>({1}, {1})); }, "…StepMask needs x [T, B, …]; x is float [3]");
}

}  // namespace
}  // namespace stepnet
