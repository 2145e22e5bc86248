// Operators that are a formula over float, on inputs that are stored in 16 bits.
#include <cmath>

#include "op_test.h"
#include "stepnet/core/stored_float.h"
#include "stepnet/nets/backward.h"
#include "stepnet/nets/net.h"

namespace stepnet {
namespace {

Tensor StoredTensor(DType dtype, const Shape& shape, const std::vector<double>& values) {
  Tensor tensor(dtype, shape);
  auto* bits = static_cast<std::uint16_t*>(tensor.raw());
  for (size_t i = 0; i < values.size(); ++i) {
    bits[i] = static_cast<std::uint16_t>(Stored(dtype, static_cast<float>(values[i])).bits);
  }
  return tensor;
}

Tensor LoadedTensor(const Tensor& stored) {
  if (!IsStoredFloat(stored.dtype())) return stored;
  Tensor tensor(DType::kFloat, stored.shape());
  const auto* bits = static_cast<const std::uint16_t*>(stored.raw());
  for (std::int64_t i = 0; i < stored.size(); ++i) {
    tensor.data<float>()[i] = Loaded({.dtype = stored.dtype(), .bits = bits[i]});
  }
  return tensor;
}

std::vector<double> Numbers(std::int64_t count, int seed) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(std::sin(static_cast<double>(i * 7 + seed * 31 + 1)) * 3);
  return values;
}

struct Case {
  std::string type;
  std::vector<Shape> inputs;
  int num_outputs = 1;
  bool gives_bool = false;
};

const std::vector<Case> kCases = {
    {"Tanh", {Shape({3, 700})}},
    {"Relu", {Shape({5})}},
    {"Sqr", {Shape({2, 3, 4})}},
    {"Add", {Shape({3, 5}), Shape({5})}},
    {"Mul", {Shape({300, 5}), Shape({300, 1})}},
    {"Div", {Shape({3, 5}), Shape({3, 5})}},
    {"Max", {Shape({3, 5}), Shape({3, 5}), Shape({1})}},
    {"Sum", {Shape({4, 5}), Shape({4, 5}), Shape({4, 5})}},
    {"LT", {Shape({3, 5}), Shape({3, 5})}, 1, true},
    {"Softmax", {Shape({4, 33})}},
    {"TanhGradient", {Shape({3, 40}), Shape({3, 40})}},
    {"SoftmaxGradient", {Shape({3, 40}), Shape({3, 40})}},
    {"ElementwiseLinearGradient", {Shape({300, 5}), Shape({300, 5}), Shape({5})}, 3},
    {"DivGradient", {Shape({3, 5}), Shape({3, 5}), Shape({3, 5})}, 2},
    {"DivGradient", {Shape({5}), Shape({300, 5}), Shape({300, 5})}, 2},
    {"ReduceSum", {Shape({3, 700})}},
    {"ReduceMean", {Shape({2, 3, 5})}},
    {"ReduceMax", {Shape({3, 700})}},
    {"ReduceL2", {Shape({3, 700})}},
    {"SumElements", {Shape({3, 700})}},
    {"SumElements", {Shape({0, 3})}},
    {"SumSqrElements", {Shape({2, 3000})}},
    {"AveragedLoss", {Shape({2, 300})}},
    {"SumElementsGradient", {Shape({3, 40}), Shape({1})}},
    {"SumSqrElementsGradient", {Shape({3, 40}), Shape({1})}},
    {"SumReduceLike", {Shape({300, 5}), Shape({5})}},
    {"SumReduceLike", {Shape({4, 5, 6}), Shape({5, 1})}},
};

void ExpectRounded(const Tensor& got, const Tensor& want, DType dtype) {
  ASSERT_EQ(got.dtype(), dtype);
  ASSERT_EQ(got.shape(), want.shape());
  const float* of_want = want.data<float>();
  const auto* of_got = static_cast<const std::uint16_t*>(got.raw());
  for (std::int64_t i = 0; i < want.size(); ++i) ASSERT_EQ(of_got[i], Stored(dtype, of_want[i]).bits) << i;
}

// In float of what is loaded, then rounded once.
TEST(StoredFloats, GiveWhatFloatsGiveRounded) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    for (const Case& c : kCases) {
      SCOPED_TRACE(StrCat(c.type, " of ", dtype));
      OpTest stored(c.type, c.num_outputs), loaded(c.type, c.num_outputs);
      for (size_t i = 0; i < c.inputs.size(); ++i) {
        const Tensor x = StoredTensor(dtype, c.inputs[i], Numbers(c.inputs[i].size(), static_cast<int>(i)));
        stored.Input(StrCat("x", i), x);
        loaded.Input(StrCat("x", i), LoadedTensor(x));
      }
      const std::vector<Tensor> got = stored.Run(), want = loaded.Run();
      for (int o = 0; o < c.num_outputs; ++o) {
        SCOPED_TRACE(StrCat("output ", o));
        if (c.gives_bool) {
          ASSERT_EQ(got[o].dtype(), DType::kBool);
          EXPECT_EQ(ToDoubles(got[o]), ToDoubles(want[o]));
        } else {
          ExpectRounded(got[o], want[o], dtype);
        }
      }
    }
  }
}

