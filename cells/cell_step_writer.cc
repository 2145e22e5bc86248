#include "stepnet/cells/cell_step_writer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "stepnet/cells/cell_advice.h"
#include "stepnet/core/exact_number.h"
#include "stepnet/core/formulas/formula_sample.h"
#include "stepnet/core/operator.h"
#include "stepnet/nets/op_arguments.h"

namespace stepnet {
namespace {

void AddInt(const char* name, std::int64_t value, OperatorDef* op) {
  Argument& argument = *op->add_arg();
  argument.set_name(name);
  argument.set_i(value);
}

void CheckFloat(double number) {
  if (std::isfinite(static_cast<float>(number))) return;
  throw Error(ErrorCode::kInvalidArgument, StrCat(number, " is beyond what a float can hold"));
}

void AddFloat(const char* name, const StepOperand& number, OperatorDef* op) {
  Argument& argument = *op->add_arg();
  argument.set_name(name);
  if (!number.of_sizes.empty()) return argument.set_s(number.of_sizes);
  CheckFloat(number.number);
  SetWritten(number.number, &argument);
}

const char* TypeOf(char sign) {
  switch (sign) {
    case '+': return "Add";
    case '-': return "Sub";
    case '*': return "Mul";
    default: return "Div";
  }
}

double Computed(char sign, double left, double right) {
  switch (sign) {
    case '+': return left + right;
    case '-': return left - right;
    case '*': return left * right;
    default: return left / right;
  }
}

// Writes it as an expression of sizes has it.
std::string TextOf(const StepOperand& number) {
  if (!number.of_sizes.empty()) return number.of_sizes;
  CheckFloat(number.number);
  return ShortestText(number.number);
}

// Whether one of the signs stands in the text outside of brackets.
bool HasSign(const std::string& text, const char* signs) {
  int depth = 0;
  return std::ranges::any_of(text, [&](char c) {
    depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    return depth == 0 && std::string_view(signs).find(c) != std::string_view::npos;
  });
}

std::string InBrackets(const std::string& text) { return StrCat("(", text, ")"); }

StepOperand OfSizes(std::string text) {
  constexpr size_t kMaxLength = 1000;  // each step of a longer one would copy it
  if (text.size() > kMaxLength) throw Error(ErrorCode::kInvalidArgument, "an expression of sizes is too long");
  return StepOperand::OfSizes(std::move(text));
}

StepOperand ComputedOfNumbers(char sign, const StepOperand& left, const StepOperand& right) {
  if (sign == '/' && right.of_sizes.empty() && right.number == 0) {
    throw Error(ErrorCode::kInvalidArgument, "it divides by 0");
  }
  if (left.of_sizes.empty() && right.of_sizes.empty()) {
    return StepOperand::Number(Computed(sign, left.number, right.number));
  }
  const bool is_sum = sign == '+' || sign == '-';
  std::string first = TextOf(left), second = TextOf(right);
  if (!is_sum && HasSign(first, "+-")) first = InBrackets(first);
  if (HasSign(second, "+-*/")) second = InBrackets(second);
  return OfSizes(is_sum ? StrCat(first, " ", sign, " ", second) : StrCat(first, sign, second));
}

}  // namespace

void StepWriter::Declare(const std::string& name, StepBlob kind, int rank) {
  known_[name] = {.kind = kind, .is_shared = kind == StepBlob::kShared, .rank = rank};
}

void StepWriter::DeclareState(const std::string& name) {
  known_[name] = {.kind = StepBlob::kState};
  known_[name + "_prev"] = {.kind = StepBlob::kInput};
  unwritten_states_.insert(name);
}

// What to do about a name that stands for nothing, of which `nearest` says what else it may be.
std::string StepWriter::RemedyFor(const std::string& name, const std::string& nearest) const {
  if (name.ends_with(".T") && known_.contains(name.substr(0, name.size() - 2))) {
    return "; x @ w multiplies by the transposed w already, Transpose(w, axes=[1, 0]) is it, and BatchMatMul(a, b, "
           "trans_b=1) multiplies two values of the step so";
  }
  if (const std::string advice = AdviceOnBatch(name); !advice.empty()) return advice;
  return nearest.empty() ? StrCat("; if it is a parameter, add: param ", name, "[…]") : nearest;
}

std::string StepWriter::Read(const std::string& name) const {
  if (name == "timestep") return name;
  if (!known_.contains(name)) {
    std::vector<std::string> names;
    for (const auto& [known, kind] : known_) names.push_back(known);
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("there is no blob \"", name, "\" so far", RemedyFor(name, DidYouMean(name, names))));
  }
  return unwritten_states_.contains(name) ? name + "_prev" : name;
}

