// Damaged nets, cells and files. Each must run or be refused with an Error, and what must not matter does not. The same
// damage in every run of the test; fuzz_trials and the fuzz targets beside this file look further.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "damage.h"
#include "stepnet/core/error.h"
#include "stepnet/io/file.h"
#include "stepnet/io/proto_io.h"
#include "stepnet/io/tensor_io.h"
#include "stepnet/nets/backward.h"
#include "stepnet/nets/backward_step.h"
#include "stepnet/nets/net.h"
#include "stepnet/tests/core/sanitized.h"
#include "stepnet/tests/core/source_path.h"
#include "trials.h"

namespace stepnet {

void PrintTo(const TrialKind& kind, std::ostream* out) { *out << kind.name; }

namespace {

const std::string kGolden = SourcePath("tests/golden");

// Every case with one run whose net is small, in a fixed order.
std::vector<std::string> SmallCases() {
  constexpr std::uintmax_t kMaxNetBytes = 12'000;
  std::vector<std::string> cases;
  for (const auto& entry : std::filesystem::directory_iterator(kGolden)) {
    const std::filesystem::path net = entry.path() / "net.pb";
    if (!exists(net) || !exists(entry.path() / "inputs.pb")) continue;
    if (file_size(net) <= kMaxNetBytes) cases.push_back(entry.path().string());
  }
  std::ranges::sort(cases);
  return cases;
}

// The operators before the first gradient operator; with `keeps_backward` with the backward step nets that they have.
NetDef ForwardPart(const NetDef& net, bool keeps_backward) {
  NetDef forward;
  for (const OperatorDef& op : net.op()) {
    if (op.is_gradient_op()) break;
    OperatorDef& kept = *forward.add_op() = op;
    if (keeps_backward) continue;
    const auto is_backward = [](const Argument& argument) { return argument.name().starts_with("backward_"); };
    kept.mutable_arg()->erase(std::remove_if(kept.mutable_arg()->begin(), kept.mutable_arg()->end(), is_backward),
                              kept.mutable_arg()->end());
  }
  return forward;
}

class DamagedNets : public testing::Test {
 protected:
  // Files ask for more than they are worth.
  void SetUp() override { SetTensorMemoryLimit(64 << 20); }
  void TearDown() override { SetTensorMemoryLimit(limit_); }

  static void RunWithInputs(const NetDef& net, const NamedTensors& inputs) {
    Workspace workspace;
    for (const auto& [name, tensor] : inputs) workspace.SetTensor(name, tensor.Clone());
    try {
      Net::Create(net, workspace, {.quiet = true})->Run();
    } catch (const Error&) {
    }
  }

