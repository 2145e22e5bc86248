// DerivativeOf: asks the forward operator's formula with what the gradient operator is given, and differentiates that.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "stepnet/core/formulas/derivative.h"
#include "stepnet/core/formulas/formula_layout.h"
#include "stepnet/core/index_of.h"

namespace stepnet {
namespace {

bool Declares(const std::vector<Formal>& formals, std::string_view name) {
  return IndexOf(formals, name, &Formal::name) >= 0;
}

// Whether it is the name of what there may be any number of.
bool IsOfAny(const std::vector<Formal>& formals, std::string_view name) {
  const int i = IndexOf(formals, name, &Formal::name);
  return i >= 0 && formals[i].variadic;
}

// Whether a name is "d" and that of a formal.
bool IsGradientOf(const std::vector<Formal>& formals, std::string_view name) {
  return name.starts_with('d') && Declares(formals, name.substr(1));
}

std::string NamesOf(const std::vector<Formal>& formals, const char* prefix = "") {
  std::vector<std::string> names;
  for (const Formal& formal : formals) names.push_back(prefix + formal.name);
  return Join(names, ", ");
}

}  // namespace

class FormulaDerivative {
 public:
  FormulaDerivative(Formula& formula, const OperatorSchema& forward)
      : formula_(formula), schema_(formula.query_.op().schema()), forward_(forward) {}

  void Run() {
    CheckNames();
    const std::vector<FormulaOutput> values = ForwardOutputs();
    for (size_t i = 0; i < values.size(); ++i) AddOutput(forward_.outputs[i].name, values[i]);
    FindReads();
    const FormulaLayout layout = Layout();
    ExpectWholeOutputs(layout);
    FindAccesses(layout);
    is_one_row_ = IsSummedOverAll() && MayBeOneRow(layout.shape().size());
    if (is_one_row_) {
      formula_.rows_from_ = 0;
      FindAccesses(Layout());
    }
    Differentiate();
    std::vector<FormulaOutput> results;
    for (const std::vector<int>& reads : reads_of_) results.push_back(OutputOf(reads));
    ForgetWhatIsNotGiven(results);
    formula_.Out(std::move(results));
  }

 private:
  using Access = Formula::Access;
  using Read = Formula::Read;
  using Kind = FormulaOutput::Kind;

  [[noreturn]] void Fail(const std::string& what) const {
    throw Error(ErrorCode::kInternal,
                StrCat(schema_.type, " is declared as the derivative of ", forward_.type, ", ", what));
  }

  void CheckNames() const {
    if (formula_.forward_ != nullptr) {
      throw Error(ErrorCode::kInternal,
                  StrCat(schema_.type, " is declared as the derivative of ", formula_.forward_->type,
                         ", which is one itself: say here what the gradient is"));
    }
    if (!forward_.formula) Fail("which has no formula: declare one there, or say here what the gradient is");
    for (const auto& [what, formals] : {std::pair("input", &forward_.inputs), std::pair("output", &forward_.outputs)}) {
      const int any = IndexOf(*formals, true, &Formal::variadic);
      if (any < 0) continue;
      const std::string& name = (*formals)[any].name;
      const bool is_input = formals == &forward_.inputs;
      if (is_input && IsOfAny(schema_.inputs, name)) continue;
      Fail(StrCat("of whose ", what, " \"", name, "\" there may be any number, which names do not tell apart: ",
                  is_input ? StrCat("declare .Inputs(\"", name, "\", …) here, too, or ") : "",
                  "say here what the gradient is"));
    }
    if (formula_.query_.op().num_inputs() == 0) Fail("and is given nothing");
    for (const Formal& input : schema_.inputs) {
      const bool is_known = Declares(forward_.inputs, input.name) || Declares(forward_.outputs, input.name) ||
                            IsGradientOf(forward_.outputs, input.name);
      if (is_known && (!input.variadic || IsOfAny(forward_.inputs, input.name))) continue;
      Fail(StrCat("and its input \"", input.name, "\" is no input (", NamesOf(forward_.inputs), "), output (",
                  NamesOf(forward_.outputs), ") or gradient of an output (", NamesOf(forward_.outputs, "d"),
                  ") of that: name it as what it is"));
    }
    const auto is_gradient = [&](const Formal& input) { return IsGradientOf(forward_.outputs, input.name); };
    if (std::ranges::none_of(schema_.inputs, is_gradient)) {
      Fail(StrCat("and is given the gradient of none of its outputs: declare an input ",
                  NamesOf(forward_.outputs, "d")));
    }
    for (const Formal& output : schema_.outputs) {
      const bool is_gradient = IsGradientOf(forward_.inputs, output.name);
      if (is_gradient && output.variadic == IsOfAny(forward_.inputs, output.name.substr(1))) continue;
      Fail(StrCat("and its output \"", output.name, "\" is no gradient of an input (", NamesOf(forward_.inputs, "d"),
                  ") of that: name it as what it is"));
    }
  }

