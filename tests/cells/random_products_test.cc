// Random cells of products whose operands lie side by side, or whose results are cut into gates: passes take them apart
// and join the parts with others, and the net computes what it does when no pass has run.
#include <gtest/gtest.h>

#include <random>

#include "stepnet/core/strings.h"
#include "stepnet/core/workspace.h"
#include "stepnet/nets/double_net.h"
#include "stepnet/nets/net.h"
#include "stepnet/tests/devices/tested_devices.h"
#include "stepnet/tests/examples/cell_case.h"
#include "stepnet/tests/executor/random_step.h"

namespace stepnet {
namespace {

class RandomCell {
 public:
  explicit RandomCell(unsigned seed) : random_(seed) {}

  std::string Text() {
    const int num_lines = 1 + Pick(5);
    for (int i = 0; i < num_lines; ++i) AddLine(StrCat("t", i));
    std::string states;
    for (const char* state : {"h", "c"}) {
      states += StrCat("  ", state, " = Sigmoid(", Term(), ") * ", state, " + ", Activated(Term()), " + Tanh(x @ ",
                       Param("H, H"), ")\n");
    }
    const std::string shown = Pick(2) == 0 ? StrCat("  output ", values_.back(), "\n") : "";
    const std::string last = Pick(2) == 0 ? "  output h last\n" : "";
    return StrCat("cell f(x[H]; h, c[H]) {\n  size H = 3\n", params_, body_, states, "  output h\n", shown, last,
                  "}\n");
  }

 private:
  int Pick(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  // Later values more often.
  std::string Value() {
    const int n = static_cast<int>(values_.size());
    return values_[Pick(2) == 0 ? Pick(n) : n - 1 - Pick(std::min(n, 3))];
  }
  std::string Param(const std::string& shape) {
    const std::string name = StrCat("p", num_params_++);
    params_ += StrCat("  param ", name, "[", shape, "]\n");
    return name;
  }
  std::string Activated(const std::string& text) {
    constexpr const char* kFunctions[] = {"Tanh", "Sigmoid", "Softsign"};
    return StrCat(kFunctions[Pick(3)], "(", text, ")");
  }

  std::string Product(const std::string& rows) {
    const std::string bias = Pick(3) == 0 ? StrCat(" + ", Param(rows)) : "";
    const int num_operands = 1 + Pick(3);
    if (num_operands == 1) return StrCat(Value(), " @ ", Param(rows + ", H"), bias);
    std::vector<std::string> operands(num_operands);
    for (std::string& operand : operands) operand = Value();
    return StrCat("Concat(", Join(operands, ", "), ", axis=-1) @ ", Param(StrCat(rows, ", ", num_operands, "*H")),
                  bias);
  }

  std::string Term() {
    switch (Pick(4)) {
      case 0: return Value();
      case 1: return StrCat(Value(), " * ", Value());
      default: return StrCat("(", Product("H"), ")");
    }
  }

  void AddLine(const std::string& name) {
    if (Pick(3) > 0) {
      body_ += StrCat("  ", name, " = ", Activated(StrCat(Term(), " + ", Term())), "\n");
      values_.push_back(name);
      return;
    }
    const int num_gates = 2 + Pick(2);
    std::vector<std::string> gates;
    for (int g = 0; g < num_gates; ++g) gates.push_back(StrCat(name, "_", g));
    const std::string rows = StrCat(num_gates, "*H"), other = Pick(2) == 0 ? " + " + Product(rows) : "";
    body_ += StrCat("  ", Join(gates, ", "), " = Split(", Product(rows), other, ", axis=-1)\n");
    values_.insert(values_.end(), gates.begin(), gates.end());
  }

  std::mt19937 random_;
  std::vector<std::string> values_ = {"x", "h", "c"};
  int num_params_ = 0;
  std::string params_, body_;
};

Tensors RunNet(const NetDef& def, const Tensors& given, const std::map<std::string, std::string>& blobs,
               const RunOptions& options) {
  Workspace workspace;
  Feed(given, workspace);
  Net::Create(def, workspace, options)->Run();
  Tensors values;
  for (const auto& [name, blob] : blobs) values[name] = workspace.GetTensor(blob);
  return values;
}

TEST(RandomProducts, OfCellsGiveTheSameOnEveryLevel) {
  for (unsigned seed = 0; seed < NumSeeds(150); ++seed) {
    const std::string text = RandomCell(seed).Text();
    SCOPED_TRACE(StrCat("seed ", seed, "\n", text));
    constexpr std::int64_t kSteps[] = {1, 3, 20};
    CellCase test{.cell = ParseCell(text, "cell"), .use = {}, .num_steps = kSteps[seed % 3], .batch = 2, .seed = seed};
    const CellNet net = test.Expand();
    const Tensors given = test.RandomValues(net);
    std::map<std::string, std::string> blobs;
    for (const std::string& output : net.outputs) blobs[output] = output;
    const RunOptions kReference = {.threads = 1, .opt_level = 0};
    const Tensors outputs = RunNet(InDouble(net.net), given, blobs, kReference);
    const CellGradientNet made = MakeGradientNet(net, given, /*weights=*/outputs);  // any values of these shapes
    for (const auto& [name, gradient] : made.gradients) blobs[name + "'s gradient"] = gradient;
    const Tensors wanted = RunNet(made.net, made.inputs, blobs, kReference);
    for (const int level : {1, 2}) {
      const int threads = 1 + static_cast<int>(seed / 3 % 2);
      const Tensors found = RunNet(made.net, made.inputs, blobs, {.threads = threads, .opt_level = level});
      ExpectTensorsNear(found, wanted, kSteps[seed % 3] == 20 ? 1e-8 : 1e-11);  // rounding grows with the steps
    }
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace stepnet
