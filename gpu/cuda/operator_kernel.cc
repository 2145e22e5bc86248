#include "stepnet/gpu/cuda/operator_kernel.h"

#include <map>
#include <memory>
#include <mutex>

#include "stepnet/core/formulas/formula_kernel.h"
#include "stepnet/core/programs_by_shapes.h"
#include "stepnet/executor/executor.h"
#include "stepnet/gpu/cuda/device_program.h"
#include "stepnet/gpu/cuda_target.h"

namespace stepnet {
namespace {

// Filled before main begins.
std::map<std::string, Kernel>& LibraryKernels() {
  static auto& kernels = *new std::map<std::string, Kernel>;
  return kernels;
}

const Kernel* FindLibraryKernel(const std::string& type) {
  const auto found = LibraryKernels().find(type);
  return found == LibraryKernels().end() ? nullptr : &found->second;
}

class OperatorKernel {
 public:
  // No GPU is needed before it runs: plans are made, and shown, without.
  explicit OperatorKernel(const OperatorCall& op) : op_(op) {
    if (const Kernel* other = FindLibraryKernel(op.type())) other_ = other->make(op);
  }

  void Run(const OpRun& run) {
    const std::uint64_t wanted = WantedOf(run);
    const auto use = [&](const DeviceProgram& program) {
      if (!program.says_nothing()) return program.Run(op_, run);
      if (!other_) ThrowNoKernel(run);
      other_(run);
    };
    programs_.With([&] { return Make(run, wanted); }, use, run, wanted);
  }

 private:
  std::shared_ptr<const DeviceProgram> Make(const OpRun& run, std::uint64_t wanted) const {
    std::vector<TensorInfo> inputs, outputs;
    for (int i = 0; i < run.num_inputs(); ++i) inputs.push_back({.dtype = run.In(i).dtype, .shape = *run.In(i).shape});
    if (!op_.schema().shape_value_inputs.empty()) {
      for (int o = 0; o < run.num_outputs(); ++o) {
        outputs.push_back({.dtype = run.Out(o).dtype, .shape = *run.Out(o).shape});
      }
    }
    CudaRuntime& runtime = CudaRuntimeOf(op_.options().device_index);
    return std::make_shared<const DeviceProgram>(op_, inputs, outputs, wanted, runtime);
  }

  [[noreturn]] void ThrowNoKernel(const OpRun& run) const {
    std::vector<std::string> texts;
    for (int i = 0; i < run.num_inputs(); ++i) {
      texts.push_back(TensorInfo{.dtype = run.In(i).dtype, .shape = *run.In(i).shape}.Description());
    }
    throw Error(ErrorCode::kInvalidNet, StrCat(op_.type(), " of ", Join(texts, ", "), " has no kernel for ",
                                               op_.options().device(), "; device_option places it on the CPU"));
  }

  const OperatorCall op_;
  RunFn other_;  // for what programs say nothing about; or null
  ProgramsByShapes<DeviceProgram> programs_;
};

Kernel MakeOperatorKernel(const OperatorSchema& schema) {
  Kernel kernel{.make = [](const OperatorCall& op) -> RunFn {
    return [made = std::make_shared<OperatorKernel>(op)](const OpRun& run) { made->Run(run); };
  }};
  kernel.checks_values = schema.formula_options.checks_values;
  // A kernel that stands beside a formula which applies elsewhere does not ask.
  const bool is_formula_alone = schema.formula.target<FormulaWhere>() == nullptr || !FindLibraryKernel(schema.type);
  kernel.stops_after_faults = DeviceRunsFormula(schema) && is_formula_alone;
  kernel.can_add_expanded = true;
  kernel.can_leave_out = true;
  return kernel;
}

RunRegionFn MakeRegion(const DeviceRegion& made) {
  const RegionSourceOptions options{.name = made.name, .values = made.host_inputs};
  const auto kernel =
      std::make_shared<const GpuRegion>(made.regions, made.groups, options, CudaRuntimeOf(made.device_index));
  return [kernel](const OpRun& run, std::span<const void* const> inputs, std::span<void* const> outputs) {
    kernel->Run(run, inputs, outputs);
  };
}

const DeviceRegistration cuda(DeviceKind::kCuda,
                              {.target = &kCudaTarget,
                               .executor = "cuda",
                               .open = [](int index) -> DeviceRuntime& { return CudaRuntimeOf(index); },
                               .find_kernel = FindOperatorKernel,
                               .make_region = MakeRegion});

}  // namespace

LibraryKernel::LibraryKernel(std::string type, Kernel kernel) {
  LibraryKernels().emplace(std::move(type), std::move(kernel));
}

const Kernel* FindOperatorKernel(const OperatorSchema& schema) {
  static std::mutex mutex;
  static auto& kernels = *new std::map<const OperatorSchema*, Kernel>;
  const Kernel* const library = FindLibraryKernel(schema.type);
  const bool is_first = library != nullptr && library->stops_after_faults;  // which not all parts of an expansion do
  if (is_first || (!schema.formula && !schema.expansion)) return library;
  const std::lock_guard lock(mutex);
  const auto [found, is_new] = kernels.try_emplace(&schema);
  if (is_new) found->second = MakeOperatorKernel(schema);
  return &found->second;
}

}  // namespace stepnet
