// Makes a region of a formula and the shapes of its operator's inputs.
#include <algorithm>
#include <exception>
#include <new>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "stepnet/core/expressions/expr_table.h"
#include "stepnet/core/expressions/expr_text.h"
#include "stepnet/core/floating.h"
#include "stepnet/core/formulas/formula_layout.h"
#include "stepnet/core/regions/joined_dimensions.h"
#include "stepnet/core/regions/region_sums.h"

namespace stepnet {

// Makes the region of a formula that has been asked: the shape that is computed over, where each operand has its
// elements, and as few dimensions as say the same.
class FormulaCompiler {
 public:
  FormulaCompiler(const ShapeQuery& query, const Formula& formula, std::span<const TensorInfo> declared,
                  std::uint64_t wanted)
      : query_(query),
        formula_(formula),
        declared_(declared),
        wanted_(wanted),
        layout_(formula, OtherShape()),
        shape_(layout_.shape()),
        stored_as_(StoredAs()) {}

  FormulaRegion Run() {
    if (!formula_.outputs_) FailInFormula(query_, "says nothing of outputs");
    if (static_cast<int>(formula_.outputs_->size()) < query_.op().num_outputs()) {
      FailInFormula(query_, StrCat("gives ", formula_.outputs_->size(), " outputs, the operator has ",
                                   query_.op().num_outputs()));
    }
    result_.over = shape_;
    for (const Read& read : formula_.reads_) AddInput(read);
    for (int i = 0; i < query_.op().num_outputs(); ++i) AddOutput(i);
    result_.region.requirements = formula_.requirements_;
    const auto checks = [](const Expr& root) { return root->has_require(); };
    if (std::ranges::any_of(result_.region.Roots(), checks) && !query_.op().schema().formula_options.checks_values) {
      FailInFormula(query_, "checks values and its declaration does not say so (FormulaOptions::checks_values)");
    }
    CheckDivisions();
    ReadExpressions();
    if (formula_.draws_ && shape_.rank() > 1) {
      FailFormula(query_, ErrorCode::kShapeMismatch,
                  StrCat(" draws random numbers for ", shape_,
                         " elements, which are not one row: its formula can make them one by RowsFrom from 0 on, or by "
                         "Over of one dimension"));
    }
    Collapse();
    DropEmptyRows();
    FindInPlace();
    CheckRegion(result_.region);
    FindElementwise();
    if (!result_.is_elementwise || RepeatsInputs()) FindRows();
    result_.follows_inputs = !formula_.asks_for_shapes_ && !formula_.over_ && formula_.rows_from_ < 0 && !has_position_;
    return std::move(result_);
  }

 private:
  using Access = Formula::Access;
  using Read = Formula::Read;
  using Kind = FormulaOutput::Kind;
  using Strides = FormulaLayout::Strides;

  Shape OtherShape() const {
    if (query_.num_inputs() > 0) return query_.In(0).shape;
    return declared_.empty() ? Shape() : declared_[0].shape;
  }

  void AddInput(const Read& read) {
    Strides strides;
    result_.region.inputs.push_back(layout_.Place(read, &strides));
    result_.inputs.push_back(read.input);
    strides_.push_back(std::move(strides));
  }

  // An output without dtype, a number, has that of the declaration or of the first input. One of float is stored as
  // another where the formula need not know that.
  Expr WithType(const Expr& value, int output) const {
    const bool is_number = value->op == ExprOp::kLiteral;
    if (!is_number && value.dtype() != DType::kFloat) return value;
    const std::vector<int>& reads = (*formula_.outputs_)[output].reads;
    DType dtype = is_number && query_.num_inputs() > 0 ? query_.In(0).dtype : stored_as_;
    if (output < static_cast<int>(declared_.size())) dtype = declared_[output].dtype;
    if (!reads.empty()) dtype = query_.In(formula_.reads_[reads[0]].input).dtype;
    return is_number || IsStoredFloat(dtype) ? Cast(dtype, value) : value;
  }

