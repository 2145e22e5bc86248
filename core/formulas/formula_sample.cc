#include "stepnet/core/formulas/formula_sample.h"

#include <google/protobuf/arena.h>

#include <algorithm>
#include <array>
#include <exception>
#include <memory>
#include <span>
#include <vector>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/floating.h"
#include "stepnet/core/formulas/formula_layout.h"
#include "stepnet/core/index_of.h"
#include "stepnet/core/kept_by_key.h"
#include "stepnet/core/strings.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {

// An operator with inputs of some dtypes, and shapes that fit what its formula reads.
class FormulaSample {
 public:
  // `elements`: the shape of what is read element by element; of input `repeated`, one of its rows.
  FormulaSample(const OperatorCall& op, std::span<const DType> dtypes, Shape elements, int repeated = -1)
      : op_(op), elements_(std::move(elements)) {
    for (const DType dtype : dtypes) inputs_.push_back({.dtype = dtype, .shape = elements_});
    GiveShapesThatFit();
    if (repeated >= 0 && inputs_[repeated].shape == elements_) inputs_[repeated].shape = elements_.With(0, 1);
  }

  // Whether it says that it computes over more dimensions than there may be.
  bool is_over_too_many() const { return is_over_too_many_; }
  bool Applies() const { return FormulaApplies(ShapeQuery(op_, inputs_), {}); }
  // By the shape rule, which says what dtypes outputs have, or without.
  FormulaRegion MakeRegion(bool by_rule) const {
    const ShapeQuery query(op_, inputs_);
    return MakeFormulaRegion(query, by_rule ? op_.schema().shapes(query) : std::vector<TensorInfo>());
  }

  // The elements of this input are the shape of others.
  void HoldShape(int input) {
    TensorInfo& info = inputs_[input];
    if (info.dtype != DType::kInt32 && info.dtype != DType::kInt64) return;
    info.shape = Shape({elements_.rank()});
    info.value = Tensor(info.dtype, info.shape);
    for (int d = 0; d < elements_.rank(); ++d) {
      if (info.dtype == DType::kInt32) info.value.data<std::int32_t>()[d] = static_cast<std::int32_t>(elements_[d]);
      if (info.dtype == DType::kInt64) info.value.data<std::int64_t>()[d] = elements_[d];
    }
  }

  // Whether the operator takes these inputs, maybe without its formula.
  bool FitsShapeRule() const {
    try {
      op_.schema().shapes(ShapeQuery(op_, inputs_));
      return true;
    } catch (const std::exception&) {
    } catch (const ValueUnknown&) {
    }
    return false;
  }

  // Whether the shape rule says what is wrong with the inputs, before the formula does.
  bool IsRefusedByRule() const {
    try {
      op_.schema().shapes(ShapeQuery(op_, inputs_));
    } catch (const FormulaAsksAmiss&) {  // the formula says it, as the rule
    } catch (const Error& error) {
      return error.code() != ErrorCode::kInternal;
    } catch (const ValueUnknown&) {
    }
    return false;
  }

  // Whether the shape rule takes other dtypes. Throws where it says that outputs are others than those of the formula.
  bool RefusesDTypes() const {
    try {
      op_.schema().shapes(ShapeQuery(op_, inputs_));
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kInternal) throw;
      return error.code() == ErrorCode::kTypeMismatch;
    } catch (const ValueUnknown&) {
    }
    return false;
  }

 private:
  using Access = Formula::Access;

  // What a formula reads, and how, it says whatever the shapes are.
  void GiveShapesThatFit() {
    const ShapeQuery query(op_, inputs_);
    Formula formula(query);
    try {
      op_.schema().formula(formula);
    } catch (...) {  // of shapes; what it reads is known by then
      CheckCancelled();
    }
    is_over_too_many_ = formula.over_ && formula.over_->rank() > kRegionDims;
    for (const Formula::Read& read : formula.reads_) {
      if (read.input >= 0) inputs_[read.input].shape = ShapeFor(formula, read);
    }
    for (const Formula::Read& read : formula.reads_) {  // however else it is read
      if (read.input >= 0 && read.access == Access::kScalar) inputs_[read.input].shape = Shape({1});
    }
  }

  Shape ShapeFor(const Formula& formula, const Formula::Read& read) const {
    const int last = elements_.rank() - 1;
    std::int64_t size = 1;
    for (const int d : read.dimensions) size *= (*formula.over_)[d];
    switch (read.access) {
      case Access::kAlong: return Shape({size});
      case Access::kBlock: return elements_.With(last, elements_[last] * read.blocks);
      case Access::kRow: return Shape({elements_.SizeTo(last)});
      case Access::kColumn: return Shape({elements_[last]});
      case Access::kScalar: return Shape({1});
      default: return elements_;
    }
  }

  const OperatorCall& op_;
  const Shape elements_;
  std::vector<TensorInfo> inputs_;
  bool is_over_too_many_ = false;
};

