#include "stepnet/core/formula_sample.h"

#include <initializer_list>

#include "stepnet/core/strings.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {

class FormulaSample {
 public:
  FormulaSample(const OperatorCall& op, DType dtype)
      : op_(op), inputs_(op.num_inputs(), {.dtype = dtype, .shape = Shape({2, 3})}) {
    GiveShapesThatFit();
  }

  // By the shape rule, which says what dtypes outputs have, or without. Nothing where that does not take the inputs.
  std::optional<FormulaRegion> Region(bool by_rule) const {
    const ShapeQuery query(op_, inputs_);
    try {
      return MakeFormulaRegion(query, by_rule ? op_.schema().shapes(query) : std::vector<TensorInfo>());
    } catch (const Error&) {
      return {};
    }
  }

 private:
  using Access = Formula::Access;

  // What a formula reads, and how, it says whatever the shapes are.
  void GiveShapesThatFit() {
    const ShapeQuery query(op_, inputs_);
    Formula formula(query);
    try {
      op_.schema().formula(formula);
    } catch (const Error&) {  // of shapes; what it reads is known by then
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
      case Access::kBlock: return Shape({2, 3 * read.blocks});
      case Access::kRow: return Shape({2});
      case Access::kColumn: return Shape({3});
      case Access::kScalar: return Shape({1});
      default: return Shape({2, 3});
    }
  }

  const OperatorCall& op_;
  std::vector<TensorInfo> inputs_;
};

namespace {

// The first of these ways, by the shape rule or without, that gives a region.
std::optional<FormulaRegion> FindSample(const OperatorSchema& schema, std::initializer_list<bool> ways) {
  if (!schema.formula) return {};
  OperatorDef def;
  def.set_type(schema.type);
  for (const Formal& formal : schema.inputs) {
    def.add_input(formal.name);
    if (formal.variadic) def.add_input(formal.name);
  }
  for (const Formal& formal : schema.outputs) def.add_output(StrCat("of ", formal.name));
  try {
    const OperatorCall call(def);
    for (const bool by_rule : ways) {
      for (const DType dtype : {DType::kFloat, DType::kBool}) {
        if (std::optional<FormulaRegion> region = FormulaSample(call, dtype).Region(by_rule)) return region;
      }
    }
  } catch (const Error&) {  // an argument is required
  }
  return {};
}

}  // namespace

std::optional<FormulaRegion> SampleFormula(const OperatorSchema& schema) { return FindSample(schema, {true, false}); }

bool IsElementwise(const OperatorSchema& schema) {
  if (schema.elementwise) return true;
  // By the rule alone: an input that it wants smaller is repeated.
  const std::optional<FormulaRegion> sample = FindSample(schema, {true});
  return sample && sample->is_elementwise;
}

}  // namespace stepnet
