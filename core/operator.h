// How an operator type is declared: one `Registration` expression in one file says everything about it.
//
//   const Registration relu =
//       Operator("Relu")
//           .Doc("y = max(x, 0), element by element.")
//           .Input("x", OfFloats("any shape"))
//           .Output("y", Like("x"))
//           .InPlace({{0, 0}})
//           .DerivedGradient({"x", "dy"}, {"dx"})
//           .Formula([](Formula& f) { f.Out({Max(f.In("x"), 0)}); });
//
// What is no formula has kernels: `.Cpu([](const OperatorCall& op) -> RunFn { … })` in place of the last line, and an
// operator that `.Gradient` names (docs/add_an_operator.md).
//
// This header knows no protobuf, and neither do the files that include it to declare operators.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "stepnet/core/abi.h"
#include "stepnet/core/arguments.h"
#include "stepnet/core/device.h"
#include "stepnet/core/error.h"
#include "stepnet/core/net_problem.h"
#include "stepnet/core/op_run.h"
#include "stepnet/core/run_options.h"
#include "stepnet/core/strings.h"
#include "stepnet/core/tensor.h"

namespace stepnet {

class OperatorDef;
class NetDef;
struct OperatorSchema;

// One operator of a net, its arguments parsed and checked: what shape rules and kernel factories ask.
class OperatorCall {
 public:
  // Types of operators, by output.
  using Readers = std::vector<std::vector<std::string>>;

  // Throws kInvalidNet for an unknown type (with the nearest name), kInvalidArgument for arguments that the schema
  // does not allow. Arity and in-place rules are checked by CheckNet. Options are shared with other operators. Nets
  // among the arguments are copied, or else belong to `owner`, which `def` is a part of and nobody changes any more.
  OperatorCall(const OperatorDef& def, std::shared_ptr<const RunOptions> options, Readers readers = {},
               const std::shared_ptr<const NetDef>& owner = nullptr);
  explicit OperatorCall(const OperatorDef& def, RunOptions options = {})
      : OperatorCall(def, std::make_shared<const RunOptions>(std::move(options))) {}
  // The same one, whose outputs these operators read.
  OperatorCall ReadBy(Readers readers) const;

  const std::string& type() const;
  const OperatorSchema& schema() const { return *schema_; }
  const std::vector<std::string>& inputs() const { return said_->inputs; }
  const std::vector<std::string>& outputs() const { return said_->outputs; }
  int num_inputs() const { return static_cast<int>(inputs().size()); }
  int num_outputs() const { return static_cast<int>(outputs().size()); }
  const RunOptions& options() const { return *said_->options; }

  bool HasArg(std::string_view name) const { return arguments().find(name) != arguments().end(); }
  // The argument's value or the default that the schema declares. Throw kInternal for a name that it does not declare.
  float Float(std::string_view name) const;
  double Number(std::string_view name) const;  // an argument of type kNumber, written as float or int
  std::int64_t Int(std::string_view name) const;
  bool Bool(std::string_view name) const;
  const std::string& String(std::string_view name) const;
  std::vector<float> Floats(std::string_view name) const;
  const std::vector<std::int64_t>& Ints(std::string_view name) const;
  const std::vector<std::string>& Strings(std::string_view name) const;
  std::shared_ptr<const NetDef> Net(std::string_view name) const;  // null when absent
  const ArgumentValue& Any(std::string_view name) const;           // an argument of type kAny
  const ArgumentMap& arguments() const { return said_->arguments; }
  // What `parse` makes of the operator, which all who ask about one of its type give: it is made once, for all copies
  // of the call. Throws what `parse` throws, then and when somebody asks again.
  const std::shared_ptr<const void>& Parsed(std::shared_ptr<const void> (*parse)(const OperatorCall&)) const;

  // Identifies the operator for RandomStream: the same for equal operators, also when a backward pass repeats one.
  std::uint64_t random_id() const { return random_id_; }
  std::uint64_t seed() const { return seed_; }

  // Types of the operators that read output i later in the same net; "" stands for the net's external output. Known
  // to kernel factories when a net is created, empty otherwise.
  const std::vector<std::string>& ReadersOf(int output) const;

