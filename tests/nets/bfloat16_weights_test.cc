// Nets with weights in bfloat16: their results are, bit for bit, those with weights that were rounded and kept in
// float.
#include "stepnet/nets/bfloat16_weights.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "stepnet/cells/cell_expand.h"
#include "stepnet/core/random.h"
#include "stepnet/io/proto_io.h"
#include "stepnet/nets/backward.h"
#include "stepnet/nets/net.h"
#include "stepnet/tests/compiler/needs_usual_plans.h"
#include "stepnet/tests/core/source_path.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

using Names = std::vector<std::string>;

Tensor Normal(const Shape& shape, std::uint64_t seed) {
  Tensor tensor(DType::kFloat, shape);
  const RandomStream random(seed, /*id=*/0, /*run=*/0, /*step=*/0);
  for (std::int64_t i = 0; i < shape.size(); ++i) {
    tensor.data<float>()[i] = static_cast<float>(random.Uniform(static_cast<std::uint64_t>(i))) - 0.5f;
  }
  return tensor;
}

// What the test's own rounding gives: half away is to even, of a number that is none.
float RoundedToEven(float value) {
  const double magnitude = std::fabs(static_cast<double>(value));
  if (!(magnitude > 0) || std::isinf(magnitude)) return value;
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  const double unit = std::ldexp(1.0, std::max(exponent - 8, -133));  // eight bits; of denormals, those that are left
  return static_cast<float>(std::copysign(std::nearbyint(magnitude / unit) * unit, value));
}

// A cell of examples/cells with inputs of its own.
struct CellRun {
  CellNet cell;
  std::int64_t steps, batch;

  CellRun(const std::string& name, std::int64_t size, std::int64_t steps, std::int64_t batch, int layers = 1)
      : steps(steps), batch(batch) {
    CellSource source = ReadCell(SourcePath("examples/cells/" + name + ".cell"));
    source.def.mutable_options()->set_layers(layers);
    CellUse use;
    for (const CellSize& declared : source.def.size()) use.sizes[declared.name()] = size;
    cell = ExpandCell(source, use);
  }

  void Fill(Workspace& workspace) const {
    RunNetOnce(cell.init_net, workspace);
    std::uint64_t seed = 7;
    for (const CellNetInput& input : cell.inputs) {
      std::vector<std::int64_t> dims = input.dims;
      for (std::int64_t& dim : dims)
        dim = dim == CellNetInput::kSteps ? steps : dim == CellNetInput::kBatch ? batch : dim;
      workspace.SetTensor(input.blob, Normal(Shape(dims), ++seed));
    }
  }

  std::vector<Tensor> Run(const Workspace& parameters, const RunOptions& options) const {
    Workspace workspace;
    for (const std::string& blob : parameters.Blobs()) {
      if (parameters.GetBlob(blob).HasTensor()) workspace.SetTensor(blob, parameters.GetTensor(blob));
    }
    RunNetOnce(cell.net, workspace, options);
    std::vector<Tensor> outputs;
    for (const std::string& output : cell.outputs) outputs.push_back(workspace.GetTensor(output));
    return outputs;
  }
};

// A run with weights in bfloat16 has the bits of one with the floats that they are, on all executors and levels.
void ExpectBitsOfRoundedFloats(const CellRun& run, const std::string& what) {
  Workspace stored;
  run.Fill(stored);
  const BFloat16Weights weights = StoreWeightsInBFloat16(run.cell.net, run.cell.parameters, stored);
  Workspace rounded;
  run.Fill(rounded);
  for (const std::string& name : weights.stored) {
    Tensor floats = rounded.GetTensor(name).Clone();
    for (std::int64_t i = 0; i < floats.size(); ++i) floats.data<float>()[i] = RoundedToEven(floats.data<float>()[i]);
    ASSERT_EQ(stored.GetTensor(name).dtype(), DType::kBFloat16) << name;
    rounded.SetTensor(name, floats);
  }
  for (int level = 0; level <= kMaxOptLevel; ++level) {
    for (const int threads : {0, 1, 2, 3}) {
      const RunOptions options{
          .executor = threads == 0 ? "serial" : "parallel", .threads = threads, .opt_level = level};
      const std::vector<Tensor> got = run.Run(stored, options), expected = run.Run(rounded, options);
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_EQ(got[i].Description(), expected[i].Description());
        EXPECT_EQ(std::memcmp(got[i].raw(), expected[i].raw(), static_cast<size_t>(got[i].size_bytes())), 0)
            << what << ", output " << i << ", level " << level << ", threads " << threads;
      }
    }
  }
}