namespace {

constexpr std::array kDTypes = {DType::kFloat, DType::kInt32,  DType::kBool,
                                DType::kInt64, DType::kDouble, DType::kFloat16};

Shape SampleShape() { return Shape({kSampleRows, kSampleColumns}); }

// What the declaration calls the operands of an operator that has so many.
std::vector<std::string> NamesOf(const std::vector<Formal>& formals, int count) {
  std::vector<std::string> names(count);
  for (int i = 0; i < static_cast<int>(formals.size()); ++i) {
    const int position = PositionOf(formals, i, count);
    if (position < 0) continue;
    names[position] = formals[i].name;
    for (int k = position; formals[i].variadic && k < count; ++k) names[k] = StrCat(formals[i].name, "_", k - position);
  }
  return names;
}

// The operator with blobs named as its declaration does, so that errors do not depend on names.
void NameOperands(const OperatorSchema& schema, int num_inputs, int num_outputs, OperatorDef* op) {
  op->clear_input();
  op->clear_output();
  for (const std::string& name : NamesOf(schema.inputs, num_inputs)) op->add_input(name);
  for (const std::string& name : NamesOf(schema.outputs, num_outputs)) {
    op->add_output(IndexOf(op->input(), name) < 0 ? name : "the output " + name);
  }
}

// The operator with all that its declaration has and is not to be left out, of a variadic input two.
OperatorDef WholeOperator(const OperatorSchema& schema, const SampleRequest& request = {}) {
  OperatorDef op;
  op.set_type(schema.type);
  const bool has_any = !schema.inputs.empty() && schema.inputs.back().variadic;
  NameOperands(schema, static_cast<int>(schema.inputs.size()) + (has_any ? 1 : 0) - request.left_out,
               static_cast<int>(schema.outputs.size()), &op);
  for (const auto& [name, value] : request.arguments) {
    Argument* argument = op.add_arg();
    argument->set_name(name);
    if (value.f) argument->set_f(*value.f);
    if (value.i) argument->set_i(*value.i);
    if (value.s) argument->set_s(*value.s);
    for (const std::int64_t item : value.ints) argument->add_ints(item);
    for (const float item : value.floats) argument->add_floats(item);
    for (const std::string& item : value.strings) argument->add_strings(item);
  }
  return op;
}

// Goes through dtypes for all inputs: floats, then one of another dtype, then two.
class DTypeCounter {
 public:
  explicit DTypeCounter(int num_inputs) : dtypes_(num_inputs, kDTypes[0]), is_other_(num_inputs) {}

  std::span<const DType> dtypes() const { return dtypes_; }
  // Whether there are more; not beyond what takes long.
  bool Next() {
    constexpr int kMaxTries = 1000;
    if (++tries_ == kMaxTries) return false;
    for (size_t i = 0; i < dtypes_.size(); ++i) {
      if (!is_other_[i]) continue;
      const auto next = std::ranges::find(kDTypes, dtypes_[i]) + 1;
      dtypes_[i] = next == kDTypes.end() ? kDTypes[1] : *next;
      if (next != kDTypes.end()) return true;
    }
    if (!std::prev_permutation(is_other_.begin(), is_other_.end())) {
      if (++num_others_ > static_cast<std::int64_t>(is_other_.size())) return false;
      std::fill_n(is_other_.begin(), num_others_, true);
    }
    for (size_t i = 0; i < dtypes_.size(); ++i) dtypes_[i] = kDTypes[is_other_[i] ? 1 : 0];
    return true;
  }
  bool has_seen_all() const { return num_others_ > static_cast<std::int64_t>(is_other_.size()); }