  std::string Text() const;  // "y = FC(x, w, b)"

 private:
  // Never changed: copies of a call, as kernels keep them, share it.
  struct Said {
    std::vector<std::string> inputs;
    std::vector<std::string> outputs;
    std::shared_ptr<const RunOptions> options;
    ArgumentMap arguments;
    // What follows from all that, once somebody has asked.
    mutable std::once_flag is_parsed;
    mutable std::shared_ptr<const void> parsed;
  };
  const ArgumentValue& Value(std::string_view name, ArgumentType type) const;

  const OperatorSchema* schema_;
  std::shared_ptr<const Said> said_;
  std::shared_ptr<const Readers> readers_;  // null: nobody
  std::uint64_t random_id_ = 0;
  std::uint64_t seed_ = 0;
};

inline RandomStream OpRun::Random(const OperatorCall& op) const { return Random(op.seed(), op.random_id()); }

// What a shape rule is given: the operator, and dtype and shape of each input.
class ShapeQuery {
 public:
  ShapeQuery(const OperatorCall& op, std::span<const TensorInfo> inputs) : op_(op), inputs_(inputs) {}
  const OperatorCall& op() const { return op_; }
  int num_inputs() const { return static_cast<int>(inputs_.size()); }
  const TensorInfo& In(int i) const { return inputs_[i]; }
  // The elements of input i, an int32 or int64 tensor whose value decides about shapes. Only for inputs that
  // ShapesReadValues names. Throws ValueUnknown when they are not known yet.
  std::vector<std::int64_t> IntsOf(int i) const;
  bool ValueKnown(int i) const { return inputs_[i].value.defined(); }

