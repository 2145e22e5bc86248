#include "stepnet/core/formula_kernel.h"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "stepnet/core/cost.h"
#include "stepnet/core/expr_table.h"
#include "stepnet/core/formula_cache.h"
#include "stepnet/core/programs_by_shapes.h"

namespace stepnet {
namespace {

class FormulaKernel {
 public:
  explicit FormulaKernel(const OperatorCall& op) : op_(op) {}

  void Run(const OpRun& run) {
    const std::uint64_t wanted = WantedOf(run);
    programs_.With([&] { return Make(run, wanted); }, [&](const FormulaProgram& program) { program.Run(op_, run); },
                   run, wanted);
  }

 private:
  std::shared_ptr<const FormulaProgram> Make(const OpRun& run, std::uint64_t wanted) const {
    std::vector<TensorInfo> inputs;
    for (int i = 0; i < run.num_inputs(); ++i) inputs.push_back({.dtype = run.In(i).dtype, .shape = *run.In(i).shape});
    const ShapeQuery query(op_, inputs);
    // By the shape rule, because outputs that the run is not for have no shape here.
    std::shared_ptr<const FormulaProgram> made = FindFormula(query, op_.schema().shapes(query), wanted);
    made->Prepare();
    return made;
  }

  const OperatorCall op_;
  ProgramsByShapes<FormulaProgram> programs_;
};

RunFn MakeByFormula(const OperatorCall& op) {
  return [kernel = std::make_shared<FormulaKernel>(op)](const OpRun& run) { kernel->Run(run); };
}

bool HasExprTypes(const OpRun& run) {
  for (int i = 0; i < run.num_inputs(); ++i) {
    if (!IsExprType(run.In(i).dtype)) return false;
  }
  for (int o = 0; o < run.num_outputs(); ++o) {
    if (!IsExprType(run.Out(o).dtype)) return false;
  }
  return true;
}

int MaxParts(const ShapeQuery& query, std::span<const TensorInfo> outputs) {
  return FindFormula(query, outputs)->max_parts();
}

// An operation is counted once an element, whatever it is.
Cost CostOf(const ShapeQuery& query, std::span<const TensorInfo> outputs) {
  if (!AreExprTypes(query, outputs)) return {.flops = 0, .bytes = BytesMoved(query, outputs)};
  const std::shared_ptr<const FormulaProgram> made = FindFormula(query);
  const auto elements = static_cast<double>(made->formula().region.NumElements());
  return {.flops = elements * made->num_operations(), .bytes = BytesMoved(query, outputs)};
}

}  // namespace

std::uint64_t WantedOf(const OpRun& run) {
  std::uint64_t wanted = ~std::uint64_t{0};
  if (run.num_outputs() == 1) return wanted;
  for (int i = 0; i < std::min(run.num_outputs(), 63); ++i) {
    if (!run.Wants(i)) wanted &= ~(std::uint64_t{1} << i);
  }
  return wanted;
}

RunValues::RunValues(const OperatorCall& op, const OpRun& run)
    : values_{run.step(), static_cast<std::int64_t>(run.context().RunNumber()),
              static_cast<std::int64_t>(op.random_id()), static_cast<std::int64_t>(op.seed())} {}

Kernel FormulaKernelOr(KernelFactory otherwise) {
  return {.make = [otherwise = std::move(otherwise)](const OperatorCall& op) -> RunFn {
            return [by_formula = MakeByFormula(op), other = otherwise(op)](const OpRun& run) {
              (HasExprTypes(run) ? by_formula : other)(run);
            };
          },
          .max_parts =
              [](const ShapeQuery& query, std::span<const TensorInfo> outputs) {
                return AreExprTypes(query, outputs) ? MaxParts(query, outputs) : 1;
              }};
}

void CompleteFromFormula(OperatorSchema* schema) {
  const bool has_kernel = schema->kernels.contains(DeviceKind::kCpu);
  schema->shapes = [declared = std::move(schema->shapes), has_kernel](const ShapeQuery& query) {
    const std::vector<TensorInfo> outputs = declared ? declared(query) : std::vector<TensorInfo>();
    if (declared && has_kernel && !AreExprTypes(query, outputs)) return outputs;
    const std::shared_ptr<const FormulaProgram> made = FindFormula(query, outputs);
    return declared ? outputs : made->formula().infos;
  };
  if (!schema->cost) schema->cost = CostOf;
  if (!schema->rows) {
    schema->rows = [shapes = schema->shapes, has_kernel](const ShapeQuery& query) -> std::optional<RowOperands> {
      if (has_kernel && !AreExprTypes(query, shapes(query))) return {};
      return FindFormula(query)->formula().rows;
    };
  }
  if (has_kernel) return;
  schema->kernels[DeviceKind::kCpu] = {
      .make = MakeByFormula, .max_parts = MaxParts, .checks_values = schema->formula_options.checks_values};
}

}  // namespace stepnet