 private:
  std::vector<DType> dtypes_;
  std::vector<bool> is_other_;  // than float
  std::int64_t num_others_ = 0;
  int tries_ = 0;
};

// The region for inputs of such shapes, by the shape rule or without.
std::optional<SampledFormula> MakeSample(const OperatorCall& call, std::span<const DType> dtypes, const Shape& shape,
                                         bool by_rule, int repeated = -1) {
  const auto made = [&](const FormulaSample& sample) -> std::optional<SampledFormula> {
    if (!sample.Applies()) return {};
    return SampledFormula{sample.MakeRegion(by_rule), {dtypes.begin(), dtypes.end()}, shape, by_rule};
  };
  try {
    FormulaSample sample(call, dtypes, shape, repeated);
    try {
      return made(sample);
    } catch (const ValueUnknown& unknown) {
      sample.HoldShape(unknown.input);
      return made(sample);
    }
  } catch (const Error&) {
    CheckCancelled();
  } catch (const ValueUnknown&) {
  }
  return {};
}

std::optional<SampledFormula> FindSample(const OperatorCall& call, bool by_rule, int repeated = -1,
                                         const Shape& shape = SampleShape()) {
  DTypeCounter counter(call.num_inputs());
  do {
    std::optional<SampledFormula> made = MakeSample(call, counter.dtypes(), shape, by_rule, repeated);
    if (made) return made;
  } while (counter.Next());
  return {};
}

// What is asked for, of these dtypes if there are any.
std::optional<SampledFormula> FindSample(const OperatorSchema& schema, const SampleRequest& request, const Shape& shape,
                                         bool by_rule) {
  try {
    const OperatorCall call(WholeOperator(schema, request));
    if (request.like != nullptr) return MakeSample(call, request.like->dtypes, shape, by_rule);
    if (!request.dtype) return FindSample(call, by_rule, -1, shape);
    return MakeSample(call, std::vector<DType>(call.num_inputs(), *request.dtype), shape, by_rule);
  } catch (const Error&) {  // an argument is required, or may not be so
    CheckCancelled();
    return {};
  }
}

// The request with the shape as an argument; nothing where the operator has inputs, or no such argument.
std::optional<SampleRequest> WithShapeArgument(const OperatorSchema& schema, const SampleRequest& request,
                                               const Shape& shape) {
  const int list = IndexOf(schema.arguments, ArgumentType::kInts, &ArgumentSpec::type);
  if (list < 0 || std::ssize(schema.inputs) > request.left_out) return {};
  SampleRequest with_shape = request;
  with_shape.arguments.try_emplace(schema.arguments[list].name).first->second.ints = shape.ToVector();
  return with_shape;
}

// A message of a check with more places than there are values. Samples alone tell: elsewhere names of blobs, which
// may be anything, are part of messages.
std::optional<Error> MessageFault(const std::string& type, const Region& region) {
  for (const ExprNode* node : ExprNodes(region.Roots())) {
    if (node->op != ExprOp::kRequire) continue;
    int places = 0;
    for (size_t at = 0; (at = node->text.find("{}", at)) != std::string::npos; at += 2) ++places;
    if (places < node->num_operands) continue;
    return Error(ErrorCode::kInternal,
                 StrCat("the formula of ", type, " checks with the message \"", node->text, "\", which has ", places,
                        " places {} for ", node->num_operands - 1, node->num_operands == 2 ? " value" : " values"));
  }
  return {};
}

// Shapes to try: of two dimensions, of more and of one, and of more than a region has where none of these tells.
std::vector<Shape> TriedShapes() {
  std::vector<Shape> shapes = {SampleShape()};
  for (int rank = 3; rank <= kRegionDims; ++rank) shapes.push_back(shapes.back().Inserted(0, 2));
  Shape larger = shapes.back();
  shapes.push_back(SampleShape().Without(0));
  while (larger.rank() < Shape::kMaxRank) shapes.push_back(larger = larger.Inserted(0, 2));
  return shapes;
}

// What its formula throws for all that is tried.
class FaultFinder {
 public:
  explicit FaultFinder(const OperatorCall& call) : call_(call) {}

  std::optional<Error> Run() {
    DTypeCounter counter(call_.num_inputs());
    do {
      if (MayFit(counter.dtypes())) return refuses_floats_ ? FaultOfWholeNumbers() : std::nullopt;
    } while (!contradicts_rule_ && counter.Next());
    // Where there are many inputs, dtypes that fit may just not have been found.
    if (!counter.has_seen_all() && fault_->code() != ErrorCode::kInternal) return {};
    return WithoutInputs(*fault_);
  }

