#include "stepnet/core/formula_kernel.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "stepnet/core/cost.h"
#include "stepnet/core/expr_table.h"
#include "stepnet/core/formula_cache.h"

namespace stepnet {
namespace {

// Outputs that a run is for, as bits.
std::uint64_t WantedOf(const OpRun& run) {
  std::uint64_t wanted = ~std::uint64_t{0};
  if (run.num_outputs() == 1) return wanted;
  for (int i = 0; i < std::min(run.num_outputs(), 63); ++i) {
    if (!run.Wants(i)) wanted &= ~(std::uint64_t{1} << i);
  }
  return wanted;
}

// Shape's own comparison goes through all dimensions that a shape may have; this one is part of every run.
bool IsSame(const Shape& a, const Shape& b) {
  if (a.rank() != b.rank() || a.size() != b.size()) return false;
  for (int i = 0; i < a.rank(); ++i) {
    if (a[i] != b[i]) return false;
  }
  return true;
}

// The program for some shapes of the inputs, or for any that have as many elements as the outputs.
struct ProgramForShapes {
  std::vector<TensorInfo> inputs;
  std::uint64_t wanted;
  std::shared_ptr<const FormulaProgram> made;
  const FormulaRegion& formula;
  const RegionProgram& program;
  bool is_flat;

  bool IsFor(const OpRun& run, std::uint64_t of) const {
    if (wanted != of) return false;
    const std::int64_t size = is_flat ? run.Out(formula.outputs[0]).size() : 0;
    for (int i = 0; i < run.num_inputs(); ++i) {
      const TensorView& in = run.In(i);
      if (in.dtype != inputs[i].dtype) return false;
      if (is_flat ? in.shape->size() != size : !IsSame(*in.shape, inputs[i].shape)) return false;
    }
    return true;
  }
};

// The programs that a kernel has met shapes for. Those of the first shapes stay and are found without a lock. An
// operator that meets ever more of them, as sequences of any length give, keeps the last ones that it used.
class Programs {
 public:
  Programs() = default;
  Programs(const Programs&) = delete;
  Programs& operator=(const Programs&) = delete;
  ~Programs() {
    for (const auto& first : first_) delete first.load(std::memory_order_relaxed);
  }

  // Calls use(program for this run).
  template <typename Make, typename Use>
  void With(const OpRun& run, std::uint64_t wanted, const Make& make, const Use& use) {
    for (const auto& first : first_) {
      const ProgramForShapes* program = first.load(std::memory_order_acquire);
      if (program == nullptr) break;
      if (program->IsFor(run, wanted)) return use(*program);
    }
    use(*FindOrMake(run, wanted, make));
  }

 private:
  static constexpr size_t kFirst = 8;
  static constexpr size_t kLast = 32;

  template <typename Make>
  std::shared_ptr<const ProgramForShapes> FindOrMake(const OpRun& run, std::uint64_t wanted, const Make& make) {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < last_.size(); ++i) {
      if (!last_[i]->IsFor(run, wanted)) continue;
      std::swap(last_[i], last_.back());
      return last_.back();
    }
    for (auto& first : first_) {
      const ProgramForShapes* program = first.load(std::memory_order_relaxed);
      if (program == nullptr) {
        program = make().release();
        first.store(program, std::memory_order_release);
      } else if (!program->IsFor(run, wanted)) {
        continue;
      }
      return {std::shared_ptr<void>(), program};  // which owns nothing: it stays
    }
    if (last_.size() == kLast) last_.erase(last_.begin());
    last_.push_back(make());
    return last_.back();
  }

  std::array<std::atomic<const ProgramForShapes*>, kFirst> first_ = {};  // null from some place on
  std::mutex mutex_;
  std::vector<std::shared_ptr<const ProgramForShapes>> last_;  // the last used at the end
};

class FormulaKernel {
 public:
  explicit FormulaKernel(const OperatorCall& op) : op_(op) {}

  void Run(const OpRun& run) {
    const std::uint64_t wanted = WantedOf(run);
    programs_.With(
        run, wanted, [&] { return Make(run, wanted); },
        [&](const ProgramForShapes& program) { RunProgram(program, run); });
  }

 private:
  static constexpr size_t kFew = 16;

  std::unique_ptr<ProgramForShapes> Make(const OpRun& run, std::uint64_t wanted) const {
    std::vector<TensorInfo> inputs;
    for (int i = 0; i < run.num_inputs(); ++i) inputs.push_back({.dtype = run.In(i).dtype, .shape = *run.In(i).shape});
    // By the shape rule, because outputs that the run is not for have no shape here.
    const std::vector<TensorInfo> outputs = op_.schema().shapes(ShapeQuery(op_, inputs));
    const std::shared_ptr<const FormulaProgram> made = FindFormula(ShapeQuery(op_, inputs), outputs, wanted);
    return std::make_unique<ProgramForShapes>(ProgramForShapes{.inputs = std::move(inputs),
                                                               .wanted = wanted,
                                                               .made = made,
                                                               .formula = made->formula(),
                                                               .program = made->program(),
                                                               .is_flat = made->is_flat()});
  }

  void RunProgram(const ProgramForShapes& of, const OpRun& run) const {
    const std::vector<int>&inputs = of.formula.inputs, &outputs = of.formula.outputs;
    if (inputs.size() + outputs.size() <= kFew) {
      void* few[kFew];
      return RunProgram(of, run, few);
    }
    RunProgram(of, run, run.ScratchOf<void*>(static_cast<std::int64_t>(inputs.size() + outputs.size())));
  }

  void RunProgram(const ProgramForShapes& of, const OpRun& run, void** pointers) const {
    const std::vector<int>&inputs = of.formula.inputs, &outputs = of.formula.outputs;
    void** const to = pointers + inputs.size();
    std::optional<RunValues> values;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (IsRunValue(inputs[i])) {
        if (!values) values.emplace(op_, run);
        pointers[i] = const_cast<void*>(values->Of(inputs[i]));
      } else {
        pointers[i] = run.In(inputs[i]).data;
      }
    }
    for (size_t i = 0; i < outputs.size(); ++i) to[i] = run.Out(outputs[i]).data;
    const std::span<const void* const> from(pointers, inputs.size());
    const std::span<void* const> results(to, outputs.size());
    if (of.is_flat) return of.program.RunFlat(from, results, run.Out(outputs[0]).size(), run.part(), run.parts());
    const std::optional<RegionFault> fault = of.program.Run(from, results, run.part(), run.parts());
    if (!fault) return;
    run.FaultOf(fault->element, of.formula.region.NumElements(),
                [&] { return Error(ErrorCode::kInvalidArgument, fault->message); });
  }

  const OperatorCall op_;
  Programs programs_;
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
  const Region& region = made->formula().region;
  Cost cost{.bytes = BytesMoved(query, outputs)};
  for (const ExprNode* node : ExprNodes(region.Roots())) {
    if (node->op != ExprOp::kInput && node->op != ExprOp::kConstant) {
      cost.flops += static_cast<double>(region.NumElements());
    }
  }
  return cost;
}

}  // namespace

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
  const bool has_kernel = schema->kernels.contains(Device::kCpu);
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
  schema->kernels[Device::kCpu] = {
      .make = MakeByFormula, .max_parts = MaxParts, .checks_values = schema->formula_options.checks_values};
}

}  // namespace stepnet
