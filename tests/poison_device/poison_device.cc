#include "poison_device.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "poison_faults.h"
#include "poison_runtime.h"
#include "stepnet/core/formulas/formula_cache.h"
#include "stepnet/core/operator.h"
#include "stepnet/core/regions/region_groups.h"
#include "stepnet/core/regions/region_program.h"
#include "stepnet/executor/recording_executor.h"

namespace stepnet {
namespace {

// One run of a kernel, with copies of what the caller lends to it.
class LateRun {
 public:
  explicit LateRun(const OpRun& run)
      : runtime_(static_cast<PoisonRuntime&>(run.queue())),
        run_number_(run.context().recording == nullptr ? run.context().RunNumber() : 0),
        number_of_played_(run.context().recording == nullptr ? nullptr : run.context().RunNumberOnDevice()),
        faults_(run.context().faults),
        late_fault_(PoisonFaults::Of(run.context())),
        site_(run.context().site),
        stops_(run.context().stops_after_faults),
        step_(run.step()),
        part_(run.part()),
        parts_(run.parts()) {
    if (run.range() != nullptr) range_ = *run.range();
    for (int i = 0; i < run.num_inputs(); ++i) Hold(run.In(i), &inputs_);
    for (int o = 0; o < run.num_outputs(); ++o) {
      Hold(run.Out(o), &outputs_);
      if (run.Adds(o)) adds_ |= std::uint64_t{1} << o;
    }
  }

  PoisonRuntime& runtime() const { return runtime_; }

  void Do(const RunFn& kernel) {
    if (late_fault_ != nullptr && stops_ && late_fault_->any()) return;
    const std::vector<TensorView> inputs = Views(inputs_), outputs = Views(outputs_);
    RunContext context;
    context.run = number_of_played_ == nullptr
                      ? &run_number_
                      : static_cast<const std::uint64_t*>(runtime_.Real(const_cast<void*>(number_of_played_)));
    FaultRecord found;
    context.faults = late_fault_ == nullptr ? faults_ : &found;
    OpRun run(inputs, outputs, context, step_);
    run.SetPart(part_, parts_);
    run.SetAdds(adds_);
    if (range_) run.SetRange(&*range_);
    kernel(run);
    if (std::optional<Fault> fault = found.Take()) late_fault_->Note(site_, std::move(*fault));
  }

 private:
  struct Held {
    TensorView view;
    Shape shape;
  };
  void Hold(const TensorView& view, std::vector<Held>* held) const {
    held->push_back({view, view.shape == nullptr ? Shape() : *view.shape});
    held->back().view.data = runtime_.Real(static_cast<std::byte*>(view.data));
  }
  static std::vector<TensorView> Views(const std::vector<Held>& held) {
    std::vector<TensorView> views;
    for (const Held& item : held) {
      views.push_back(item.view);
      if (item.view.shape != nullptr) views.back().shape = &item.shape;
    }
    return views;
  }

  PoisonRuntime& runtime_;
  std::vector<Held> inputs_, outputs_;
  const std::uint64_t run_number_;
  const void* const number_of_played_;  // in memory of the device, for what is recorded; or null
  FaultRecord* const faults_;
  const std::shared_ptr<NotedFault> late_fault_;
  const FaultSite site_;
  const bool stops_;
  const std::int64_t step_;
  const int part_, parts_;
  std::uint64_t adds_ = 0;
  std::optional<RunRange> range_;
};

bool ChecksValues(const OperatorCall& op, const OpRun& run) {
  std::vector<TensorInfo> inputs;
  for (const TensorView& in : run.inputs()) inputs.push_back({.dtype = in.dtype, .shape = *in.shape});
  return MayFindBadValues(ShapeQuery(op, inputs), *op.schema().FindKernel(DeviceKind::kCpu));
}

// The kernel of the CPU, put into the queue. One that notes faults in a record on the host is waited for.
Kernel LateKernel(const Kernel& cpu) {
  return {.make = [make = cpu.make](const OperatorCall& op) -> RunFn {
            return [kernel = make(op), op](const OpRun& run) {
              const auto late = std::make_shared<LateRun>(run);
              late->runtime().PutKernel([kernel, late] { late->Do(kernel); });
              if (!ChecksValues(op, run)) return;
              if (LateFaults* const late_faults = run.context().late_faults) return late_faults->SetPending();
              late->runtime().Wait();
            };
          },
          .can_add = cpu.can_add,
          .can_leave_out = cpu.can_leave_out,
          .checks_values = cpu.checks_values,
          .stops_after_faults = true};
}

const Kernel* FindLateKernel(const OperatorSchema& schema) {
  static std::mutex mutex;
  static std::map<const OperatorSchema*, Kernel> kernels;
  const Kernel* cpu = schema.FindKernel(DeviceKind::kCpu);
  if (cpu == nullptr || cpu->takes_blobs) return nullptr;
  const std::lock_guard lock(mutex);
  const auto [found, is_new] = kernels.try_emplace(&schema);
  if (is_new) found->second = LateKernel(*cpu);
  return &found->second;
}

// Regions by the programs of the CPU: of several each group goes through all of them, the last group first.
class LateRegions {
 public:
  explicit LateRegions(const DeviceRegion& made) : groups_(made.groups) {
    for (const Region* region : made.regions) {
      programs_.emplace_back(FirstGroup(*region, groups_));
      Strides strides;
      for (const RegionOperand& input : region->inputs) strides.inputs.push_back(BytesOfGroup(*region, input));
      for (const RegionOutput& output : region->outputs) {
        strides.outputs.push_back(BytesOfGroup(*region, output.memory));
      }
      strides_.push_back(std::move(strides));
    }
  }