// Whose kernels for float are written by hand, and checks values.
TEST(StoredFloats, AreMasked) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const Tensor x = StoredTensor(dtype, Shape({3, 40}), Numbers(120, 1));
    const Tensor lengths = Tensor::Of<std::int32_t>({3}, {7, 0, 40});
    const Tensor condition = Tensor::Of<bool>({3}, {true, false, true});
    const auto sequence = [&](const Tensor& of, const Tensor& lengths) {
      return OpTest("SequenceMask").Arg("mode", "sequence").Arg("fill_val", -2.0f).Input("x", of).Input("l", lengths);
    };
    ExpectRounded(sequence(x, lengths).Run()[0], sequence(LoadedTensor(x), lengths).Run()[0], dtype);
    ExpectError([&] { sequence(x, Tensor::Of<std::int32_t>({3}, {7, 41, 40})).Run(); }, "…element 1 of l is 41");
    for (const int on_rows : {0, 1}) {
      const auto gradient = [&](const Tensor& of) {
        OpTest op("WhereGradient", 2);
        const Tensor each = Tensor::Of<bool>({3, 40}, std::vector<bool>(120, true));
        return op.Arg("broadcast_on_rows", on_rows).Input("c", on_rows != 0 ? condition : each).Input("dz", of).Run();
      };
      for (int o = 0; o < 2; ++o) ExpectRounded(gradient(x)[o], gradient(LoadedTensor(x))[o], dtype);
    }
  }
}

// Whose kernels for float read one element of a row.
TEST(StoredFloats, AreProbabilitiesOfLabels) {
  const Tensor labels = Tensor::Of<std::int32_t>({3, 1}, {39, 0, 7});
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    std::vector<double> probabilities = Numbers(120, 1);
    for (double& p : probabilities) p = p * p / 9;
    probabilities[39] = 0;
    const Tensor x = StoredTensor(dtype, Shape({3, 40}), probabilities),
                 dy = StoredTensor(dtype, Shape({3}), {1, -2, 3});
    const auto loss = [&](const Tensor& of, const Tensor& label) {
      return OpTest("LabelCrossEntropy").Input("x", of).Input("label", label);
    };
    const auto gradient = [&](const Tensor& of, const Tensor& label, const Tensor& gradient_of_y) {
      return OpTest("LabelCrossEntropyGradient").Input("x", of).Input("label", label).Input("dy", gradient_of_y);
    };
    ExpectRounded(loss(x, labels).Run()[0], loss(LoadedTensor(x), labels).Run()[0], dtype);
    ExpectRounded(gradient(x, labels, dy).Run()[0], gradient(LoadedTensor(x), labels, LoadedTensor(dy)).Run()[0],
                  dtype);
    for (const std::int64_t bad : {40, -1}) {
      const Tensor wrong = Tensor::Of<std::int64_t>({3}, {1, bad, 5});
      const std::string message = StrCat("…label 1 is ", bad, "; there are classes 0 to 39\n");
      ExpectError([&] { loss(x, wrong).Run(); }, message);
      ExpectError([&] { loss(LoadedTensor(x), wrong).Run(); }, message);
      ExpectError([&] { gradient(x, wrong, dy).Run(); }, message);
    }
    const Tensor none = StoredTensor(dtype, Shape({3, 0}), {});
    for (const Tensor& empty : {none, LoadedTensor(none)}) {
      const std::string message = StrCat(" needs at least one class for its labels; x is ", empty.dtype(), " [3, 0]\n");
      const Tensor like = StoredTensor(dtype, Shape({3}), {1, 1, 1});
      ExpectError([&] { loss(empty, labels).Run(); }, "…shape mismatch: LabelCrossEntropy" + message);
      ExpectError([&] { gradient(empty, labels, empty.dtype() == dtype ? like : LoadedTensor(like)).Run(); },
                  "…shape mismatch: LabelCrossEntropyGradient" + message);
    }
    const Tensor nobody = loss(StoredTensor(dtype, Shape({0, 0}), {}), Tensor::Of<std::int32_t>({0}, {})).Run()[0];
    EXPECT_EQ(nobody.shape(), Shape({0}));
  }
}