  // What the forward operator computes, of what this one is given.
  std::vector<FormulaOutput> ForwardOutputs() {
    formula_.forward_ = &forward_;
    forward_.formula(formula_);
    formula_.forward_ = nullptr;
    if (!formula_.outputs_) Fail("whose formula says nothing of outputs");
    std::vector<FormulaOutput> values = *std::exchange(formula_.outputs_, {});
    formula_.requirements_.clear();  // the forward operator has checked them
    while (values.size() > forward_.outputs.size()) values.pop_back();
    return values;
  }

  // The input that lies as an output of the forward operator; undefined: there is none of this name.
  Expr ReadAs(const FormulaOutput& output, size_t k, const std::string& name) {
    if (!Declares(schema_.inputs, name) || !formula_.Has(name)) return {};
    if (output.kind == Kind::kRows) return formula_.Row(name);
    if (output.kind == Kind::kSums) return formula_.Column(name);
    outputs_read_.insert(name);
    if (output.kind != Kind::kBlocks) return formula_.In(name);
    return formula_.Blocks(name, static_cast<int>(output.values.size()))[k];
  }

  void AddOutput(const std::string& name, const FormulaOutput& output) {
    has_whole_outputs_ &= output.kind == Kind::kElements;
    for (size_t k = 0; k < output.values.size(); ++k) {
      if (output.values[k]->op == ExprOp::kLiteral) continue;
      DerivativeOutput of{.value = output.values[k], .gradient = ReadAs(output, k, "d" + name)};
      of.is_row = output.kind == Kind::kRows;
      if (output.kind != Kind::kSums) of.stored = ReadAs(output, k, name);
      outputs_.push_back(std::move(of));
    }
  }

  // Throws unless outputs and their gradients have an element for each that the forward operator computes: another
  // gradient is somebody's mistake, and none to repeat over its inputs, or these over it.
  void ExpectWholeOutputs(const FormulaLayout& layout) const {
    const Shape& shape = layout.shape();
    std::vector<bool> is_of_inputs(shape.rank(), formula_.over_.has_value());  // by dimension
    const Read* repeated = nullptr;
    for (const Read& read : formula_.reads_) {
      if (read.access == Access::kNone || IsRunValue(read.input)) continue;
      if (read.input == Formula::kNotGiven) {
        is_of_inputs.assign(shape.rank(), true);  // it may be
        continue;
      }
      const bool is_of_output = outputs_read_.contains(read.name);
      FormulaLayout::Strides strides;
      layout.Place(read, &strides);
      for (int d = 0; d < shape.rank(); ++d) {
        if (!is_of_output) is_of_inputs[d] = is_of_inputs[d] || strides[d] != 0;
        if (is_of_output && shape[d] > 1 && strides[d] == 0) repeated = &read;
      }
    }
    if (repeated != nullptr) FailAboutOutput(repeated->name, shape);
    std::vector<std::int64_t> computed;
    for (int d = 0; d < shape.rank(); ++d) {
      if (is_of_inputs[d] || !computed.empty()) computed.push_back(is_of_inputs[d] ? shape[d] : 1);
    }
    if (Shape(computed).size() != shape.size()) FailAboutOutput(*outputs_read_.begin(), Shape(computed));
  }
  [[noreturn]] void FailAboutOutput(const std::string& name, const Shape& computed) const {
    FailFormula(
        formula_.query_, ErrorCode::kShapeMismatch,
        StrCat(" needs ", name, " of the shape that ", forward_.type, " gives, an element for each of ", computed));
  }