 private:
  const OperatorCall& op_;
  std::span<const TensorInfo> inputs_;
};

// Thrown by ShapeQuery::IntsOf: the shapes can be inferred only when the operator is about to run.
struct ValueUnknown {
  int input;
};

// Dtype and shape of each output; throws kShapeMismatch or kTypeMismatch, saying what the inputs are and what they
// should be, when they do not fit. Kernels may rely on what it has checked.
using ShapeRule = std::function<std::vector<TensorInfo>(const ShapeQuery&)>;

ShapeRule SameAsInput(int i);  // one output like input i

// The part of a shape rule that refuses inputs.
using ShapeCheck = std::function<void(const ShapeQuery&)>;

// Makes the kernel of one operator of a net; arguments are read here, once.
using KernelFactory = std::function<RunFn(const OperatorCall&)>;

// Work of one run, for given inputs: an estimate for tables and schedules. Outputs that a run is not for (OpRun::Wants)
// have no elements there.
struct Cost {
  double flops = 0;
  double bytes = 0;  // read and written
};
// Into how many parts a run may be cut at most.
using PartsRule = std::function<int(const ShapeQuery&, std::span<const TensorInfo> outputs)>;
using CostRule = std::function<Cost(const ShapeQuery&, std::span<const TensorInfo> outputs)>;
// Inputs and outputs whose first dimension counts rows that know nothing of each other; all rows share the other
// inputs, and the other outputs are sums over the rows.
struct RowOperands {
  std::vector<int> inputs;
  std::vector<int> outputs;
};
using RowsRule = std::function<std::optional<RowOperands>(const ShapeQuery&)>;  // nothing: it is not so for these

// Another form of an input, faster to compute with: made once for all steps when the input is the same in all of them.
struct Packing {
  int input = 0;
  // Bytes of the other form; 0: runs for these outputs would not be faster.
  std::function<std::int64_t(const ShapeQuery&, std::span<const TensorInfo> outputs)> bytes;
  // Makes output 0, of so many bytes, of input 0.
  KernelFactory pack;
  // Into how many parts a run with the other form may be cut, in place of Kernel::max_parts.
  PartsRule max_parts;
};

// What a device runs of an operator type, and what this kernel can do beside running once a step.
struct Kernel {
  KernelFactory make = {};
  // It can run in parts (OpRun::part): in any number up to what the rule gives, with the same values bit for bit. Null:
  // in one.
  PartsRule max_parts = {};
  // Outputs, of the first 64, about which it asks OpRun::Adds: what it computes for them can be summed over the steps
  // where it belongs, without a copy of its own.
  std::vector<int> can_add = {};
  // The same of every one of them that the operator expands to a product or a sum (Operator::Expands).
  bool can_add_expanded = false;
  bool CanAdd(int output, bool is_expanded) const {
    return output < 64 && ((is_expanded && can_add_expanded) || std::ranges::count(can_add, output) > 0);
  }
  // It asks OpRun::units, where it runs in parts for one row, or with OpRun::packed. It has one output, whose last
  // dimension is the columns.
  bool can_part_units = false;
  // It asks OpRun::Wants about each output, and can do without those that nobody wants.
  bool can_leave_out = false;
  // It can use OpRun::packed in place of an input, and does where it is not null.
  std::optional<Packing> packing = {};
  // Inputs that may be bfloat16 where the others are float: weights, of which it computes with the floats that they
  // are. It gives the bits of a run with these floats.
  std::vector<int> bfloat16_weights = {};
  // It may find values of its inputs that are not allowed, and then calls OpRun::Fault and writes what does no harm.
  bool checks_values = false;
  // It asks RunContext::stops_after_faults, on a device whose faults are late.
  bool stops_after_faults = false;
  // It is given the blobs themselves (OpRun::host) and sets those of its outputs: their shapes follow from what it
  // finds, or they share memory. A step net runs it by itself, once a step, as it does what has no shapes beforehand.
  bool takes_blobs = false;
  // Inputs whose elements it reads on the host although it runs on another device, beside those that the shape rule
  // reads (OperatorSchema::HostInputs). A kernel of the CPU, to which all memory is the host's, names none.
  std::vector<int> host_inputs = {};
  // Outputs that it leaves on the host although it runs on another device. REQUIRES takes_blobs.
  std::vector<int> host_outputs = {};
};

// An operator of a gradient net, as a gradient rule writes it.
struct GradientOp {
  std::string type;
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
  ArgumentMap arguments = {};    // added to those copied
  bool copies_arguments = true;  // from the operator that it differentiates
};

// The gradient of one blob: dense (one name), sparse (rows `indices` of it hold `values`), or absent.
struct GradientBlobs {
  std::string dense = {};
  std::string indices = {};
  std::string values = {};
  bool absent() const { return dense.empty() && indices.empty(); }
};

// What a gradient rule uses to say which operators compute the gradients of one operator's inputs.
class GradientBuilder {
 public:
  // `output_gradients` holds the gradient of each output of op, absent where nothing needs one.
  GradientBuilder(const OperatorCall& op, std::vector<GradientBlobs> output_gradients);

  const OperatorCall& op() const { return op_; }
  const std::string& I(int i) const { return op_.inputs()[i]; }
  const std::string& O(int i) const { return op_.outputs()[i]; }
  bool HasGO(int i) const { return !output_gradients_[i].dense.empty(); }
  // Name of the dense gradient of output i. Throws kInvalidNet, naming the blob, when there is none.
  const std::string& GO(int i) const;
  // Name for the dense gradient of input i, which an added operator must write: "<input>_grad", or another name when an
  // earlier input is the same blob.
  std::string GI(int i);
  void SetDense(int i, std::string name);  // the gradient of input i is an existing blob
  void SetSparse(int i, std::string indices, std::string values);
  void Add(GradientOp op) { ops_.push_back(std::move(op)); }

  const std::vector<GradientOp>& ops() const { return ops_; }
  const std::vector<GradientBlobs>& input_gradients() const { return input_gradients_; }

