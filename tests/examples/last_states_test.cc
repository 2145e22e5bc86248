// Cells keep a few rows of states that are outputs as they are in the end alone, or not at all, and give the bits that
// they give where somebody sees all rows.
#include <gtest/gtest.h>

#include "cell_case.h"
#include "stepnet/compiler/step_plan.h"
#include "stepnet/core/strings.h"
#include "stepnet/nets/double_net.h"
#include "stepnet/nets/net.h"
#include "stepnet/nets/op_arguments.h"
#include "stepnet/tests/compiler/needs_usual_plans.h"
#include "stepnet/tests/core/filled_memory.h"
#include "stepnet/tests/core/sanitized.h"
#include "stepnet/tests/executor/recurrent_case.h"

namespace stepnet {
namespace {

struct Variant {
  std::string name;
  std::function<void(CellCase*)> change;
};

const std::vector<Variant>& Variants() {
  static const auto kOptions = [](CellCase* test) { return test->cell.def.mutable_options(); };
  static const std::vector<Variant> kVariants = {
      {"plain", [](CellCase*) {}},
      {"lengths", [](CellCase* test) { kOptions(test)->set_lengths("lengths"); }},
      {"bidirectional, lengths, held",
       [](CellCase* test) {
         kOptions(test)->set_direction(CellOptions::BIDIRECTIONAL);
         kOptions(test)->set_lengths("lengths");
         kOptions(test)->set_beyond_length(CellOptions::HELD);
       }},
      {"two layers, reverse, mask",
       [](CellCase* test) {
         kOptions(test)->set_layers(2);
         kOptions(test)->set_direction(CellOptions::REVERSE);
         kOptions(test)->set_mask("mask");
       }},
      {"two layers, carried", [](CellCase* test) {
         kOptions(test)->set_layers(2);
         test->use.carry = true;
       }}};
  return kVariants;
}

// Beside the first output all states as they are in the end, and nothing else; or also behind each step.
CellSource WithLastStates(CellSource cell, bool also_all) {
  const CellOutput first = cell.def.output(0);
  cell.def.clear_output();
  *cell.def.add_output() = first;
  for (const CellState& state : cell.def.state()) {
    if (also_all && state.name() != first.blob()) cell.def.add_output()->set_blob(state.name());
    CellOutput& output = *cell.def.add_output();
    output.set_blob(state.name());
    output.set_last(true);
  }
  return cell;
}

Tensors RunOf(const NetDef& net, const Tensors& given, RunOptions options, std::int64_t* rings) {
  options.on_plan = [&](const StepPlan& plan) {
    for (const Slot& slot : plan.slots) {
      *rings += slot.storage_class == StorageClass::kLinked && slot.ring_rows > 0 ? 1 : 0;
    }
  };
  Workspace workspace;
  for (const auto& [name, tensor] : given) workspace.SetTensor(name, tensor);
  const FilledMemory filled(kFills[0]);
  Net::Create(net, workspace, options)->Run();
  Tensors outputs;
  for (const std::string& blob : net.external_output()) outputs[blob] = workspace.GetTensor(blob);
  return outputs;
}

// What the cell gives with rings, with the states of all steps kept, and where these are outputs.
void ExpectSameEnds(const CellCase& test, std::int64_t* rings) {
  CellCase last = test, all = test;
  last.cell = WithLastStates(test.cell, /*also_all=*/false);
  all.cell = WithLastStates(test.cell, /*also_all=*/true);
  const CellNet net = last.Expand();
  const Tensors given = last.RandomValues(net);
  const NetDef def = InDouble(net.net), def_of_all = InDouble(all.Expand().net);
  NetDef readable = def;
  for (OperatorDef& op : *readable.mutable_op()) {
    if (op.type() == "RecurrentNetwork") NewArgument(&op, "private_states")->set_i(0);
  }
  std::int64_t none = 0;
  const Tensors wanted = RunOf(readable, given, {.threads = 1}, &none);
  EXPECT_EQ(none, 0);
  const Tensors of_all = RunOf(def_of_all, given, {.threads = 2}, &none);
  for (const int threads : {1, 2, 3}) {
    for (const auto& [blob, tensor] : RunOf(def, given, {.threads = threads}, rings)) {
      ExpectSame(tensor, wanted.at(blob), StrCat(blob, ", ", threads, " threads"));
      ExpectSame(tensor, of_all.at(blob), StrCat(blob, " where all is an output, ", threads, " threads"));
    }
  }
  ExpectTensorsNear(RunOf(def, given, {.threads = 2, .opt_level = 0}, rings), wanted);
}

TEST(LastStates, AreThoseOfRunsThatKeepAllStates) {
  NEEDS_USUAL_PLANS();
  std::int64_t rings = 0, of_variant = 0;
  for (const Variant& variant : Variants()) {
    std::int64_t of_cell = of_variant++;
    for (const std::string& name : ExampleCells()) {
      std::int64_t trial = of_cell++;
      for (const std::int64_t num_steps : {0, 1, 2, 5, 40}) {
        if (!IsTried(trial++)) continue;
        SCOPED_TRACE(StrCat(name, ", ", variant.name, ", ", num_steps, " steps"));
        CellCase test{.cell = ReadExampleCell(name), .num_steps = num_steps, .batch = 3};
        variant.change(&test);
        test.use.sizes = SmallSizes(test.cell.def);
        test.seed = static_cast<unsigned>(trial);
        ExpectSameEnds(test, &rings);
        if (testing::Test::HasFailure()) return;
      }
    }
  }
  EXPECT_GT(rings, 100);
}

// A state that is a matrix, of which a step reads what it has made.
TEST(LastStates, MayBeMatrices) {
  const CellSource cell = ParseCell(
      "cell delta(x[D]; S[V, K]) {\n  size D = 5; size K = 4; size V = 6\n  param wk[K, D]\n  param wv[V, D]\n"
      "  k = Tanh(x @ wk)\n  v = x @ wv\n  k_row, k_shape = Reshape(k, shape=[1, -1, 1, K])\n"
      "  v_column, v_shape = Reshape(v, shape=[1, -1, V, 1])\n  S = S + v_column * k_row\n"
      "  column, column_shape = Reshape(k, shape=[1, -1, K, 1])\n  y = BatchMatMul(S, column)\n"
      "  output y\n  output S last\n}\n",
      "delta");
  std::int64_t rings = 0;
  for (const std::int64_t num_steps : {0, 1, 2, 5, 40}) {
    ExpectSameEnds({.cell = cell, .num_steps = num_steps, .batch = 3}, &rings);
  }
  EXPECT_GT(rings, 0);
}

}  // namespace
}  // namespace stepnet
