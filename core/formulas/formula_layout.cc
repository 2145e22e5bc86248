#include "stepnet/core/formulas/formula_layout.h"

#include <algorithm>

namespace stepnet {
namespace {

// The inputs of a call for messages: "x float [2, 3], y float [4]".
std::string InputsText(const ShapeQuery& query) {
  constexpr int kMaxShown = 20;
  std::vector<std::string> items;
  for (int i = 0; i < std::min(query.num_inputs(), kMaxShown); ++i) {
    items.push_back(StrCat(query.op().inputs()[i], " ", query.In(i).Description()));
  }
  if (query.num_inputs() > kMaxShown) items.push_back(StrCat("… and ", query.num_inputs() - kMaxShown, " more"));
  return Join(items, ", ");
}

}  // namespace

void FailInFormula(const ShapeQuery& query, const std::string& what) {
  throw Error(ErrorCode::kInternal, StrCat("the formula of ", query.op().type(), " ", what));
}

FormulaAsksAmiss::FormulaAsksAmiss(const ShapeQuery& query, const std::string& what, ErrorCode code)
    : Error(code, StrCat("the formula of ", query.op().type(), " ", what)) {}

std::string FormulaFailure(const ShapeQuery& query, const std::string& what) {
  return StrCat(query.op().type(), what, "; its inputs are ", InputsText(query));
}
void FailFormula(const ShapeQuery& query, ErrorCode code, const std::string& what) {
  throw Error(code, FormulaFailure(query, what));
}

FormulaLayout::FormulaLayout(const Formula& formula, const Shape& otherwise)
    : query_(formula.query_), rows_from_(formula.rows_from_), has_own_shape_(formula.over_.has_value()) {
  if (has_own_shape_) {
    shape_ = *formula.over_;
    return;
  }
  const OperatorSchema& schema = query_.op().schema();
  if (schema.FindArgument("broadcast") != nullptr) rule_ = ReadBroadcastRule(query_.op());
  has_b_ = std::ranges::find(schema.inputs, "b", &Formal::name) != schema.inputs.end();
  bool is_known = false;
  for (const Read& read : formula.reads_) {
    const bool has_shape =
        read.access == Access::kElement || read.access == Access::kBlock || read.access == Access::kColumn;
    if (!has_shape || read.input == Formula::kNotGiven) continue;
    if (RepeatsAsCaffe2(read)) {
      BroadcastShape(query_, *rule_, /*a=*/read.input == 0 ? 1 : 0, read.input);
      continue;
    }
    is_known = true;
    if (read.access != Access::kColumn) Repeat(read, ShapeOfElements(read));
  }
  if (!is_known) shape_ = WithRows(otherwise);
  for (const Formula::Read& read : formula.reads_) {
    if (read.access == Access::kColumn && read.input != Formula::kNotGiven) RepeatColumn(read);
  }
}

Shape FormulaLayout::WithRows(const Shape& shape) const {
  if (rows_from_ < 0 || rows_from_ > shape.rank()) return shape;
  Shape rows = shape;
  while (rows.rank() > rows_from_) rows = rows.Without(rows.rank() - 1);
  return rows.Inserted(rows_from_, shape.SizeFrom(rows_from_));
}

// The shape that an input has in the view of what reads it.
Shape FormulaLayout::ShapeOfElements(const Read& read) const {
  const Shape& shape = ShapeOf(read);
  if (read.access == Access::kColumn) return Shape({shape.size()});
  if (read.access != Access::kBlock) return WithRows(shape);
  if (shape.rank() == 0 || shape[-1] % read.blocks != 0) {
    FailFormula(query_, ErrorCode::kShapeMismatch,
                StrCat(" needs ", NameOf(read), " to have ", read.blocks, " blocks of one size in its last dimension"));
  }
  return shape.With(shape.rank() - 1, shape[-1] / read.blocks);
}

void FormulaLayout::Repeat(const Read& read, const Shape& shape) {
  std::vector<std::int64_t> sizes = shape_.ToVector();
  if (static_cast<int>(sizes.size()) < shape.rank()) sizes.insert(sizes.begin(), shape.rank() - sizes.size(), 1);
  for (int i = 1; i <= shape.rank(); ++i) {
    std::int64_t& size = *(sizes.end() - i);
    if (size != shape[-i] && size != 1 && shape[-i] != 1) {
      FailFormula(query_, ErrorCode::kShapeMismatch,
                  StrCat(" cannot repeat ", NameOf(read), ", of ", shape, ", over ", shape_));
    }
    if (size == 1) size = shape[-i];
  }
  shape_ = Shape(sizes);
}

// An input that is read by columns says how long rows are where no other does.
void FormulaLayout::RepeatColumn(const Read& read) {
  const Shape& shape = ShapeOf(read);
  const std::int64_t columns = NumColumns();
  if (columns != 1 && shape.size() != 1 && shape.size() != columns) {
    FailFormula(query_, ErrorCode::kShapeMismatch,
                StrCat(" needs ", NameOf(read), ", of ", shape, ", to have an element for each column of ", shape_));
  }
  Repeat(read, ShapeOfElements(read));
}

// Strides of a tensor whose dimensions are those of shape_ from `axis` on, the last of them of `row` elements in
// memory.
FormulaLayout::Strides FormulaLayout::StridesOf(const Shape& shape, int axis, std::int64_t row) const {
  Strides strides(shape_.rank());
  std::int64_t stride = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    if (axis + i >= 0 && axis + i < shape_.rank() && shape[i] != 1) strides[axis + i] = stride;
    stride *= std::max<std::int64_t>(1, i == shape.rank() - 1 ? row : shape[i]);  // strides of no elements differ, too
  }
  return strides;
}