// Sizes on both sides of where one row is packed (128 KB of float), where steps of many rows stay in the loop (512 KB),
// and runs that are too short to pack.
TEST(BFloat16WeightsOfNets, GiveTheBitsOfRoundedFloats) {
  for (const std::int64_t size : {20, 100, 192}) {
    for (const std::int64_t batch : {1, 2, 8, 33}) {
      for (const std::int64_t steps : {3, 20}) {
        ExpectBitsOfRoundedFloats(CellRun("lstm", size, steps, batch), StrCat("lstm ", size, " ", batch, " ", steps));
      }
    }
  }
  // In the loop, by panels; weights of half as many bytes would leave it, for a product that rounds otherwise.
  ExpectBitsOfRoundedFloats(CellRun("elman", 400, 20, 40), "elman, 640 KB of float");
  for (const char* name : {"elman", "gru", "gru_reset_after", "peephole_lstm", "layer_norm_lstm"}) {
    ExpectBitsOfRoundedFloats(CellRun(name, 100, 20, 2, /*layers=*/2), name);
  }
}

// A number between two of bfloat16 becomes the nearer one, or of two as near that with an even last bit.
TEST(BFloat16WeightsOfNets, AreRoundedToNearestEven) {
  Workspace workspace;
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {1,    1 + 0x1p-8f, 1 + 3 * 0x1p-8f, 1 + 0x1.1p-8f,
                                     -inf, 0x1p-133f,   0x1.8p-133f,     3e38f};
  workspace.SetTensor("w", Tensor::Of<float>({1, 8}, values));
  NetDef net;
  ParseMessageText("op { type: 'FC' input: ['x', 'w'] output: 'y' }", "test", &net);
  const BFloat16Weights weights = StoreWeightsInBFloat16(net, {"w"}, workspace);
  EXPECT_EQ(weights.stored, Names{"w"});
  EXPECT_EQ(weights.bytes, 16);
  std::vector<float> stored, expected;
  for (int i = 0; i < 8; ++i) {
    stored.push_back(ToFloat(workspace.GetTensor("w").data<BFloat16>()[i]));
    expected.push_back(RoundedToEven(values[static_cast<size_t>(i)]));
  }
  EXPECT_EQ(stored, expected);
  EXPECT_EQ(stored[1], 1);
  EXPECT_EQ(stored[2], 1 + 0x1p-6f);
}

TEST(BFloat16WeightsOfNets, LeaveWhatIsNoWeightOrNotAWeightAlone) {
  Workspace workspace;
  for (const char* name : {"w", "v", "table", "given", "written", "h0", "b"})
    workspace.SetTensor(name, Normal({4, 4}, 1));
  workspace.SetTensor("half", Tensor::Zeros(DType::kFloat16, {4, 4}));
  workspace.SetTensor("x", Normal({4, 4}, 2));
  const float inf = std::numeric_limits<float>::infinity();
  workspace.SetTensor("large", Tensor::Of<float>({1, 4}, {3.4e38f, inf, 3.3e38f, -3.4e38f}));
  NetDef net;
  ParseMessageText(
      "name: 'n' external_output: ['y', 'given'] op { type: 'Gather' input: ['table', 'tokens'] output: 'e' } "
      "op { type: 'FC' input: ['e', 'table', 'b'] output: 'a' } op { type: 'FC' input: ['x', 'w', 'b'] output: 'c' } "
      "op { type: 'MatMul' input: ['x', 'v'] output: 'd' } op { type: 'FC' input: ['x', 'given'] output: 'f' } "
      "op { type: 'FC' input: ['x', 'half'] output: 'y' } op { type: 'Relu' input: 'w2' output: 'written' } "
      "op { type: 'FC' input: ['x', 'written'] output: 'g' } op { type: 'FC' input: ['x', 'large'] output: 'l' }",
      "test", &net);
  const Names parameters = {"w", "v", "table", "given", "written", "half", "b", "absent", "large"};
  EXPECT_EQ(BFloat16Candidates(net, parameters), (Names{"w", "v", "half", "large"}));  // by who reads them
  const BFloat16Weights weights = StoreWeightsInBFloat16(net, parameters, workspace);
  EXPECT_EQ(weights.stored, (Names{"v", "w"}));
  EXPECT_EQ(weights.bytes, 64);
  std::string kept;
  for (const FloatWeight& weight : weights.kept) kept += StrCat(weight.name, ": ", weight.reason, "\n");
  EXPECT_EQ(kept,
            "given: the net gives it\n"
            "half: it is float16 [4, 4]\n"
            "large: of its elements 2 would be infinite\n"
            "table: Gather, op 0 of net \"n\", reads it too\n"
            "written: Relu, op 6 of net \"n\", writes it\n");
  EXPECT_EQ(workspace.GetTensor("x").dtype(), DType::kFloat);  // no parameter
  EXPECT_EQ(workspace.GetTensor("b").dtype(), DType::kFloat);
  // Again, they are what they are already.
  EXPECT_EQ(StoreWeightsInBFloat16(net, {"w"}, workspace).bytes, 32);
}