StepWriter::Known StepWriter::KnownOf(const StepOperand& value) const {
  if (value.kind == StepOperand::kBlob && value.blob == "timestep") return {.whole = DType::kInt32};
  const auto found = known_.find(value.blob);
  return value.kind == StepOperand::kBlob && found != known_.end() ? found->second : Known{};
}

void StepWriter::MarkShared(const OperatorDef& op) {
  if (op.input_size() == 0) return;
  int rank = 0;
  for (const std::string& input : op.input()) {
    const Known known = KnownOf(StepOperand::Blob(input));
    if (!known.is_shared) return;
    rank = std::max(rank, known.rank);
  }
  // A constant is of the shape of its input and says nothing else of it: by name, since no declaration says that.
  if (op.type() != "ConstantFill" && !IsElementwise(GetOperator(op.type()))) return;
  for (const std::string& output : op.output()) known_[output] = {.is_shared = true, .rank = rank};
}

// What is cast to whole numbers, and what is made of such element by element, but for truths. By name, too, since the
// dtypes of the step are known only when all of it is written.
void StepWriter::MarkWhole(const OperatorDef& op) {
  std::optional<DType> whole;
  if (op.type() == "Cast") {
    const Argument* to = FindArgument(op, "to");
    if (to != nullptr && to->s() == "int32") whole = DType::kInt32;
    if (to != nullptr && to->s() == "int64") whole = DType::kInt64;
  } else if (op.input_size() > 0 && (TakesNumbers(op.type()) || op.type() == "Mod")) {
    constexpr std::string_view kTruths[] = {"EQ", "NE", "LT", "LE", "GT", "GE", "And", "Or", "Xor"};
    whole = KnownOf(StepOperand::Blob(op.input(op.input_size() - 1))).whole;
    if (std::ranges::find(kTruths, op.type()) != std::end(kTruths)) whole.reset();
  }
  if (whole) known_[op.output(0)].whole = whole;
}

std::string StepWriter::NewName() {
  std::string name;
  do {
    name = StrCat(target_, ".", ++num_names_);
  } while (known_.contains(name));
  known_[name] = {};
  return name;
}

StepOperand StepWriter::Add(const char* type, std::vector<std::string> inputs) {
  OperatorDef& op = ops_.emplace_back();
  places_.push_back(place_);
  op.set_type(type);
  op.mutable_input()->Assign(inputs.begin(), inputs.end());
  *op.add_output() = NewName();
  MarkShared(op);
  MarkWhole(op);
  return StepOperand::Blob(op.output(0));
}

StepOperand StepWriter::AddProduct(const StepOperand& product, std::vector<std::string> inputs) {
  StepOperand result = Add("FC", std::move(inputs));
  AddInt("axis", -1, &ops_.back());
  places_.back() = product.place;
  return result;
}

StepOperand StepWriter::Scaled(const StepOperand& value, const StepOperand& factor) {
  const StepOperand result = Add("Scale", {AsBlob(value)});
  AddFloat("scale", factor, &ops_.back());
  return result;
}