  void Run(const std::vector<const void*>& inputs, const std::vector<void*>& outputs) const {
    for (std::int64_t group = groups_ - 1; group >= 0; --group) {
      size_t i = 0, o = 0;
      for (size_t k = 0; k < programs_.size(); ++k) {
        std::vector<const void*> from;
        std::vector<void*> to;
        for (const std::int64_t bytes : strides_[k].inputs) {
          from.push_back(static_cast<const char*>(inputs[i++]) + group * bytes);
        }
        for (const std::int64_t bytes : strides_[k].outputs) {
          to.push_back(static_cast<char*>(outputs[o++]) + group * bytes);
        }
        programs_[k].Run(from, to);
      }
    }
  }

 private:
  // Bytes from an operand of a group to that of the next.
  struct Strides {
    std::vector<std::int64_t> inputs, outputs;
  };
  std::int64_t BytesOfGroup(const Region& region, const RegionOperand& operand) const {
    return GroupStride(region, operand, groups_) * DTypeBytes(operand.dtype);
  }

  const std::int64_t groups_;
  std::vector<RegionProgram> programs_;
  std::vector<Strides> strides_;
};

RunRegionFn MakeLateRegion(const DeviceRegion& made) {
  return [program = std::make_shared<const LateRegions>(made), host_inputs = made.host_inputs](
             const OpRun& run, std::span<const void* const> inputs, std::span<void* const> outputs) {
    auto& runtime = static_cast<PoisonRuntime&>(run.queue());
    std::vector<const void*> from(inputs.begin(), inputs.end());
    std::vector<void*> to(outputs.begin(), outputs.end());
    std::vector<std::int64_t> copies;
    for (size_t i = 0; i < from.size(); ++i) {
      if (std::ranges::count(host_inputs, static_cast<int>(i)) == 0) {
        from[i] = runtime.Real(const_cast<void*>(from[i]));
      } else {
        copies.push_back(*static_cast<const std::int64_t*>(from[i]));
      }
    }
    for (void*& output : to) output = runtime.Real(output);
    const std::shared_ptr<NotedFault> fault = PoisonFaults::Of(run.context());
    const bool stops = fault != nullptr && run.context().stops_after_faults;
    runtime.PutKernel([=]() mutable {
      if (stops && fault->any()) return;
      for (size_t k = 0; k < host_inputs.size(); ++k) from[host_inputs[k]] = &copies[k];
      program->Run(from, to);
    });
  };
}

constexpr Target kPoisonTarget = {.device = DeviceKind::kPrivate, .max_group_elements = 4096};
const DeviceRegistration poison(DeviceKind::kPrivate,
                                {.target = &kPoisonTarget,
                                 .executor = "recorded",
                                 .open = [](int index) -> DeviceRuntime& { return PoisonRuntimeAt(index); },
                                 .find_kernel = FindLateKernel,
                                 .make_region = MakeLateRegion});
const ExecutorRegistration serial("serial", DeviceKind::kPrivate, MakeSerialExecutor);
const ExecutorRegistration recorded("recorded", DeviceKind::kPrivate,
                                    [] { return MakeRecordingExecutor(MakeSerialStepRunner); }, {.records_runs = true});

}  // namespace

PoisonCounts CountsOfPoisonDevice(int index) { return PoisonRuntimeAt(index).Counts(); }

std::vector<std::int64_t> OrdersOfPoisonDevice(int index) { return PoisonRuntimeAt(index).Orders(); }

}  // namespace stepnet
