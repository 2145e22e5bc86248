#include "stepnet/core/operator.h"

#include <algorithm>

#include "stepnet/core/exact_number.h"
#include "stepnet/core/operator_text.h"
#include "stepnet/core/printable.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

// Hints that Caffe2's Python layer writes to every operator. They choose among its back ends and change no result.
bool IsBackEndHint(const std::string& name) {
  static const std::vector<std::string> hints = {
      "use_cudnn",       "cudnn_exhaustive_search", "ws_nbytes_limit", "use_grad_hack", "freeze_bias",
      "float16_compute", "deterministic",           "init_params",     "shared_buffer"};
  return std::ranges::find(hints, name) != hints.end() || name.starts_with("rnn_dependency.");
}

// FNV-1a: stable over processes and platforms, as random numbers must be.
std::uint64_t Hash(std::uint64_t hash, std::string_view text) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return (hash ^ 0xffu) * 0x100000001b3u;
}

std::vector<std::string> DeclaredNames(const OperatorSchema& schema) {
  std::vector<std::string> names;
  for (const ArgumentSpec& spec : schema.arguments) names.push_back(spec.name);
  return names;
}

// The nearest name or, where none is near, the names that there are, if they are few.
std::string ArgumentHint(const std::string& name, const OperatorSchema& schema) {
  constexpr size_t kMaxNames = 12;
  const std::vector<std::string> names = DeclaredNames(schema);
  const std::string nearest = DidYouMean(name, names);
  if (!nearest.empty() || names.empty() || names.size() > kMaxNames) return nearest;
  return StrCat("; it has ", Join(names, ", "));
}

// Throws where an argument has two values.
void CheckArgumentsGivenTwice(const OperatorDef& def) {
  std::vector<const Argument*> arguments;
  arguments.reserve(static_cast<size_t>(def.arg_size()));
  for (const Argument& argument : def.arg()) arguments.push_back(&argument);
  std::ranges::sort(arguments, {}, &Argument::name);
  for (size_t i = 1; i < arguments.size(); ++i) {
    const Argument &one = *arguments[i - 1], &other = *arguments[i];
    if (one.name() != other.name() || one.SerializeAsString() == other.SerializeAsString()) continue;
    throw Error(ErrorCode::kInvalidArgument,
                StrCat(def.type(), " has the argument \"", one.name(), "\" twice, with different values"));
  }
}

}  // namespace

OperatorCall::OperatorCall(const OperatorDef& def, std::shared_ptr<const RunOptions> options, Readers readers,
                           const std::shared_ptr<const NetDef>& owner)
    : schema_(&GetOperator(def.type())) {
  if (!readers.empty()) readers_ = std::make_shared<const Readers>(std::move(readers));
  const auto said = std::make_shared<Said>();
  said->inputs.assign(def.input().begin(), def.input().end());
  said->outputs.assign(def.output().begin(), def.output().end());
  said->options = std::move(options);
  said_ = said;
  CheckArgumentsGivenTwice(def);
  for (const Argument& proto : def.arg()) {
    const std::string& name = proto.name();
    const int num_kinds = (proto.has_f() || DoubleOf(proto) ? 1 : 0) + (proto.has_i() ? 1 : 0) +
                          (proto.has_s() ? 1 : 0) + (proto.has_n() ? 1 : 0) +
                          (proto.floats_size() > 0 || !DoublesOf(proto).empty() ? 1 : 0) +
                          (proto.ints_size() > 0 ? 1 : 0) + (proto.strings_size() > 0 ? 1 : 0);
    if (num_kinds > 1) {
      throw Error(ErrorCode::kInvalidArgument,
                  StrCat(def.type(), " has values of several kinds for the argument \"", name, "\""));
    }
    const ArgumentSpec* spec = schema_->FindArgument(name);
    if (spec == nullptr) {
      if (IsBackEndHint(name) || schema_->arguments_as_in_file) continue;
      // Image operators alone give a meaning to the layout; Caffe2's Python layer writes it to all.
      if (name == "order") continue;
      throw Error(ErrorCode::kInvalidArgument,
                  StrCat(def.type(), " has no argument \"", name, "\"", ArgumentHint(name, *schema_)));
    }
    ArgumentValue value = ParseArgument(proto, owner);
    if (const std::string problem = spec->Problem(name, value); !problem.empty()) {
      throw Error(ErrorCode::kInvalidArgument, StrCat(def.type(), ": ", problem));
    }
    said->arguments.emplace(name, std::move(value));
  }
  for (const ArgumentSpec& spec : schema_->arguments) {
    if (spec.required && !HasArg(spec.name)) {
      throw Error(ErrorCode::kInvalidArgument,
                  StrCat(def.type(), " needs the argument \"", spec.name, "\": ", spec.doc));
    }
  }
  random_id_ = Hash(0xcbf29ce484222325u, def.type());
  for (const std::string& output : outputs()) random_id_ = Hash(random_id_, output);
  seed_ = def.device_option().has_random_seed() ? def.device_option().random_seed() : this->options().seed;
}