  // What floats are stored as where nothing is declared: as all inputs that have a fraction are.
  DType StoredAs() const {
    std::optional<DType> dtype;
    for (int i = 0; i < query_.num_inputs(); ++i) {
      const DType of_input = query_.In(i).dtype;
      if (!IsFloating(of_input)) continue;
      if (dtype.value_or(of_input) != of_input) return DType::kFloat;
      dtype = of_input;
    }
    return dtype.value_or(DType::kFloat);
  }

  void AddOutput(int i) {
    const FormulaOutput& output = (*formula_.outputs_)[i];
    const auto blocks = static_cast<std::int64_t>(output.values.size());
    RegionOutput to;
    Strides strides;
    TensorInfo info{.shape = PlaceOutput(output.kind, blocks, &to, &strides)};
    if (!output.reads.empty()) info.shape = query_.In(formula_.reads_[output.reads[0]].input).shape;
    keeps_rows_ |= to.kind != RegionOutputKind::kElements;
    if (blocks == 0) FailInFormula(query_, StrCat("gives no value for ", query_.op().outputs()[i]));
    info.dtype = WithType(output.values[0], i).dtype();
    for (int k = 0; k < blocks; ++k) {
      to.value = WithType(output.values[k], i);
      if (to.value.dtype() != info.dtype) {
        FailFormula(query_, ErrorCode::kTypeMismatch,
                    StrCat(" gives ", query_.op().outputs()[i], " as ", info.dtype, " and ", to.value.dtype(),
                           " side by side by its formula"));
      }
      const bool is_stored_sum = to.kind == RegionOutputKind::kSums && IsStoredFloat(info.dtype);
      if (is_stored_sum) to.value = Cast(DType::kFloat, output.values[k]);  // which is rounded when it is complete
      if ((wanted_ >> std::min(i, 63) & 1) == 0) continue;
      if (output.reads.empty()) {
        to.memory = {.dtype = info.dtype, .size = info.shape.size(), .offset = k * layout_.NumColumns()};
      } else {
        to.memory = result_.region.inputs[output.reads[k]];
        strides = strides_[output.reads[k]];
      }
      result_.region.outputs.push_back(to);
      result_.outputs.push_back(i);
      strides_.push_back(strides);
    }
    const bool is_declared = i < static_cast<int>(declared_.size());
    if (is_declared && (declared_[i].dtype != info.dtype || declared_[i].shape.size() != info.shape.size())) {
      const std::string what = StrCat(" gives ", query_.op().outputs()[i], " as ", info.Description(),
                                      " by its formula and as ", declared_[i].Description(), " by its shape rule");
      throw FormulaAgainstRule(FormulaFailure(query_, what), declared_[i].shape.size() == info.shape.size());
    }
    result_.infos.push_back(is_declared ? declared_[i] : info);
  }

  // Whether the input whose dimensions make rows has an element for each that is computed.
  bool HasShapeOfRows() const {
    return formula_.rows_of_ >= 0 && layout_.WithRows(query_.In(formula_.rows_of_).shape) == shape_;
  }

  // The shape of an output that has no shape of its own.
  Shape PlaceOutput(Kind of, std::int64_t blocks, RegionOutput* output, Strides* strides) const {
    switch (of) {
      case Kind::kElements:
      case Kind::kBlocks: break;
      case Kind::kRows:
        output->kind = RegionOutputKind::kRows;
        *strides = layout_.StridesOfEachRow();
        return shape_.rank() == 0 ? shape_ : shape_.Without(shape_.rank() - 1);
      case Kind::kSums:
        output->kind = RegionOutputKind::kSums;
        strides->assign(shape_.rank(), 0);
        if (!strides->empty()) strides->back() = 1;
        return Shape({layout_.NumColumns()});
    }
    *strides = layout_.StridesOfRows(blocks);
    if (of == Kind::kElements && HasShapeOfRows()) return query_.In(formula_.rows_of_).shape;
    return shape_.rank() == 0 ? shape_ : shape_.With(shape_.rank() - 1, blocks * layout_.NumColumns());
  }

