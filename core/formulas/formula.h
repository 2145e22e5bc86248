// Formula: what an operator computes, said once, next to its schema:
//
//   .Formula([](Formula& f) {
//     const Expr x = f.In("x");
//     f.Out({Where(x > 0, x, f.Number("alpha") * Expm1(x))});
//   })
//
// There are no loops and no indices: names say which element of an input meets which element of the output. For an
// operator call and the shapes of its inputs a region follows (FormulaRegion), and from that the kernel, and shapes,
// cost, rows and whether the operator is elementwise where its declaration does not say them.
//
// A formula computes over elements whose shape is that of the inputs that it names by In, Blocks and Column, repeated
// over one another as NumPy does it. Rows are runs along the last dimension; Index(3) is the place in the row, Index(2)
// the number of the row among all. It must say the same whenever arguments and shapes are the same, because kernels of
// operators that are alike share it.
//
// The gradient operator follows from the forward operator and its formula, by .DerivedGradient({"y", "dy"}, {"dx"})
// there, or its formula alone, by .Formula(DerivativeOf("Elu")).
#pragma once

#include <compare>
#include <concepts>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stepnet/core/expressions/expr.h"
#include "stepnet/core/operator.h"
#include "stepnet/core/regions/region.h"

namespace stepnet {

struct FormulaRegion;

// An output as a formula gives it: an expression is an output with an element for each element.
struct FormulaOutput {
  enum class Kind : std::uint8_t {
    kElements,
    kRows,    // one element a row
    kSums,    // [C]: the sum over all rows
    kBlocks,  // [R, G * C]: values side by side in each row
  };
  FormulaOutput(Expr value) : values({std::move(value)}) {}  // NOLINT: what most formulas give
  FormulaOutput(Kind kind, std::vector<Expr> values) : kind(kind), values(std::move(values)) {}

  Kind kind = Kind::kElements;
  std::vector<Expr> values;
  // Derivatives: the reads of the input of which each value is the gradient. It has that input's shape, and lies as the
  // read does.
  std::vector<int> reads = {};
};
// `value` must be the same for all of a row.
inline FormulaOutput OfRows(Expr value) { return {FormulaOutput::Kind::kRows, {std::move(value)}}; }
inline FormulaOutput SumOverRows(Expr value) { return {FormulaOutput::Kind::kSums, {std::move(value)}}; }
inline FormulaOutput SideBySide(std::vector<Expr> values) { return {FormulaOutput::Kind::kBlocks, std::move(values)}; }

// What the function of Operator::Formula is given. Inputs and arguments have the names of the declaration; of inputs
// that are optional, wherever they stand, an operator has the first ones. All throw kInternal for a name that the
// declaration does not have, and kTypeMismatch for an input of a dtype that expressions do not have.
class Formula {
 public:
  explicit Formula(const ShapeQuery& query);
  Formula(const Formula&) = delete;
  Formula& operator=(const Formula&) = delete;

  // The element of an input. Shapes are repeated as in NumPy; those of an operator that has the argument `broadcast` as
  // Caffe2 says. Here and below, float16 and bfloat16 are read as float (core/stored_float.h).
  Expr In(std::string_view name);
  // The same of all inputs of a variadic name; those of "x_and_w" are called x1, w1, x2, w2, … where they are shown.
  std::vector<Expr> Ins(std::string_view name);
  // The blocks of an input [R, count * C]: element (r, k * C + c), for each k. Throws kInvalidArgument for more than
  // kMaxBlocks.
  std::vector<Expr> Blocks(std::string_view name, std::int64_t count);
  static constexpr int kMaxBlocks = 1024;  // each is an operand of the kernel
  Expr Row(std::string_view name);         // of an input of as many elements as there are rows: that of the row
  Expr Column(std::string_view name);      // of an input [C]: that of the column
  Expr Scalar(std::string_view name);      // of an input of one element

  // Computes over these indices, of four dimensions at most, instead of over the elements of inputs: dimensions stay
  // apart, the last of them is that of Index(3), and an index of none of them is refused. In reads inputs that have as
  // many elements, row-major, or one. The shape rule has to say what shapes the outputs have.
  void Over(const Shape& shape);
  // The element of the index, of an input whose elements run along these dimensions of that shape, in their order;
  // unlike those of Index, they are counted from the first one, 0.
  Expr Along(std::string_view name, std::vector<int> dimensions);