 private:
  // Whether a shape fits, or none has been found of which the formula says what is wrong with more than the shape:
  // it may read dimensions, and repeat inputs, as no shape that is tried has them.
  bool MayFit(std::span<const DType> dtypes) {
    bool has_fault = false;
    for (const Shape& shape : TriedShapes()) {
      const bool is_large = shape.rank() > kRegionDims;
      if (is_large && has_fault) break;
      const FormulaSample tried(call_, dtypes, shape);
      try {
        if (!tried.Applies()) return true;
        const std::optional<Error> fault = MessageFault(call_.type(), tried.MakeRegion(/*by_rule=*/false).region);
        if (fault) Note(*fault);
        refuses_floats_ |= tried.RefusesDTypes();
        if (!fault) return true;
      } catch (const FormulaAsksAmiss& error) {
        if (tried.IsRefusedByRule()) continue;
        Note(error);
      } catch (const FormulaAgainstRule& error) {
        Note(error);
        contradicts_rule_ = error.is_of_dtypes();
        if (contradicts_rule_) return false;
      } catch (const Error& error) {
        if (error.code() == ErrorCode::kCancelled) throw;
        const bool is_internal = error.code() == ErrorCode::kInternal;
        if (!is_internal && tried.FitsShapeRule()) return true;
        if (!is_internal && error.code() != ErrorCode::kTypeMismatch) continue;
        if (is_large && tried.is_over_too_many()) continue;
        Note(error);
        if (!is_internal) return false;  // of whatever shape
      }
      has_fault = true;
    }
    return !has_fault;
  }

  // That of an operator which takes no floats, though its formula would: a division by an argument that is 0.
  std::optional<Error> FaultOfWholeNumbers() const {
    for (const DType dtype : {DType::kInt32, DType::kInt64}) {
      const FormulaSample tried(call_, std::vector<DType>(call_.num_inputs(), dtype), SampleShape());
      try {
        if (tried.Applies()) tried.MakeRegion(/*by_rule=*/false);
      } catch (const FormulaAsksAmiss& error) {
        if (error.code() == ErrorCode::kInvalidArgument && !tried.IsRefusedByRule()) return WithoutInputs(error);
      } catch (const Error&) {
        CheckCancelled();
      }
    }
    return {};
  }

  static Error WithoutInputs(const Error& error) {
    return {error.code(), error.message().substr(0, error.message().find("; its inputs are "))};
  }

  // Keeps, of several, the one that the declaration is to blame for.
  void Note(const Error& error) {
    const bool is_internal = error.code() == ErrorCode::kInternal;
    if (!fault_ || (is_internal && fault_->code() != ErrorCode::kInternal)) fault_ = error;
  }

  const OperatorCall& call_;
  std::optional<Error> fault_;
  bool contradicts_rule_ = false;  // of dtypes that the shape rule takes
  bool refuses_floats_ = false;    // of those that fit, which are tried first
};

// What has been found sound. Never destroyed: kernels that share things may run while statics are.
KeptByKey<bool>& Sound() {
  static auto* const sound = new KeptByKey<bool>(/*max_kept=*/4096);
  return *sound;
}

}  // namespace

std::optional<SampledFormula> SampleFormula(const OperatorSchema& schema, const SampleRequest& request) {
  if (!schema.formula) return {};
  const Shape rows = SampleShape(), more = rows.Inserted(0, 1);
  std::vector<Shape> shapes = {rows, more, more.Inserted(0, 1), rows.Without(0)};
  if (request.shape) shapes = {*request.shape};
  for (const bool by_rule : {true, false}) {
    if (request.like != nullptr && by_rule != request.like->is_ruled) continue;
    for (const Shape& shape : shapes) {
      if (auto found = FindSample(schema, request, shape, by_rule)) return found;
    }
    for (const Shape& shape : shapes) {
      const std::optional<SampleRequest> with_shape = WithShapeArgument(schema, request, shape);
      if (!with_shape) break;
      if (auto found = FindSample(schema, *with_shape, shape, by_rule)) return found;
    }
  }
  return {};
}

