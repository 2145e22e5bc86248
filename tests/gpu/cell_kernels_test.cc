// What a GPU compiles for every example cell, forward and backward, for training and in use: by NVRTC, without a GPU.
#include <gtest/gtest.h>

#include <map>

#include "no_device_compiler.h"
#include "stepnet/compiler/step_plan.h"
#include "stepnet/core/expansion.h"
#include "stepnet/core/formulas/formula.h"
#include "stepnet/core/strings.h"
#include "stepnet/gpu/region_source.h"
#include "stepnet/nets/backward.h"
#include "stepnet/nets/backward_step.h"
#include "stepnet/nets/completion.h"
#include "stepnet/nets/op_builder.h"
#include "stepnet/nets/recurrent_spec.h"
#include "stepnet/tests/examples/cell_case.h"

namespace stepnet {
namespace {

// Kernels of one text, each once.
class Kernels {
 public:
  // Those of an operator for inputs and outputs of these shapes.
  void Add(const OperatorDef& def, const std::vector<TensorInfo>& inputs, const std::vector<TensorInfo>& outputs) {
    const OperatorCall op(def);
    const OperatorSchema& schema = op.schema();
    const ShapeQuery query(op, inputs);
    if (schema.formula) {
      if (!FormulaApplies(query, outputs)) return;
      const FormulaRegion formula = MakeFormulaRegion(query, outputs);
      AddRegion(formula.region, SourceOptionsOf(formula, "kernel"));
    } else if (schema.expansion) {
      const bool reads_values = !schema.shape_value_inputs.empty();
      const Expansion expansion(query, reads_values ? outputs : std::vector<TensorInfo>());
      for (const RegionPart& part : expansion.parts()) AddRegion(part.region, {.name = "kernel"});
    }
  }

  size_t size() const { return sources_.size(); }
  std::string Text() const {
    std::string text = StrCat(DeviceCodeText(), "\nusing namespace stepnet::device;\n");
    for (const auto& [source, named] : sources_) text += named;
    return text;
  }

 private:
  void AddRegion(const Region& region, RegionSourceOptions options) {
    std::string& named = sources_[PrintRegion(region, options).kernels];
    if (!named.empty()) return;
    options.name = StrCat("kernel", sources_.size());
    named = PrintRegion(region, options).kernels;
  }

  std::map<std::string, std::string> sources_;  // by the text under one name
};

// Adds those of the step net of a plan, in which each operator is an instruction.
void AddStep(const StepPlan& plan, const NetDef& step, Kernels* kernels) {
  for (const Instruction& instruction : plan.instructions) {
    if (instruction.op_index < 0 || instruction.by_blobs) continue;
    const OperatorDef& op = step.op(instruction.op_index);
    if (op.type() != instruction.type || static_cast<int>(instruction.inputs.size()) != op.input_size()) continue;
    std::vector<TensorInfo> inputs(instruction.inputs.size()), outputs(op.output_size());
    for (const Operand& input : instruction.inputs) inputs[input.position] = input.info;
    for (const Operand& output : instruction.outputs) outputs[output.position] = output.info;
    if (instruction.outputs.size() == outputs.size()) kernels->Add(op, inputs, outputs);
  }
}

// Values of float for all that the net reads.
void Feed(const CellCase& test, const CellNet& net, Workspace* workspace) {
  for (const auto& [name, tensor] : test.RandomValues(net)) {
    Tensor fed = tensor;
    if (tensor.dtype() == DType::kDouble) {
      fed = Tensor(DType::kFloat, tensor.shape());
      for (std::int64_t i = 0; i < tensor.size(); ++i)
        fed.data<float>()[i] = static_cast<float>(tensor.data<double>()[i]);
    }
    workspace->SetTensor(name, fed);
  }
}

// The net with the gradients of the sum of its outputs.
NetDef WithGradients(const CellNet& net) {
  NetDef def = net.net;
  const std::vector<std::string> outputs(def.external_output().begin(), def.external_output().end());
  AddBackwardStepNets(&def, [](const std::string&) { return true; });
  return AddGradients(def, outputs, net.parameters).net;
}

void AddCell(const CellCase& test, Kernels* kernels) {
  const CellNet cell = test.Expand();
  const NetDef net = Completed(WithGradients(cell));
  Workspace workspace;
  Feed(test, cell, &workspace);
  std::vector<StepPlan> plans;
  Net::Create(net, workspace,
              {.threads = 1, .opt_level = 0, .on_plan = [&](const StepPlan& plan) { plans.push_back(plan); }})
      ->Run();
  const auto infos = [&](const auto& blobs) {
    std::vector<TensorInfo> all;
    for (const std::string& blob : blobs) {
      const Blob& found = workspace.GetBlob(blob);
      if (found.HasTensor()) all.push_back({.dtype = found.GetTensor().dtype(), .shape = found.GetTensor().shape()});
    }
    return all;
  };
  for (const OperatorDef& op : net.op()) {
    if (!op.type().starts_with("RecurrentNetwork")) {
      kernels->Add(op, infos(op.input()), infos(op.output()));
      continue;
    }
    const RecurrentSpec spec = ParseRecurrentSpec(OperatorCall(op));
    for (const StepPlan& plan : plans) {
      if (plan.name == spec.step_net->name() && !plan.backward) AddStep(plan, *spec.step_net, kernels);
      if (spec.backward_step_net == nullptr || !plan.backward) continue;
      if (plan.name == spec.backward_step_net->name()) AddStep(plan, *spec.backward_step_net, kernels);
    }
  }
}

TEST(CellKernels, OfEveryExampleCellCompile) {
  if (const std::string why = WhyNoDeviceCompilerHere(); !why.empty()) GTEST_SKIP() << why;
  Kernels kernels;
  for (const std::string& name : ExampleCells()) {
    const CellSource cell = ReadExampleCell(name);
    for (const bool training : {false, true}) {
      AddCell({.cell = cell, .use = {.sizes = SmallSizes(cell.def), .training = training}, .num_steps = 3, .batch = 2},
              &kernels);
    }
  }
  EXPECT_GT(kernels.size(), 30U);
  for (const char* architecture : {"sm_80", "sm_90a"}) {
    const DeviceCode code = CompileDeviceCode(kernels.Text(), architecture);
    EXPECT_EQ(WarningsIn(code.log), "");
    EXPECT_GE(ResourcesIn(code.log).size(), kernels.size());
    for (const KernelResources& kernel : ResourcesIn(code.log)) {
      EXPECT_EQ(kernel.spill_bytes, 0) << kernel.kernel << " for " << architecture;
    }
  }
}

}  // namespace
}  // namespace stepnet
