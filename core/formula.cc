#include "stepnet/core/formula.h"

#include <algorithm>
#include <utility>

#include "stepnet/core/broadcast_rule.h"
#include "stepnet/core/expr_scalar.h"

namespace stepnet {
namespace {

// The inputs of a call for messages: "x float [2, 3], y float [4]".
std::string InputsText(const ShapeQuery& query) {
  std::vector<std::string> items;
  for (int i = 0; i < query.num_inputs(); ++i) {
    items.push_back(StrCat(query.op().inputs()[i], " ", query.In(i).Description()));
  }
  return Join(items, ", ");
}

[[noreturn]] void Fail(const ShapeQuery& query, ErrorCode code, const std::string& what) {
  throw Error(code, StrCat(query.op().type(), what, "; its inputs are ", InputsText(query)));
}

[[noreturn]] void FailInternally(const ShapeQuery& query, const std::string& what) {
  throw Error(ErrorCode::kInternal, StrCat("the formula of ", query.op().type(), " ", what));
}

const ArgumentSpec& SpecOf(const OperatorCall& op, std::string_view argument) {
  if (const ArgumentSpec* spec = op.schema().FindArgument(argument)) return *spec;
  throw Error(ErrorCode::kInternal, StrCat("the formula of ", op.type(), " asks for an argument \"", argument,
                                           "\" that the operator does not declare"));
}

}  // namespace

Formula::Formula(const ShapeQuery& query) : query_(query) {
  for (int i = 0; i < query.num_inputs(); ++i) reads_.push_back({.input = i});
}

int Formula::InputOf(std::string_view name) const {
  const std::vector<Formal>& formals = op().schema().inputs;
  const auto found = std::ranges::find(formals, name, &Formal::name);
  if (found == formals.end()) {
    FailInternally(query_, StrCat("names an input \"", name, "\" that the operator does not declare"));
  }
  const int input = static_cast<int>(found - formals.begin());
  return input < query_.num_inputs() ? input : -1;
}

Expr Formula::ReadOf(std::string_view name, Access access, int block, int blocks) {
  const int input = InputOf(name);
  if (input < 0) FailInternally(query_, StrCat("reads \"", name, "\" without asking whether the operator has it"));
  return ReadInput(input, name, access, block, blocks);
}

Expr Formula::ReadInput(int input, std::string_view name, Access access, int block, int blocks) {
  const auto is_same = [&](const Read& read) {
    return read.input == input && read.access == access && read.block == block && read.blocks == blocks;
  };
  auto found = std::ranges::find_if(reads_, is_same);
  if (found == reads_.end()) {
    if (reads_[input].access != Access::kNone) reads_.push_back({});
    found = reads_[input].access == Access::kNone ? reads_.begin() + input : reads_.end() - 1;
    *found = {.input = input, .access = access, .block = block, .blocks = blocks};
  }
  const std::string text = access == Access::kBlock ? StrCat(name, "[", block, "]") : std::string(name);
  return Expr::Input(static_cast<int>(found - reads_.begin()), text, query_.In(input).dtype);
}

Expr Formula::In(std::string_view name) { return ReadOf(name, Access::kElement); }
Expr Formula::Row(std::string_view name) { return ReadOf(name, Access::kRow); }
Expr Formula::Column(std::string_view name) { return ReadOf(name, Access::kColumn); }
Expr Formula::Scalar(std::string_view name) { return ReadOf(name, Access::kScalar); }

std::vector<Expr> Formula::Ins(std::string_view name) {
  std::vector<Expr> all;
  const int first = InputOf(name);
  for (int i = first; first >= 0 && i < query_.num_inputs(); ++i) {
    all.push_back(ReadInput(i, StrCat(name, i - first), Access::kElement));
  }
  return all;
}

std::vector<Expr> Formula::Blocks(std::string_view name, int count) {
  std::vector<Expr> blocks;
  for (int k = 0; k < count; ++k) blocks.push_back(ReadOf(name, Access::kBlock, k, count));
  return blocks;
}

bool Formula::Has(std::string_view name) const { return InputOf(name) >= 0; }

DType Formula::TypeOf(std::string_view name) const {
  const int input = InputOf(name);
  if (input < 0)
    FailInternally(query_, StrCat("asks for the type of \"", name, "\", which the operator does not have"));
  return query_.In(input).dtype;
}

double Formula::Number(std::string_view argument) const {
  const bool is_float = SpecOf(op(), argument).type == ArgumentType::kFloat;
  return is_float ? static_cast<double>(op().Float(argument)) : op().Number(argument);
}
std::int64_t Formula::Int(std::string_view argument) const { return op().Int(argument); }
bool Formula::Bool(std::string_view argument) const { return op().Bool(argument); }

void Formula::Out(std::vector<FormulaOutput> outputs) {
  if (outputs_) FailInternally(query_, "says twice what the outputs are");
  outputs_ = std::move(outputs);
}

void Formula::Check(const Expr& condition, std::string_view message, const Expr& value) {
  requirements_.push_back(Require(condition, message, value));
}

// Makes the region of a formula that has been asked: the shape that is computed over, where each operand has its
// elements, and as few dimensions as say the same.
class FormulaCompiler {
 public:
  FormulaCompiler(const ShapeQuery& query, const Formula& formula, std::span<const TensorInfo> declared,
                  std::uint64_t wanted)
      : query_(query), formula_(formula), declared_(declared), wanted_(wanted) {}

