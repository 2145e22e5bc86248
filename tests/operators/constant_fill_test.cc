#include "op_test.h"
#include "stepnet/nets/net.h"

namespace stepnet {
namespace {

OpTest ConstantOf(const std::vector<std::int64_t>& shape) { return OpTest("ConstantFill").Ints("shape", shape); }

TEST(ConstantFill, TakesItsDTypeFromTheArgument) {
  const auto fill = [](int dtype, int value) { return ConstantOf({2}).Arg("dtype", dtype).Arg("value", value); };
  fill(1, 3).GivesExactly(Tensor::Of<float>({2}, {3, 3}));
  fill(2, -3).GivesExactly(Tensor::Of<std::int32_t>({2}, {-3, -3}));
  fill(5, 1).GivesExactly(Tensor::Of<bool>({2}, {true, true}));
  fill(6, 200).GivesExactly(Tensor::Of<std::uint8_t>({2}, {200, 200}));
  fill(10, 3).GivesExactly(Tensor::Of<std::int64_t>({2}, {3, 3}));
  fill(13, 3).GivesExactly(Tensor::Of<double>({2}, {3, 3}));
  const Tensor half = fill(12, 3).Run()[0];
  EXPECT_EQ(ToFloat(half.data<Float16>()[1]), 3);
  ConstantOf({2}).Arg("dtype", 4).Arg("value", "ab").GivesExactly(Tensor::Of<std::string>({2}, {"ab", "ab"}));
}

TEST(ConstantFill, TakesItsDTypeFromTheValueOtherwise) {
  ConstantOf({1}).GivesExactly(Tensor::Of<float>({1}, {0}));
  ConstantOf({1}).Arg("value", 0.5f).GivesExactly(Tensor::Of<float>({1}, {0.5f}));
  ConstantOf({1}).Arg("value", 7).GivesExactly(Tensor::Of<std::int64_t>({1}, {7}));
}

TEST(ConstantFill, TakesTheShapeOfItsInputAndItsDTypeIfThatHasAFraction) {
  const OpTest op = OpTest("ConstantFill").Arg("value", 1.0f).Random("loss", {2, 1}, 1);
  for (const DType dtype : {DType::kFloat, DType::kDouble}) {
    EXPECT_EQ(op.Run(dtype)[0].dtype(), dtype);
    EXPECT_EQ(op.Run(dtype)[0].shape(), Shape({2, 1}));
  }
  const auto one_like = [](DType dtype) {
    return OpTest("ConstantFill").Arg("value", 1.0f).Input("x", Tensor::Zeros(dtype, {1})).Run()[0];
  };
  EXPECT_EQ(ToFloat(one_like(DType::kFloat16).data<Float16>()[0]), 1);
  EXPECT_EQ(ToFloat(one_like(DType::kBFloat16).data<BFloat16>()[0]), 1);
  const Tensor ids = Tensor::Of<std::int32_t>({3}, {1, 2, 3});
  OpTest("ConstantFill").Arg("value", 1.0f).Input("ids", ids).GivesExactly(Tensor::Of<float>({3}, {1, 1, 1}));
}

TEST(ConstantFill, TakesItsShapeFromTheValuesOfItsInput) {
  OpTest("ConstantFill")
      .Arg("input_as_shape", 1)
      .Ints("extra_shape", {1})
      .Input("sizes", Tensor::Of<std::int64_t>({2}, {2, 1}))
      .GivesExactly(Tensor::Of<float>({2, 1, 1}, {0, 0}));
}

TEST(ConstantFill, MakesScalarsAndNothing) {
  OpTest("ConstantFill").Arg("value", 2.0f).GivesExactly(Tensor::Of<float>({}, {2}));
  ConstantOf({0, 4}).GivesExactly(Tensor::Of<float>({0, 4}, {}));
}

TEST(ConstantFill, FollowsAChangingShape) {
  NetDef net;
  OperatorDef& op = *net.add_op();
  op.set_type("ConstantFill");
  op.add_input("sizes");
  op.add_output("y");
  op.add_arg()->set_name("input_as_shape");
  op.mutable_arg(0)->set_i(1);
  Workspace workspace;
  workspace.SetTensor("sizes", Tensor::Of<std::int64_t>({1}, {3}));
  const auto running = Net::Create(net, workspace);
  running->Run();
  EXPECT_EQ(workspace.GetTensor("y").shape(), Shape({3}));
  workspace.SetTensor("sizes", Tensor::Of<std::int64_t>({1}, {5}));
  running->Run();
  EXPECT_EQ(workspace.GetTensor("y").shape(), Shape({5}));
}

TEST(ConstantFill, RefusesHostileShapes) {
  ExpectError(
      [] {
        ConstantOf({2, -1}).Run();
      },
      "invalid net: ConstantFill: shape is -1, must be at least 0\n"
      "  at op 0 `output0 = ConstantFill()`\n"
      "  in net \"test\"");
  ExpectError([] { ConstantOf({INT64_MAX, 3}).Run(); }, "…multiply to more than 2^63");
  ExpectError([] { ConstantOf({INT64_MAX / 8}).Run(); }, "…out of memory");
  const auto from = [](const Tensor& sizes) {
    OpTest("ConstantFill").Arg("input_as_shape", 1).Input("sizes", sizes).Run();
  };
  ExpectError([&] { from(Tensor::Of<std::int64_t>({2}, {4, -4})); }, "…dimension 1 of [4, -4] is negative");
  ExpectError(
      [&] {
        from(Tensor::Of<std::int64_t>({1, 1}, {4}));
      },
      "…ConstantFill with input_as_shape needs sizes [rank]; sizes is int64 [1, 1]");
  ExpectError([&] { from(Tensor::Of<float>({1}, {4})); }, "…sizes is float [1] where int32 or int64 is needed");
  ExpectError([] { ConstantOf({2}).Random("x", {2}, 1).Run(); },
              "…ConstantFill has its shape both as an argument and as an input");
  ExpectError([] { OpTest("ConstantFill").Arg("input_as_shape", 1).Run(); },
              "…ConstantFill has input_as_shape, which needs an input");
  ExpectError([] { OpTest("ConstantFill").Ints("extra_shape", {1}).Run(); },
              "…ConstantFill has extra_shape, which needs an input");
}

TEST(ConstantFill, RefusesValuesThatDoNotFit) {
  const auto fill = [](int dtype, auto value) { ConstantOf({2}).Arg("dtype", dtype).Arg("value", value).Run(); };
  ExpectError([&] { fill(2, 0.5f); },
              "invalid net: value is 0.5, which is no int32\n"
              "  at op 0 `output0 = ConstantFill()`\n"
              "  in net \"test\"");
  ExpectError([&] { fill(7, 128); }, "…value is 128, which is no int8");
  ExpectError([&] { fill(12, 70000); }, "…value is 70000, which is no float16");
  ExpectError([&] { fill(5, 2); }, "…value is 2, which is no bool");
  ExpectError([&] { fill(10, 1e30f); }, "…value is 1e+30, which is no int64");
  ExpectError([&] { fill(10, std::nanf("")); }, "…which is no int64");
  ExpectError([&] { fill(1, "x"); }, "…value is \"x\", which is no float");
  ExpectError([&] { fill(4, 1); }, "…value is 1, which is no string");
  ExpectError([&] { fill(11, 1); }, "…dtype is 11, which is no dtype; dtypes are 1 float, 2 int32");
}

TEST(GivenTensorFill, GivesItsValues) {
  const auto values = [](const char* type) { return OpTest(type).Ints("shape", {2, 1}); };
  values("GivenTensorFill").Floats("values", {1, 2.5f}).GivesExactly(Tensor::Of<float>({2, 1}, {1, 2.5f}));
  values("GivenTensorDoubleFill").Floats("values", {1, 2}).GivesExactly(Tensor::Of<double>({2, 1}, {1, 2}));
  values("GivenTensorIntFill").Ints("values", {1, -2}).GivesExactly(Tensor::Of<std::int32_t>({2, 1}, {1, -2}));
  values("GivenTensorInt64Fill")
      .Ints("values", {1, INT64_MAX})
      .GivesExactly(Tensor::Of<std::int64_t>({2, 1}, {1, INT64_MAX}));
  values("GivenTensorBoolFill").Ints("values", {1, 0}).GivesExactly(Tensor::Of<bool>({2, 1}, {true, false}));
  values("GivenTensorStringFill").Strings("values", {"", "b"}).GivesExactly(Tensor::Of<std::string>({2, 1}, {"", "b"}));
  values("GivenTensorFill").Arg("dtype", 13).Floats("values", {1, 2}).GivesExactly(Tensor::Of<double>({2, 1}, {1, 2}));
}

TEST(GivenTensorFill, MakesNothingAndTheShapeOfItsInput) {
  OpTest("GivenTensorFill").Ints("shape", {0, 3}).GivesExactly(Tensor::Of<float>({0, 3}, {}));
  OpTest("GivenTensorFill")
      .Floats("values", {1, 2})
      .Random("like", {2}, 1)
      .GivesExactly(Tensor::Of<float>({2}, {1, 2}));
}

TEST(GivenTensorFill, KnowsSizesBeforeItRuns) {
  OperatorDef def;
  def.set_type("GivenTensorInt64Fill");
  for (const char* name : {"shape", "values"}) def.add_arg()->set_name(name);
  def.mutable_arg(0)->add_ints(2);
  for (const int value : {-1, 7}) def.mutable_arg(1)->add_ints(value);
  const OperatorCall op(def);
  EXPECT_EQ(ToDoubles(op.schema().shapes(ShapeQuery(op, {}))[0].value), (std::vector<double>{-1, 7}));
}

TEST(GivenTensorFill, RefusesAnotherNumberOfValues) {
  ExpectError(
      [] {
        OpTest("GivenTensorFill").Ints("shape", {2, 2}).Floats("values", {1, 2, 3}).Run();
      },
      "invalid net: GivenTensorFill has 3 values for a tensor [2, 2] of 4\n"
      "  at op 0 `output0 = GivenTensorFill()`\n"
      "  in net \"test\"");
  ExpectError(
      [] {
        OpTest("GivenTensorFill").Floats("values", {1, 2, 3}).Random("x", {2}, 1).Run();
      },
      "…shape mismatch: GivenTensorFill has 3 values for a tensor [2] of 2");
  ExpectError(
      [] {
        OpTest("GivenTensorIntFill").Ints("shape", {2}).Ints("values", {1, INT64_MAX}).Run();
      },
      "…element 1 of values: value is 9223372036854775807, which is no int32");
  ExpectError([] { OpTest("GivenTensorBoolFill").Ints("shape", {1}).Ints("values", {2}).Run(); },
              "…element 0 of values: value is 2, which is no bool");
}

}  // namespace
}  // namespace stepnet
