#include "stepnet/core/formulas/formula_kernel.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "stepnet/core/cost.h"
#include "stepnet/core/expressions/expr_table.h"
#include "stepnet/core/formulas/formula_cache.h"
#include "stepnet/core/formulas/formula_layout.h"
#include "stepnet/core/programs_by_shapes.h"
#include "stepnet/core/stored_float.h"

namespace stepnet {
namespace {

class FormulaKernel {
 public:
  explicit FormulaKernel(const OperatorCall& op) : op_(op) {}

  void Run(const OpRun& run) {
    const std::uint64_t wanted = WantedOf(run);
    if (const FormulaProgram* const first = programs_.FindFirst(run, wanted)) return first->Run(op_, run);
    RunOther(run, wanted);
  }

 private:
  // Never inlined: small operators take no longer than what it keeps on the stack.
  [[gnu::noinline]] void RunOther(const OpRun& run, std::uint64_t wanted) {
    programs_.With([&] { return Make(run, wanted); }, [&](const FormulaProgram& program) { program.Run(op_, run); },
                   run, wanted);
  }

  std::shared_ptr<const FormulaProgram> Make(const OpRun& run, std::uint64_t wanted) const {
    std::vector<TensorInfo> inputs;
    for (int i = 0; i < run.num_inputs(); ++i) inputs.push_back({.dtype = run.In(i).dtype, .shape = *run.In(i).shape});
    const ShapeQuery query(op_, inputs);
    std::vector<TensorInfo> outputs;  // of the run, where the shape rule reads values
    if (!op_.schema().shape_value_inputs.empty()) {
      for (const TensorView& out : run.outputs()) outputs.push_back({.dtype = out.dtype, .shape = *out.shape});
    }
    std::shared_ptr<const FormulaProgram> made = FindFormula(query, wanted, outputs);
    made->Prepare();
    return made;
  }

  const OperatorCall op_;
  ProgramsByShapes<FormulaProgram> programs_;
};

RunFn MakeByFormula(const OperatorCall& op) {
  return [kernel = std::make_shared<FormulaKernel>(op)](const OpRun& run) { kernel->Run(run); };
}

// Says what FormulaApplies says of a query.
bool FormulaApplies(const OperatorCall& op, const OpRun& run) {
  for (int i = 0; i < run.num_inputs(); ++i) {
    if (!IsOperandType(run.In(i).dtype)) return false;
  }
  for (int o = 0; o < run.num_outputs(); ++o) {
    if (!IsOperandType(run.Out(o).dtype)) return false;
  }
  return run.num_inputs() == 0 || FormulaWhere::Holds(op, run.In(0).dtype, *run.In(0).shape);
}

bool ReadsStored(const OperatorCall& /*op*/, const OpRun& run) {
  return std::ranges::any_of(run.inputs(), [](const TensorView& input) { return IsStoredFloat(input.dtype); });
}

// Makes the kernel of an operator that has a formula and one written by hand.
struct FormulaOr {
  bool (*is_for_formula)(const OperatorCall& op, const OpRun& run);
  KernelFactory other;

  RunFn operator()(const OperatorCall& op) const {
    return [op, is_for_formula = is_for_formula, by_formula = MakeByFormula(op),
            by_hand = other(op)](const OpRun& run) { (is_for_formula(op, run) ? by_formula : by_hand)(run); };
  }
};

int MaxParts(const ShapeQuery& query, std::span<const TensorInfo> outputs) {
  return FindFormula(query, kWholeOperator, outputs)->max_parts();
}

// An operation is counted once an element, whatever it is.
Cost CostOf(const ShapeQuery& query, std::span<const TensorInfo> outputs) {
  if (!FormulaApplies(query, outputs)) return {.flops = 0, .bytes = BytesMoved(query, outputs)};
  const std::shared_ptr<const FormulaProgram> made = FindFormula(query, kWholeOperator, outputs);
  const FormulaRegion& formula = made->formula();
  const auto elements =
      static_cast<double>(formula.asks_for_output ? outputs[0].shape.size() : formula.region.NumElements());
  return {.flops = elements * made->num_operations(), .bytes = BytesMoved(query, outputs)};
}

bool IsSame(const std::optional<RowOperands>& a, const std::optional<RowOperands>& b) {
  if (!a || !b) return !a && !b;
  return std::ranges::is_permutation(a->inputs, b->inputs) && std::ranges::is_permutation(a->outputs, b->outputs);
}

// What a declaration says beside its formula, because its kernel runs what the formula does not.
struct Declared {
  ShapeRule shapes;
  RowsRule rows;
  bool elementwise = false;

