// Shapes decide what the program is: those of one step, and of the steps that run at once. A fault names the operator
// that found it: after one, the operators run again one by one, on memory of their own, and each notes what it finds.
#include "stepnet/compiler/region_node_kernel.h"

#include <algorithm>
#include <utility>

#include "stepnet/core/cost.h"
#include "stepnet/core/formula_cache.h"
#include "stepnet/core/region_composition.h"
#include "stepnet/core/scoped_value.h"

namespace stepnet {
namespace {

std::vector<TensorInfo> InfosOf(std::span<const int> operands, std::span<const TensorInfo> infos) {
  std::vector<TensorInfo> chosen;
  for (const int operand : operands) chosen.push_back(infos[operand]);
  return chosen;
}

Place PlaceOf(const RegionCall& call) { return {.op_index = call.op_index, .op_text = call.call->Text()}; }

// With what the operator was given: the inputs of `range`, or of one of its steps.
Place PlaceOf(const RegionCall& call, std::span<const TensorView> inputs, const RunRange& range, bool of_one_step) {
  Place place = PlaceOf(call);
  std::vector<std::string> blobs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    TensorInfo info{.dtype = inputs[i].dtype, .shape = *inputs[i].shape};
    const bool has_rows = i < 64 && (range.with_rows >> i & 1) != 0;
    if (of_one_step && has_rows) info.shape = info.shape.With(0, info.shape[0] / range.num_steps);
    blobs.push_back(StrCat(call.call->inputs()[i], " ", info.Description()));
  }
  place.blobs = Join(blobs, ", ");
  return place;
}

}  // namespace

RegionNodeKernel::RegionNodeKernel(RegionNodeKernelSpec spec, DeviceKind device) : spec_(std::move(spec)) {
  for (const RegionCall& call : spec_.calls) {
    try {
      const Kernel* kernel = call.call->schema().FindKernel(device);
      if (kernel == nullptr) {
        throw Error(ErrorCode::kInvalidNet, StrCat(call.call->type(), " has no kernel for ", DeviceKindName(device)));
      }
      kernels_.push_back(kernel->make(*call.call));
    } catch (...) {
      throw CurrentError().At(PlaceOf(call));
    }
  }
}

bool RegionNodeKernel::ForShapes::IsFor(const OpRun& run) const {
  for (int i = 0; i < num_inputs; ++i) {
    if (run.In(i).dtype != operands[i].dtype || !(*run.In(i).shape == operands[i].shape)) return false;
  }
  return true;
}

bool RegionNodeKernel::ForShapes::IsFor(std::span<const TensorInfo> inputs) const {
  return std::equal(inputs.begin(), inputs.end(), operands.begin());
}

template <typename Use>
auto RegionNodeKernel::With(std::span<const TensorInfo> inputs, const Use& use) const {
  return programs_.With([&] { return Make(inputs); }, use, inputs);
}

std::shared_ptr<const RegionNodeKernel::ForShapes> RegionNodeKernel::Make(std::span<const TensorInfo> inputs) const {
  auto made = std::make_shared<ForShapes>(ForShapes{.num_inputs = spec_.num_inputs});
  made->operands.assign(inputs.begin(), inputs.end());
  made->operands.resize(inputs.size() + static_cast<size_t>(spec_.num_outputs + spec_.num_locals));
  std::vector<OperatorToCompose> operators;
  bool may_fail = false;
  for (const RegionCall& call : spec_.calls) {
    OperatorToCompose& op =
        operators.emplace_back(OperatorToCompose{.parts = PartsOf(call, made.get()), .tensors = {}});
    // Behind operands come what each operator reads of the run.
    op.run_values = static_cast<int>(made->operands.size() + kNumRunValues * (operators.size() - 1));
    for (const std::vector<int>* operands : {&call.inputs, &call.outputs}) {
      op.tensors.insert(op.tensors.end(), operands->begin(), operands->end());
    }
    for (const RegionPart& part : op.parts->parts) {
      if (std::ranges::none_of(part.region.Roots(), [](const Expr& root) { return root->has_require(); })) continue;
      may_fail = true;
      // A kernel checks what it is given also where it computes nothing.
      if (part.region.NumElements() == 0) made->obstacle = StrCat(call.call->Text(), " checks values and gives none");
    }
    if (op.parts->parts.empty()) made->obstacle = StrCat(call.call->Text(), " is no region for such shapes");
  }
  if (!made->obstacle.empty()) return made;
  if (spec_.one_by_one) {
    made->obstacle = "operands share memory";
  } else if (may_fail && !spec_.in_place.empty()) {
    made->obstacle = "what is checked is overwritten";  // and could not be looked at again
  } else {
    CompositionRequest request{.wanted = {}, .in_place = spec_.in_place, .names = spec_.names};
    for (int output = 0; output < spec_.num_outputs; ++output) request.wanted.push_back(spec_.num_inputs + output);
    auto result = FindComposed(operators, request);
    if (auto* composed = std::get_if<std::shared_ptr<const ComposedProgram>>(&result)) {
      made->composed = std::move(*composed);
    } else {
      const auto& obstacle = std::get<CompositionObstacle>(result);
      made->obstacle = StrCat(spec_.calls[obstacle.part].call->Text(), ": ", obstacle.what);
    }
  }
  return made;
}

