// Products with weights in bfloat16 have the bits of products with the floats that these are.
#include <array>
#include <cstring>
#include <limits>
#include <random>

#include "op_test.h"
#include "stepnet/io/proto_io.h"
#include "stepnet/nets/net.h"
#include "stepnet/products/gemv.h"
#include "stepnet/products/panel_product.h"
#include "stepnet/tests/devices/tested_devices.h"

namespace stepnet {
namespace {

// Weights that were rounded, in both forms; among them what is rare, where `has_rare`.
struct RoundedWeights {
  Tensor stored, floats;

  RoundedWeights(const Shape& shape, unsigned seed, bool has_rare)
      : stored(DType::kBFloat16, shape), floats(DType::kFloat, shape) {
    std::mt19937 random(seed);
    std::normal_distribution<float> distribution;
    using Limits = std::numeric_limits<float>;
    const float rare[] = {Limits::infinity(),
                          -Limits::infinity(),
                          Limits::quiet_NaN(),
                          Limits::denorm_min(),
                          1e-39f,
                          -3e-40f,
                          Limits::max(),
                          -0.0f};
    for (std::int64_t i = 0; i < shape.size(); ++i) {
      const bool is_rare = has_rare && random() % 97 == 0;
      const BFloat16 rounded = ToBFloat16(is_rare ? rare[random() % std::size(rare)] : distribution(random));
      stored.data<BFloat16>()[i] = rounded;
      floats.data<float>()[i] = ToFloat(rounded);
    }
  }
};

Tensor RandomFloats(const Shape& shape, unsigned seed) {
  Tensor tensor(DType::kFloat, shape);
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution;
  for (std::int64_t i = 0; i < shape.size(); ++i) tensor.data<float>()[i] = distribution(random);
  return tensor;
}

// Output 0 of the operator on the CPU; other devices refuse such weights.
Tensor OutputOf(const std::string& type, const std::vector<Tensor>& inputs, bool trans_b = false) {
  Workspace workspace;
  NetDef net;
  OperatorDef* const op = net.add_op();
  op->set_type(type);
  for (size_t i = 0; i < inputs.size(); ++i) {
    op->add_input(StrCat("input", i));
    workspace.SetTensor(op->input(static_cast<int>(i)), inputs[i]);
  }
  op->add_output("output0");
  if (type == "FCGradient") op->add_output("output1");
  if (trans_b) {
    op->add_arg()->set_name("trans_b");
    op->mutable_arg(0)->set_i(1);
  }
  RunNetOnce(net, workspace);
  return workspace.GetTensor("output0");
}

void ExpectSameBits(const Tensor& a, const Tensor& b, const std::string& what) {
  ASSERT_EQ(a.Description(), b.Description()) << what;
  EXPECT_EQ(std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.size_bytes())), 0) << what;
}

const std::vector<std::array<int, 3>> kSizes = {{1, 7, 5},     {1, 130, 515}, {1, 64, 64},   {1, 1000, 33}, {2, 63, 65},
                                                {8, 130, 515}, {33, 40, 17},  {2, 300, 700}, {600, 40, 70}, {0, 3, 4},
                                                {3, 0, 4},     {1, 0, 4},     {1, 3, 0}};

TEST(BFloat16Weights, FullyConnectedLayersHaveTheBitsOfRoundedFloats) {
  for (const auto& [m, k, n] : kSizes) {
    for (const bool transposed : {false, true}) {
      for (const bool has_rare : {false, true}) {
        const RoundedWeights w(transposed ? Shape{k, n} : Shape{n, k}, static_cast<unsigned>(m + k + n), has_rare);
        const Tensor x = RandomFloats({m, k}, 3), b = RandomFloats({n}, 4);
        const char* type = transposed ? "FCTransposed" : "FC";
        const std::string what = StrCat(type, " ", m, " ", k, " ", n, " ", has_rare);
        ExpectSameBits(OutputOf(type, {x, w.stored, b}), OutputOf(type, {x, w.floats, b}), what);
        ExpectSameBits(OutputOf(type, {x, w.stored}), OutputOf(type, {x, w.floats}), what + " without bias");
      }
    }
  }
}

TEST(BFloat16Weights, MatMulHasTheBitsOfRoundedFloats) {
  for (const auto& [m, k, n] : kSizes) {
    for (const bool trans_b : {false, true}) {
      const RoundedWeights b(trans_b ? Shape{n, k} : Shape{k, n}, static_cast<unsigned>(m + k + n), true);
      const Tensor a = RandomFloats({m, k}, 3);
      ExpectSameBits(OutputOf("MatMul", {a, b.stored}, trans_b), OutputOf("MatMul", {a, b.floats}, trans_b),
                     StrCat(m, " ", k, " ", n, " ", trans_b));
    }
  }
}

