#include "stepnet/nets/gradient.h"

#include "stepnet/core/declared_gradient.h"

namespace stepnet {
namespace {

void AddArgument(const std::string& name, const ArgumentValue& value, OperatorDef* op) {
  Argument* argument = nullptr;
  for (Argument& existing : *op->mutable_arg()) {
    if (existing.name() == name) argument = &existing;
  }
  if (argument == nullptr) argument = op->add_arg();
  argument->Clear();
  argument->set_name(name);
  if (value.f) argument->set_f(static_cast<float>(*value.f));
  if (value.i) argument->set_i(*value.i);
  if (value.s) argument->set_s(*value.s);
  for (const float item : value.floats) argument->add_floats(item);
  for (const std::int64_t item : value.ints) argument->add_ints(item);
  for (const std::string& item : value.strings) argument->add_strings(item);
  if (value.net != nullptr) *argument->mutable_n() = *value.net;
}

// Throws what is wrong with a registration.
void ThrowProblem(const std::string& problem) {
  if (!problem.empty()) throw Error(ErrorCode::kInvalidNet, problem);
}

}  // namespace

OperatorGradient MakeGradient(const OperatorDef& op, const std::vector<GradientBlobs>& output_gradients) {
  const OperatorCall call(op);
  const OperatorSchema& schema = call.schema();
  if (schema.gradient_kind == GradientKind::kStops) {
    return {.ops = {}, .input_gradients = std::vector<GradientBlobs>(call.inputs().size())};
  }
  if (schema.gradient_kind == GradientKind::kNone) {
    throw Error(ErrorCode::kInvalidNet, StrCat(op.type(), " is not differentiable"));
  }
  ThrowProblem(DeclaredGradientProblem(schema));
  GradientBuilder builder(call, output_gradients);
  schema.gradient(builder);
  OperatorGradient result{.ops = {}, .input_gradients = builder.input_gradients()};
  for (const GradientOp& made : builder.ops()) {
    ThrowProblem(GradientOpProblem(schema, made));
    OperatorDef& def = result.ops.emplace_back();
    def.set_type(made.type);
    def.mutable_input()->Assign(made.inputs.begin(), made.inputs.end());
    def.mutable_output()->Assign(made.outputs.begin(), made.outputs.end());
    def.set_is_gradient_op(true);
    if (op.has_device_option()) *def.mutable_device_option() = op.device_option();
    if (op.has_engine()) def.set_engine(op.engine());
    if (made.copies_arguments) *def.mutable_arg() = op.arg();
    for (const auto& [name, value] : made.arguments) AddArgument(name, value, &def);
  }
  return result;
}

}  // namespace stepnet