StepOperand StepWriter::Like(const StepOperand& value, const StepOperand& number) {
  const std::optional<DType> whole = KnownOf(value).whole;
  const StepOperand result = Add("ConstantFill", {value.blob});
  if (whole && number.IsPlainNumber() && number.number == std::floor(number.number)) {
    AddInt("value", static_cast<std::int64_t>(number.number), &ops_.back());
    AddInt("dtype", *whole == DType::kInt32 ? TensorProto::INT32 : TensorProto::INT64, &ops_.back());
    known_[result.blob].whole = whole;
    return result;
  }
  AddFloat("value", number, &ops_.back());
  // Whole numbers, too, are floats here.
  if (!number.of_sizes.empty()) AddInt("dtype", TensorProto::FLOAT, &ops_.back());
  return result;
}

StepOperand StepWriter::Binary(char sign, const StepOperand& left, const StepOperand& right) {
  if (sign == '@') {
    if (left.kind == StepOperand::kNumber || right.kind == StepOperand::kNumber) {
      throw Error(ErrorCode::kInvalidArgument, "@ needs tensors, not numbers");
    }
    if (KnownOf(left).is_shared && !KnownOf(right).is_shared) {
      const auto shown = [&](const StepOperand& operand) {
        const bool has_name = operand.kind == StepOperand::kBlob && !operand.blob.starts_with(target_ + ".");
        return has_name ? operand.blob : "…";
      };
      throw Error(ErrorCode::kInvalidArgument,
                  StrCat("the matrix of parameters, [N, D], stands on the right of @; did you mean `", shown(right),
                         " @ ", shown(left), "`?"));
    }
    return {.kind = StepOperand::kProduct, .blob = AsBlob(left), .weights = AsBlob(right), .place = place_};
  }
  if (left.kind == StepOperand::kNumber && right.kind == StepOperand::kNumber) {
    return ComputedOfNumbers(sign, left, right);
  }
  if (sign == '+' && left.kind == StepOperand::kProduct && KnownOf(right).kind == StepBlob::kShared &&
      KnownOf(right).rank == 1) {
    return AddProduct(left, {left.blob, left.weights, right.blob});
  }
  if (right.kind == StepOperand::kNumber && sign == '*') return Scaled(left, right);
  if (right.kind == StepOperand::kNumber && sign == '/') {
    return Scaled(left, ComputedOfNumbers('/', StepOperand::Number(1), right));
  }
  if (left.kind == StepOperand::kNumber && sign == '*') return Scaled(right, left);
  if (left.kind == StepOperand::kNumber) {
    const StepOperand value = StepOperand::Blob(AsBlob(right));
    return Elementwise(sign, Like(value, left), value);
  }
  const StepOperand value = StepOperand::Blob(AsBlob(left));
  if (right.kind == StepOperand::kNumber) return Elementwise(sign, value, Like(value, right));
  return Elementwise(sign, value, StepOperand::Blob(AsBlob(right)));
}

// Operands are repeated over each other by shape.
StepOperand StepWriter::Elementwise(char sign, const StepOperand& left, const StepOperand& right) {
  return Add(TypeOf(sign), {left.blob, right.blob});
}

StepOperand StepWriter::Negative(const StepOperand& value) {
  if (value.kind != StepOperand::kNumber) return Add("Negative", {AsBlob(value)});
  if (value.of_sizes.empty()) return StepOperand::Number(-value.number);
  return OfSizes("-" + (HasSign(value.of_sizes, "+-") ? InBrackets(value.of_sizes) : value.of_sizes));
}

StepOperand StepWriter::Root(const StepOperand& value) {
  if (value.kind != StepOperand::kNumber) {
    throw Error(ErrorCode::kInvalidArgument,
                "sqrt(…) is the root of a number, as sizes give them; that of a blob is Sqrt(x)");
  }
  if (!value.of_sizes.empty()) return OfSizes(StrCat("sqrt(", value.of_sizes, ")"));
  if (value.number < 0) throw Error(ErrorCode::kInvalidArgument, StrCat("it takes the root of ", value.number));
  return StepOperand::Number(std::sqrt(value.number));
}

bool StepWriter::TakesNumbers(const std::string& type) {
  const OperatorSchema& schema = GetOperator(type);
  const bool repeats = schema.formula && schema.FindArgument("broadcast") != nullptr;
  const bool is_variadic = schema.max_inputs() == std::numeric_limits<int>::max();
  return repeats || (IsElementwise(schema) && (schema.min_inputs() > 1 || is_variadic));
}