  // Makes the dimensions from `axis` on a row, all of them as one, where otherwise the last one is: of this input and
  // those that are read with it. A negative axis counts from the end; one that the input does not have makes each
  // element a row. Returns how many elements a row has. An output with an element for each has the shape of this input,
  // unless more is computed over.
  std::int64_t RowsFrom(std::string_view input, std::int64_t axis);

  bool Has(std::string_view name) const;      // whether the operator has this optional input
  DType TypeOf(std::string_view name) const;  // what In and the like have of it
  const Shape& ShapeOf(std::string_view name) const;
  // What the shape rule says of output 0, for formulas that no input tells what they compute over: of a run, where that
  // depends on values. Before the rule has been asked it is like input 0 or, where there is none, one float.
  const TensorInfo& OutputByRule() const;

  double Number(std::string_view argument) const;  // a float, or a number
  std::int64_t Int(std::string_view argument) const;
  bool Bool(std::string_view argument) const;
  const std::string& String(std::string_view argument) const;
  const std::vector<std::int64_t>& Ints(std::string_view argument) const;
  const ArgumentMap& arguments() const { return query_.op().arguments(); }
  // What the formula says is not shared by operators that are alike where it asks for the operator itself, and
  // computed in each step.
  const OperatorCall& op() const {
    asks_for_operator_ = true;
    return query_.op();
  }

  // Says what the outputs are; those that the operator leaves out are dropped. To be called once.
  void Out(std::vector<FormulaOutput> outputs);
  // Makes the run fail where `condition` does not hold; the values take the place of each "{}" in the message, the
  // number of the element in the step that of "{element}". Only in formulas that say so
  // (FormulaOptions::checks_values). It shows four values at most. What divides whole numbers has such a check without
  // being asked: for a / 0 and Mod(a, 0), also where nothing selects the quotient, but not where it is simplified away,
  // as in 0 * (a / b); quotients that a DerivativeOf reads have it, too. A divisor that is the constant 0 is an error
  // where shapes are known.
  template <std::convertible_to<Expr>... Values>
  requires(sizeof...(Values) <= kMaxExprValues) void Check(const Expr& condition, std::string_view message,
                                                           const Values&... values) {
    requirements_.push_back(Require(condition, message, values...));
  }

  // A random number in [0, 1) for each element, of float or double: that of OpRun::Random, or the one of step 0 in all
  // steps. All elements must be one row: RowsFrom from 0 on, or Over of one dimension.
  Expr Uniform(DType dtype, bool same_each_step = false);
  // That of the element of this number, of the same operator and step.
  Expr UniformOf(DType dtype, const Expr& element, bool same_each_step = false);

 private:
  friend class FormulaLayout;
  friend class FormulaCompiler;
  friend FormulaRegion MakeFormulaRegion(const ShapeQuery&, std::span<const TensorInfo>, std::uint64_t);
  friend class FormulaDerivative;
  friend class FormulaSample;
  enum class Access : std::uint8_t { kNone, kElement, kBlock, kRow, kColumn, kScalar, kAlong };
  struct Read {
    int input = 0;  // kNotGiven: one of the forward operator alone; a RunValue
    Access access = Access::kNone;
    int block = 0;
    int blocks = 1;
    std::string name = {};
    std::vector<int> dimensions = {};  // kAlong

    auto operator<=>(const Read&) const = default;
  };

  static constexpr int kAbsent = -1;    // an optional input that the operator does not have
  static constexpr int kNotGiven = -2;  // an input of the forward operator that its gradient operator does not declare

  int InputOf(std::string_view name) const;     // of the operator, or one of these two
  int GivenInput(std::string_view name) const;  // throws for one that is absent
  const TensorInfo& InfoOf(std::string_view name) const;
  const TensorInfo& InfoOfInput(int input) const;
  Expr ReadOf(std::string_view name, Access access, int block = 0, int blocks = 1);
  Expr ReadInput(Read read);
  std::string NameOf(const Read& read, bool is_first) const;
  [[noreturn]] void FailTooManyBlocks(std::string_view name, std::int64_t count) const;

