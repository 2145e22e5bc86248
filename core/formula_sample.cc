#include "stepnet/core/formula_sample.h"

#include <algorithm>
#include <array>
#include <exception>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "stepnet/core/strings.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {

class FormulaSample {
 public:
  // One dtype for all inputs, or one for each.
  FormulaSample(const OperatorCall& op, std::span<const DType> dtypes) : op_(op) {
    for (int i = 0; i < op.num_inputs(); ++i) {
      inputs_.push_back({.dtype = dtypes[dtypes.size() == 1 ? 0 : i], .shape = Elements()});
    }
    GiveShapesThatFit();
  }

  // By the shape rule, which says what dtypes outputs have, or without. Nothing where that does not take the inputs.
  std::optional<FormulaRegion> Region(bool by_rule) {
    const ShapeQuery query(op_, inputs_);
    try {
      return MakeFormulaRegion(query, by_rule ? op_.schema().shapes(query) : std::vector<TensorInfo>());
    } catch (const Error& error) {
      if (!error_) error_ = error;
      return {};
    }
  }

  // What the first call of Region that gave nothing met.
  const std::optional<Error>& error() const { return error_; }

 private:
  using Access = Formula::Access;

  // What a formula reads, and how, it says whatever the shapes are.
  void GiveShapesThatFit() {
    const ShapeQuery query(op_, inputs_);
    Formula formula(query);
    try {
      op_.schema().formula(formula);
    } catch (const Error&) {           // of shapes; what it reads is known by then
    } catch (const std::exception&) {  // Region tells of it
    }
    for (const Formula::Read& read : formula.reads_) {
      if (read.input >= 0) inputs_[read.input].shape = ShapeFor(formula, read);
    }
  }

  static Shape ShapeFor(const Formula& formula, const Formula::Read& read) {
    std::int64_t size = 1;
    for (const int d : read.dimensions) size *= (*formula.over_)[d];
    switch (read.access) {
      case Access::kAlong: return Shape({size});
      case Access::kBlock: return Shape({kSampleRows, kSampleColumns * read.blocks});
      case Access::kRow: return Shape({kSampleRows});
      case Access::kColumn: return Shape({kSampleColumns});
      case Access::kScalar: return Shape({1});
      default: return Elements();
    }
  }
  static Shape Elements() { return Shape({kSampleRows, kSampleColumns}); }

  const OperatorCall& op_;
  std::vector<TensorInfo> inputs_;
  std::optional<Error> error_;
};

namespace {

// A call with default arguments; nothing where one is required.
std::optional<OperatorCall> DefaultCall(const OperatorSchema& schema) {
  OperatorDef def;
  def.set_type(schema.type);
  for (const Formal& formal : schema.inputs) {
    def.add_input(formal.name);
    if (formal.variadic) def.add_input(formal.name);
  }
  for (const Formal& formal : schema.outputs) def.add_output(StrCat("of ", formal.name));
  try {
    return OperatorCall(def);
  } catch (const Error&) {
    return {};
  }
}

// The first of these ways, by the shape rule or without, that gives a region.
std::optional<FormulaRegion> FindSample(const OperatorSchema& schema, std::initializer_list<bool> ways) {
  if (!schema.formula) return {};
  const std::optional<OperatorCall> call = DefaultCall(schema);
  if (!call) return {};
  for (const bool by_rule : ways) {
    for (const DType dtype : {DType::kFloat, DType::kBool}) {
      if (std::optional<FormulaRegion> region = FormulaSample(*call, {&dtype, 1}).Region(by_rule)) return region;
    }
  }
  return {};
}

// The next in the order of counting with these digits; false after the last.
bool Next(std::span<const DType> digits, std::vector<DType>* dtypes) {
  for (DType& dtype : *dtypes) {
    const auto next = std::ranges::find(digits, dtype) + 1;
    dtype = next == digits.end() ? digits[0] : *next;
    if (next != digits.end()) return true;
  }
  return false;
}

}  // namespace

std::optional<Error> FormulaFault(const OperatorCall& op) {
  if (!op.schema().formula || op.num_inputs() == 0) return {};
  constexpr std::array kDTypes = {DType::kFloat, DType::kInt32, DType::kBool};
  constexpr int kMaxTries = 729;
  std::optional<Error> fault;
  std::vector<DType> dtypes(op.num_inputs(), kDTypes[0]);
  int tries = 0;
  do {
    FormulaSample sample(op, dtypes);
    if (sample.Region(/*by_rule=*/false)) return {};
    // Of several, the one that the declaration is to blame for.
    const bool is_internal = sample.error()->code() == ErrorCode::kInternal;
    if (!fault || (is_internal && fault->code() != ErrorCode::kInternal)) fault = sample.error();
  } while (++tries < kMaxTries && Next(kDTypes, &dtypes));
  const bool has_tried_all = tries < kMaxTries;
  // Shapes that fit may just not have been found.
  const bool is_sure =
      fault->code() == ErrorCode::kInternal || (has_tried_all && fault->code() != ErrorCode::kShapeMismatch);
  if (!is_sure) return {};
  // Without what the sample gave it.
  const std::string& message = fault->message();
  return Error(fault->code(), message.substr(0, message.find("; its inputs are ")));
}

std::optional<Error> FormulaFault(const OperatorSchema& schema) {
  const std::optional<OperatorCall> call = schema.formula ? DefaultCall(schema) : std::nullopt;
  return call ? FormulaFault(*call) : std::nullopt;
}

std::optional<FormulaRegion> SampleFormula(const OperatorSchema& schema) { return FindSample(schema, {true, false}); }

bool IsElementwise(const OperatorSchema& schema) {
  if (schema.elementwise) return true;
  // By the rule alone: an input that it wants smaller is repeated.
  const std::optional<FormulaRegion> sample = FindSample(schema, {true});
  return sample && sample->is_elementwise;
}

}  // namespace stepnet