  FormulaRegion Run() {
    if (!formula_.outputs_) FailInternally(query_, "says nothing of outputs");
    if (static_cast<int>(formula_.outputs_->size()) < query_.op().num_outputs()) {
      FailInternally(query_, StrCat("gives ", formula_.outputs_->size(), " outputs, the operator has ",
                                    query_.op().num_outputs()));
    }
    FindShape();
    for (const Read& read : formula_.reads_) AddInput(read);
    for (int i = 0; i < query_.op().num_outputs(); ++i) AddOutput(i);
    result_.region.requirements = formula_.requirements_;
    ReadExpressions();
    const auto checks = [](const Expr& root) { return root->has_require(); };
    if (std::ranges::any_of(result_.region.Roots(), checks) && !query_.op().schema().formula_options.checks_values) {
      FailInternally(query_, "checks values and its declaration does not say so (FormulaOptions::checks_values)");
    }
    Collapse();
    FindInPlace();
    CheckRegion(result_.region);
    FindElementwise();
    if (!result_.is_elementwise) FindRows();
    return std::move(result_);
  }

 private:
  using Access = Formula::Access;
  using Read = Formula::Read;
  using Kind = FormulaOutput::Kind;
  using Strides = std::vector<std::int64_t>;  // one for each dimension of shape_

  const Shape& ShapeOf(const Read& read) const { return query_.In(read.input).shape; }
  const std::string& NameOf(const Read& read) const { return query_.op().inputs()[read.input]; }

  // Whether the shape says something of the elements that are computed.
  static bool HasShape(const Read& read) {
    return read.access == Access::kElement || read.access == Access::kBlock || read.access == Access::kColumn;
  }
  bool RepeatsAsCaffe2(const Read& read) const { return rule_ && read.input > 0 && read.access == Access::kElement; }

  void FindShape() {
    if (query_.op().schema().FindArgument("broadcast") != nullptr) rule_ = ReadBroadcastRule(query_.op());
    bool is_known = false;
    for (const Read& read : formula_.reads_) {
      if (!HasShape(read)) continue;
      if (RepeatsAsCaffe2(read)) {
        CheckBroadcast(query_, *rule_, 0, read.input);
        continue;
      }
      is_known = true;
      Repeat(read, ShapeOfElements(read));
    }
    if (is_known) return;
    if (query_.num_inputs() > 0) {
      shape_ = query_.In(0).shape;
    } else if (!declared_.empty()) {
      shape_ = declared_[0].shape;
    }
  }

  // The shape that an input has in the view of what reads it.
  Shape ShapeOfElements(const Read& read) const {
    const Shape& shape = ShapeOf(read);
    if (read.access == Access::kColumn) return Shape({shape.size()});
    if (read.access != Access::kBlock) return shape;
    if (shape.rank() == 0 || shape[-1] % read.blocks != 0) {
      Fail(query_, ErrorCode::kShapeMismatch,
           StrCat(" needs ", NameOf(read), " to have ", read.blocks, " blocks of one size in its last dimension"));
    }
    return shape.With(shape.rank() - 1, shape[-1] / read.blocks);
  }

