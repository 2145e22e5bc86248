// What a GPU compiles for every example cell, forward and backward, for training and in use: by NVRTC, without a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>

#include "no_device_compiler.h"
#include "stepnet/compiler/instruction_rows.h"
#include "stepnet/compiler/joined_regions.h"
#include "stepnet/compiler/passes/passes.h"
#include "stepnet/compiler/region_node_kernel.h"
#include "stepnet/compiler/region_nodes.h"
#include "stepnet/compiler/step_graph.h"
#include "stepnet/compiler/step_plan.h"
#include "stepnet/core/expansion.h"
#include "stepnet/core/formulas/formula.h"
#include "stepnet/core/strings.h"
#include "stepnet/gpu/region_source.h"
#include "stepnet/nets/backward.h"
#include "stepnet/nets/backward_step.h"
#include "stepnet/nets/completion.h"
#include "stepnet/tests/examples/cell_case.h"
#include "stepnet/tools/rnn_runner/placed_plans.h"

namespace stepnet {
namespace {

// Kernels of one text, each once.
class Kernels {
 public:
  // Those of an operator for inputs of these descriptions. `outputs`: those that follow from values, else none;
  // `wanted`: bit o for output o, others are not computed.
  void Add(const OperatorDef& def, const std::vector<TensorInfo>& inputs, const std::vector<TensorInfo>& outputs = {},
           std::uint64_t wanted = ~std::uint64_t{0}) {
    const OperatorCall op(def);
    const OperatorSchema& schema = op.schema();
    const ShapeQuery query(op, inputs);
    if (schema.expansion) {
      const bool reads_values = !schema.shape_value_inputs.empty();
      const Expansion expansion(query, reads_values ? outputs : std::vector<TensorInfo>());
      for (const RegionPart& part : expansion.parts()) AddRegion(part.region, {});
    } else if (schema.formula) {
      const std::vector<TensorInfo> of_formula = schema.shapes(query);
      if (!FormulaApplies(query, of_formula)) return;
      const FormulaRegion formula = MakeFormulaRegion(query, of_formula, wanted);
      AddRegion(formula.region, SourceOptionsOf(formula, ""));
    }
  }
  // That of a region of several operators, or theirs where they are no single program.
  void Add(const RegionNodeKernelSpec& spec, const std::vector<TensorInfo>& inputs) {
    const RegionNodeKernel kernel(spec, DeviceKind::kCuda);
    const std::shared_ptr<const ComposedProgram> composed = kernel.Composed(inputs);
    if (composed == nullptr) return AddOneByOne(spec, inputs);
    Add(*kernel.ForDevice(inputs));
  }
  void Add(const DeviceRegion& region) {
    num_of_several_ += AddSource([&](const std::string& name) {
      return PrintRegions(region.regions, region.groups, {.name = name, .values = region.host_inputs}).kernels;
    });
  }

  size_t size() const { return sources_.size(); }
  size_t num_of_several() const { return num_of_several_; }  // operators
  std::string Text() const {
    std::string text = StrCat(DeviceCodeText(), "\nusing namespace stepnet::device;\n");
    for (const auto& [source, named] : sources_) text += named;
    return text;
  }

 private:
  void AddOneByOne(const RegionNodeKernelSpec& spec, const std::vector<TensorInfo>& inputs) {
    std::vector<TensorInfo> operands = inputs;
    operands.resize(inputs.size() + spec.num_outputs + spec.num_locals);
    for (const RegionCall& call : spec.calls) {
      std::vector<TensorInfo> read;
      for (const int input : call.inputs) read.push_back(operands[input]);
      const std::vector<TensorInfo> given = call.call->schema().shapes(ShapeQuery(*call.call, read));
      for (size_t o = 0; o < call.outputs.size(); ++o) operands[call.outputs[o]] = given[o];
      Add(*call.def, read);
    }
  }

  void AddRegion(const Region& region, RegionSourceOptions options) {
    AddSource([&](const std::string& name) {
      options.name = name;
      return PrintRegion(region, options).kernels;
    });
  }

  // What is printed under a name. Returns how many new ones that is.
  int AddSource(const std::function<std::string(const std::string& name)>& print) {
    std::string& named = sources_[print("kernel")];
    if (!named.empty()) return 0;
    named = print(StrCat("kernel", sources_.size()));
    return 1;
  }

