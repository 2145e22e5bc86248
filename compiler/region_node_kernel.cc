// Shapes decide what the program is: those of one step, and of the steps that run at once. A fault names the operator
// that found it: after one, the operators run again one by one, on memory of their own, and each notes what it finds.
#include "stepnet/compiler/region_node_kernel.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>

#include "stepnet/core/cost.h"
#include "stepnet/core/formulas/formula_cache.h"
#include "stepnet/core/regions/region_composition.h"
#include "stepnet/core/scoped_value.h"

namespace stepnet {
namespace {

// What an operand behind those of a region is, by its number there (OperatorToCompose::run_values).
int RunValueAt(int number) { return kStepOfRun + number % kNumRunValues; }

// Memory of the host for this run, whatever device it is on: steps allocate nothing.
template <typename T>
T* OnHost(size_t count, const OpRun& run) {
  static_assert(std::is_trivially_destructible_v<T>);
  return static_cast<T*>(run.context().scratch.Get(static_cast<std::int64_t>(count * sizeof(T))));
}

std::vector<TensorInfo> InfosOf(std::span<const int> operands, std::span<const TensorInfo> infos) {
  std::vector<TensorInfo> chosen;
  for (const int operand : operands) chosen.push_back(infos[operand]);
  return chosen;
}

Place PlaceOf(const RegionCall& call) {
  return {.net = call.net, .op_index = call.op_index, .op_text = call.call->Text()};
}

// PlaceOf, with what the operator was given: the inputs of `range`, or of one of its steps.
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

int GiverOf(const RegionNodeKernelSpec& spec, int operand) {
  const auto gives = [&](const RegionCall& call) { return std::ranges::count(call.outputs, operand) > 0; };
  return static_cast<int>(std::ranges::find_if(spec.calls, gives) - spec.calls.begin());
}

int LastReaderOf(const RegionNodeKernelSpec& spec, int operand) {
  int last = -1;
  for (size_t k = 0; k < spec.calls.size(); ++k) {
    if (std::ranges::count(spec.calls[k].inputs, operand) > 0) last = static_cast<int>(k);
  }
  return last;
}

}  // namespace

// Memory may be shared where an input is read for the last time when the output is written, in one home or one place.
// Elsewhere operators run as they do alone: an input may be another name of what one of them has just written.
RegionNodeKernelSpec SpecOf(const StepGraph& graph, const StepNode& node) {
  RegionNodeKernelSpec spec{.calls = {node.calls().begin(), node.calls().end()},
                            .num_inputs = static_cast<int>(node.inputs.size()),
                            .num_outputs = static_cast<int>(node.outputs.size()),
                            .num_locals = static_cast<int>(node.locals().size()),
                            .backward = graph.backward,
                            .target = graph.target};
  for (const std::span<const int> values : {std::span(node.inputs), std::span(node.outputs), node.locals()}) {
    for (const int value : values) {
      spec.names.push_back(graph.values[value].blob);
      spec.values.push_back(graph.values[value].info.value);
    }
  }
  for (const int input : node.inputs) spec.inputs.push_back(graph.values[input].info);
  for (int o = 0; o < spec.num_outputs; ++o) {
    const int output = spec.num_inputs + o, giver = GiverOf(spec, output);
    for (int other = 0; other < output; ++other) {
      const int a = graph.values[node.ValueOf(other)].home, b = graph.values[node.ValueOf(output)].home;
      const Home &from = graph.homes[a], &to = graph.homes[b];
      if (a != b && !ShareBytes(from, to)) continue;
      const bool is_one = a == b || (from.slot.BeginInBase() == to.slot.BeginInBase() &&
                                     from.slot.row_bytes == to.slot.row_bytes && from.slot.bytes == to.slot.bytes);
      const bool is_input = other < spec.num_inputs;
      const int last = is_input ? LastReaderOf(spec, other) : GiverOf(spec, other);
      if (is_one && is_input && last <= giver) {
        spec.in_place.emplace_back(other, output);
      } else {
        spec.sharing_call = std::max(last, giver);
      }
    }
  }
  return spec;
}

// What there is to run for some shapes.
struct RegionNodeKernel::ForShapes {
  int num_inputs = 0;
  std::vector<TensorInfo> operands = {};
  std::shared_ptr<const ComposedProgram> composed = {};  // null: there is an obstacle
  RegionObstacle obstacle = {};
  std::uint64_t moving = 0;  // as RegionProgram::Run has it
  // Runs it on another device than the CPU. Made when it first runs: plans need no device.
  mutable std::once_flag once = {};
  mutable RunRegionFn on_device = {};