std::optional<FormulaRegion> SampleRepeated(const OperatorSchema& schema, std::string_view repeated) {
  const int input = IndexOf(schema.inputs, repeated, &Formal::name);
  if (!schema.formula || input < 0) return {};
  try {
    return FindSample(OperatorCall(WholeOperator(schema)), /*by_rule=*/true, input);
  } catch (const Error&) {  // an argument is required
    CheckCancelled();
    return {};
  }
}

bool IsElementwise(const OperatorSchema& schema) {
  if (schema.elementwise || !schema.formula) return schema.elementwise;
  // The rule alone counts: an input that it wants smaller is repeated.
  static KeptByKey<bool>& known = *new KeptByKey<bool>(/*max_kept=*/4096);
  if (const auto found = known.Find(schema.type)) return *found;
  bool is_elementwise = false;
  try {
    const std::optional<FormulaRegion> sample = FindSample(OperatorCall(WholeOperator(schema)), /*by_rule=*/true);
    is_elementwise = sample && sample->is_elementwise;
  } catch (const Error&) {  // an argument is required
    CheckCancelled();
  }
  known.Keep(schema.type, std::make_shared<bool>(is_elementwise));
  return is_elementwise;
}

TakenDTypes DTypesTakenBy(const OperatorSchema& schema) {
  constexpr std::array kAll = {DType::kFloat, DType::kDouble, DType::kFloat16, DType::kBFloat16,
                               DType::kInt8,  DType::kInt16,  DType::kInt32,   DType::kInt64,
                               DType::kUInt8, DType::kUInt16, DType::kBool,    DType::kString};
  const std::optional<SampledFormula> sample = SampleFormula(schema);
  if (!sample || !sample->is_ruled || sample->dtypes.empty()) return {};
  const auto floating = std::ranges::find_if(sample->dtypes, IsFloating);
  const DType varied = floating == sample->dtypes.end() ? sample->dtypes[0] : *floating;
  TakenDTypes taken;
  for (size_t i = 0; i < sample->dtypes.size(); ++i) {
    if (sample->dtypes[i] == varied) taken.inputs.push_back(static_cast<int>(i));
  }
  const bool is_read = std::ranges::any_of(ExprNodes(sample->region.Roots()), [&](const ExprNode* node) {
    return node->op == ExprOp::kInput && std::ranges::count(taken.inputs, sample->inputs[node->number]) > 0;
  });
  if (!is_read) return {};
  const OperatorCall call(WholeOperator(schema));
  std::vector<DType> dtypes = sample->dtypes;
  std::ranges::copy_if(kAll, std::back_inserter(taken.dtypes), [&](DType dtype) {
    for (const int input : taken.inputs) dtypes[input] = dtype;
    return FormulaSample(call, dtypes, sample->shape).FitsShapeRule();
  });
  return taken;
}

std::optional<Error> FormulaFault(const OperatorDef& op) {
  constexpr int kMaxInputs = 64;  // beyond, a sample costs as much as the operator
  const OperatorSchema& schema = GetOperator(op.type());
  if (!schema.formula || op.input_size() > kMaxInputs) return {};
  // Not by StrCat, which takes as long as the rest: this is asked for each operator of a net.
  std::string key = op.type();
  const auto add = [&](size_t number) { key.append(" ").append(std::to_string(number)); };
  add(op.input_size());
  add(op.output_size());
  for (const Argument& argument : op.arg()) {
    add(argument.ByteSizeLong());
    key.append(" ").append(argument.SerializeAsString());
  }
  if (Sound().Find(key)) return {};
  // Messages that are half made when memory ends cannot be destroyed; those of an arena need not be.
  google::protobuf::Arena arena;
  OperatorDef& sample = *google::protobuf::Arena::CreateMessage<OperatorDef>(&arena);
  sample.set_type(op.type());
  *sample.mutable_arg() = op.arg();
  NameOperands(schema, op.input_size(), op.output_size(), &sample);
  std::optional<Error> fault = FaultFinder(OperatorCall(sample)).Run();
  if (!fault) Sound().Keep(key, std::make_shared<bool>(true));
  return fault;
}

std::optional<Error> FormulaFault(const OperatorSchema& schema) {
  const bool is_told = std::ranges::none_of(schema.arguments, &ArgumentSpec::required);
  return schema.formula && is_told ? FormulaFault(WholeOperator(schema)) : std::nullopt;
}

}  // namespace stepnet