  // Whole numbers that are divided by 0 are a fault of the run, which no author of a formula has to think of; also
  // where nothing selects the quotient, as other checks.
  void CheckDivisions() {
    std::vector<Expr> roots = formula_.requirements_;
    for (int i = 0; i < query_.op().num_outputs(); ++i) {
      const std::vector<Expr>& values = (*formula_.outputs_)[i].values;
      roots.insert(roots.end(), values.begin(), values.end());
    }
    for (const ExprNode* node : ExprNodes(roots)) {
      const bool divides = node->op == ExprOp::kDivide || node->op == ExprOp::kMod;
      if (divides && !IsFloatOrDouble(node->dtype)) CheckDivision(Expr::Of(node));
    }
  }

  void CheckDivision(const Expr& quotient) {
    const Expr a = Expr::Of(quotient->operands[0]), b = Expr::Of(quotient->operands[1]);
    if (b.IsConstant() && b->bits != 0) return;
    const std::string text = ExprSummary(quotient);
    if (b.IsConstant()) {
      throw FormulaAsksAmiss(query_, StrCat("divides whole numbers by 0: ", text), ErrorCode::kInvalidArgument);
    }
    result_.region.requirements.push_back(
        Require(NotEqual(b, 0),
                StrCat(query_.op().type(), " of the integer {} by 0 for element {element} of ", WhatHasElements(),
                       ", in ", text),
                a));
  }

  // What the number of an element counts in. Outputs may have others: one for each row, or several side by side.
  std::string WhatHasElements() const {
    const bool is_output = std::ranges::all_of(
        *formula_.outputs_, [](const FormulaOutput& output) { return output.kind == FormulaOutput::Kind::kElements; });
    return is_output ? "the output" : StrCat(shape_, ", over which it computes");
  }

  void ReadExpressions() {
    for (const ExprNode* node : ExprNodes(result_.region.Roots())) {
      switch (node->op) {
        case ExprOp::kRowSum:
        case ExprOp::kRowMax: keeps_rows_ = has_rows_ = true; break;
        case ExprOp::kIndex:
          CheckIndex(node->number);
          keeps_rows_ = true;
          keeps_dims_ |= formula_.over_.has_value();
          (node->number == kRegionDims - 1 ? has_rows_ : has_position_) = true;
          break;
        case ExprOp::kUniform: has_position_ = true; break;
        default: break;
      }
    }
  }

  // Indices count from the last dimension, whatever number of them there is: one that is always 0 was meant otherwise.
  void CheckIndex(int dimension) const {
    const int first = kRegionDims - (formula_.over_ ? std::max(1, shape_.rank()) : 2);
    if (dimension >= first) return;
    const std::string over = formula_.over_ ? StrCat("computes over ", shape_) : "has rows and places in them";
    FailInFormula(query_, StrCat("asks for Index(", dimension, ") and ", over, ", whose last index is Index(",
                                 kRegionDims - 1, ") and whose first one Index(", first, ")"));
  }

  void Collapse() {
    const auto dims = JoinDimensions(
        shape_.dims(), {.keeps_row = keeps_rows_, .keeps_ones = keeps_dims_, .joins = !keeps_dims_},
        [&](int outer, int inner, std::int64_t inner_size) {
          return std::ranges::all_of(strides_, [&](const Strides& s) { return s[outer] == s[inner] * inner_size; });
        });
    if (dims.size() > kRegionDims) {
      FailFormula(query_, ErrorCode::kShapeMismatch,
                  StrCat(" repeats its inputs along more than ", kRegionDims, " dimensions of ", shape_,
                         ": repeat one of them first, as Tile does"));
    }
    Region& region = result_.region;
    const auto set = [&](RegionOperand* operand, const Strides& strides) {
      for (size_t i = 0; i < dims.size(); ++i) operand->strides[kRegionDims - 1 - i] = strides[dims[i].inner];
    };
    for (size_t i = 0; i < dims.size(); ++i) region.sizes[kRegionDims - 1 - i] = dims[i].size;
    for (size_t i = 0; i < region.inputs.size(); ++i) set(&region.inputs[i], strides_[i]);
    for (size_t i = 0; i < region.outputs.size(); ++i) {
      set(&region.outputs[i].memory, strides_[region.inputs.size() + i]);
    }
  }