  void Repeat(const Read& read, const Shape& shape) {
    std::vector<std::int64_t> sizes = shape_.ToVector();
    if (static_cast<int>(sizes.size()) < shape.rank()) sizes.insert(sizes.begin(), shape.rank() - sizes.size(), 1);
    for (int i = 1; i <= shape.rank(); ++i) {
      std::int64_t& size = *(sizes.end() - i);
      if (size != shape[-i] && size != 1 && shape[-i] != 1) {
        Fail(query_, ErrorCode::kShapeMismatch,
             StrCat(" cannot repeat ", NameOf(read), ", of ", shape, ", over ", shape_));
      }
      if (size == 1) size = shape[-i];
    }
    shape_ = Shape(sizes);
  }

  std::int64_t NumColumns() const { return shape_.rank() == 0 ? 1 : shape_[-1]; }
  std::int64_t NumRows() const { return shape_.rank() == 0 ? 1 : shape_.SizeTo(shape_.rank() - 1); }

  // Of a tensor whose dimensions are those of shape_ from `axis` on, the last of them of `row` elements in memory.
  Strides StridesOf(const Shape& shape, int axis, std::int64_t row) const {
    Strides strides(shape_.rank());
    std::int64_t stride = 1;
    for (int i = shape.rank() - 1; i >= 0; --i) {
      if (axis + i >= 0 && axis + i < shape_.rank() && shape[i] != 1) strides[axis + i] = stride;
      stride *= i == shape.rank() - 1 ? row : shape[i];
    }
    return strides;
  }
  // Of elements one after the other, `width` times as many in each row.
  Strides StridesOfRows(std::int64_t width) const { return StridesOf(shape_, 0, width * NumColumns()); }
  Strides StridesOfEachRow() const {
    Strides strides(shape_.rank());
    std::int64_t stride = 1;
    for (int i = shape_.rank() - 2; i >= 0; --i) {
      if (shape_[i] != 1) strides[i] = stride;
      stride *= shape_[i];
    }
    return strides;
  }

  void AddInput(const Read& read) {
    const Shape& shape = ShapeOf(read);
    RegionOperand operand{.dtype = query_.In(read.input).dtype, .size = shape.size()};
    Strides strides(shape_.rank());
    switch (read.access) {
      case Access::kNone: operand = {.size = 1}; break;
      case Access::kElement: {
        const bool is_one = shape.size() == 1;
        const int axis = RepeatsAsCaffe2(read) ? AxisOf(shape) : shape_.rank() - shape.rank();
        if (!is_one) strides = StridesOf(shape, axis, shape.rank() == 0 ? 1 : shape[-1]);
        break;
      }
      case Access::kBlock: {
        const Shape elements = ShapeOfElements(read);
        operand.offset = read.block * elements[-1];
        strides = StridesOf(elements, shape_.rank() - shape.rank(), shape[-1]);
        break;
      }
      case Access::kColumn: strides = StridesOf(ShapeOfElements(read), shape_.rank() - 1, shape.size()); break;
      case Access::kRow:
        if (shape.size() != NumRows()) {
          Fail(query_, ErrorCode::kShapeMismatch,
               StrCat(" needs ", NameOf(read), " to have an element for each row of ", shape_));
        }
        strides = StridesOfEachRow();
        break;
      case Access::kScalar:
        if (shape.size() != 1) {
          Fail(query_, ErrorCode::kShapeMismatch, StrCat(" needs ", NameOf(read), " to have one element"));
        }
        break;
    }
    result_.region.inputs.push_back(operand);
    result_.inputs.push_back(read.input);
    strides_.push_back(std::move(strides));
  }

  int AxisOf(const Shape& shape) const { return rule_->axis == -1 ? shape_.rank() - shape.rank() : rule_->axis; }

  // An output without dtype, a number, has that of the declaration or of the first input.
  Expr WithType(const Expr& value, int output) const {
    if (value->op != ExprOp::kLiteral) return value;
    const bool is_declared = output < static_cast<int>(declared_.size());
    return Cast(is_declared               ? declared_[output].dtype
                : query_.num_inputs() > 0 ? query_.In(0).dtype
                                          : DType::kFloat,
                value);
  }