FormulaLayout::Strides FormulaLayout::StridesOfEachRow() const {
  Strides strides(shape_.rank());
  std::int64_t stride = 1;
  for (int i = shape_.rank() - 2; i >= 0; --i) {
    if (shape_[i] != 1) strides[i] = stride;
    stride *= std::max<std::int64_t>(1, shape_[i]);
  }
  return strides;
}

FormulaLayout::Strides FormulaLayout::StridesOver(const Read& read) const {
  const Shape& shape = ShapeOf(read);
  std::vector<int> dimensions = read.dimensions;
  if (read.access != Access::kAlong) {
    if (shape.size() == 1) return Strides(shape_.rank());
    if (read.access != Access::kElement) FailInFormula(query_, "says what it computes over, and reads rows or columns");
    for (int d = 0; d < shape_.rank(); ++d) dimensions.push_back(d);
  }
  std::vector<std::int64_t> sizes;
  for (const int d : dimensions) sizes.push_back(shape_[d]);
  const Shape along(sizes);
  if (along.size() != shape.size()) {
    FailFormula(query_, ErrorCode::kShapeMismatch,
                StrCat(" needs ", NameOf(read), " to have an element for each index of ", along));
  }
  Strides strides(shape_.rank());
  std::int64_t stride = 1;
  for (size_t i = dimensions.size(); i-- > 0;) {
    if (sizes[i] != 1) strides[dimensions[i]] = stride;
    stride *= std::max<std::int64_t>(1, sizes[i]);
  }
  return strides;
}

RegionOperand FormulaLayout::Place(const Read& read, Strides* strides) const {
  strides->assign(shape_.rank(), 0);
  if (read.access == Access::kNone) return {.size = 1};
  if (IsRunValue(read.input)) return {.dtype = DType::kInt64, .size = 1};
  const Shape& shape = ShapeOf(read);
  RegionOperand operand{.dtype = query_.In(read.input).dtype, .size = shape.size()};
  if (has_own_shape_) {
    *strides = StridesOver(read);
    return operand;
  }
  switch (read.access) {
    case Access::kNone:
    case Access::kAlong: break;
    case Access::kElement: {
      const Shape elements = ShapeOfElements(read);
      const bool is_as_caffe2 = RepeatsAsCaffe2(read) && rows_from_ < 0;
      const int axis = is_as_caffe2 ? AxisOf(shape) : shape_.rank() - elements.rank();
      if (shape.size() != 1) *strides = StridesOf(elements, axis, elements.rank() == 0 ? 1 : elements[-1]);
      break;
    }
    case Access::kBlock: {
      const Shape elements = ShapeOfElements(read);
      operand.offset = read.block * elements[-1];
      *strides = StridesOf(elements, shape_.rank() - shape.rank(), shape[-1]);
      break;
    }
    case Access::kColumn: *strides = StridesOf(ShapeOfElements(read), shape_.rank() - 1, shape.size()); break;
    case Access::kRow:
      if (shape.size() != NumRows()) {
        FailFormula(query_, ErrorCode::kShapeMismatch,
                    StrCat(" needs ", NameOf(read), " to have an element for each row of ", shape_));
      }
      *strides = StridesOfEachRow();
      break;
    case Access::kScalar:
      if (shape.size() != 1) {
        FailFormula(query_, ErrorCode::kShapeMismatch, StrCat(" needs ", NameOf(read), " to have one element"));
      }
      break;
  }
  return operand;
}

}  // namespace stepnet
