// How the operands of a formula lie over the elements that it computes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "stepnet/core/broadcast_rule.h"
#include "stepnet/core/formulas/formula.h"

namespace stepnet {

// Which of `count` operands is that of a formal, or the first of them of a variadic one: all that are not optional are
// there, of others the first ones. -1: none.
int PositionOf(const std::vector<Formal>& formals, int formal, int count);

// Throws kInternal: the declaration is wrong, whatever the inputs are.
[[noreturn]] void FailInFormula(const ShapeQuery& query, const std::string& what);
// Throws `code`, naming the operator and what its inputs are.
[[noreturn]] void FailFormula(const ShapeQuery& query, ErrorCode code, const std::string& what);
// What it throws says.
std::string FormulaFailure(const ShapeQuery& query, const std::string& what);

// Says that a formula asks for what the operator does not have, or with an argument that makes no sense. The shape rule
// may refuse such an operator with a better message.
class FormulaAsksAmiss : public Error {
 public:
  FormulaAsksAmiss(const ShapeQuery& query, const std::string& what, ErrorCode code = ErrorCode::kInternal);
};

// Says that a formula gives what the shape rule of its operator contradicts.
class FormulaAgainstRule : public Error {
 public:
  FormulaAgainstRule(const std::string& what, bool is_of_dtypes)
      : Error(ErrorCode::kInternal, what), is_of_dtypes_(is_of_dtypes) {}
  bool is_of_dtypes() const { return is_of_dtypes_; }  // sizes are alike

 private:
  bool is_of_dtypes_;
};

// The shape that a formula computes over, and the strides of what it reads along the dimensions of that.
class FormulaLayout {
 public:
  using Read = Formula::Read;
  using Strides = std::vector<std::int64_t>;  // one for each dimension of shape()

  // Lays out what the formula reads. `otherwise` is the shape where no read says one. Throws kShapeMismatch for inputs
  // that cannot be repeated over each other.
  FormulaLayout(const Formula& formula, const Shape& otherwise);

  const Shape& shape() const { return shape_; }
  std::int64_t NumColumns() const { return shape_.rank() == 0 ? 1 : shape_[-1]; }
  std::int64_t NumRows() const { return shape_.rank() == 0 ? 1 : shape_.SizeTo(shape_.rank() - 1); }

  // The shape with the dimensions that make a row as one.
  Shape WithRows(const Shape& shape) const;
  // Where a read has its elements; throws kShapeMismatch for one of another size than what reads it has. The operand's
  // own strides are left at 0.
  RegionOperand Place(const Read& read, Strides* strides) const;
  // Strides of elements that follow each other, `width` times as many in each row.
  Strides StridesOfRows(std::int64_t width) const { return StridesOf(shape_, 0, width * NumColumns()); }
  Strides StridesOfEachRow() const;

 private:
  using Access = Formula::Access;

  const Shape& ShapeOf(const Read& read) const { return query_.In(read.input).shape; }
  const std::string& NameOf(const Read& read) const { return query_.op().inputs()[read.input]; }
  // That is repeated over the others, which are of one shape: the input named "b" or, where none is, those behind the
  // first one.
  bool RepeatsAsCaffe2(const Read& read) const {
    const bool is_b = has_b_ ? read.name == "b" : read.input > 0;
    return rule_ && rule_->enabled && is_b && read.access == Access::kElement;
  }
  Shape ShapeOfElements(const Read& read) const;
  void Repeat(const Read& read, const Shape& shape);
  void RepeatColumn(const Read& read);
  // Where the formula says itself what it computes over.
  Strides StridesOver(const Read& read) const;
  Strides StridesOf(const Shape& shape, int axis, std::int64_t row) const;
  int AxisOf(const Shape& shape) const { return rule_->axis == -1 ? shape_.rank() - shape.rank() : rule_->axis; }

  const ShapeQuery& query_;
  const int rows_from_;
  const bool has_own_shape_;
  std::optional<BroadcastRule> rule_;
  bool has_b_ = false;
  Shape shape_;
};

}  // namespace stepnet
