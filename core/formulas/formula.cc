#include "stepnet/core/formulas/formula.h"

#include <algorithm>
#include <utility>

#include "stepnet/core/expressions/expr_table.h"
#include "stepnet/core/floating.h"
#include "stepnet/core/formulas/formula_layout.h"
#include "stepnet/core/index_of.h"

namespace stepnet {
namespace {

constexpr const char* kRowsTwice = "asks for RowsFrom and Over: in what it computes over, the last dimension is a row";

const ArgumentSpec& SpecOf(const OperatorCall& op, std::string_view argument) {
  if (const ArgumentSpec* spec = op.schema().FindArgument(argument)) return *spec;
  throw Error(ErrorCode::kInternal, StrCat("the formula of ", op.type(), " asks for an argument \"", argument,
                                           "\" that the operator does not declare"));
}

}  // namespace

int PositionOf(const std::vector<Formal>& formals, int formal, int count) {
  auto optional = count - std::ranges::count(formals, false, &Formal::optional);
  int position = 0;
  for (int i = 0;; ++i) {
    const bool is_there = !formals[i].optional || optional-- > 0;
    if (i == formal) return is_there && position < count ? position : -1;
    position += is_there ? 1 : 0;
  }
}

Formula::Formula(const ShapeQuery& query) : query_(query) {
  for (int i = 0; i < query.num_inputs(); ++i) reads_.push_back({.input = i});
}

int Formula::InputOf(std::string_view name) const {
  if (const int formal = IndexOf(query_.op().schema().inputs, name, &Formal::name); formal >= 0) {
    return PositionOf(query_.op().schema().inputs, formal, query_.num_inputs());
  }
  if (forward_ != nullptr && IndexOf(forward_->inputs, name, &Formal::name) >= 0) return kNotGiven;
  FailInFormula(query_, StrCat("names an input \"", name, "\" that the operator does not declare"));
}

int Formula::GivenInput(std::string_view name) const {
  const int input = InputOf(name);
  if (input != kAbsent) return input;
  throw FormulaAsksAmiss(query_, StrCat("reads \"", name, "\" without asking whether the operator has it"));
}

Expr Formula::ReadOf(std::string_view name, Access access, int block, int blocks) {
  return ReadInput(
      {.input = GivenInput(name), .access = access, .block = block, .blocks = blocks, .name = std::string(name)});
}

// Nothing is known of what a gradient operator is not given; as a rule it is like the rest.
const TensorInfo& Formula::InfoOfInput(int input) const {
  static const TensorInfo kUnknown;
  static const TensorInfo kOfRun = {.dtype = DType::kInt64, .shape = {}};
  if (IsRunValue(input)) return kOfRun;
  if (input != kNotGiven) return query_.In(input);
  for (int i = 0; i < query_.num_inputs(); ++i) {
    if (IsFloating(query_.In(i).dtype)) return query_.In(i);
  }
  return kUnknown;
}

// What people read: the name of the input and, where it is read in a further way, how.
std::string Formula::NameOf(const Read& read, bool is_first) const {
  const Read* const first = is_first || read.input < 0 ? nullptr : &reads_[read.input];
  std::string name = read.name;
  if (read.access == Access::kBlock) {
    name += "_" + std::to_string(read.block);
    const bool is_further = first != nullptr && (first->access != read.access || first->blocks != read.blocks);
    return is_further ? StrCat(name, "_of_", read.blocks) : name;
  }
  if (first == nullptr) return name;
  switch (read.access) {
    case Access::kRow: return name + "_of_row";
    case Access::kColumn: return name + "_of_column";
    case Access::kScalar: return name + "_of_all";
    case Access::kAlong: return StrCat(name, "_along_", Join(read.dimensions, "_"));
    default: return name + "_of_element";
  }
}

Expr Formula::ReadInput(Read wanted) {
  const int input = wanted.input;
  const bool has_own = input >= 0 && reads_[input].access == Access::kNone;  // then it has not been read at all
  if (input >= 0 && reads_[input] == wanted) return inputs_[input];
  if (const auto found = further_.find(wanted); found != further_.end()) return inputs_[found->second];
  const size_t read = has_own ? static_cast<size_t>(input) : reads_.size();
  if (!has_own) {
    further_.emplace(wanted, read);
    reads_.push_back({});
  }
  inputs_.resize(reads_.size());
  const std::string text = NameOf(wanted, has_own);
  reads_[read] = std::move(wanted);
  const DType dtype = InfoOfInput(input).dtype;
  CheckOperandType(dtype, "input ", reads_[read].name);
  const Expr element = Expr::Input(static_cast<int>(read), text, dtype);
  return inputs_[read] = Cast(ComputedIn(element.dtype()), element);
}

Expr Formula::In(std::string_view name) { return ReadOf(name, Access::kElement); }
Expr Formula::Row(std::string_view name) { return ReadOf(name, Access::kRow); }
Expr Formula::Column(std::string_view name) { return ReadOf(name, Access::kColumn); }
Expr Formula::Scalar(std::string_view name) { return ReadOf(name, Access::kScalar); }

std::vector<Expr> Formula::Ins(std::string_view name) {
  std::vector<Expr> all;
  const int first = InputOf(name);
  // "x_and_w" are pairs: x1, w1, x2, w2, … behind those that the declaration names.
  constexpr std::string_view kAnd = "_and_";
  const size_t both = name.find(kAnd);
  for (int i = first; first >= 0 && i < query_.num_inputs(); ++i) {
    const int k = i - first;
    std::string of_one = StrCat(name, k);
    if (both != std::string_view::npos) {
      of_one = StrCat(k % 2 == 0 ? name.substr(0, both) : name.substr(both + kAnd.size()), k / 2 + 1);
    }
    all.push_back(ReadInput({.input = i, .access = Access::kElement, .name = std::move(of_one)}));
  }
  return all;
}

// A count that an argument says comes from a net.
void Formula::FailTooManyBlocks(std::string_view name, std::int64_t count) const {
  std::string what = StrCat("reads \"", name, "\" in ", count, " blocks, more than ", kMaxBlocks);
  for (const ArgumentSpec& spec : query_.op().schema().arguments) {
    if (spec.type != ArgumentType::kInt || query_.op().Int(spec.name) != count) continue;
    what += StrCat("; its argument \"", spec.name, "\" is ", count);
    break;
  }
  throw FormulaAsksAmiss(query_, what, ErrorCode::kInvalidArgument);
}

std::vector<Expr> Formula::Blocks(std::string_view name, std::int64_t count) {
  if (count < 1) throw FormulaAsksAmiss(query_, StrCat("reads \"", name, "\" in ", count, " blocks"));
  if (count > kMaxBlocks) FailTooManyBlocks(name, count);
  std::vector<Expr> blocks;
  for (int k = 0; k < count; ++k) blocks.push_back(ReadOf(name, Access::kBlock, k, static_cast<int>(count)));
  return blocks;
}

void Formula::Over(const Shape& shape) {
  if (over_) FailInFormula(query_, "says twice what it computes over");
  if (rows_from_ >= 0) FailInFormula(query_, kRowsTwice);
  over_ = shape;
  if (shape.rank() > kRegionDims) {
    FailInFormula(query_, StrCat("computes over ", shape, ", of more than ", kRegionDims, " dimensions"));
  }
}

Expr Formula::Along(std::string_view name, std::vector<int> dimensions) {
  const auto is_there = [&](int d) { return over_ && d >= 0 && d < over_->rank(); };
  if (!std::ranges::all_of(dimensions, is_there)) {
    FailInFormula(query_, StrCat("reads \"", name, "\" along dimensions that it has not said it computes over"));
  }
  return ReadInput({.input = GivenInput(name),
                    .access = Access::kAlong,
                    .name = std::string(name),
                    .dimensions = std::move(dimensions)});
}

Expr Formula::Uniform(DType dtype, bool same_each_step) {
  return UniformOf(dtype, Index(kRegionDims - 1), same_each_step);
}

Expr Formula::UniformOf(DType dtype, const Expr& element, bool same_each_step) {
  const auto value = [&](int which, const char* name) {
    return ReadInput({.input = which, .access = Access::kScalar, .name = name});
  };
  const OperatorSchema& declared = forward_ != nullptr ? *forward_ : query_.op().schema();
  if (!declared.draws) {
    FailInFormula(query_, "draws random numbers and its declaration does not say so (Operator::DrawsRandomNumbers)");
  }
  draws_ = true;
  const Expr step = same_each_step ? Expr(0) : value(kStepOfRun, "step");
  return stepnet::Uniform(dtype, value(kSeedOfRun, "seed"), value(kOperatorOfRun, "operator"),
                          value(kNumberOfRun, "run"), step, element);
}

bool Formula::Has(std::string_view name) const {
  const int input = InputOf(name);
  if (input != kNotGiven) return input >= 0;
  // The forward operator had it where its gradient is asked for.
  const std::vector<Formal>& gradients = query_.op().schema().outputs;
  const int formal = IndexOf(gradients, StrCat("d", name), &Formal::name);
  if (formal >= 0) return PositionOf(gradients, formal, query_.op().num_outputs()) >= 0;
  FailInFormula(query_, StrCat("asks whether there is an input \"", name, "\", which ", query_.op().type(),
                               " does not declare as one, nor its gradient as an output"));
}

const TensorInfo& Formula::InfoOf(std::string_view name) const {
  const int input = InputOf(name);
  if (input == kAbsent) {
    throw FormulaAsksAmiss(query_, StrCat("asks about \"", name, "\", which the operator does not have"));
  }
  return InfoOfInput(input);
}
DType Formula::TypeOf(std::string_view name) const { return ComputedIn(InfoOf(name).dtype); }
const Shape& Formula::ShapeOf(std::string_view name) const {
  asks_for_shapes_ = true;
  return InfoOf(name).shape;
}

const TensorInfo& Formula::OutputByRule() const {
  static const TensorInfo kOne;
  asks_for_output_ = true;
  if (!by_rule_.empty()) return by_rule_[0];
  return query_.num_inputs() > 0 ? query_.In(0) : kOne;
}

std::int64_t Formula::RowsFrom(std::string_view input, std::int64_t axis) {
  const Shape& shape = ShapeOf(input);
  // Formulas are also asked before a shape rule has looked at the axis.
  const int from = static_cast<int>(std::clamp<std::int64_t>(axis < 0 ? axis + shape.rank() : axis, 0, shape.rank()));
  if (over_) FailInFormula(query_, kRowsTwice);
  if (rows_from_ >= 0 && rows_from_ != from) {
    FailInFormula(query_,
                  StrCat("makes a row of the dimensions from ", rows_from_, " on, and of those from ", from, " on"));
  }
  rows_from_ = from;
  rows_of_ = InputOf(input);
  return shape.SizeFrom(from);
}

double Formula::Number(std::string_view argument) const {
  SpecOf(query_.op(), argument);  // throws for one that is not declared
  return query_.op().Number(argument);
}
std::int64_t Formula::Int(std::string_view argument) const { return query_.op().Int(argument); }
bool Formula::Bool(std::string_view argument) const { return query_.op().Bool(argument); }
const std::vector<std::int64_t>& Formula::Ints(std::string_view argument) const { return query_.op().Ints(argument); }
const std::string& Formula::String(std::string_view argument) const { return query_.op().String(argument); }

void Formula::Out(std::vector<FormulaOutput> outputs) {
  if (outputs_) FailInFormula(query_, "says twice what the outputs are");
  const OperatorSchema& schema = forward_ != nullptr ? *forward_ : query_.op().schema();
  if (static_cast<int>(outputs.size()) > schema.max_outputs()) {
    FailInFormula(query_, StrCat("gives ", outputs.size(), " outputs, its declaration has ", schema.max_outputs()));
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    for (const Expr& value : outputs[i].values) {
      if (!value.defined()) FailInFormula(query_, StrCat("gives an undefined expression for output ", i));
    }
  }
  outputs_ = std::move(outputs);
}

}  // namespace stepnet