TEST(BFloat16Weights, PanelsHaveTheBitsOfRoundedFloats) {
  for (const auto& [m, k, n] : kSizes) {
    for (const bool transposed : {false, true}) {
      const RoundedWeights w(transposed ? Shape{n, k} : Shape{k, n}, static_cast<unsigned>(m + k + n), true);
      const Tensor x = RandomFloats({m, k}, 3), bias = RandomFloats({n}, 4);
      const auto run = [&, m = m, k = k, n = n](auto zero) {
        using W = decltype(zero);
        std::vector<W> panels(static_cast<size_t>(PanelElements(n, k)));
        const W* data = (std::is_same_v<W, float> ? w.floats : w.stored).template data<W>();
        PackPanels<W>(n, k, {data, transposed ? k : n, transposed}, 0, NumPanels(n), panels.data());
        Tensor y = RandomFloats({m, n}, 5);
        PanelProduct(m, {n, 0, n, n}, k, x.data<float>(), k, panels.data(), y.data<float>(), n, /*accumulates=*/true,
                     bias.data<float>());
        return y;
      };
      ExpectSameBits(run(BFloat16{}), run(float{}), StrCat(m, " ", k, " ", n, " ", transposed));
    }
  }
}

// What lies behind the last row belongs to others.
TEST(BFloat16Weights, RowsReadNothingBehindThem) {
  for (std::int64_t k = 1; k < 140; ++k) {
    const RoundedWeights w({3, k}, static_cast<unsigned>(k), false);
    const Tensor x = RandomFloats({k}, 6);
    std::vector<BFloat16> exact(w.stored.data<BFloat16>(), w.stored.data<BFloat16>() + 3 * k);
    exact.resize(exact.size() + 64, ToBFloat16(std::numeric_limits<float>::quiet_NaN()));
    std::array<float, 3> y = {1, 2, 3}, expected = y;
    GemvOfRows(3, k, x.data<float>(), exact.data(), k, y.data(), /*accumulates=*/true);
    GemvOfRows(3, k, x.data<float>(), w.floats.data<float>(), k, expected.data(), /*accumulates=*/true);
    EXPECT_EQ(y, expected) << k;
  }
}

TEST(BFloat16Weights, AreForFloatsAndForInference) {
  const Tensor x = RandomFloats({2, 3}, 1), doubles = Tensor::Zeros(DType::kDouble, {2, 3});
  const Tensor w = Tensor::Zeros(DType::kBFloat16, {4, 3}), b = Tensor::Zeros(DType::kBFloat16, {4});
  ExpectError(
      [&] {
        OutputOf("FC", {doubles, w});
      },
      "…FC needs inputs of one type; input0 is double [2, 3] and input1 is bfloat16 [4, 3]");
  ExpectError(
      [&] {
        OutputOf("FC", {x, w, b});
      },
      "…FC needs inputs of one type; input0 is float [2, 3] and input2 is bfloat16 [4]");
  ExpectError([&] { OutputOf("FC", {w, w}); }, "…FC works on float and double; input0 is bfloat16 [4, 3]");
  ExpectError([&] { OutputOf("MatMul", {w, x}); }, "…MatMul works on float and double; input0 is bfloat16 [4, 3]");
  ExpectError(
      [&] {
        OutputOf("FCGradient", {x, w, RandomFloats({2, 4}, 1)});
      },
      "…FCGradient computes no gradients with weights in bfloat16, which are for inference; to train, keep them "
      "in float; input1 is bfloat16 [4, 3]");
}

TEST(BFloat16Weights, AreForTheCpu) {
  for (const Device device : OtherDevices()) {
    Workspace workspace;
    workspace.SetTensor("x", RandomFloats({2, 3}, 1));
    workspace.SetTensor("w", Tensor::Zeros(DType::kBFloat16, {4, 3}));
    NetDef net;
    ParseMessageText("op { type: 'FC' input: ['x', 'w'] output: 'y' }", "test", &net);
    ExpectError([&] { RunNetOnce(net, workspace, OnDevice({}, device)); },
                StrCat("…FC takes weights in bfloat16 on the CPU alone, and ", device,
                       " is another device; w is bfloat16 [4, 3]"));
  }
}

}  // namespace
}  // namespace stepnet