TEST(BFloat16WeightsOfNets, AreRefusedWhereTheyMeanNothing) {
  Workspace workspace;
  workspace.SetTensor("w", Normal({4, 4}, 1));
  workspace.SetTensor("double", Tensor::Zeros(DType::kDouble, {4, 4}));
  NetDef net;
  ParseMessageText(
      "name: 'n' op { type: 'FC' input: ['x', 'w', 'b'] output: 'y' } op { type: 'Sum' input: ['y', 'w'] output: 's' } "
      "op { type: 'FC' input: ['x', 'double'] output: 'z' }",
      "test", &net);
  ExpectError(
      [&] {
        StoreWeightsInBFloat16(net, {"w", "b"}, workspace);
      },
      "…no parameter of the net can be stored in bfloat16: that is for weights of products (of FC and MatMul), "
      "which nothing else reads\n  \"w\" stays float: Sum, op 1 of net \"n\", reads it too");
  ExpectError([&] { StoreWeightsInBFloat16(net, {"double"}, workspace); },
              "…the weights \"double\" are double [4, 4], and weights in bfloat16 are for nets that compute in float");
  NetDef forward;
  ParseMessageText("name: 'n' op { type: 'FC' input: ['x', 'w', 'b'] output: 'y' }", "test", &forward);
  const NetDef training = AddGradients(forward, {"y"}, {"w"}).net;
  ExpectError([&] { StoreWeightsInBFloat16(training, {"w"}, workspace); },
              "…weights in bfloat16 are for inference, and FCGradient, op 2 of net \"n\", computes a gradient with "
              "\"w\"; run the net without its gradient operators, or keep weights in float");
  EXPECT_EQ(workspace.GetTensor("w").dtype(), DType::kFloat);
}

// Plans keep them, laid out for kernels, in bfloat16, too.
TEST(BFloat16WeightsOfNets, TakeHalfTheMemory) {
  NEEDS_ALL_PASSES();
  const CellRun run("lstm", 192, 20, 8);
  const auto peak = [&](bool stores) {
    Workspace parameters;
    run.Fill(parameters);
    if (stores) StoreWeightsInBFloat16(run.cell.net, run.cell.parameters, parameters);
    const std::int64_t before = TensorMemory().current;
    ResetPeakTensorMemory();
    run.Run(parameters, {.executor = "serial"});
    return std::pair(before, TensorMemory().peak - before);
  };
  const auto [floats, run_of_floats] = peak(false);
  const auto [stored, run_of_stored] = peak(true);
  const std::int64_t half = std::int64_t{2} * 4 * 192 * 192 * 2;  // of both weights
  EXPECT_EQ(floats - stored, half);
  EXPECT_GE(run_of_floats - run_of_stored, half / 2);  // at least what is laid out for the loop
}

}  // namespace
}  // namespace stepnet