  void AddOutput(int i) {
    const FormulaOutput& output = (*formula_.outputs_)[i];
    const auto blocks = static_cast<std::int64_t>(output.values.size());
    TensorInfo info;
    Strides strides;
    RegionOutputKind kind = RegionOutputKind::kElements;
    switch (output.kind) {
      case Kind::kElements:
      case Kind::kBlocks:
        info.shape = shape_.rank() == 0 ? shape_ : shape_.With(shape_.rank() - 1, blocks * NumColumns());
        strides = StridesOfRows(blocks);
        break;
      case Kind::kRows:
        kind = RegionOutputKind::kRows;
        info.shape = shape_.rank() == 0 ? shape_ : shape_.Without(shape_.rank() - 1);
        strides = StridesOfEachRow();
        break;
      case Kind::kSums:
        kind = RegionOutputKind::kSums;
        info.shape = Shape({NumColumns()});
        strides.resize(shape_.rank());
        if (!strides.empty()) strides.back() = 1;
        break;
    }
    keeps_rows_ |= kind != RegionOutputKind::kElements;
    for (int k = 0; k < blocks; ++k) {
      const Expr value = WithType(output.values[k], i);
      info.dtype = value.dtype();
      if ((wanted_ >> std::min(i, 63) & 1) == 0) continue;
      RegionOutput to{.value = value, .kind = kind};
      to.memory = {.dtype = info.dtype, .size = info.shape.size(), .offset = k * NumColumns()};
      result_.region.outputs.push_back(to);
      result_.outputs.push_back(i);
      strides_.push_back(strides);
    }
    const bool is_declared = i < static_cast<int>(declared_.size());
    if (is_declared && (declared_[i].dtype != info.dtype || declared_[i].shape.size() != info.shape.size())) {
      Fail(query_, ErrorCode::kInternal,
           StrCat(" gives ", query_.op().outputs()[i], " as ", info.Description(), " by its formula and as ",
                  declared_[i].Description(), " by its shape rule"));
    }
    result_.infos.push_back(is_declared ? declared_[i] : info);
  }

  void ReadExpressions() {
    for (const ExprNode* node : ExprNodes(result_.region.Roots())) {
      switch (node->op) {
        case ExprOp::kRowSum:
        case ExprOp::kRowMax: keeps_rows_ = has_rows_ = true; break;
        case ExprOp::kIndex:
          keeps_rows_ = true;
          (node->number == kRegionDims - 1 ? has_rows_ : has_position_) = true;
          break;
        case ExprOp::kUniform: has_position_ = true; break;
        default: break;
      }
    }
  }

  // Dimensions along which all operands move as one become one.
  void Collapse() {
    struct Dim {
      int from;  // whose strides it has
      std::int64_t size;
    };
    std::vector<Dim> dims;  // from the last
    for (int d = shape_.rank() - 1; d >= 0; --d) {
      const bool is_row = d == shape_.rank() - 1 && keeps_rows_;
      if (shape_[d] == 1 && !is_row) continue;
      const bool may_merge = !dims.empty() && !(dims.size() == 1 && keeps_rows_);
      if (may_merge && MoveAsOne(d, dims.back().from, dims.back().size)) {
        dims.back().size *= shape_[d];
      } else {
        dims.push_back({.from = d, .size = shape_[d]});
      }
    }
    if (dims.size() > kRegionDims) {
      Fail(query_, ErrorCode::kShapeMismatch,
           StrCat(" repeats its inputs along more than ", kRegionDims, " dimensions of ", shape_));
    }
    Region& region = result_.region;
    const auto set = [&](RegionOperand* operand, const Strides& strides) {
      for (size_t i = 0; i < dims.size(); ++i) operand->strides[kRegionDims - 1 - i] = strides[dims[i].from];
    };
    for (size_t i = 0; i < dims.size(); ++i) region.sizes[kRegionDims - 1 - i] = dims[i].size;
    for (size_t i = 0; i < region.inputs.size(); ++i) set(&region.inputs[i], strides_[i]);
    for (size_t i = 0; i < region.outputs.size(); ++i) {
      set(&region.outputs[i].memory, strides_[region.inputs.size() + i]);
    }
  }

  bool MoveAsOne(int outer, int inner, std::int64_t inner_size) const {
    return std::ranges::all_of(strides_, [&](const Strides& s) { return s[outer] == s[inner] * inner_size; });
  }