 private:
  const OperatorCall& op_;
  std::vector<GradientBlobs> output_gradients_;
  std::vector<GradientBlobs> input_gradients_;
  std::vector<GradientOp> ops_;
};
using GradientRule = std::function<void(GradientBuilder&)>;
// Paths of the files that an operator reads, writes or asks about, as its arguments give them.
using FilesRule = std::function<std::vector<std::string>(const OperatorCall&)>;

enum class GradientKind {
  kRule,   // has a gradient rule
  kNone,   // not differentiable: an error when a gradient is asked for
  kStops,  // its inputs get no gradient, by intent (StopGradient, Shape, comparisons)
};

// What a declaration says of an input or output: a text for people and, where OfTypes or Like make it, what else
// follows. Each input is what this says, or the operator is refused before its shape rule is asked; where all outputs
// are like inputs it needs no shape rule.
struct FormalInfo {
  FormalInfo(const char* doc) : doc(doc) {}             // NOLINT: most are a text alone
  FormalInfo(std::string doc) : doc(std::move(doc)) {}  // NOLINT
  std::string doc;                                      // shape in letters, then what it is
  std::vector<DType> types = {};                        // one of these; empty: nothing is said
  std::string like = {};                                // an input; "": nothing is said
};
// An input of one of these dtypes or, where these hold float and a formula runs, in 16 bits; an output of the first.
// `shape_of`: the input whose shape it has; the first of those of which there may be any number, where it is one.
FormalInfo OfTypes(std::vector<DType> types, std::string doc, std::string shape_of = "");
FormalInfo OfFloats(std::string doc, std::string shape_of = "");   // float and double
FormalInfo OfNumbers(std::string doc, std::string shape_of = "");  // float, double, int32 and int64
// The shape and dtype of an input. `doc` comes behind "the shape of x".
FormalInfo Like(const std::string& input, const std::string& doc = "");

// One line of a declaration: an input or output.
struct Formal : FormalInfo {
  std::string name;
  bool optional = false;
  bool variadic = false;  // the last one only: one or more (none or more when optional)
};

// Whether an operator draws random numbers.
using DrawsRule = std::function<bool(const OperatorCall&)>;
class Expansion;
// Says what an operator that has no formula is made of: core/expansion.h.
using ExpansionRule = std::function<void(Expansion&)>;
class Formula;
// Says what an operator computes: core/formulas/formula.h.
using FormulaRule = std::function<void(Formula&)>;
struct FormulaOptions {
  bool checks_values = false;  // it calls Formula::Check; others must not
};

// What was declared; made by Operator, read by everybody else.
struct OperatorSchema {
  std::string type;
  std::string doc;
  std::string file;  // where it was registered
  std::vector<Formal> inputs;
  std::vector<Formal> outputs;
  std::vector<ArgumentSpec> arguments;
  bool arguments_as_in_file = false;                   // accepts any argument (operators kept for other readers)
  std::vector<std::pair<int, int>> in_place;           // (input, output) may be the same blob; -1, -1: any i with i
  std::vector<std::pair<int, int>> enforced_in_place;  // must be
  bool elementwise = false;
  bool has_side_effects = false;
  bool outputs_may_repeat = false;
  bool is_private = false;
  std::vector<int> shape_value_inputs;  // ShapesReadValues
  std::vector<int> shape_inputs;        // ReadsShapes, SumsLike
  std::optional<int> sum_like;          // SumsLike
  ShapeRule shapes;
  CostRule cost;
  RowsRule rows;        // null: nothing is known
  FormulaRule formula;  // null: nothing says what it computes
  FormulaOptions formula_options;
  ExpansionRule expansion;  // null: it is not said what it is made of
  GradientKind gradient_kind = GradientKind::kNone;
  GradientRule gradient;
  std::optional<GradientOp> declared_gradient;  // what the rule follows, where it was declared by names of formals
  std::optional<std::string> derived_gradient;  // DerivedGradient: its documentation
  std::function<void(const OperatorCall&, std::vector<NetProblem>* problems)> check;
  FilesRule files;  // null: it opens none
  DrawsRule draws;  // null: no random numbers
  std::map<DeviceKind, Kernel> kernels;
  ShapeCheck shape_check;  // null: none

  int min_inputs() const;
  int max_inputs() const;  // INT_MAX when variadic
  int min_outputs() const;
  int max_outputs() const;
  bool ReadsShapeAlone(int input) const;                          // of this input: ReadsShapes, SumsLike
  const ArgumentSpec* FindArgument(std::string_view name) const;  // null when not declared
  // The one that is registered for the device, or what the device makes of the type itself (DeviceSpec::find_kernel).
  // Null when there is none.
  const Kernel* FindKernel(DeviceKind device) const;
  bool AllowsInPlace(int input, int output) const;
  // Whether operators on the device are given blobs. Those that have no kernel there are where nothing says their
  // shapes.
  bool TakesBlobs(DeviceKind device) const;
  // Inputs whose elements the host reads before an operator runs on the device, or while it does: for shapes, on every
  // device, or in the kernel of this one. Ascending.
  std::vector<int> HostInputs(DeviceKind device) const;
};

class Operator {
 public:
  explicit Operator(std::string type, const char* file = __builtin_FILE());

