#include "stepnet/nets/gradient.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "stepnet/core/declared_gradient.h"
#include "stepnet/core/exact_number.h"
#include "stepnet/core/kept_by_key.h"
#include "stepnet/nets/rename.h"

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
  if (value.f) SetDouble(*value.f, argument);
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

// What was found sound is not looked at again: a net has many operators of one type.
void CheckDeclaredGradient(const OperatorSchema& schema) {
  static auto* const sound = new KeptByKey<bool>(/*max_kept=*/1024);  // of types; kept to the end of the process
  if (sound->Find(schema.type) != nullptr) return;
  ThrowProblem(DeclaredGradientProblem(schema));
  sound->Keep(schema.type, std::make_shared<bool>(true));
}

// What the rule of the type says. It may call a gradient as the operator calls a blob of its own.
OperatorGradient ByRule(const OperatorDef& op, const std::vector<GradientBlobs>& output_gradients) {
  const OperatorCall call(op);
  const OperatorSchema& schema = call.schema();
  if (schema.gradient_kind == GradientKind::kStops) {
    return {.ops = {}, .input_gradients = std::vector<GradientBlobs>(call.inputs().size())};
  }
  if (schema.gradient_kind == GradientKind::kNone) {
    throw Error(ErrorCode::kInvalidNet, StrCat(op.type(), " declares no gradient"));
  }
  CheckDeclaredGradient(schema);
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

std::set<std::string> WrittenBy(const OperatorGradient& made) {
  std::set<std::string> written;
  for (const OperatorDef& op : made.ops) written.insert(op.output().begin(), op.output().end());
  return written;
}

// The name with "_" behind it until nobody has it, who has it from then on.
std::string TakeUnused(std::string name, std::set<std::string>* taken) {
  do name += "_";
  while (!taken->insert(name).second);
  return name;
}

void ForEachName(OperatorDef* op, std::vector<GradientBlobs>* gradients,
                 const std::function<void(std::string*)>& call) {
  const auto call_for = [&](std::string* name) {
    if (!name->empty()) call(name);
  };
  for (std::string& name : *op->mutable_input()) call_for(&name);
  for (std::string& name : *op->mutable_output()) call_for(&name);
  for (GradientBlobs& gradient : *gradients) {
    for (std::string* name : {&gradient.dense, &gradient.indices, &gradient.values}) call_for(name);
  }
}

// As ByRule, where that writes blobs that are called as some of the operator, or as gradients of its outputs: these
// have other names while the rule is asked, so that it is seen what is read, and what is written gets other names.
OperatorGradient KeptApart(OperatorDef op, std::vector<GradientBlobs> output_gradients,
                           const std::set<std::string>& read, const std::set<std::string>& written) {
  std::set<std::string> taken = read;
  taken.insert(written.begin(), written.end());
  std::map<std::string, std::string> others, names;
  ForEachName(&op, &output_gradients, [&](std::string* name) {
    if (!written.contains(*name)) return;
    std::string& other = others[*name];
    if (other.empty()) other = TakeUnused(*name, &taken);
    names[other] = *name;
    *name = other;
  });
  OperatorGradient made = ByRule(op, output_gradients);
  const std::set<std::string> written_now = WrittenBy(made);
  taken.insert(written_now.begin(), written_now.end());
  for (const std::string& name : written_now) {
    if (read.contains(name)) names[name] = TakeUnused(name, &taken);
  }
  const auto rename = [&](std::string* name) {
    if (const auto found = names.find(*name); found != names.end()) *name = found->second;
  };
  std::vector<GradientBlobs> none;
  for (OperatorDef& gradient : made.ops) ForEachName(&gradient, &none, rename);
  OperatorDef nothing;
  ForEachName(&nothing, &made.input_gradients, rename);
  return made;
}

}  // namespace

OperatorGradient MakeGradient(const OperatorDef& op, const std::vector<GradientBlobs>& output_gradients) {
  OperatorGradient made = ByRule(op, output_gradients);
  if (HoldsNets(op)) return made;  // it is one operator, which reads before it writes
  OperatorDef named = op;
  std::vector<GradientBlobs> gradients = output_gradients;
  std::set<std::string> read;
  ForEachName(&named, &gradients, [&](const std::string* name) { read.insert(*name); });
  const std::set<std::string> written = WrittenBy(made);
  if (std::ranges::none_of(written, [&](const std::string& name) { return read.contains(name); })) return made;
  return KeptApart(std::move(named), std::move(gradients), read, written);
}

}  // namespace stepnet