  // Memory that is both has each element where it was, or the operator must not be told to overwrite the input.
  void FindInPlace() {
    Region& region = result_.region;
    const OperatorCall& op = query_.op();
    for (int i = 0; i < static_cast<int>(region.inputs.size()); ++i) {
      if (formula_.reads_[i].access == Access::kNone) continue;
      const RegionOperand& from = region.inputs[i];
      const std::string& name = op.inputs()[result_.inputs[i]];
      bool is_overwritten = false;
      bool is_same = false;
      for (int o = 0; o < static_cast<int>(region.outputs.size()); ++o) {
        const RegionOperand& to = region.outputs[o].memory;
        const bool is_alike = from.strides == to.strides && from.offset == to.offset && from.dtype == to.dtype;
        const bool has_name = op.outputs()[result_.outputs[o]] == name;
        const bool may_be = has_name || op.schema().AllowsInPlace(result_.inputs[i], result_.outputs[o]);
        if (is_alike && may_be) region.in_place.push_back({.input = i, .output = o});
        is_overwritten |= has_name;
        is_same |= has_name && is_alike;
      }
      if (is_overwritten && !is_same) {
        Fail(query_, ErrorCode::kInvalidNet,
             StrCat(" cannot overwrite ", name, ", whose elements are read for several of the output"));
      }
    }
  }

  void FindElementwise() {
    const auto is_element = [](const Read& read) {
      return read.access == Access::kElement || read.access == Access::kNone;
    };
    const auto is_whole = [](const FormulaOutput& output) { return output.kind == Kind::kElements; };
    result_.is_elementwise = !has_rows_ && !has_position_ && std::ranges::all_of(formula_.reads_, is_element) &&
                             std::ranges::all_of(*formula_.outputs_, is_whole);
  }

  // Nothing where the rows of an operand are not those of the first dimension.
  void FindRows() {
    const bool has_columns =
        has_rows_ || std::ranges::any_of(formula_.reads_, [](const Read& read) {
          return read.access == Access::kBlock || read.access == Access::kRow || read.access == Access::kColumn;
        });
    if (has_position_ || shape_.rank() < (has_columns ? 2 : 1)) return;
    RowOperands rows;
    std::vector<int> shared;
    for (const Read& read : formula_.reads_) {
      if (read.access == Access::kNone) continue;
      const Shape& shape = ShapeOf(read);
      const bool is_row = read.access == Access::kRow;
      const bool has_own = (read.access == Access::kElement || read.access == Access::kBlock)
                               ? shape.rank() == shape_.rank() && shape[0] == shape_[0]
                               : is_row;
      if (is_row && (shape.rank() == 0 || shape[0] != shape_[0])) return;
      std::vector<int>& list = has_own ? rows.inputs : shared;
      if (std::ranges::count(list, read.input) == 0) list.push_back(read.input);
    }
    for (const int i : shared) {
      if (std::ranges::count(rows.inputs, i) > 0) return;
    }
    for (int i = 0; i < query_.op().num_outputs(); ++i) {
      if ((*formula_.outputs_)[i].kind == Kind::kSums || result_.infos[i].shape.rank() == 0 ||
          result_.infos[i].shape[0] != shape_[0]) {
        return;
      }
      rows.outputs.push_back(i);
    }
    result_.rows = std::move(rows);
  }

  const ShapeQuery& query_;
  const Formula& formula_;
  const std::span<const TensorInfo> declared_;
  const std::uint64_t wanted_;
  FormulaRegion result_;
  std::optional<BroadcastRule> rule_;
  Shape shape_;                   // that is computed over
  std::vector<Strides> strides_;  // of the region's inputs, then of its outputs
  bool keeps_rows_ = false;       // the last dimension stays one of its own
  bool has_rows_ = false;         // an element depends on others of its row, or on its column
  bool has_position_ = false;     // an element depends on where it is
};

FormulaRegion MakeFormulaRegion(const ShapeQuery& query, std::span<const TensorInfo> outputs, std::uint64_t wanted) {
  try {
    Formula formula(query);
    query.op().schema().formula(formula);
    return FormulaCompiler(query, formula, outputs, wanted).Run();
  } catch (const Error& error) {
    // What expressions and regions say of themselves names neither the operator nor what it was given.
    if (error.message().find(query.op().type()) != std::string::npos) throw;
    Fail(query, error.code(), StrCat(": ", error.message()));
  }
}

bool IsElementwise(const ShapeQuery& query) {
  const OperatorSchema& schema = query.op().schema();
  return schema.elementwise || (schema.formula && MakeFormulaRegion(query).is_elementwise);
}

}  // namespace stepnet