// Notes what its outputs are.
std::shared_ptr<const OperatorParts> RegionNodeKernel::PartsOf(const RegionCall& call, ForShapes* made) const {
  try {
    const std::vector<TensorInfo> inputs = InfosOf(call.inputs, made->operands);
    std::shared_ptr<const OperatorParts> parts = FindParts(ShapeQuery(*call.call, inputs));
    for (size_t o = 0; o < call.outputs.size(); ++o) made->operands[call.outputs[o]] = parts->outputs[o];
    return parts;
  } catch (...) {
    throw CurrentError().At(PlaceOf(call));
  }
}

void RegionNodeKernel::Run(const OpRun& run) const {
  const auto make = [&] {
    std::vector<TensorInfo> inputs;
    for (int i = 0; i < run.num_inputs(); ++i) inputs.push_back({.dtype = run.In(i).dtype, .shape = *run.In(i).shape});
    return Make(inputs);
  };
  programs_.With(
      make, [&](const ForShapes& shapes) { RunFor(shapes, run); }, run);
}

void RegionNodeKernel::RunFor(const ForShapes& shapes, const OpRun& run) const {
  if (shapes.composed == nullptr) {
    if (run.part() == 0) RunOneByOne(shapes, run, /*keeps_outputs=*/true);
    return;
  }
  std::vector<const void*> from;
  std::vector<void*> to;
  std::vector<RunValues> values;  // of the calls, where some are read
  const auto num_operands = static_cast<int>(shapes.operands.size());
  if (std::ranges::any_of(shapes.composed->inputs, [&](int operand) { return operand >= num_operands; })) {
    for (const RegionCall& call : spec_.calls) values.emplace_back(*call.call, run);
  }
  for (const int operand : shapes.composed->inputs) {
    const int value = operand - num_operands;
    from.push_back(value < 0 ? run.In(operand).data
                             : values[value / kNumRunValues].Of(kStepOfRun + value % kNumRunValues));
  }
  for (const int operand : shapes.composed->outputs) to.push_back(run.Out(operand - spec_.num_inputs).data);
  if (shapes.composed->program.Run(from, to, run.part(), run.parts())) {
    RunOneByOne(shapes, run, /*keeps_outputs=*/false);
  }
}

// With `keeps_outputs` they go where the run wants them.
void RegionNodeKernel::RunOneByOne(const ForShapes& shapes, const OpRun& run, bool keeps_outputs) const {
  std::vector<TensorView> operands;
  for (size_t k = 0; k < shapes.operands.size(); ++k) {
    const TensorInfo& info = shapes.operands[k];
    const auto output = static_cast<int>(k) - spec_.num_inputs;
    if (output < 0) {
      operands.push_back(run.In(static_cast<int>(k)));
      continue;
    }
    const bool is_given = keeps_outputs && output < spec_.num_outputs;
    void* const data = is_given ? run.Out(output).data : run.ScratchOf<std::byte>(info.size_bytes());
    operands.push_back({data, &info.shape, info.dtype});
  }
  for (size_t number = 0; number < spec_.calls.size(); ++number) RunOperator(number, operands, run);
}

void RegionNodeKernel::RunOperator(size_t number, std::span<const TensorView> operands, const OpRun& run) const {
  const RegionCall& call = spec_.calls[number];
  std::vector<TensorView> inputs, outputs;
  for (const int input : call.inputs) inputs.push_back(operands[input]);
  for (const int output : call.outputs) outputs.push_back(operands[output]);
  OpRun of_call(inputs, outputs, run.context(), run.step());
  const RunRange range = RangeOf(call, operands, run);
  of_call.SetRange(&range);
  FaultRecord* const faults = run.context().faults;
  FaultRecord found;
  try {
    const ScopedValue<FaultRecord*> noted(run.context().faults, faults == nullptr ? nullptr : &found);
    kernels_[number](of_call);
  } catch (...) {
    throw CurrentError().At(PlaceOf(call, inputs, range, /*of_one_step=*/false));
  }
  std::optional<Fault> fault = found.Take();
  if (!fault) return;
  fault->place.op = call.op_index;
  faults->Note(fault->place, [&] { return fault->error.At(PlaceOf(call, inputs, range, /*of_one_step=*/true)); });
}