  // Throws kInternal where the formula says otherwise.
  void CheckAgainst(const FormulaRegion& formula, const ShapeQuery& query) const {
    const char* said = elementwise && !formula.is_elementwise       ? "Elementwise"
                       : rows && !IsSame(rows(query), formula.rows) ? "Rows"
                                                                    : nullptr;
    if (said == nullptr) return;
    FailFormula(query, ErrorCode::kInternal,
                StrCat(" declares .", said, ", and its formula says otherwise: leave out .", said,
                       ", or make it say what the formula does"));
  }
};

// The shape rule of an operator that has a formula.
struct FormulaShapes {
  Declared declared;
  bool has_kernel = false;

  std::vector<TensorInfo> operator()(const ShapeQuery& query) const {
    std::vector<TensorInfo> outputs = OfDeclaration(query);
    const bool is_said = !outputs.empty();
    if (is_said && has_kernel && !FormulaApplies(query, outputs)) return outputs;
    const std::shared_ptr<const FormulaProgram> made = FindFormula(query, kWholeOperator, outputs);
    declared.CheckAgainst(made->formula(), query);
    return is_said ? outputs : made->formula().infos;
  }
  std::vector<TensorInfo> OfDeclaration(const ShapeQuery& query) const {
    return declared.shapes ? declared.shapes(query) : std::vector<TensorInfo>();
  }
};

}  // namespace

RunValues::RunValues(const OperatorCall& op, const OpRun& run, bool with_run_number)
    : values_{run.step(), with_run_number ? static_cast<std::int64_t>(run.context().RunNumber()) : 0,
              static_cast<std::int64_t>(op.random_id()), static_cast<std::int64_t>(op.seed())} {}

bool AppliesToStored(const OperatorCall& /*op*/, DType dtype, const Shape& /*shape*/) { return IsStoredFloat(dtype); }

bool RunsFormulaOfStored(const ShapeQuery& query, DType first) {
  const OperatorSchema& schema = query.op().schema();
  const auto kernel = schema.kernels.find(DeviceKind::kCpu);
  if (!schema.formula || kernel == schema.kernels.end()) return false;
  if (!FormulaWhere::Holds(query.op(), first, query.In(0).shape)) return false;
  const KernelFactory& make = kernel->second.make;
  const auto* const function = make.target<RunFn (*)(const OperatorCall&)>();
  return (function != nullptr && *function == MakeByFormula) || make.target<FormulaOr>() != nullptr;
}

Kernel FormulaKernelOr(KernelFactory otherwise) {
  return {.make = FormulaOr{.is_for_formula = FormulaApplies, .other = std::move(otherwise)},
          .max_parts =
              [](const ShapeQuery& query, std::span<const TensorInfo> outputs) {
                return FormulaApplies(query, outputs) ? MaxParts(query, outputs) : 1;
              },
          .can_leave_out = true};
}

Kernel KernelOrFormula(Kernel by_hand) {
  by_hand.make = FormulaOr{.is_for_formula = ReadsStored, .other = std::move(by_hand.make)};
  return by_hand;
}

std::vector<TensorInfo> DeclaredOutputs(const ShapeQuery& query) {
  const auto* const rule = query.op().schema().shapes.target<FormulaShapes>();
  return rule == nullptr ? std::vector<TensorInfo>() : rule->OfDeclaration(query);
}

ShapeRule DeclaredShapes(const OperatorSchema& schema) {
  const auto* const made = schema.shapes.target<FormulaShapes>();
  return made == nullptr ? schema.shapes : made->declared.shapes;
}

void CompleteFromFormula(OperatorSchema* schema) {
  const bool has_kernel = schema->kernels.contains(DeviceKind::kCpu);
  // A copy of a schema may have been completed.
  Declared declared{.shapes = DeclaredShapes(*schema), .rows = schema->rows, .elementwise = schema->elementwise};
  schema->shapes = FormulaShapes{.declared = std::move(declared), .has_kernel = has_kernel};
  if (!schema->cost) schema->cost = CostOf;
  if (!schema->rows) {
    schema->rows = [shapes = schema->shapes, has_kernel](const ShapeQuery& query) -> std::optional<RowOperands> {
      if (has_kernel && !FormulaApplies(query, shapes(query))) return {};
      return FindFormula(query)->formula().rows;
    };
  }
  if (has_kernel) return;
  schema->kernels[DeviceKind::kCpu] = {.make = MakeByFormula,
                                       .max_parts = MaxParts,
                                       .can_leave_out = true,
                                       .checks_values = schema->formula_options.checks_values};
}

}  // namespace stepnet