TEST(StoredFloats, HaveMeansOfAll) {
  for (const char* type : {"SumElements", "SumSqrElements"}) {
    const Tensor x = StoredTensor(DType::kBFloat16, Shape({5, 30}), Numbers(150, 2));
    const auto mean = [&](const Tensor& of) { return OpTest(type).Arg("average", 1).Input("x", of).Run()[0]; };
    ExpectRounded(mean(x), mean(LoadedTensor(x)), DType::kBFloat16);
  }
}

// The gradient of a product whose second factor is repeated: 1 for each element of y, in the dtype of y.
TEST(StoredFloats, HaveGradientsOfTheirOwnDType) {
  NetDef net;
  OperatorDef* product = net.add_op();
  product->set_type("Mul");
  product->add_input("x");
  product->add_input("w");
  product->add_output("y");
  net.add_external_input("x");
  net.add_external_input("w");
  const NetWithGradients made = AddGradients(net, {"y"}, {"x", "w"});
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    Workspace workspace;
    workspace.SetTensor("x", StoredTensor(dtype, Shape({3, 2}), {1, 2, 3, 4, 5, 6}));
    workspace.SetTensor("w", StoredTensor(dtype, Shape({2}), {0.5, -1}));
    RunNetOnce(made.net, workspace);
    const auto gradient = [&](const char* of) { return workspace.GetTensor(made.gradients.at(of).dense); };
    for (const char* of : {"x", "w"}) EXPECT_EQ(gradient(of).dtype(), dtype);
    EXPECT_EQ(ToDoubles(LoadedTensor(gradient("x"))), (std::vector<double>{0.5, -1, 0.5, -1, 0.5, -1}));
    EXPECT_EQ(ToDoubles(LoadedTensor(gradient("w"))), (std::vector<double>{9, 12}));
  }
}

TEST(StoredFloats, OverwriteTheirInput) {
  const Tensor x = StoredTensor(DType::kFloat16, Shape({3, 100}), Numbers(300, 1));
  const Tensor apart = OpTest("Sigmoid").Input("x", x).Run()[0];
  const Tensor in_place = OpTest("Sigmoid").Input("x", x.Clone()).InPlace(0, 0).Run()[0];
  EXPECT_EQ(LoadedTensor(in_place).shape(), x.shape());
  EXPECT_EQ(ToDoubles(LoadedTensor(in_place)), ToDoubles(LoadedTensor(apart)));
}

TEST(StoredFloats, AreRefusedWhereNothingLoadsThem) {
  const Tensor x = StoredTensor(DType::kFloat16, Shape({2, 3}), Numbers(6, 1));
  const Tensor w = StoredTensor(DType::kFloat16, Shape({4, 3}), Numbers(12, 2));
  const Tensor b = StoredTensor(DType::kFloat16, Shape({4}), Numbers(4, 2));
  ExpectError([&] { OpTest("FC").Input("x", x).Input("w", w).Input("b", b).Run(); },
              "…type mismatch: FC works on float and double; x is float16 [2, 3]");
  ExpectError([&] { OpTest("ReduceSum").Ints("axes", {0}).Input("x", x).Run(); },
              "…type mismatch: ReduceSum in float16 reduces the last dimensions alone; x is float16 [2, 3]");
  ExpectError(
      [&] {
        OpTest("Accuracy").Input("x", x).Input("l", Tensor::Of<std::int32_t>({2}, {0, 1})).Run();
      },
      "…type mismatch: Accuracy works on float and double; x is float16 [2, 3]");
  ExpectError([&] { OpTest("Add").Input("a", x).Input("b", LoadedTensor(x)).Run(); },
              "…type mismatch: Add needs inputs of one type; a is float16 [2, 3] and b is float [2, 3]");
}

}  // namespace
}  // namespace stepnet
