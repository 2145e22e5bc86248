#include "stepnet/core/formulas/formula_program.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "stepnet/core/expressions/expr_evaluate.h"
#include "stepnet/core/regions/region_run.h"
#include "stepnet/core/regions/region_simple.h"

namespace stepnet {
namespace {

constexpr std::int64_t kFlatSize = 2;  // of regions that stand for any size: operands of one element are not elements

bool MayBeFlat(const ShapeQuery& query, const FormulaRegion& formula) {
  const Region& region = formula.region;
  if (!formula.is_elementwise || region.outputs.empty() || !region.requirements.empty()) return false;
  for (int i = 0; i < query.num_inputs(); ++i) {
    if (query.In(i).shape.size() != region.outputs[0].memory.size) return false;
  }
  return true;
}

Region Flattened(Region region) {
  const auto flatten = [](RegionOperand* operand) {
    operand->size = kFlatSize;
    operand->strides = {0, 0, 0, 1};
  };
  region.sizes = {1, 1, 1, kFlatSize};
  for (RegionOperand& input : region.inputs) flatten(&input);
  for (RegionOutput& output : region.outputs) flatten(&output.memory);
  return region;
}

}  // namespace

FormulaProgram::FormulaProgram(const ShapeQuery& query, std::uint64_t wanted, FormulaRegion formula)
    : wanted_(wanted),
      first_output_(formula.outputs.empty() ? 0 : formula.outputs[0]),
      formula_(std::move(formula)),
      may_be_flat_(MayBeFlat(query, formula_)),
      reads_run_values_(std::ranges::any_of(formula_.inputs, IsRunValue)) {
  for (int i = 0; i < query.num_inputs(); ++i) {
    const Shape& shape = query.In(i).shape;
    inputs_.push_back({.key = shape.key(), .dtype = query.In(i).dtype});
    shapes_.push_back(shape);
    have_keys_ &= shape.key() != Shape::kNoKey;
  }
  have_keys_ &= !formula_.asks_for_output;
  const auto is_operation = [](const ExprNode* node) {
    return node->op != ExprOp::kInput && node->op != ExprOp::kConstant;
  };
  num_operations_ = static_cast<int>(std::ranges::count_if(ExprNodes(formula_.region.Roots()), is_operation));
}

bool FormulaProgram::HasShapesOf(const OpRun& run) const {
  for (int i = 0; i < run.num_inputs(); ++i) {
    if (*run.In(i).shape != shapes_[i]) return false;
  }
  return !formula_.asks_for_output || *run.Out(first_output_).shape == formula_.infos[first_output_].shape;
}

void FormulaProgram::Prepare() const {
  std::call_once(once_, [this] {
    if (may_be_flat_) {
      RegionProgram flat = RegionProgram::OfChecked(Flattened(formula_.region));
      is_flat_ = flat.is_flat();
      if (is_flat_) program_.emplace(std::move(flat));
    }
    if (!is_flat_) program_.emplace(RegionProgram::OfChecked(formula_.region));
    if (is_flat_ && program_->direct() != nullptr) UseDirect(*program_->direct());
    if (!reads_run_values_) UseSimple(program_->simple());
  });
}

void FormulaProgram::UseDirect(const RegionDirect& direct) const {
  if (reads_run_values_) return;
  direct_ = direct;
  for (RegionDirect::Source& source : direct_.sources) {
    if (source.constant == nullptr) source.input = formula_.inputs[source.input];
  }
  direct_.output = formula_.outputs[direct.output];
}

void FormulaProgram::UseSimple(const RegionSimple* simple) const {
  simple_ = simple;
  if (simple == nullptr || simple->test == nullptr) return;
  test_ = *simple->test;
  for (RowTest::Number* const number : {&test_->a, &test_->b}) {
    number->input = formula_.inputs[number->input];
  }
}

int FormulaProgram::max_parts() const {
  Prepare();
  return is_flat_ ? RegionProgram::MaxFlatParts(formula_.region.NumElements()) : program_->max_parts();
}

void FormulaProgram::Run(const OperatorCall& op, const OpRun& run) const {
  if (direct_.kernel != nullptr && run.parts() == 1) {
    const std::int64_t size = run.Out(direct_.output).size();
    if (size <= direct_.width) {
      return RunDirect(
          direct_, [&](int input) { return run.In(input).data; }, [&](int output) { return run.Out(output).data; }, 0,
          size);
    }
  }
  if (simple_ != nullptr && run.parts() == 1 && run.units() == 0) return RunSimple(run);
  RunAny(op, run);
}

// Never inlined, as RunSimple: what one way keeps on the stack would slow down the others.
[[gnu::noinline]] void FormulaProgram::RunAny(const OperatorCall& op, const OpRun& run) const {
  constexpr size_t kMaxOnStack = 32;  // of the gradient of an LSTM unit, whose gates are four operands each, 18
  const size_t num_operands = formula_.inputs.size() + formula_.outputs.size();
  if (num_operands <= kMaxOnStack) {
    void* few[kMaxOnStack];
    return RunOn(op, run, few);
  }
  RunOn(op, run, run.ScratchOf<void*>(static_cast<std::int64_t>(num_operands)));
}

// Pointers are looked for as they are needed: rows of one kind need few of those of a unit's gradient.
[[gnu::noinline]] void FormulaProgram::RunSimple(const OpRun& run) const {
  const std::int64_t columns = is_flat_ ? run.Out(first_output_).size() : simple_->columns;
  const std::int64_t rows = is_flat_ ? 1 : simple_->rows;
  if (rows == 0 || columns == 0) return;
  // It is taken by value: compilers would look again where inputs are after each pointer that is written.
  const auto data_of = [](std::span<const TensorView> views, const std::vector<int>& numbers) {
    return [views = views.data(), numbers = numbers.data()](int operand) { return views[numbers[operand]].data; };
  };
  const auto input = data_of(run.inputs(), formula_.inputs);
  const auto output = data_of(run.outputs(), formula_.outputs);
  if (rows > 1) return RunSimpleRows(*simple_, input, output, 0, rows, columns);
  // Small operators wait for this: it is found with as few loads as can be.
  const bool is_other = test_ && test_->Holds([&](int i) { return run.In(i).data; }, 0);
  RunOnlyRow(*simple_, is_other, input, output, columns);
}

void FormulaProgram::RunOn(const OperatorCall& op, const OpRun& run, void** pointers) const {
  // Sizes are read once, not again after each pointer that is written: small operators take no longer than that.
  const size_t num_inputs = formula_.inputs.size(), num_outputs = formula_.outputs.size();
  const int* const inputs = formula_.inputs.data();
  const int* const outputs = formula_.outputs.data();
  void** const to = pointers + num_inputs;
  std::optional<RunValues> values;
  if (reads_run_values_) values.emplace(op, run);
  for (size_t i = 0; i < num_inputs; ++i) {
    const bool is_run_value = reads_run_values_ && IsRunValue(inputs[i]);
    pointers[i] = is_run_value ? const_cast<void*>(values->Of(inputs[i])) : run.In(inputs[i]).data;
  }
  for (size_t i = 0; i < num_outputs; ++i) to[i] = run.Out(outputs[i]).data;
  const std::span<const void* const> from(pointers, num_inputs);
  const std::span<void* const> results(to, num_outputs);
  if (run.units() > 0) return column_programs_.Run(formula_.region, from, results, run.part(), run.parts());
  if (is_flat_) return program_->RunFlat(from, results, run.Out(first_output_).size(), run.part(), run.parts());
  const std::optional<RegionFault> fault = program_->Run(from, results, run.part(), run.parts());
  if (!fault) return;
  run.FaultOf(fault->element, formula_.region.NumElements(), [&](std::int64_t element) {
    return Error(ErrorCode::kInvalidArgument, WithElement(fault->message, element));
  });
}

}  // namespace stepnet