const std::string& OperatorCall::type() const { return schema_->type; }

const std::shared_ptr<const void>& OperatorCall::Parsed(
    std::shared_ptr<const void> (*parse)(const OperatorCall&)) const {
  std::call_once(said_->is_parsed, [&] { said_->parsed = parse(*this); });
  return said_->parsed;
}

namespace {

// How an argument is declared that is read as of another type.
std::string DeclaredInstead(const ArgumentSpec* spec, ArgumentType type) {
  if (spec == nullptr) return ", and declares none";
  std::string text = StrCat(", and declares it as ", ArgumentTypeName(spec->type));
  if (spec->required) return text;
  const std::string value = spec->default_value.Description();
  text += StrCat(", as its default ", value, " is");
  const bool is_fraction = type == ArgumentType::kNumber || type == ArgumentType::kFloat;
  if (spec->type != ArgumentType::kInt || !is_fraction) return text;
  return StrCat(text, "; the default ", value, ".0f makes it a ", ArgumentTypeName(type));
}

}  // namespace

const ArgumentValue& OperatorCall::Value(std::string_view name, ArgumentType type) const {
  const ArgumentSpec* spec = schema_->FindArgument(name);
  if (spec == nullptr || spec->type != type) {
    throw Error(ErrorCode::kInternal, StrCat(schema_->type, " reads an argument \"", name, "\" of type ",
                                             ArgumentTypeName(type), DeclaredInstead(spec, type)));
  }
  const auto found = arguments().find(name);
  return found != arguments().end() ? found->second : spec->default_value;
}

float OperatorCall::Float(std::string_view name) const {
  const ArgumentValue& value = Value(name, ArgumentType::kFloat);
  return value.f ? static_cast<float>(*value.f) : static_cast<float>(value.i.value_or(0));
}
double OperatorCall::Number(std::string_view name) const {
  const ArgumentSpec* spec = schema_->FindArgument(name);
  const bool is_float = spec != nullptr && spec->type == ArgumentType::kFloat;
  if (is_float && !HasArg(name)) return Float(name);
  const ArgumentValue& value = Value(name, is_float ? ArgumentType::kFloat : ArgumentType::kNumber);
  return value.f ? *value.f : static_cast<double>(value.i.value_or(0));
}
std::int64_t OperatorCall::Int(std::string_view name) const { return Value(name, ArgumentType::kInt).i.value_or(0); }
bool OperatorCall::Bool(std::string_view name) const { return Value(name, ArgumentType::kBool).i.value_or(0) != 0; }
const std::string& OperatorCall::String(std::string_view name) const {
  static const std::string empty;
  const std::optional<std::string>& value = Value(name, ArgumentType::kString).s;
  return value ? *value : empty;
}
std::vector<float> OperatorCall::Floats(std::string_view name) const {
  const ArgumentValue& value = Value(name, ArgumentType::kFloats);
  if (!value.floats.empty() || value.ints.empty()) return value.floats;
  return {value.ints.begin(), value.ints.end()};
}
const std::vector<std::int64_t>& OperatorCall::Ints(std::string_view name) const {
  return Value(name, ArgumentType::kInts).ints;
}
const std::vector<std::string>& OperatorCall::Strings(std::string_view name) const {
  return Value(name, ArgumentType::kStrings).strings;
}
const ArgumentValue& OperatorCall::Any(std::string_view name) const { return Value(name, ArgumentType::kAny); }
std::shared_ptr<const NetDef> OperatorCall::Net(std::string_view name) const {
  return Value(name, ArgumentType::kNet).net;
}