  // Rows without elements of which nothing comes out; there may be more of them than can be counted to.
  void DropEmptyRows() {
    Region& region = result_.region;
    const auto is_of_rows = [&](const RegionOutput& output) { return IsOfRows(region, output); };
    if (region.sizes[3] == 0 && std::ranges::none_of(region.outputs, is_of_rows)) region.sizes = {1, 1, 0, 0};
  }

  // Which of the region's outputs may be the memory of an input. There may be many of both.
  class Overwriters {
   public:
    Overwriters(const OperatorCall& op, std::span<const int> outputs) : op_(op), of_output_(op.num_outputs()) {
      for (int o = 0; o < std::ssize(outputs); ++o) of_output_[outputs[o]].push_back(o);
      for (int i = 0; i < op.num_outputs(); ++i) named_.emplace(op.outputs()[i], i);
    }

    // Returns those of an operator's input, ascending.
    std::set<int> Of(int input) const {
      std::set<int> found;
      const auto add = [&](int output) {
        if (output < std::ssize(of_output_)) found.insert(of_output_[output].begin(), of_output_[output].end());
      };
      const auto [first, last] = named_.equal_range(op_.inputs()[input]);
      for (auto named = first; named != last; ++named) add(named->second);
      for (const auto* pairs : {&op_.schema().in_place, &op_.schema().enforced_in_place}) {
        for (const auto& [from, to] : *pairs) {
          if (from == -1 || from == input) add(from == -1 ? input : to);
        }
      }
      return found;
    }

   private:
    const OperatorCall& op_;
    std::vector<std::vector<int>> of_output_;
    std::unordered_multimap<std::string_view, int> named_;
  };

  // Memory that is both has each element where it was, or the operator must not be told to overwrite the input.
  void FindInPlace() {
    Region& region = result_.region;
    const OperatorCall& op = query_.op();
    const Overwriters overwriters(op, result_.outputs);
    for (int i = 0; i < static_cast<int>(region.inputs.size()); ++i) {
      if (formula_.reads_[i].access == Access::kNone || IsRunValue(formula_.reads_[i].input)) continue;
      const RegionOperand& from = region.inputs[i];
      const std::string& name = op.inputs()[result_.inputs[i]];
      bool is_overwritten = false;
      bool is_same = false;
      for (const int o : overwriters.Of(result_.inputs[i])) {
        const RegionOperand& to = region.outputs[o].memory;
        const bool is_alike = from.strides == to.strides && from.offset == to.offset && from.dtype == to.dtype;
        const bool has_name = op.outputs()[result_.outputs[o]] == name;
        if (is_alike) region.in_place.push_back({.input = i, .output = o});
        is_overwritten |= has_name;
        is_same |= has_name && is_alike;
      }
      if (is_overwritten && !is_same) {
        FailFormula(query_, ErrorCode::kInvalidNet,
                    StrCat(" cannot overwrite ", name, ", whose elements are read for several of the output"));
      }
    }
  }

  void FindElementwise() {
    const auto is_element = [](const Read& read) {
      return read.access == Access::kElement || read.access == Access::kNone;
    };
    const auto is_whole = [](const FormulaOutput& output) { return output.kind == Kind::kElements; };
    result_.is_elementwise = !has_rows_ && !has_position_ && formula_.rows_from_ < 0 && !formula_.over_ &&
                             std::ranges::all_of(formula_.reads_, is_element) &&
                             std::ranges::all_of(*formula_.outputs_, is_whole);
  }

  // Whether an input is smaller than what is computed, as NumPy broadcasts it.
  bool RepeatsInputs() const {
    return std::ranges::any_of(formula_.reads_, [&](const Read& read) {
      return read.access == Access::kElement && query_.In(read.input).shape != shape_;
    });
  }