  // What the forward formula reads of each input of which this operator gives the gradient.
  void FindReads() {
    const OperatorCall& op = formula_.query_.op();
    for (size_t i = 0; i < schema_.outputs.size(); ++i) {
      const Formal& output = schema_.outputs[i];
      const int position = PositionOf(schema_.outputs, static_cast<int>(i), op.num_outputs());
      if (position < 0) continue;
      const std::string name = output.name.substr(1);
      const int formal = IndexOf(schema_.inputs, name, &Formal::name);
      const int input = formal < 0 ? Formula::kNotGiven : PositionOf(schema_.inputs, formal, op.num_inputs());
      const int count = output.variadic ? op.num_outputs() - position : 1;
      if (output.variadic && count > op.num_inputs() - input) {
        FailFormula(formula_.query_, ErrorCode::kInvalidNet,
                    StrCat(" has ", count, " outputs for gradients of ", op.num_inputs() - input, " inputs"));
      }
      for (int k = 0; k < count; ++k) reads_of_.push_back(ReadsOf(input >= 0 ? input + k : input, name));
    }
  }

  // Numbers of what the forward formula reads of an input: an element, or blocks. None: it reads nothing, and there is
  // no such input here.
  std::vector<int> ReadsOf(int input, const std::string& name) {
    const auto reads_it = [&](const Read& read) {
      return read.access != Access::kNone && read.input == input && (input != Formula::kNotGiven || read.name == name);
    };
    if (std::ranges::none_of(formula_.reads_, reads_it) && input >= 0) {
      formula_.ReadInput({.input = input, .access = Access::kElement, .name = name});
    }
    std::vector<int> reads;
    for (size_t i = 0; i < formula_.reads_.size(); ++i) {
      const Read& read = formula_.reads_[i];
      if (!reads_it(read)) continue;
      if (read.block != static_cast<int>(reads.size())) FailAboutReads(name);
      reads.push_back(static_cast<int>(i));
    }
    if (!reads.empty() && static_cast<int>(reads.size()) != formula_.reads_[reads[0]].blocks) FailAboutReads(name);
    return reads;
  }
  [[noreturn]] void FailAboutReads(const std::string& name) const {
    Fail(StrCat("whose formula reads \"", name, "\" in two ways: read it in one, or say here what the gradient is"));
  }

  FormulaLayout Layout() const { return {formula_, formula_.query_.In(0).shape}; }

  void FindAccesses(const FormulaLayout& layout) {
    accesses_.clear();
    for (const Read& read : formula_.reads_) accesses_.push_back(AccessOf(read, layout));
  }

  static ExprAccess AccessOf(const Read& read, const FormulaLayout& layout) {
    bool rows = read.access != Access::kColumn && read.access != Access::kScalar, columns = true;
    if (read.input != Formula::kNotGiven && read.access != Access::kNone) {
      FormulaLayout::Strides strides;
      layout.Place(read, &strides);
      const int last = layout.shape().rank() - 1;
      rows = true;
      // Along a dimension of size 0, too: what is repeated 0 times gets the sum of nothing.
      for (int d = 0; d < last; ++d) rows &= strides[d] != 0 || layout.shape()[d] == 1;
      columns = last < 0 || strides[last] != 0 || layout.shape()[last] == 1;
    }
    if (read.access == Access::kRow || read.access == Access::kScalar) columns = false;
    return {{true, true, rows, columns}};
  }

  static bool IsSum(const ExprAccess& access) { return !access.moves[2] && !access.moves[3]; }

  // Whether a gradient is the sum over rows and columns.
  bool IsSummedOverAll() const {
    for (const std::vector<int>& reads : reads_of_) {
      for (const int i : reads) {
        if (IsSum(accesses_[i])) return true;
      }
    }
    return false;
  }

  // Whether rows and columns do not matter, so that such a gradient is the sum over one row of all elements, which is
  // taken in parts that keep vectors busy.
  bool MayBeOneRow(std::int64_t num_elements) const {
    bool is_apart = has_whole_outputs_ && formula_.rows_from_ <= 0 && !formula_.over_;
    for (const Read& read : formula_.reads_) {
      if (read.access == Access::kNone || read.input < 0) continue;
      const std::int64_t size = formula_.query_.In(read.input).shape.size();
      is_apart &= size == 1 || (read.access == Access::kElement && size == num_elements);
    }
    std::vector<Expr> values;
    for (const DerivativeOutput& output : outputs_) values.push_back(output.value);
    for (const ExprNode* node : ExprNodes(values)) {
      is_apart &= node->op != ExprOp::kRowSum && node->op != ExprOp::kRowMax && node->op != ExprOp::kIndex;
    }
    return is_apart;
  }