OperatorCall OperatorCall::ReadBy(Readers readers) const {
  OperatorCall call = *this;
  call.readers_ = std::make_shared<const Readers>(std::move(readers));
  return call;
}

const std::vector<std::string>& OperatorCall::ReadersOf(int output) const {
  static const std::vector<std::string> none;
  const bool is_known = readers_ != nullptr && output < static_cast<int>(readers_->size());
  return is_known ? (*readers_)[output] : none;
}

std::string OperatorCall::Text() const { return OperatorText(type(), inputs(), outputs()); }

std::vector<std::int64_t> ShapeQuery::IntsOf(int i) const {
  const Tensor& value = inputs_[i].value;
  if (!value.defined()) throw ValueUnknown{i};
  std::vector<std::int64_t> ints;
  if (value.dtype() == DType::kInt32) {
    ints.assign(value.data<std::int32_t>(), value.data<std::int32_t>() + value.size());
  } else if (value.dtype() == DType::kInt64) {
    ints.assign(value.data<std::int64_t>(), value.data<std::int64_t>() + value.size());
  } else {
    throw Error(ErrorCode::kTypeMismatch,
                StrCat(op_.inputs()[i], " is ", value.Description(), " where int32 or int64 is needed"));
  }
  return ints;
}

ShapeRule SameAsInput(int i) {
  return [i](const ShapeQuery& query) {
    return std::vector<TensorInfo>{{.dtype = query.In(i).dtype, .shape = query.In(i).shape}};
  };
}

FaultPlace OpRun::PlaceOfInput(int input, std::int64_t element) const {
  if (range_ == nullptr) return {.element = element};
  const bool has_rows = input < 64 && (range_->with_rows >> input & 1) != 0;
  if (!has_rows) return {.element = element + range_->begin};
  return PlaceOf(element, inputs_[input].size());
}

FaultPlace OpRun::PlaceOf(std::int64_t element, std::int64_t num_elements) const {
  if (range_ == nullptr) return {.element = element};
  element += range_->begin;
  if (range_->num_steps == 1) return {.element = element};
  const std::int64_t elements_of_step =
      (range_->num_elements > 0 ? range_->num_elements : num_elements) / range_->num_steps;
  const std::int64_t step = element / elements_of_step;
  return {.step = range_->backward ? range_->num_steps - 1 - step : step, .element = element % elements_of_step};
}

GradientBuilder::GradientBuilder(const OperatorCall& op, std::vector<GradientBlobs> output_gradients)
    : op_(op), output_gradients_(std::move(output_gradients)), input_gradients_(op.inputs().size()) {}

const std::string& GradientBuilder::GO(int i) const {
  const std::string& name = output_gradients_.at(i).dense;
  if (name.empty()) {
    throw Error(ErrorCode::kInvalidNet, StrCat("the gradient of ", op_.type(), " needs the gradient of its output \"",
                                               O(i), "\", and nothing gives one"));
  }
  return name;
}

std::string GradientBuilder::GI(int i) {
  // A blob that is several inputs gets a part of its gradient from each.
  const bool is_first = std::find(op_.inputs().begin(), op_.inputs().begin() + i, I(i)) == op_.inputs().begin() + i;
  input_gradients_.at(i) = {.dense = is_first ? I(i) + "_grad" : StrCat("_", I(i), "_grad_of_input_", i)};
  return input_gradients_[i].dense;
}

void GradientBuilder::SetDense(int i, std::string name) { input_gradients_.at(i) = {.dense = std::move(name)}; }

void GradientBuilder::SetSparse(int i, std::string indices, std::string values) {
  input_gradients_.at(i) = {.dense = {}, .indices = std::move(indices), .values = std::move(values)};
}

}  // namespace stepnet