  ForShapes(const RegionNodeKernelSpec& spec, std::span<const TensorInfo> inputs, DeviceKind device);

  bool IsFor(const OpRun& run) const;
  bool IsFor(std::span<const TensorInfo> inputs) const;
  // The first operand behind those of the region; from there on come what each operator reads of the run.
  int RunValuesBegin() const { return static_cast<int>(operands.size()); }

 private:
  void NoteMoving(const RegionNodeKernelSpec& spec);
  std::shared_ptr<const OperatorParts> PartsOf(const RegionCall& call, const RegionNodeKernelSpec& spec);
  std::vector<OperatorToCompose> FindOperators(const RegionNodeKernelSpec& spec, DeviceKind device, bool* may_fail);
};

RegionNodeKernel::ForShapes::ForShapes(const RegionNodeKernelSpec& spec, std::span<const TensorInfo> inputs,
                                       DeviceKind device)
    : num_inputs(spec.num_inputs), operands(inputs.begin(), inputs.end()) {
  operands.resize(inputs.size() + static_cast<size_t>(spec.num_outputs + spec.num_locals));
  bool may_fail = false;
  const std::vector<OperatorToCompose> operators = FindOperators(spec, device, &may_fail);
  if (!obstacle.what.empty()) return;
  if (spec.sharing_call >= 0) {
    obstacle = {spec.sharing_call, "operands share memory"};
  } else if (may_fail && !spec.in_place.empty()) {
    obstacle = {static_cast<int>(spec.calls.size()) - 1,
                "what is checked is overwritten"};  // and could not be looked at again
  } else {
    CompositionRequest request{.wanted = {},
                               .in_place = spec.in_place,
                               .names = spec.names,
                               .max_repeated_operations = spec.target->max_repeated_operations,
                               .operations_of_function = spec.target->operations_of_function};
    for (int output = 0; output < spec.num_outputs; ++output) request.wanted.push_back(spec.num_inputs + output);
    auto result = FindComposed(operators, request);
    if (auto* found = std::get_if<std::shared_ptr<const ComposedProgram>>(&result)) {
      composed = std::move(*found);
      NoteMoving(spec);
    } else {
      const auto& problem = std::get<CompositionObstacle>(result);
      obstacle = {problem.part, StrCat(spec.calls[problem.part].call->Text(), ": ", problem.what),
                  problem.kind == CompositionObstacle::Kind::kRepeats, problem.region_elements};
    }
  }
}

void RegionNodeKernel::ForShapes::NoteMoving(const RegionNodeKernelSpec& spec) {
  int number = 0;
  for (const std::vector<int>* tensors : {&composed->inputs(), &composed->outputs()}) {
    for (const int operand : *tensors) {
      if (number < 64 && operand < 64 && (spec.moving >> operand & 1) != 0) moving |= std::uint64_t{1} << number;
      ++number;
    }
  }
}

std::vector<OperatorToCompose> RegionNodeKernel::ForShapes::FindOperators(const RegionNodeKernelSpec& spec,
                                                                          DeviceKind device, bool* may_fail) {
  std::vector<OperatorToCompose> operators;
  for (size_t k = 0; k < spec.calls.size(); ++k) {
    const RegionCall& call = spec.calls[k];
    const auto note = [&](const std::string& what) {
      if (obstacle.what.empty()) obstacle = {static_cast<int>(k), StrCat(call.call->Text(), " ", what)};
    };
    OperatorToCompose& op = operators.emplace_back(OperatorToCompose{.parts = PartsOf(call, spec), .tensors = {}});
    op.run_values = RunValuesBegin() + kNumRunValues * static_cast<int>(k);
    for (const std::vector<int>* tensors : {&call.inputs, &call.outputs}) {
      op.tensors.insert(op.tensors.end(), tensors->begin(), tensors->end());
    }
    for (const RegionPart& part : op.parts->parts) {
      if (std::ranges::none_of(part.region.Roots(), [](const Expr& root) { return root->has_require(); })) continue;
      *may_fail = true;
      // A kernel checks what it is given also where it computes nothing.
      if (part.region.NumElements() == 0) note("checks values and gives none");
      if (device != DeviceKind::kCpu) note("checks values, and is one of several on a device");
    }
    if (op.parts->parts.empty()) note("is no region for such shapes");
  }
  return operators;
}

// Notes what its outputs are.
std::shared_ptr<const OperatorParts> RegionNodeKernel::ForShapes::PartsOf(const RegionCall& call,
                                                                          const RegionNodeKernelSpec& spec) {
  try {
    const std::vector<TensorInfo> inputs = InfosOf(call.inputs, operands);
    std::shared_ptr<const OperatorParts> parts = FindParts(ShapeQuery(*call.call, inputs));
    for (size_t o = 0; o < call.outputs.size(); ++o) {
      const int output = call.outputs[o];
      operands[output] = parts->outputs[o];
      if (output < static_cast<int>(spec.values.size())) operands[output].value = spec.values[output];
    }
    return parts;
  } catch (...) {
    throw CurrentError().At(PlaceOf(call));
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

std::optional<RegionObstacle> RegionNodeKernel::FindObstacle(const RegionNodeKernelSpec& spec,
                                                             std::span<const TensorInfo> inputs, DeviceKind device) {
  ForShapes shapes(spec, inputs, device);
  if (shapes.composed) return {};
  return std::move(shapes.obstacle);
}

std::shared_ptr<const ComposedProgram> RegionNodeKernel::FindProgram(const RegionNodeKernelSpec& spec,
                                                                     DeviceKind device) {
  const ForShapes shapes(spec, spec.inputs, device);
  const auto is_operand = [&](int number) { return number < shapes.RunValuesBegin(); };
  const bool reads_operands = shapes.composed && std::ranges::all_of(shapes.composed->inputs(), is_operand);
  return reads_operands ? shapes.composed : nullptr;
}

RegionNodeKernel::RegionNodeKernel(RegionNodeKernelSpec spec, DeviceKind device)
    : spec_(std::move(spec)), device_(device) {
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

template <typename Use>
auto RegionNodeKernel::With(std::span<const TensorInfo> inputs, const Use& use) const {
  return programs_.With([&] { return std::make_shared<const ForShapes>(spec_, inputs, device_); }, use, inputs);
}

void RegionNodeKernel::Run(const OpRun& run) const {
  const auto make = [&] {
    std::vector<TensorInfo> inputs;
    for (int i = 0; i < run.num_inputs(); ++i) inputs.push_back({.dtype = run.In(i).dtype, .shape = *run.In(i).shape});
    return std::make_shared<const ForShapes>(spec_, inputs, device_);
  };
  programs_.With(
      make, [&](const ForShapes& shapes) { RunFor(shapes, run); }, run);
}

void RegionNodeKernel::RunFor(const ForShapes& shapes, const OpRun& run) const {
  if (shapes.composed != nullptr) return RunAsOne(shapes, run);
  if (run.part() == 0) RunOneByOne(shapes, run, /*keeps_outputs=*/true);
}

void RegionNodeKernel::RunAsOne(const ForShapes& shapes, const OpRun& run) const {
  const ComposedProgram& composed = *shapes.composed;
  const bool is_on_host = device_ == DeviceKind::kCpu;
  const int begin = shapes.RunValuesBegin();
  RunValues* values = nullptr;  // of the calls, where some are read
  if (std::ranges::any_of(composed.inputs(), [&](int operand) { return operand >= begin; })) {
    values = OnHost<RunValues>(spec_.calls.size(), run);
    for (size_t k = 0; k < spec_.calls.size(); ++k) {
      std::construct_at(values + k, *spec_.calls[k].call, run, /*with_run_number=*/is_on_host);
    }
  }
  const size_t num_inputs = composed.inputs().size(), num_outputs = composed.outputs().size();
  auto* const from = OnHost<const void*>(num_inputs, run);
  auto* const to = OnHost<void*>(num_outputs, run);
  for (size_t i = 0; i < num_inputs; ++i) {
    const int operand = composed.inputs()[i];
    if (operand < begin) {
      from[i] = run.In(operand).data;
    } else if (RunValueAt(operand - begin) == kNumberOfRun && !is_on_host) {
      from[i] = run.context().RunNumberOnDevice();
    } else {
      from[i] = values[(operand - begin) / kNumRunValues].Of(RunValueAt(operand - begin));
    }
  }
  for (size_t o = 0; o < num_outputs; ++o) to[o] = run.Out(composed.outputs()[o] - spec_.num_inputs).data;
  const std::span<const void* const> inputs(from, num_inputs);
  const std::span<void* const> outputs(to, num_outputs);
  if (!is_on_host) {
    std::call_once(shapes.once, [&] { shapes.on_device = GetDeviceSpec(device_).make_region(RegionOf(shapes)); });
    shapes.on_device(run, inputs, outputs);
  } else if (run.units() > 0) {
    composed.column_programs().Run(composed.region(), inputs, outputs, run.part(), run.parts());
  } else if (composed.program().Run(inputs, outputs, run.part(), run.parts(), MovingOf(shapes, run))) {
    RunOneByOne(shapes, run, /*keeps_outputs=*/false);
  }
}

// As RegionProgram::Run has it: nothing unless what steps have of their own is more, up to this step, than caches hold.
std::uint64_t RegionNodeKernel::MovingOf(const ForShapes& shapes, const OpRun& run) const {
  const bool is_far =
      shapes.moving != 0 && run.step() > 0 && spec_.moving_bytes >= kCpuTarget.regions.far_moving_bytes / run.step();
  return is_far ? shapes.moving : 0;
}

DeviceRegion RegionNodeKernel::RegionOf(const ForShapes& shapes) const {
  DeviceRegion region{.regions = {&shapes.composed->region()}, .name = StrCat("Region_of_", spec_.calls.size())};
  for (size_t i = 0; i < shapes.composed->inputs().size(); ++i) {
    const int value = shapes.composed->inputs()[i] - shapes.RunValuesBegin();
    if (value >= 0 && RunValueAt(value) != kNumberOfRun) region.host_inputs.push_back(static_cast<int>(i));
  }
  region.device_index = spec_.calls.front().call->options().device_index;
  return region;
}

// Outputs go where the run wants them with `keeps_outputs`.
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
  if (device_ != DeviceKind::kCpu) return 1;
  return With(inputs,
              [](const ForShapes& shapes) { return shapes.composed ? shapes.composed->program().max_parts() : 1; });
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

std::shared_ptr<const ComposedProgram> RegionNodeKernel::Composed(std::span<const TensorInfo> inputs) const {
  return With(inputs, [](const ForShapes& shapes) { return shapes.composed; });
}

std::optional<DeviceRegion> RegionNodeKernel::ForDevice(std::span<const TensorInfo> inputs) const {
  return With(inputs, [&](const ForShapes& shapes) {
    return shapes.composed ? std::optional(RegionOf(shapes)) : std::optional<DeviceRegion>();
  });
}

std::string RegionNodeKernel::Obstacle(std::span<const TensorInfo> inputs) const {
  return With(inputs, [](const ForShapes& shapes) { return shapes.obstacle.what; });
}

namespace {

// The operands as an instruction of this call alone would have them.
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