RunRange RegionNodeKernel::RangeOf(const RegionCall& call, std::span<const TensorView> operands,
                                   const OpRun& run) const {
  RunRange range{.backward = spec_.backward};
  std::vector<bool> with_rows(operands.size(), false);
  for (size_t i = 0; i < spec_.inputs.size(); ++i) {
    const Shape &of_step = spec_.inputs[i].shape, &seen = *run.In(static_cast<int>(i)).shape;
    with_rows[i] = !(of_step == seen);
    if (with_rows[i]) range.num_steps = seen[0] / of_step[0];
  }
  if (range.num_steps == 1) return range;
  std::vector<TensorInfo> infos;
  for (const TensorView& view : operands) infos.push_back({.dtype = view.dtype, .shape = *view.shape});
  with_rows.resize(spec_.inputs.size());
  const std::optional<std::vector<bool>> rows = OperandsWithRows(spec_.calls, infos, with_rows);
  for (size_t i = 0; rows && i < std::min<size_t>(call.inputs.size(), 64); ++i) {
    if ((*rows)[call.inputs[i]]) range.with_rows |= std::uint64_t{1} << i;
  }
  if (range.with_rows == 0) range.num_steps = 1;  // it computes what all steps share
  return range;
}

int RegionNodeKernel::MaxParts(std::span<const TensorInfo> inputs) const {
  return With(inputs,
              [](const ForShapes& shapes) { return shapes.composed ? shapes.composed->program.max_parts() : 1; });
}

Cost RegionNodeKernel::EstimatedCost(std::span<const TensorInfo> inputs) const {
  return With(inputs, [&](const ForShapes& shapes) {
    const bool is_one = shapes.composed != nullptr;
    Cost cost;
    for (const RegionCall& call : spec_.calls) {
      const std::vector<TensorInfo> in = InfosOf(call.inputs, shapes.operands);
      const std::vector<TensorInfo> out = InfosOf(call.outputs, shapes.operands);
      const Cost of_call = EstimateCost(*call.call, in, out);
      cost.flops += of_call.flops;
      if (!is_one) cost.bytes += of_call.bytes;
    }
    for (int k = 0; is_one && k < spec_.num_inputs + spec_.num_outputs; ++k) {
      cost.bytes += static_cast<double>(shapes.operands[k].size_bytes());
    }
    return cost;
  });
}

std::string RegionNodeKernel::Obstacle(std::span<const TensorInfo> inputs) const {
  return With(inputs, [](const ForShapes& shapes) { return shapes.obstacle; });
}

namespace {

// As an instruction of its own would have them.
std::optional<RowOperands> RowsOf(const RegionCall& call, std::span<const TensorInfo> operands) {
  const std::vector<TensorInfo> inputs = InfosOf(call.inputs, operands), outputs = InfosOf(call.outputs, operands);
  const ShapeQuery query(*call.call, inputs);
  if (call.call->schema().rows) {
    if (std::optional<RowOperands> rule = call.call->schema().rows(query)) return rule;
  }
  if (outputs.empty() || outputs[0].shape.rank() == 0) return {};
  const auto is_alike = [&](const TensorInfo& info) { return info.shape == outputs[0].shape; };
  const bool by_elements = std::ranges::all_of(inputs, is_alike) && std::ranges::all_of(outputs, is_alike);
  if (!by_elements || !IsElementwise(query)) return {};
  RowOperands all;
  for (size_t i = 0; i < inputs.size(); ++i) all.inputs.push_back(static_cast<int>(i));
  for (size_t o = 0; o < outputs.size(); ++o) all.outputs.push_back(static_cast<int>(o));
  return all;
}

}  // namespace

std::optional<std::vector<bool>> OperandsWithRows(std::span<const RegionCall> calls,
                                                  std::span<const TensorInfo> operands, std::vector<bool> inputs) {
  std::vector<bool> with_rows = std::move(inputs);
  with_rows.resize(operands.size(), false);
  for (const RegionCall& call : calls) {
    // What follows from nothing but what all steps share is the same in all of them.
    if (std::ranges::none_of(call.inputs, [&](int input) { return with_rows[input]; })) continue;
    const std::optional<RowOperands> rule = RowsOf(call, operands);
    if (!rule || rule->outputs.size() != call.outputs.size()) return {};
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      const bool has_rows = std::ranges::count(rule->inputs, static_cast<int>(i)) > 0;
      if (has_rows != with_rows[call.inputs[i]]) return {};
    }
    for (const int output : call.outputs) with_rows[output] = true;
  }
  return with_rows;
}

}  // namespace stepnet
