// What operators compute is said here once more: a formula that changes changes their bits.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "op_test.h"
#include "stepnet/core/regions/region_program.h"
#include "stepnet/core/strings.h"
#include "stepnet/tests/core/expressions/random_exprs.h"

namespace stepnet {
namespace {

using Formula = std::function<Expr(const std::vector<Expr>&)>;

struct Case {
  OpTest op;
  int inputs;
  Formula formula;
};

constexpr std::int64_t kCount = 300;

// Odd numbers and others, that float holds too.
std::vector<double> Numbers(int seed) {
  std::mt19937 random(static_cast<unsigned>(seed));
  std::vector<double> numbers;
  for (int i = 0; i < kCount; ++i) numbers.push_back(RandomScalar(DType::kFloat, random).As<float>());
  return numbers;
}

Expr Softplus(const Expr& x) {
  const Expr e = Exp(-Abs(x));
  const Expr u = 1 + e;
  return Where(x > 0, x, 0) + (Log(u) + (e - (u - 1)) / u);
}

Expr Elu(const Expr& x) {
  const Expr t = Tanh(Where(x > 0, 0, x) / 2);
  return Where(x > 0, x, 0) + 2 * t / (1 - t);
}

std::vector<Case> Cases() {
  using In = const std::vector<Expr>&;
  return {
      {OpTest("Tanh"), 1, [](In in) { return Tanh(in[0]); }},
      {OpTest("Sigmoid"), 1, [](In in) { return Sigmoid(in[0]); }},
      {OpTest("Exp"), 1, [](In in) { return Exp(in[0]); }},
      {OpTest("Log"), 1, [](In in) { return Log(in[0]); }},
      {OpTest("Sin"), 1, [](In in) { return Sin(in[0]); }},
      {OpTest("Cos"), 1, [](In in) { return Cos(in[0]); }},
      {OpTest("Sqrt"), 1, [](In in) { return Sqrt(in[0]); }},
      {OpTest("Rsqrt"), 1, [](In in) { return 1 / Sqrt(in[0]); }},
      {OpTest("Pow").Arg("exponent", 2.5f), 1, [](In in) { return Pow(in[0], 2.5); }},
      {OpTest("Abs"), 1, [](In in) { return Abs(in[0]); }},
      {OpTest("Negative"), 1, [](In in) { return -in[0]; }},
      {OpTest("Relu"), 1, [](In in) { return Where(in[0] <= 0, 0, in[0]); }},
      {OpTest("LeakyRelu"), 1, [](In in) { return Where(in[0] >= 0, in[0], 0.01f * in[0]); }},
      {OpTest("Softplus"), 1, [](In in) { return Softplus(in[0]); }},
      {OpTest("Elu"), 1, [](In in) { return Elu(in[0]); }},
      {OpTest("Swish"), 1, [](In in) { return in[0] * Sigmoid(in[0]); }},
      {OpTest("Add"), 2, [](In in) { return in[0] + in[1]; }},
      {OpTest("Sub"), 2, [](In in) { return in[0] - in[1]; }},
      {OpTest("Mul"), 2, [](In in) { return in[0] * in[1]; }},
      {OpTest("Div"), 2, [](In in) { return in[0] / in[1]; }},
      {OpTest("Max"), 3, [](In in) { return Max(Max(in[0], in[1]), in[2]); }},
      {OpTest("Min"), 3, [](In in) { return Min(Min(in[0], in[1]), in[2]); }},
      {OpTest("TanhGradient"), 2, [](In in) { return in[1] * (1 - in[0] * in[0]); }},
      {OpTest("SigmoidGradient"), 2, [](In in) { return in[1] * in[0] * (1 - in[0]); }},
      {OpTest("ReluGradient"), 2, [](In in) { return Where(in[0] > 0, in[1], 0); }},
      {OpTest("AbsGradient"), 2, [](In in) { return Where(Equal(in[0], 0), 0, Where(in[0] > 0, in[1], -in[1])); }},
  };
}

ExprScalar ElementOf(const Tensor& tensor, std::int64_t i) {
  ExprScalar value{.dtype = tensor.dtype()};
  const std::int64_t bytes = DTypeBytes(value.dtype);
  std::memcpy(&value.bits, static_cast<const char*>(tensor.raw()) + i * bytes, static_cast<size_t>(bytes));
  return value;
}

void ExpectSameBits(const Tensor& got, const Tensor& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::int64_t i = 0; i < got.size(); ++i) {
    const ExprScalar a = ElementOf(got, i), b = ElementOf(want, i);
    ASSERT_TRUE(SameScalar(a, b)) << "element " << i << " of " << got.dtype() << ": " << std::hexfloat
                                  << (a.dtype == DType::kFloat ? a.As<float>() : a.As<double>()) << " and "
                                  << (a.dtype == DType::kFloat ? b.As<float>() : b.As<double>());
  }
}

Tensor TensorOf(DType dtype, const std::vector<double>& numbers) {
  if (dtype == DType::kDouble) return Tensor::Of<double>({std::ssize(numbers)}, numbers);
  return Tensor::Of<float>({std::ssize(numbers)}, std::vector<float>(numbers.begin(), numbers.end()));
}

TEST(RegionBits, AreThoseOfElementwiseOperators) {
  for (Case& test : Cases()) {
    for (int i = 0; i < test.inputs; ++i) test.op.Input(StrCat("x", i), {kCount}, Numbers(i + 1));
    for (const DType dtype : {DType::kFloat, DType::kDouble}) {
      Region region{.sizes = {1, 1, 1, kCount}};
      const RegionOperand dense = {.dtype = dtype, .size = kCount, .strides = {0, 0, 0, 1}};
      std::vector<Expr> inputs;
      std::vector<Tensor> tensors;
      std::vector<const void*> in;
      for (int i = 0; i < test.inputs; ++i) {
        inputs.push_back(Expr::Input(i, StrCat("x", i), dtype));
        region.inputs.push_back(dense);
        tensors.push_back(TensorOf(dtype, Numbers(i + 1)));
        in.push_back(tensors.back().raw());
      }
      region.outputs = {{.value = test.formula(inputs), .memory = dense}};
      const Tensor got(dtype, {kCount});
      void* out[] = {got.raw()};
      const RegionProgram program(region);
      program.Run(in, out);
      SCOPED_TRACE(program.Text());
      ExpectSameBits(got, test.op.Run(dtype)[0]);
      if (HasFatalFailure()) return;
    }
  }
}

// Gates are blocks of a row: i, f, o, g.
TEST(RegionBits, AreThoseOfLstmUnit) {
  constexpr std::int64_t kRows = 3, kUnits = 37;
  std::vector<double> c_prev, gates;
  std::mt19937 random(4);
  const auto number = [&] { return static_cast<double>(static_cast<float>(random() % 1000) / 100 - 5); };
  for (int k = 0; k < kRows * kUnits; ++k) c_prev.push_back(number());
  for (int k = 0; k < kRows * kUnits * 4; ++k) gates.push_back(number());
  OpTest op("LSTMUnit", 2);
  op.Arg("sequence_lengths", 0).Arg("forget_bias", 0.5f);
  op.Input("h_prev", {1, kRows, kUnits}, c_prev).Input("c_prev", {1, kRows, kUnits}, c_prev);
  op.Input("gates", {1, kRows, 4 * kUnits}, gates).Input("t", Tensor::Of<std::int32_t>({1}, {3}));
  for (const DType dtype : {DType::kFloat, DType::kDouble}) {
    Region region{.sizes = {1, 1, kRows, kUnits}};
    std::vector<Expr> in;
    for (int gate = 0; gate < 4; ++gate) {
      in.push_back(Expr::Input(gate, StrCat("gate", gate), dtype));
      region.inputs.push_back(
          {.dtype = dtype, .size = kRows * kUnits * 4, .offset = gate * kUnits, .strides = {0, 0, 4 * kUnits, 1}});
    }
    const RegionOperand state = {.dtype = dtype, .size = kRows * kUnits, .strides = {0, 0, kUnits, 1}};
    region.inputs.push_back(state);
    const Expr c = MulAdd(Sigmoid(in[1] + 0.5), Expr::Input(4, "c_prev", dtype), Sigmoid(in[0]) * Tanh(in[3]));
    region.outputs = {{.value = Sigmoid(in[2]) * Tanh(c), .memory = state}, {.value = c, .memory = state}};
    const Tensor gate_tensor = TensorOf(dtype, gates), state_tensor = TensorOf(dtype, c_prev);
    const void* inputs[] = {gate_tensor.raw(), gate_tensor.raw(), gate_tensor.raw(), gate_tensor.raw(),
                            state_tensor.raw()};
    const Tensor h(dtype, {kRows * kUnits}), c_next(dtype, {kRows * kUnits});
    void* outputs[] = {h.raw(), c_next.raw()};
    RegionProgram(region).Run(inputs, outputs);
    const std::vector<Tensor> want = op.Run(dtype);
    ExpectSameBits(h, want[0]);
    ExpectSameBits(c_next, want[1]);
  }
}

}  // namespace
}  // namespace stepnet