  // Nothing where the rows of an operand are not those of the first dimension.
  void FindRows() {
    const bool has_columns =
        has_rows_ || formula_.rows_from_ >= 0 || std::ranges::any_of(formula_.reads_, [](const Read& read) {
          return read.access == Access::kBlock || read.access == Access::kRow || read.access == Access::kColumn;
        });
    if (has_position_ || formula_.over_ || shape_.rank() < (has_columns ? 2 : 1)) return;
    RowOperands rows;
    std::set<int> own, shared;
    for (const Read& read : formula_.reads_) {
      if (read.access == Access::kNone) continue;
      const Shape& shape = query_.In(read.input).shape;
      const bool is_row = read.access == Access::kRow;
      const bool has_own =
          (read.access == Access::kElement || read.access == Access::kBlock)
              ? shape.rank() > 0 && layout_.WithRows(shape).rank() == shape_.rank() && shape[0] == shape_[0]
              : is_row;
      if (is_row && (shape.rank() == 0 || shape[0] != shape_[0])) return;
      const bool is_first = (has_own ? own : shared).insert(read.input).second;
      if (is_first && has_own) rows.inputs.push_back(read.input);
      if ((has_own ? shared : own).contains(read.input)) return;
    }
    if (rows.inputs.empty()) return;  // what the outputs have as many rows as is not read
    // What only has to have a shape has it with the rows of the others.
    const OperatorSchema& schema = query_.op().schema();
    for (int i = 0; i < query_.num_inputs(); ++i) {
      const Shape& shape = query_.In(i).shape;
      const bool is_like_rows = shape.rank() == shape_.rank() && shape[0] == shape_[0];
      if (schema.ReadsShapeAlone(i) && schema.sum_like != i && is_like_rows) rows.inputs.push_back(i);
    }
    // The gradient of what all rows share is a sum over them, also where there is one row.
    const auto is_of_shared = [&](int read) { return shared.contains(formula_.reads_[read].input); };
    for (int i = 0; i < query_.op().num_outputs(); ++i) {
      const FormulaOutput& output = (*formula_.outputs_)[i];
      const Shape& shape = result_.infos[i].shape;
      const bool has_rows = output.kind != Kind::kSums && shape.rank() > 0 && shape[0] == shape_[0];
      if (!has_rows || std::ranges::any_of(output.reads, is_of_shared)) return;
      rows.outputs.push_back(i);
    }
    result_.rows = std::move(rows);
  }

  const ShapeQuery& query_;
  const Formula& formula_;
  const std::span<const TensorInfo> declared_;
  const std::uint64_t wanted_;
  const FormulaLayout layout_;
  const Shape& shape_;  // that is computed over
  const DType stored_as_;
  FormulaRegion result_;
  std::vector<Strides> strides_;  // of the region's inputs, then of its outputs
  bool keeps_rows_ = false;       // the last dimension stays one of its own
  bool keeps_dims_ = false;       // all of them do
  bool has_rows_ = false;         // an element depends on others of its row, or on its column
  bool has_position_ = false;     // an element depends on where it is
};

bool FormulaApplies(const ShapeQuery& query, std::span<const TensorInfo> outputs) {
  for (int i = 0; i < query.num_inputs(); ++i) {
    if (!IsOperandType(query.In(i).dtype)) return false;
  }
  return std::ranges::all_of(outputs, IsOperandType, &TensorInfo::dtype) &&
         (query.num_inputs() == 0 || FormulaWhere::Holds(query.op(), query.In(0).dtype, query.In(0).shape));
}

FormulaRegion MakeFormulaRegion(const ShapeQuery& query, std::span<const TensorInfo> outputs, std::uint64_t wanted) {
  try {
    Formula formula(query);
    formula.by_rule_ = outputs;
    query.op().schema().formula(formula);
    FormulaRegion region = FormulaCompiler(query, formula, outputs, wanted).Run();
    region.asks_for_operator = formula.asks_for_operator_;
    region.asks_for_output = formula.asks_for_output_;
    return region;
  } catch (const Error& error) {
    // What expressions and regions say of themselves names neither the operator nor what it was given.
    if (error.code() == ErrorCode::kCancelled || error.message().find(query.op().type()) != std::string::npos) throw;
    FailFormula(query, error.code(), StrCat(": ", error.message()));
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const ValueUnknown&) {
    throw;
  } catch (const std::exception& error) {
    FailInFormula(query, StrCat("threw ", error.what()));
  } catch (...) {
    FailInFormula(query, "threw what is no std::exception");
  }
}

}  // namespace stepnet