  std::map<std::string, std::string> sources_;  // by the text under one name
  size_t num_of_several_ = 0;
};

// Adds those of the plan that a graph has become, for runs of so many steps.
void AddPlan(const StepGraph& graph, const StepPlan& plan, std::int64_t num_steps, Kernels* kernels) {
  ASSERT_EQ(graph.nodes.size(), plan.instructions.size());
  for (size_t i = 0; i < plan.instructions.size(); ++i) {
    const StepNode& node = graph.nodes[i];
    const Instruction& instruction = plan.instructions[i];
    if (!node.RunsOperators() || instruction.by_blobs) continue;
    const bool takes_all = instruction.steps_at_once == kAllSteps || instruction.steps_at_once > num_steps;
    const std::int64_t at_once = takes_all ? num_steps : instruction.steps_at_once;
    std::vector<TensorInfo> inputs(instruction.inputs.size());
    for (const InstructionOperand& input : instruction.inputs) {
      inputs[input.position] = input.info;
      inputs[input.position].shape = ShapeOfSteps(input, at_once);
    }
    if (node.body && !node.body->begins.empty()) {
      const std::vector<StepNode> regions = RegionsOf(graph, node);
      kernels->Add(JoinedRegions::Of(graph, regions).value().ForDevice());
      continue;
    }
    if (!node.IsOneOperator()) {
      kernels->Add(SpecOf(graph, node), inputs);
      continue;
    }
    std::uint64_t wanted = 0;
    for (const InstructionOperand& output : instruction.outputs) wanted |= std::uint64_t{1} << output.position;
    kernels->Add(*node.def, inputs, {}, wanted);
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

// Adds the kernels of a cell's net with its gradients, as a GPU runs it.
void AddCell(const CellCase& test, int opt_level, Kernels* kernels) {
  const CellNet cell = test.Expand();
  const NetDef net = *Completed(WithGradients(cell));
  Workspace workspace;
  Feed(test, cell, &workspace);
  RunNetOnce(net, workspace, {.threads = 1, .opt_level = 0});  // for the shapes
  RunOptions options = OnDevice({.opt_level = opt_level}, {.kind = DeviceKind::kCuda});
  StepGraph last;
  options.on_pass = [&](const std::string&, const StepGraph& graph) { last = graph; };
  options.on_plan = [&](const StepPlan& plan) { AddPlan(last, plan, test.num_steps, kernels); };
  runner::MakePlacedPlans(workspace, net, options);
  const auto infos = [&](const auto& blobs) {
    std::vector<TensorInfo> all;
    for (const std::string& blob : blobs) {
      const Blob& found = workspace.GetBlob(blob);
      if (found.HasTensor()) all.push_back({.dtype = found.GetTensor().dtype(), .shape = found.GetTensor().shape()});
    }
    return all;
  };
  for (const OperatorDef& op : net.op()) {
    if (!op.type().starts_with("RecurrentNetwork")) kernels->Add(op, infos(op.input()), infos(op.output()));
  }
}

class CellKernels : public testing::TestWithParam<int> {};

TEST_P(CellKernels, OfEveryExampleCellCompile) {
  if (const std::string why = WhyNoDeviceCompilerHere(); !why.empty()) GTEST_SKIP() << why;
  if (FindDeviceSpec(DeviceKind::kCuda) == nullptr) GTEST_SKIP() << "built without CUDA";
  Kernels kernels;
  for (const std::string& name : ExampleCells()) {
    const CellSource cell = ReadExampleCell(name);
    for (const bool training : {false, true}) {
      AddCell({.cell = cell, .use = {.sizes = SmallSizes(cell.def), .training = training}, .num_steps = 3, .batch = 2},
              GetParam(), &kernels);
    }
  }
  EXPECT_GT(kernels.size(), 30U);
  if (std::min(GetParam(), TestedOptLevel()) == kMaxOptLevel) {
    EXPECT_GT(kernels.num_of_several(), 30U);
  }
  for (const char* architecture : {"sm_80", "sm_90a"}) {
    const DeviceCode code = CompileDeviceCode(kernels.Text(), architecture);
    EXPECT_EQ(WarningsIn(code.log), "");
    EXPECT_GE(ResourcesIn(code.log).size(), kernels.size());
    for (const KernelResources& kernel : ResourcesIn(code.log)) {
      EXPECT_EQ(kernel.spill_bytes, 0) << kernel.kernel << " for " << architecture;
    }
  }
}

// Level by level: what runs by default, and the operators one by one.
INSTANTIATE_TEST_SUITE_P(, CellKernels, testing::Values(0, kMaxOptLevel),
                         [](const auto& info) { return StrCat("AtLevel", info.param); });

}  // namespace
}  // namespace stepnet