  void Differentiate() {
    std::vector<Expr> inputs;
    std::vector<int> read_of;
    for (const std::vector<int>& reads : reads_of_) {
      for (const int i : reads) {
        inputs.push_back(formula_.inputs_[i]);
        read_of.push_back(i);
      }
    }
    const std::vector<InputGradient> gradients =
        stepnet::Differentiate(outputs_, inputs, {.accesses = accesses_, .constants = {}});
    for (size_t i = 0; i < inputs.size(); ++i) {
      gradients_[read_of[i]] = gradients[i].value.defined() ? gradients[i].value : Expr::Constant(inputs[i].dtype(), 0);
    }
  }

  FormulaOutput OutputOf(const std::vector<int>& reads) const {
    if (reads.empty()) return {Expr::Constant(formula_.InfoOfInput(Formula::kNotGiven).dtype, 0)};
    std::vector<Expr> values;
    for (const int i : reads) values.push_back(gradients_.at(i));
    const ExprAccess& access = accesses_[reads[0]];
    // What is repeated along rows and over them gets sums over rows, which are added up.
    const bool adds_rows = IsSum(access) && !is_one_row_;
    if (adds_rows && formula_.reads_[reads[0]].input == Formula::kNotGiven) {
      const std::string& name = formula_.reads_[reads[0]].name;
      Fail(StrCat("and gives the gradient of \"", name, "\", whose shape it is not told: declare .Input(\"", name,
                  "\", …) here, and name it where ", forward_.type, " says what its gradient is"));
    }
    const Kind kind = adds_rows          ? Kind::kSums
                      : !access.moves[3] ? Kind::kRows
                      : !access.moves[2] ? Kind::kSums
                                         : Kind::kBlocks;
    FormulaOutput output(kind == Kind::kBlocks && reads.size() == 1 ? Kind::kElements : kind, std::move(values));
    if (formula_.reads_[reads[0]].input != Formula::kNotGiven) output.reads = reads;
    return output;
  }

  // Numbers are drawn for an operator (kOperatorOfRun), and this one is another than that which drew them.
  bool DrawsAgain(const ExprNode& node) const {
    return node.op == ExprOp::kUniform && std::ranges::any_of(node.Operands(), [&](const ExprNode* key) {
             return key->op == ExprOp::kInput && formula_.reads_[key->number].input == kOperatorOfRun;
           });
  }

  // Reads of inputs that the operator does not have must not be left in results; they become none.
  void ForgetWhatIsNotGiven(const std::vector<FormulaOutput>& results) {
    std::vector<Expr> values;
    for (const FormulaOutput& output : results) values.insert(values.end(), output.values.begin(), output.values.end());
    for (const ExprNode* node : ExprNodes(values)) {
      if (DrawsAgain(*node)) {
        Fail(StrCat("which draws random numbers that its gradient needs, and would draw others: let ", forward_.type,
                    " give them, or what follows from them, as an output, and declare that as an input here"));
      }
      if (node->op != ExprOp::kInput || formula_.reads_[node->number].input != Formula::kNotGiven) continue;
      const std::string& name = formula_.reads_[node->number].name;
      Fail(StrCat("and its formula reads \"", name, "\", which it is not given: declare .Input(\"", name,
                  "\", …) here, and name it where ", forward_.type, " says what its gradient is"));
    }
    for (Read& read : formula_.reads_) {
      if (read.input == Formula::kNotGiven) read = {};
    }
  }

  Formula& formula_;
  const OperatorSchema& schema_;
  const OperatorSchema& forward_;
  std::vector<DerivativeOutput> outputs_;
  std::set<std::string> outputs_read_;  // and gradients, element by element
  bool has_whole_outputs_ = true;
  bool is_one_row_ = false;                 // all elements are
  std::vector<std::vector<int>> reads_of_;  // of the inputs of which this operator gives the gradients
  std::vector<ExprAccess> accesses_;        // of reads
  std::map<int, Expr> gradients_;           // by read
};

FormulaRule DerivativeOf(std::string forward) {
  return [forward = std::move(forward)](Formula& formula) {
    const OperatorSchema* schema = FindOperator(forward);
    if (schema != nullptr) return FormulaDerivative(formula, *schema).Run();
    throw Error(ErrorCode::kInternal, StrCat(formula.op().type(), " is declared as the derivative of ", forward,
                                             ", which is no operator type", DidYouMean(forward, OperatorTypes())));
  };
}

}  // namespace stepnet
