#include "stepnet/nets/double_net.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "stepnet/core/exact_number.h"
#include "stepnet/core/operator.h"
#include "stepnet/nets/op_arguments.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

// What gives float unless the argument dtype says otherwise.
const std::set<std::string> kFloatFills = {"ConstantFill", "GivenTensorFill", "XavierFill", "MSRAFill",
                                           "UniformFill",  "GaussianFill",    "RangeFill",  "LearningRate"};

void SetDouble(OperatorDef* op, const std::string& name) { NewArgument(op, name)->set_i(TensorProto::DOUBLE); }

// Whether the argument, a number or a name, says float or a float that is stored in 16 bits.
bool SaysFloat(const Argument& argument) {
  static const std::set<std::string> names = {"float", "float16", "bfloat16"};
  static const std::set<std::int64_t> numbers = {TensorProto::FLOAT, TensorProto::FLOAT16, TensorProto::BFLOAT16};
  std::string text = argument.s();
  std::ranges::transform(text, text.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c; });
  return names.contains(text) || (argument.has_i() && numbers.contains(argument.i()));
}

bool FillsFloat(const OperatorDef& op) {
  if (!kFloatFills.contains(op.type())) return false;
  if (const Argument* dtype = FindArgument(op, "dtype")) return SaysFloat(*dtype);
  const Argument* value = FindArgument(op, "value");  // of ConstantFill: an int or a string makes its own dtype
  return value == nullptr || value->has_f() || !(value->has_i() || value->has_s());
}

void WriteValues(OperatorDef* op) {
  for (Argument& argument : *op->mutable_arg()) {
    if (argument.floats_size() == 0) continue;
    std::vector<double> values;
    for (const float value : argument.floats()) values.push_back(AsWritten(value));
    SetDoubles(values, &argument);
  }
}

// Numbers that were rounded to float become what was written, and those that the operator has by default stand there,
// where a float is not exactly that.
void WriteNumbers(OperatorDef* op) {
  for (Argument& argument : *op->mutable_arg()) {
    if (argument.has_f()) SetDouble(AsWritten(argument.f()), &argument);
  }
  if (op->type() == "GivenTensorFill") WriteValues(op);
  const OperatorSchema* const schema = FindOperator(op->type());
  if (schema == nullptr) return;
  for (const ArgumentSpec& spec : schema->arguments) {
    const std::optional<double> number = spec.default_value.f;
    if (spec.type != ArgumentType::kFloat || !number || FindArgument(*op, spec.name) != nullptr) continue;
    const auto rounded = static_cast<float>(*number);
    const double exact = rounded == *number ? AsWritten(rounded) : *number;
    if (exact != rounded) SetDouble(exact, NewArgument(op, spec.name));
  }
}

}  // namespace

void MakeDouble(OperatorDef* op) {
  WriteNumbers(op);
  if (FillsFloat(*op)) SetDouble(op, "dtype");
  for (const char* name : {"to", "from_type"}) {
    const Argument* dtype = FindArgument(*op, name);
    if (op->type() == "Cast" && dtype != nullptr && SaysFloat(*dtype)) SetDouble(op, name);
  }
  for (Argument& argument : *op->mutable_arg()) {
    NetDef inner;
    if (!NetOfArgument(argument, &inner)) continue;
    const std::string name = argument.name();
    argument.Clear();
    argument.set_name(name);
    *argument.mutable_n() = InDouble(inner);
  }
}

NetDef InDouble(const NetDef& net) {
  NetDef result = net;
  for (OperatorDef& op : *result.mutable_op()) MakeDouble(&op);
  return result;
}

}  // namespace stepnet