  const ShapeQuery& query_;
  std::span<const TensorInfo> by_rule_ = {};  // outputs
  const OperatorSchema* forward_ = nullptr;   // whose formula is asked in place of the operator's own
  // How the region's inputs are read. Input i of the operator is that of the region, whenever the formula names it;
  // where it is read in further ways, they come behind.
  std::vector<Read> reads_;
  std::vector<Expr> inputs_;  // what each of them is in expressions: an input, or what is loaded from it
  std::optional<std::vector<FormulaOutput>> outputs_;
  mutable bool asks_for_operator_ = false;
  mutable bool asks_for_shapes_ = false;
  mutable bool asks_for_output_ = false;
  std::vector<Expr> requirements_;
  int rows_from_ = -1;              // the dimension from which on all are one row; -1: the last
  int rows_of_ = kAbsent;           // the input that it is said of
  std::optional<Shape> over_;       // the shape that it says itself
  bool draws_ = false;              // random numbers
  std::map<Read, size_t> further_;  // where in reads_ those are that come behind those of the inputs
};

// The formula of a gradient operator: the derivative of what the operator type `forward` computes. Names say what is
// what. An input named as an input of the forward operator is that; one named as an output of it is what it gave, and
// is read in place of computing it again; "d" and the name of an output is the gradient of that, of which none arrives
// where the operator does not have this input. Outputs are "d" and the name of an input. The name of what there may be
// any number of (Inputs) is all of them in both, and is the last. Both operators have the same arguments. What of the
// forward operator the derivative does not read need not be declared.
// Where the operator is used, throws kInternal for a forward operator without formula, for names that are none of these
// and for what the derivative reads and the operator is not given; it names operator and input.
FormulaRule DerivativeOf(std::string forward);

// A formula that says what an operator computes only where `applies` holds, of it and dtype and shape of its input 0;
// elsewhere its kernel alone says it, which it must have.
struct FormulaWhere {
  bool (*applies)(const OperatorCall&, DType, const Shape&);
  FormulaRule rule;

  void operator()(Formula& formula) const { rule(formula); }
  // Whether that of the operator says what it computes of such an input 0.
  static bool Holds(const OperatorCall& op, DType dtype, const Shape& shape) {
    const auto* const where = op.schema().formula.target<FormulaWhere>();
    return where == nullptr || where->applies(op, dtype, shape);
  }
};

// What a region of a formula may read beside the inputs of the operator, an int64 each: what RandomStream is made of.
enum RunValue : int { kStepOfRun = -6, kNumberOfRun, kOperatorOfRun, kSeedOfRun };
inline constexpr int kNumRunValues = kSeedOfRun - kStepOfRun + 1;
inline bool IsRunValue(int input) { return input <= kSeedOfRun; }
class RunValues {
 public:
  // Without the number of the run for those that read it where it is (RunContext::RunNumberOnDevice).
  RunValues(const OperatorCall& op, const OpRun& run, bool with_run_number = true);
  const void* Of(int input) const { return &values_[input - kStepOfRun]; }

 private:
  std::int64_t values_[kNumRunValues];
};

// What the formula of an operator says for inputs of these shapes.
struct FormulaRegion {
  Region region;
  std::vector<int> inputs;         // of the operator, for each of the region; or a RunValue
  std::vector<int> outputs;        // likewise
  std::vector<TensorInfo> infos;   // outputs of the operator
  bool is_elementwise = false;     // as Operator::Elementwise says
  bool asks_for_operator = false;  // Formula::op: it may depend on names and seed
  bool asks_for_output = false;    // Formula::OutputByRule: shapes of inputs alone do not say what it computes
  // The formula asks for no shape, for no place and says none: it computes over what its inputs have. Where they have
  // fewer rows, so have outputs.
  bool follows_inputs = false;
  std::optional<RowOperands> rows;  // as Operator::Rows says, where it is not by elements
  Shape over;                       // what the formula computes over; rows are runs along the last dimension
};

// Whether the formula says what the operator computes: regions read and write all of these dtypes, and it is no
// FormulaWhere that does not apply. An operator with a kernel of its own is used with others, too: then its formula
// must not be asked. REQUIRES: the shape rule takes the inputs.
bool FormulaApplies(const ShapeQuery& query, std::span<const TensorInfo> outputs);

// `outputs`: what the shape rule gives, empty where the formula says it. `wanted`: bit i for output i; others are left
// out. REQUIRES a schema with a formula. Errors name the operator and its inputs.
FormulaRegion MakeFormulaRegion(const ShapeQuery& query, std::span<const TensorInfo> outputs = {},
                                std::uint64_t wanted = ~std::uint64_t{0});

}  // namespace stepnet