  Operator& Doc(std::string text);
  Operator& Input(std::string name, FormalInfo info);
  Operator& OptionalInput(std::string name, FormalInfo info);
  Operator& Inputs(std::string name, FormalInfo info);          // variadic, one or more
  Operator& OptionalInputs(std::string name, FormalInfo info);  // variadic, none or more
  Operator& Output(std::string name, FormalInfo info);
  Operator& OptionalOutput(std::string name, FormalInfo info);
  Operator& Outputs(std::string name, FormalInfo info);
  Operator& OptionalOutputs(std::string name, FormalInfo info);

  Operator& Arg(std::string name, float value, std::string doc, Constraint constraint = {});
  Operator& Arg(std::string name, double value, std::string doc, Constraint constraint = {}) {  // of a float
    return Arg(std::move(name), static_cast<float>(value), std::move(doc), std::move(constraint));
  }
  Operator& Arg(std::string name, int value, std::string doc, Constraint constraint = {});
  Operator& Arg(std::string name, std::int64_t value, std::string doc, Constraint constraint = {});
  Operator& Arg(std::string name, bool value, std::string doc);
  Operator& Arg(std::string name, const char* value, std::string doc, Constraint constraint = {});
  Operator& Arg(std::string name, std::vector<std::int64_t> value, std::string doc, Constraint constraint = {});
  Operator& Arg(std::string name, std::vector<float> value, std::string doc);
  Operator& Arg(std::string name, std::vector<std::string> value, std::string doc);
  Operator& NumberArg(std::string name, double value, std::string doc, Constraint constraint = {});
  Operator& NetArg(std::string name, std::string doc);
  // Without default: a net that leaves it out is invalid.
  Operator& RequiredArg(std::string name, ArgumentType type, std::string doc, Constraint constraint = {});
  // Adds arguments that several operators share.
  Operator& Args(const std::vector<ArgumentSpec>& specs);
  Operator& AnyArguments();

  Operator& InPlace(std::vector<std::pair<int, int>> pairs);
  Operator& OneToOneInPlace() { return InPlace({{-1, -1}}); }
  Operator& EnforceInPlace(std::vector<std::pair<int, int>> pairs);

  // Element i of the output depends on element i of the inputs alone. Inputs of another shape than the output's are
  // repeated over it (broadcast=1), and then this holds of the other inputs.
  Operator& Elementwise();
  Operator& HasSideEffects();  // must run even if nobody reads its outputs
  // What it gives depends on the seed and the run, too. The rule is for those that draw by some arguments alone.
  Operator& DrawsRandomNumbers(DrawsRule rule = [](const OperatorCall&) { return true; });
  Operator& OutputsMayRepeat();  // the kernel or a check says what a blob gets that is listed more than once
  Operator& Private();           // for the library's own nets; left out of the docs

  // What every kernel needs that does not take blobs (Kernel::takes_blobs), unless all outputs are like inputs.
  Operator& Shapes(ShapeRule rule);
  // Checks dtypes and shapes of inputs beyond what is said of each, and throws as a shape rule does. Outputs are then
  // what is said of them or what the formula gives.
  Operator& CheckShapes(ShapeCheck check);
  // The shape rule reads the elements of these inputs (ShapeQuery::IntsOf). So shapes are known when they are computed,
  // and the host waits for that, whatever device the operator runs on.
  Operator& ShapesReadValues(std::vector<int> inputs);
  // Reads dtype and shape of these inputs alone: a net need not keep their elements for the operator. The number of a
  // variadic one stands for all from there on.
  Operator& ReadsShapes(std::vector<int> inputs);
  // The output is input 0, summed over what an input of fewer elements does not have: input 0 itself where the two have
  // one shape. It reads the shape alone of the other input.
  Operator& SumsLike(int input);
  Operator& CostIs(CostRule rule);
  // Rows of several steps may be given to one run; sums over the rows are left to Kernel::can_add, and to
  // Kernel::can_leave_out where other outputs have rows.
  Operator& Rows(RowsRule rule);
  // What it computes (core/formulas/formula.h). The kernel for the CPU, shapes, cost, rows and whether it is
  // elementwise follow from it where they are not declared.
  Operator& Formula(FormulaRule rule, FormulaOptions options = {});
  // What it is made of, where no formula says it: products and sums, or places in its operands (core/expansion.h).
  // Nothing follows from it for a run of the operator itself.
  Operator& Expands(ExpansionRule rule);
  // Checks beyond arity and arguments; appends what is wrong.
  Operator& Check(std::function<void(const OperatorCall&, std::vector<NetProblem>* problems)> check);