 private:
  const std::int64_t limit_ = TensorMemory().limit;
};

TEST_F(DamagedNets, RunOrAreRefusedWhenBytesAreDamaged) {
  int parsed = 0;
  for (const std::string& folder : SmallCases()) {
    const std::string bytes = ReadFile(folder + "/net.pb");
    const NamedTensors inputs = ReadTensors(folder + "/inputs.pb");
    std::mt19937 random(static_cast<unsigned>(bytes.size()));
    for (int k = 0; k < 6; ++k) {
      SCOPED_TRACE(folder + ", damage " + std::to_string(k));
      NetDef net;
      try {
        ParseMessageBytes(DamagedBytes(bytes, random), "net", &net);
      } catch (const Error&) {
        continue;
      }
      ++parsed;
      RunWithInputs(net, inputs);
    }
  }
  EXPECT_GT(parsed, 100) << "the damage hardly ever left a file that parses";
}

TEST_F(DamagedNets, RunOrAreRefusedWhenTheirPartsAreWrong) {
  for (const std::string& folder : SmallCases()) {
    NetDef whole;
    ReadMessage(folder + "/net.pb", &whole);
    const NamedTensors inputs = ReadTensors(folder + "/inputs.pb");
    std::mt19937 random(static_cast<unsigned>(whole.ByteSizeLong()));
    for (int k = 0; k < 12; ++k) {
      SCOPED_TRACE(folder + ", damage " + std::to_string(k));
      NetDef net = whole;
      Damage(&net, random);
      RunWithInputs(net, inputs);
    }
  }
}

// Offsets, windows and indices say which memory is touched. The operator and its gradient hold each of them, and a file
// can change one and not the other.
TEST_F(DamagedNets, RunOrAreRefusedWhateverNumbersRecurrentOperatorsHold) {
  int changed = 0;
  for (const auto& entry : std::filesystem::directory_iterator(SourcePath("tests/fuzz/corpus/net"))) {
    NetDef net;
    ReadMessage(entry.path().string(), &net);
    for (OperatorDef& op : *net.mutable_op()) {
      if (!op.type().starts_with("RecurrentNetwork")) continue;
      for (Argument& arg : *op.mutable_arg()) {
        for (std::int64_t& number : *arg.mutable_ints()) {
          SCOPED_TRACE(entry.path().string() + ", " + op.type() + ", " + arg.name());
          const std::int64_t whole = number;
          for (const std::int64_t other : {whole - 1, whole + 1, whole + 2, std::int64_t{1} << 39}) {
            if (!IsTried(changed++)) continue;
            number = other;
            RunWithInputs(net, {});
          }
          number = whole;
        }
      }
    }
  }
  EXPECT_GT(changed, 1000);
}

TEST_F(DamagedNets, GetGradientsOrAreRefused) {
  int made = 0;
  for (const std::string& folder : SmallCases()) {
    NetDef whole;
    ReadMessage(folder + "/net.pb", &whole);
    const NamedTensors inputs = ReadTensors(folder + "/inputs.pb");
    std::vector<std::string> names;
    for (const auto& [name, tensor] : inputs) names.push_back(name);
    std::mt19937 random(static_cast<unsigned>(whole.ByteSizeLong()));
    for (int k = 0; k < 8; ++k) {
      SCOPED_TRACE(folder + ", damage " + std::to_string(k));
      NetDef net = ForwardPart(whole, k % 2 == 0);
      Damage(&net, random);
      if (net.op_size() == 0 || net.op().rbegin()->output_size() == 0) continue;
      try {
        AddBackwardStepNets(&net);
        net = AddGradients(net, {net.op().rbegin()->output(0)}, names).net;
        ++made;
      } catch (const Error&) {
        continue;
      }
      RunWithInputs(net, inputs);
    }
  }
  EXPECT_GT(made, 100) << "the damage hardly ever left a net with gradients";
}

TEST_F(DamagedNets, RunOrAreRefusedWhenInputsHaveOtherShapes) {
  for (const std::string& folder : SmallCases()) {
    NetDef net;
    ReadMessage(folder + "/net.pb", &net);
    NamedTensors inputs = ReadTensors(folder + "/inputs.pb");
    std::mt19937 random(static_cast<unsigned>(net.ByteSizeLong()));
    for (size_t i = 0; i < inputs.size(); ++i) {
      SCOPED_TRACE(folder + ", input " + inputs[i].first);
      const Tensor whole = inputs[i].second;
      const bool has_rows = whole.shape().rank() > 0 && whole.dim(0) > 0;
      switch (random() % 4) {
        case 0: inputs[i].second = whole.Reshaped({whole.size()}); break;
        case 1: inputs[i].second = has_rows ? whole.Slice(0, whole.dim(0) - 1) : whole; break;
        case 2: inputs[i].second = Tensor(DType::kDouble, Shape({0})); break;
        default:
          inputs[i].second = Tensor(DType::kInt64, whole.shape());
          std::fill_n(inputs[i].second.data<std::int64_t>(), whole.size(), static_cast<std::int64_t>(random()) << 20);
      }
      RunWithInputs(net, inputs);
      inputs[i].second = whole;
    }
  }
}

class Trials : public testing::TestWithParam<TrialKind> {};
INSTANTIATE_TEST_SUITE_P(, Trials, testing::ValuesIn(TrialKinds()), [](const auto& info) { return info.param.name; });

TEST_P(Trials, FindNoFault) {
  const unsigned count = GetParam().name == "nets" ? static_cast<unsigned>(FewerIfSanitized(1500)) : 300;
  unsigned ran = 0;
  for (unsigned seed = 1; seed <= count; ++seed) {
    const TrialResult result = GetParam().run(seed, nullptr);
    if (result.ran) ++ran;
    EXPECT_EQ(result.fault, "") << "seen again by: fuzz_trials " << GetParam().name << " " << seed << " --show";
  }
  EXPECT_GT(ran, count / 50) << "the damage hardly ever left something that runs";
}

}  // namespace
}  // namespace stepnet
