#include "stepnet/compiler/cell_step_writer.h"

#include "stepnet/core/operator.h"

namespace stepnet {
namespace {

void AddInt(const char* name, std::int64_t value, OperatorDef* op) {
  Argument& argument = *op->add_arg();
  argument.set_name(name);
  argument.set_i(value);
}

void AddFloat(const char* name, double value, OperatorDef* op) {
  Argument& argument = *op->add_arg();
  argument.set_name(name);
  argument.set_f(static_cast<float>(value));
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

}  // namespace

void StepWriter::Declare(const std::string& name, StepBlob kind, int rank) {
  known_[name] = {.kind = kind, .rank = rank};
}

void StepWriter::DeclareState(const std::string& name) {
  known_[name] = {.kind = StepBlob::kState};
  known_[name + "_prev"] = {.kind = StepBlob::kState};
  unwritten_states_.insert(name);
}

std::string StepWriter::Read(const std::string& name) const {
  if (name == "timestep") return name;
  if (!known_.contains(name)) {
    std::vector<std::string> names;
    for (const auto& [known, kind] : known_) names.push_back(known);
    throw Error(ErrorCode::kInvalidArgument, StrCat("there is no blob \"", name, "\" so far", DidYouMean(name, names)));
  }
  return unwritten_states_.contains(name) ? name + "_prev" : name;
}

bool StepWriter::IsShared(const StepOperand& value) const {
  const auto found = known_.find(value.blob);
  return value.kind == StepOperand::kBlob && found != known_.end() && found->second.kind == StepBlob::kShared;
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
  op.set_type(type);
  op.mutable_input()->Assign(inputs.begin(), inputs.end());
  op.add_output(NewName());
  return StepOperand::Blob(op.output(0));
}

StepOperand StepWriter::Scaled(const StepOperand& value, double factor) {
  const StepOperand result = Add("Scale", {AsBlob(value)});
  AddFloat("scale", factor, &ops_.back());
  return result;
}

StepOperand StepWriter::Like(const StepOperand& value, double number) {
  const StepOperand result = Add("ConstantFill", {value.blob});
  AddFloat("value", number, &ops_.back());
  return result;
}

StepOperand StepWriter::Binary(char sign, const StepOperand& left, const StepOperand& right) {
  if (sign == '@') {
    if (left.kind == StepOperand::kNumber || right.kind == StepOperand::kNumber) {
      throw Error(ErrorCode::kInvalidArgument, "@ needs tensors, not numbers");
    }
    return {.kind = StepOperand::kProduct, .blob = AsBlob(left), .weights = AsBlob(right)};
  }
  if (left.kind == StepOperand::kNumber && right.kind == StepOperand::kNumber) {
    return StepOperand::Number(Computed(sign, left.number, right.number));
  }
  if (sign == '+' && left.kind == StepOperand::kProduct && IsShared(right) && known_.at(right.blob).rank == 1) {
    const StepOperand result = Add("FC", {left.blob, left.weights, right.blob});
    AddInt("axis", -1, &ops_.back());
    return result;
  }
  if (right.kind == StepOperand::kNumber && sign == '*') return Scaled(left, right.number);
  if (right.kind == StepOperand::kNumber && sign == '/') return Scaled(left, 1 / right.number);
  if (left.kind == StepOperand::kNumber && sign == '*') return Scaled(right, left.number);
  if (left.kind == StepOperand::kNumber) {
    const StepOperand value = StepOperand::Blob(AsBlob(right));
    return Elementwise(sign, Like(value, left.number), value);
  }
  const StepOperand value = StepOperand::Blob(AsBlob(left));
  if (right.kind == StepOperand::kNumber) return Elementwise(sign, value, Like(value, right.number));
  return Elementwise(sign, value, StepOperand::Blob(AsBlob(right)));
}

// The second operand may be repeated over the first, not the other way round.
StepOperand StepWriter::Elementwise(char sign, const StepOperand& left, const StepOperand& right) {
  if (IsShared(left) && !IsShared(right)) {
    if (sign == '+' || sign == '*') return Elementwise(sign, right, left);
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("\"", left.blob, "\" cannot be repeated over \"", right.blob, "\" on the left of ", sign,
                       sign == '-' ? "; write -a + b for b - a" : "; write b * Reciprocal(a) for b / a"));
  }
  const StepOperand result = Add(TypeOf(sign), {left.blob, right.blob});
  if (IsShared(right) && !IsShared(left)) AddInt("broadcast", 1, &ops_.back());
  return result;
}

StepOperand StepWriter::Negative(const StepOperand& value) {
  if (value.kind == StepOperand::kNumber) return StepOperand::Number(-value.number);
  return Add("Negative", {AsBlob(value)});
}

StepOperand StepWriter::Call(OperatorDef op) {
  const OperatorSchema& schema = GetOperator(op.type());
  if (schema.max_outputs() == 0) {
    throw Error(ErrorCode::kInvalidArgument, StrCat(op.type(), " has no output, so it is no value"));
  }
  for (int i = 0; i < std::max(1, schema.min_outputs()); ++i) op.add_output(NewName());
  ops_.push_back(std::move(op));
  return StepOperand::Blob(ops_.back().output(0));
}

std::string StepWriter::AsBlob(const StepOperand& value) {
  switch (value.kind) {
    case StepOperand::kBlob: return value.blob;
    case StepOperand::kNumber:
      throw Error(ErrorCode::kInvalidArgument,
                  "a number has no shape here; give the shape, as in ConstantFill(x, value=1.0)");
    case StepOperand::kProduct: break;
  }
  const StepOperand result = Add("FC", {value.blob, value.weights});
  AddInt("axis", -1, &ops_.back());
  return result.blob;
}

void StepWriter::Assign(const StepOperand& value, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const auto known = known_.find(name);
    if (unwritten_states_.erase(name) == 0 && known != known_.end()) {
      throw Error(ErrorCode::kInvalidArgument,
                  known->second.kind == StepBlob::kWritten || known->second.kind == StepBlob::kState
                      ? StrCat("\"", name, "\" is written twice; give the second value a name of its own")
                      : StrCat("\"", name, "\" is an input or a parameter, which a step cannot write"));
    }
    if (known == known_.end()) known_[name] = {};
  }
  const std::string blob = AsBlob(value);
  const bool is_new = !ops_.empty() && ops_.back().output(0) == blob && blob.starts_with(target_ + ".");
  if (is_new) {
    OperatorDef& op = ops_.back();
    if (static_cast<int>(names.size()) > GetOperator(op.type()).max_outputs()) {
      throw Error(ErrorCode::kInvalidArgument, StrCat(op.type(), " has at most ", GetOperator(op.type()).max_outputs(),
                                                      " outputs, not ", names.size()));
    }
    for (size_t i = 0; i < names.size(); ++i) {
      if (static_cast<int>(i) < op.output_size()) {
        op.set_output(static_cast<int>(i), names[i]);
      } else {
        op.add_output(names[i]);
      }
    }
    return;
  }
  if (names.size() > 1) {
    throw Error(ErrorCode::kInvalidArgument, StrCat("one value cannot be given to ", names.size(), " names"));
  }
  Add("Copy", {blob});
  ops_.back().set_output(0, names[0]);
}

}  // namespace stepnet