  // The only files that the operator may open; the kernel takes their paths from AllowedFiles (core/allowed_files.h).
  Operator& OpensFiles(FilesRule rule);

  Operator& Gradient(GradientRule rule);
  // One operator; names are those of Input and Output above, and "d" before one for its gradient. They are bound by
  // position; where the operator's own names of these positions say otherwise, the registration is wrong.
  Operator& Gradient(std::string type, std::vector<std::string> inputs, std::vector<std::string> outputs);
  // The same, with the gradient operator `type`Gradient, whose declaration and formula follow from this one and its
  // formula (DerivativeOf). Its arguments, and their check, are those of this one; with one input and output that may
  // be the same blob, all its inputs may be its output, and shapes follow the same rule. Where it begins with all
  // inputs of this one, the shape rule of this one refuses what does not fit. `doc` is for people.
  Operator& DerivedGradient(std::vector<std::string> inputs, std::vector<std::string> outputs, std::string doc = "");
  Operator& StopsGradient();

  Operator& On(DeviceKind device, Kernel kernel);
  // One that touches no element itself, but by the queue of the run where there is one (OpRun::context). For devices
  // that have another kernel, that one counts.
  Operator& OnEveryDevice(const Kernel& kernel);
  Operator& Cpu(Kernel kernel) { return On(DeviceKind::kCpu, std::move(kernel)); }
  Operator& Cpu(KernelFactory make) { return Cpu(Kernel{.make = std::move(make)}); }

 private:
  friend class Registration;
  ArgumentSpec& AddArg(std::string name, ArgumentType type, std::string doc, Constraint constraint);
  OperatorSchema schema_;
};

// Registers an operator type for the life of the process. A second registration of a type makes every use of it an
// error that names both files, and so does a kernel that takes no blobs where nothing says what shapes outputs have.
class Registration {
 public:
  Registration(const Operator& op);  // NOLINT(google-explicit-constructor): the declaration reads as a table
};

// Adds a kernel for another device to a type that is registered elsewhere. A second one for a device makes every use of
// the type an error.
class KernelRegistration {
 public:
  KernelRegistration(std::string type, DeviceKind device, Kernel kernel);
};

// Null when no such type is registered. Throws kInvalidNet for a type whose registration makes every use an error.
const OperatorSchema* FindOperator(const std::string& type);
// Does what FindOperator does; throws kInvalidNet with the nearest name when there is none.
const OperatorSchema& GetOperator(const std::string& type);
std::vector<std::string> OperatorTypes();  // sorted
// The types whose registration is wrong, each with what it is: one registered twice, one without shapes, or one that
// does not fit its gradient operator (core/declared_gradient.h).
std::map<std::string, std::string> RegistrationProblems();

// What this build and libraries of operators have to agree on.
inline constexpr Abi kAbi = MakeAbi(
    STEPNET_VERSION, LayoutOf<std::string, std::function<void()>, Shape, Tensor, TensorView, TensorInfo, Blob,
                              ArgumentValue, ArgumentSpec, Error, RunOptions, RunContext, OperatorCall, ShapeQuery,
                              OpRun, Packing, Kernel, GradientOp, GradientBuilder, OperatorSchema, Operator>());
[[gnu::section(".note.stepnet"), gnu::used]] alignas(4) static constexpr AbiNote kAbiNote = {.abi = kAbi};

}  // namespace stepnet
