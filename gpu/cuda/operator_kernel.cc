#include "stepnet/gpu/cuda/operator_kernel.h"

#include <map>
#include <memory>
#include <mutex>

#include "stepnet/core/formula_kernel.h"
#include "stepnet/core/programs_by_shapes.h"
#include "stepnet/executor/executor.h"
#include "stepnet/gpu/cuda/device_program.h"

namespace stepnet {
namespace {

class OperatorKernel {
 public:
  explicit OperatorKernel(const OperatorCall& op) : op_(op), runtime_(CudaRuntimeOf(op.options().device_index)) {}

  void Run(const OpRun& run) {
    const std::uint64_t wanted = WantedOf(run);
    programs_.With([&] { return Make(run, wanted); }, [&](const DeviceProgram& program) { program.Run(op_, run); }, run,
                   wanted);
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
    return std::make_shared<const DeviceProgram>(op_, inputs, outputs, wanted, runtime_);
  }

  const OperatorCall op_;
  CudaRuntime& runtime_;
  ProgramsByShapes<DeviceProgram> programs_;
};

Kernel MakeOperatorKernel(const OperatorSchema& schema) {
  Kernel kernel{.make = [](const OperatorCall& op) -> RunFn {
    return [made = std::make_shared<OperatorKernel>(op)](const OpRun& run) { made->Run(run); };
  }};
  kernel.checks_values = schema.formula_options.checks_values;
  // Of what it is made of, products and sums can be added to memory.
  const Kernel* const cpu = schema.FindKernel(DeviceKind::kCpu);
  if (!schema.formula && cpu != nullptr) kernel.can_add = cpu->can_add;
  return kernel;
}

// Steps are launched one after the other and overlap by themselves; products want many rows.
constexpr Target kCudaTarget = {.device = DeviceKind::kCuda,
                                .flops_per_microsecond = 20e6,
                                .bytes_per_microsecond = 2e6,
                                .microseconds_of_call = 4,
                                .chunk_rows = 8192,
                                .max_chunk_steps = 512,
                                .min_shared_ratio = 0};

const DeviceRegistration cuda(DeviceKind::kCuda,
                              {.target = &kCudaTarget,
                               .executor = "cuda",
                               .open = [](int index) -> DeviceRuntime& { return CudaRuntimeOf(index); },
                               .find_kernel = FindOperatorKernel});

}  // namespace

const Kernel* FindOperatorKernel(const OperatorSchema& schema) {
  static std::mutex mutex;
  static auto& kernels = *new std::map<const OperatorSchema*, Kernel>;
  if (!schema.formula && !schema.expansion) return nullptr;
  const std::lock_guard lock(mutex);
  const auto [found, is_new] = kernels.try_emplace(&schema);
  if (is_new) found->second = MakeOperatorKernel(schema);
  return &found->second;
}

}  // namespace stepnet
