#include "op_test.h"
#include "stepnet/nets/gradient.h"
#include "stepnet/nets/net.h"

namespace stepnet {
namespace {

std::vector<double> MaskOf(const OpTest& op) { return ToDoubles(op.Run()[1]); }

OpTest DropoutOf(float ratio, const Shape& x) {
  return OpTest("Dropout", 2).Arg("ratio", ratio).Seed(3).Random("x", x, 1);
}

// The mask of one run of the operator in one step, by its kernel.
std::vector<double> MaskInStep(std::int64_t step, bool same_each_step, int parts = 1) {
  OperatorDef def;
  def.set_type("Dropout");
  def.add_input("x");
  for (const char* output : {"y", "mask"}) def.add_output(output);
  def.add_arg()->set_name("same_mask_each_step");
  def.mutable_arg(0)->set_i(same_each_step ? 1 : 0);
  const OperatorCall op(def);
  const Tensor x = Tensor::Zeros(DType::kFloat, {1100});
  const Tensor y(DType::kFloat, {1100});
  const Tensor mask(DType::kBool, {1100});
  const std::vector<TensorView> inputs = {x.View()};
  const std::vector<TensorView> outputs = {y.View(), mask.View()};
  RunContext context;
  const RunFn kernel = op.schema().FindKernel(DeviceKind::kCpu)->make(op);
  for (int part = parts - 1; part >= 0; --part) {
    OpRun run(inputs, outputs, context, step);
    run.SetPart(part, parts);
    kernel(run);
  }
  return ToDoubles(mask);
}

TEST(Dropout, KeepsAndScalesWhereItsMaskIsSet) {
  const OpTest op = DropoutOf(0.25f, {7, 5});
  const std::vector<double> mask = MaskOf(op);
  op.Follows([&](const std::vector<std::vector<double>>& in) {
    std::vector<double> y;
    for (size_t i = 0; i < mask.size(); ++i) y.push_back(mask[i] != 0 ? in[0][i] / 0.75 : 0);
    return y;
  });
}

TEST(Dropout, DropsByItsRatio) {
  for (const float ratio : {0.0f, 0.1f, 0.5f, 0.99f}) {
    double kept = 0;
    for (const double bit : MaskOf(DropoutOf(ratio, {10000}))) kept += bit;
    EXPECT_NEAR(kept / 10000, 1 - ratio, ratio == 0 ? 0 : 0.015) << ratio;
  }
}

TEST(Dropout, CopiesInATest) {
  const OpTest op = OpTest("Dropout", 2).Arg("is_test", 1).Input("x", {2}, {1, 2});
  op.Gives({2}, {1, 2});
  op.GivesExactly(Tensor::Of<bool>({2}, {true, true}), 1);
  OpTest("Dropout").Arg("is_test", 1).Input("x", {2}, {1, 2}).InPlace(0, 0).Gives({2}, {1, 2});
}

TEST(Dropout, DropsNaN) {
  const std::vector<double> mask = MaskOf(DropoutOf(0.5f, {8}));
  std::vector<double> expected;
  for (const double bit : mask) expected.push_back(bit != 0 ? std::nan("") : 0);
  OpTest("Dropout", 2).Seed(3).Input("x", {8}, std::vector<double>(8, std::nan(""))).Gives({8}, expected);
}

TEST(Dropout, MaskIsAFunctionOfSeedStepAndRun) {
  EXPECT_EQ(MaskInStep(1, false), MaskInStep(1, false));
  EXPECT_NE(MaskInStep(1, false), MaskInStep(2, false));
  EXPECT_EQ(MaskInStep(1, true), MaskInStep(2, true));
  const auto seeded = [](unsigned seed) { return MaskOf(OpTest("Dropout", 2).Seed(seed).Random("x", {64}, 1)); };
  EXPECT_NE(seeded(1), seeded(2));
  // With or without a second output.
  const std::vector<double> y =
      ToDoubles(OpTest("Dropout").Seed(1).Input("x", {64}, std::vector<double>(64, 1)).Run()[0]);
  EXPECT_EQ(y, ToDoubles(OpTest("Dropout").Seed(1).Input("x", {64}, std::vector<double>(64, 1)).Run()[0]));
}

// Masks of one version are those of the next: a word of the operator's stream is below the ratio, or not.
TEST(Dropout, MaskIsThatOfItsStream) {
  OperatorDef def;
  def.set_type("Dropout");
  def.add_input("x");
  for (const char* output : {"y", "mask"}) def.add_output(output);
  const OperatorCall op(def);
  for (const std::int64_t step : {0, 1, 7}) {
    const RandomStream stream(op.seed(), op.random_id(), 0, step);
    std::vector<double> expected;
    for (std::uint64_t i = 0; i < 1100; ++i) expected.push_back(stream.Word(i) >= 0x80000000u);
    EXPECT_EQ(MaskInStep(step, false), expected) << step;
    EXPECT_EQ(MaskInStep(step, false, 3), expected) << step;
  }
}

TEST(Dropout, DrawsAnewInEachRun) {
  NetDef net;
  OperatorDef& op = *net.add_op();
  op.set_type("Dropout");
  op.add_input("x");
  for (const char* output : {"y", "mask"}) op.add_output(output);
  Workspace workspace;
  workspace.SetTensor("x", Tensor::Zeros(DType::kFloat, {64}));
  const auto running = Net::Create(net, workspace);
  running->Run();
  const std::vector<double> first = ToDoubles(workspace.GetTensor("mask"));
  running->Run();
  EXPECT_NE(first, ToDoubles(workspace.GetTensor("mask")));
  running->SetRunCounter(0);
  running->Run();
  EXPECT_EQ(first, ToDoubles(workspace.GetTensor("mask")));
}

TEST(Dropout, GradientMatchesDifferences) {
  DropoutOf(0.5f, {4, 5}).GradientMatches({0});
  OpTest("Dropout", 2).Arg("is_test", 1).Random("x", {3}, 1).GradientMatches({0});
}

TEST(Dropout, GradientInATestHasOneInput) {
  OperatorDef def;
  def.set_type("Dropout");
  def.add_input("x");
  for (const char* output : {"y", "mask"}) def.add_output(output);
  EXPECT_EQ(MakeGradient(def, {{.dense = "dy"}, {}}).ops[0].input_size(), 2);
  def.add_arg()->set_name("is_test");
  def.mutable_arg(0)->set_i(1);
  EXPECT_EQ(MakeGradient(def, {{.dense = "dy"}, {}}).ops[0].input_size(), 1);
}

TEST(Dropout, AcceptsNoElements) { DropoutOf(0.5f, {0, 3}).Gives({0, 3}, {}); }

TEST(Dropout, RefusesBadArguments) {
  ExpectError([] { DropoutOf(1.0f, {2}).Run(); },
              "invalid net: Dropout: ratio is 1, must be less than 1\n"
              "  at op 0 `output0, output1 = Dropout(x)`\n"
              "  in net \"test\"");
  ExpectError([] { DropoutOf(-0.5f, {2}).Run(); }, "…Dropout: ratio is -0.5, must be at least 0");
  ExpectError([] { OpTest("Dropout").Input("x", Tensor::Of<bool>({1}, {true})).Run(); },
              "…Dropout works on float, double, float16 and bfloat16; x is bool [1]");
  ExpectError([] { OpTest("Dropout").Random("x", {2}, 1).GradientMatches(); },
              "…the gradient of Dropout needs its mask, a second output");
}

TEST(DropoutGrad, RefusesAMaskThatDoesNotFit) {
  ExpectError([] { OpTest("DropoutGrad").Random("dy", {2}, 1).Run(); },
              "…DropoutGrad needs the mask as a second input, or is_test");
  ExpectError([] { OpTest("DropoutGrad").Random("dy", {2}, 1).Random("mask", {2}, 1).Run(); },
              "…DropoutGrad works on bool; mask is float [2]");
  ExpectError([] { OpTest("DropoutGrad").Random("dy", {2}, 1).Input("mask", Tensor::Of<bool>({1}, {true})).Run(); },
              "…DropoutGrad needs dy and mask of one shape; dy is float [2] and mask is bool [1]");
}

}  // namespace
}  // namespace stepnet