std::vector<std::string> StepWriter::Filled(std::vector<StepOperand> inputs) {
  const auto is_tensor = [](const StepOperand& input) { return input.kind != StepOperand::kNumber; };
  const auto last = std::find_if(inputs.rbegin(), inputs.rend(), is_tensor);
  std::vector<std::string> blobs;
  for (const StepOperand& input : inputs) {
    const bool is_filled = !is_tensor(input) && last != inputs.rend();
    blobs.push_back(AsBlob(is_filled ? Like(*last, input) : input));
  }
  return blobs;
}

StepOperand StepWriter::Call(OperatorDef op) {
  const OperatorSchema& schema = GetOperator(op.type());
  if (schema.max_outputs() == 0) {
    throw Error(ErrorCode::kInvalidArgument, StrCat(op.type(), " has no output, so it is no value"));
  }
  for (int i = 0; i < std::max(1, schema.min_outputs()); ++i) *op.add_output() = NewName();
  MarkShared(op);
  MarkWhole(op);
  ops_.push_back(std::move(op));
  places_.push_back(place_);
  return StepOperand::Blob(ops_.back().output(0));
}

std::string StepWriter::AsBlob(const StepOperand& value) {
  switch (value.kind) {
    case StepOperand::kBlob: return value.blob;
    case StepOperand::kNumber:
      if (!value.of_sizes.empty()) {
        throw Error(ErrorCode::kInvalidArgument,
                    StrCat(value.of_sizes, " is a number, without a shape; a tensor of it is ConstantFill(x, value=",
                           value.of_sizes, ", dtype=1), of floats in the shape of x"));
      }
      throw Error(
          ErrorCode::kInvalidArgument,
          "a number has no shape here; give the shape, as in ConstantFill(x, value=1.0), or ConstantFill(x, value=1, "
          "dtype=2) of int32");
    case StepOperand::kProduct: break;
  }
  return AddProduct(value, {value.blob, value.weights}).blob;
}

void StepWriter::Assign(const StepOperand& value, const std::vector<std::string>& names) {
  const std::string blob = AsBlob(value);
  const bool is_new = !ops_.empty() && ops_.back().output(0) == blob && blob.starts_with(target_ + ".");
  const std::string advice = StrCat("; Split(…, axis=-1) cuts a value into ", names.size());
  if (!is_new && names.size() > 1) {
    throw Error(ErrorCode::kInvalidArgument, StrCat("one value cannot be given to ", names.size(), " names", advice));
  }
  if (!is_new) Add("Copy", {blob});
  OperatorDef& op = ops_.back();
  const int most = GetOperator(op.type()).max_outputs();
  if (static_cast<int>(names.size()) > most) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat(op.type(), " has ", most == 1 ? "one output" : StrCat("at most ", most, " outputs"), ", not ",
                       names.size(), most == 1 ? advice : ""));
  }
  // The names between that the operator has so far are free again.
  const Known written = KnownOf(StepOperand::Blob(op.output(0)));
  for (int i = 0; i < op.output_size() && i < static_cast<int>(names.size()); ++i) known_.erase(op.output(i));
  for (size_t i = 0; i < names.size(); ++i) {
    DeclareWritten(names[i], written);
    *(static_cast<int>(i) < op.output_size() ? op.mutable_output(static_cast<int>(i)) : op.add_output()) = names[i];
  }
}

void StepWriter::DeclareWritten(const std::string& name, Known written) {
  const auto [known, is_new] = known_.emplace(name, written);
  if (is_new || unwritten_states_.erase(name) > 0) return;
  const bool is_given = known->second.kind == StepBlob::kInput || known->second.kind == StepBlob::kShared;
  throw Error(ErrorCode::kInvalidArgument,
              is_given ? StrCat("\"", name, "\" is given to the step, which cannot write it")
                       : StrCat("\"", name, "\" is written twice; give the second value a name of its own"));
}

}  // namespace stepnet
