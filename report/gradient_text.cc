#include "stepnet/report/gradient_text.h"

#include <algorithm>
#include <map>
#include <optional>

#include "stepnet/core/exact_number.h"
#include "stepnet/core/formulas/formula_text.h"
#include "stepnet/core/index_of.h"
#include "stepnet/core/strings.h"
#include "stepnet/nets/decomposition.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

// An operator of the type with all of its inputs, or those that it must have.
OperatorDef SampleOf(const OperatorSchema& schema, bool with_optional) {
  OperatorDef op;
  op.set_type(schema.type);
  for (const Formal& formal : schema.inputs) {
    if (with_optional || !formal.optional) op.add_input(formal.name);
  }
  for (const Formal& formal : schema.outputs) op.add_output(formal.name);
  return op;
}

// The name with "d" and the input in place of "<input>_grad", as rules call it.
std::string DeclaredName(const std::string& name, const OperatorCall& call) {
  for (const std::string& input : call.inputs()) {
    const std::string prefix = input + "_grad";
    if (name == prefix || name.starts_with(prefix + "_")) return "d" + input + name.substr(prefix.size());
  }
  return name;
}

// What the rule writes for an operator, of whose outputs those in `wanted` have a gradient. Throws what the rule does.
SampleGradient Ask(const OperatorDef& op, const std::vector<GradientBlobs>& gradients) {
  const OperatorCall call(op);
  GradientBuilder builder(call, gradients);
  call.schema().gradient(builder);
  SampleGradient found{.ops = builder.ops()};
  for (GradientOp& made : found.ops) {
    for (auto* names : {&made.inputs, &made.outputs}) {
      for (std::string& name : *names) name = DeclaredName(name, call);
    }
  }
  for (int i = 0; i < call.num_inputs(); ++i) {
    const GradientBlobs& of_input = builder.input_gradients()[i];
    const std::string of = DeclaredName(of_input.dense, call), name = "d" + call.inputs()[i];
    if (!of_input.indices.empty()) {
      found.passed.push_back(StrCat("rows ", of_input.indices, " of ", name, " = ", of_input.values));
    } else if (!of.empty() && of != name) {
      found.passed.push_back(StrCat(name, " = ", of));
    }
  }
  return found;
}

// Values of a required argument, one of which most operators take.
std::vector<ArgumentValue> ValuesOf(const ArgumentSpec& spec) {
  std::vector<ArgumentValue> values;
  for (const std::string& one : spec.constraint.one_of) values.push_back({.s = one});
  values.push_back({.s = "float"});
  values.push_back({.i = 1});
  values.push_back({.f = 2});
  values.push_back({.ints = {0}});
  std::erase_if(values, [&](const ArgumentValue& value) { return !spec.Problem(spec.name, value).empty(); });
  return values;
}

void AddArgument(const std::string& name, const ArgumentValue& value, OperatorDef* op) {
  Argument* argument = op->add_arg();
  argument->set_name(name);
  if (value.f) SetDouble(*value.f, argument);
  if (value.i) argument->set_i(*value.i);
  if (value.s) argument->set_s(*value.s);
  for (const std::int64_t item : value.ints) argument->add_ints(item);
}

// The operator with values of the required arguments, and what these are. None where no value of one is known.
struct WithArguments {
  OperatorDef op;
  std::vector<std::pair<std::string, ArgumentValue>> values = {};  // by argument
};
std::vector<WithArguments> WithRequired(const OperatorSchema& schema, const OperatorDef& op) {
  std::vector<WithArguments> all = {{.op = op}};
  for (const ArgumentSpec& spec : schema.arguments) {
    if (!spec.required) continue;
    std::vector<WithArguments> longer;
    for (const WithArguments& one : all) {
      for (const ArgumentValue& value : ValuesOf(spec)) {
        WithArguments& more = longer.emplace_back(one);
        AddArgument(spec.name, value, &more.op);
        more.values.emplace_back(spec.name, value);
      }
    }
    all = std::move(longer);
  }
  return all;
}

// What a required argument may be in place of one of ValuesOf.
std::vector<ArgumentValue> OtherValuesOf(const ArgumentSpec& spec) {
  std::vector<ArgumentValue> values = ValuesOf(spec);
  for (const ArgumentValue& value : {ArgumentValue{.s = "double"}, {.i = 2}, {.f = 3}, {.ints = {1}}}) {
    if (spec.Problem(spec.name, value).empty()) values.push_back(value);
  }
  return values;
}

// By output, "d" before its name where it has a gradient: all of them, then one at a time.
std::vector<std::vector<GradientBlobs>> OutputGradients(const OperatorSchema& schema) {
  std::vector<GradientBlobs> all;
  for (const Formal& formal : schema.outputs) all.push_back({.dense = "d" + formal.name});
  std::vector<std::vector<GradientBlobs>> choices = {all};
  for (size_t o = 0; all.size() > 1 && o < all.size(); ++o) {
    std::vector<GradientBlobs>& one = choices.emplace_back(all.size());
    one[o] = all[o];
  }
  return choices;
}

std::string CallText(const GradientOp& op) {
  std::vector<std::string> operands = op.inputs;
  for (const auto& [name, value] : op.arguments) operands.push_back(StrCat(name, " = ", value.Description()));
  return StrCat(Join(op.outputs, ", "), " = ", op.type, "(", Join(operands, ", "), ")");
}

// What the rule writes, one call or gradient a text.
std::vector<std::string> TextsOf(const SampleGradient& gradient) {
  std::vector<std::string> texts;
  for (const GradientOp& op : gradient.ops) texts.push_back(CallText(op));
  texts.insert(texts.end(), gradient.passed.begin(), gradient.passed.end());
  return texts;
}

// Whether the rule writes something else, or throws, where the required argument has another value.
bool DependsOn(const ArgumentSpec& spec, const WithArguments& with, const SampleGradient& found,
               const std::vector<GradientBlobs>& gradients) {
  return std::ranges::any_of(OtherValuesOf(spec), [&](const ArgumentValue& other) {
    OperatorDef op = with.op;
    op.clear_arg();
    for (const auto& [name, value] : with.values) AddArgument(name, name == spec.name ? other : value, &op);
    try {
      return TextsOf(Ask(op, gradients)) != TextsOf(found);
    } catch (const Error&) {
      return true;
    }
  });
}

// "mode = 1": the values that the gradient is of alone.
std::string WithText(const OperatorSchema& schema, const WithArguments& with, const SampleGradient& found,
                     const std::vector<GradientBlobs>& gradients) {
  std::vector<std::string> said;
  for (const auto& [name, value] : with.values) {
    const ArgumentSpec& spec = schema.arguments[IndexOf(schema.arguments, name, &ArgumentSpec::name)];
    if (DependsOn(spec, with, found, gradients)) said.push_back(StrCat(name, " = ", value.Description()));
  }
  return Join(said, ", ");
}

}  // namespace

SampleGradient SampleGradientOf(const OperatorSchema& schema) {
  std::optional<Error> problem;
  for (const bool with_optional : {true, false}) {
    for (const std::vector<GradientBlobs>& gradients : OutputGradients(schema)) {
      for (const WithArguments& with : WithRequired(schema, SampleOf(schema, with_optional))) {
        try {
          SampleGradient found = Ask(with.op, gradients);
          if (found.ops.empty() && found.passed.empty()) continue;
          found.with = WithText(schema, with, found, gradients);
          return found;
        } catch (const Error& error) {
          problem = error;
        }
      }
    }
  }
  throw problem.value_or(Error(ErrorCode::kInvalidNet, StrCat(schema.type, " gives its inputs no gradient")));
}

std::vector<OperatorDef> SampleOperators(const OperatorSchema& schema) {
  std::vector<OperatorDef> samples;
  for (const bool with_optional : {true, false}) {
    OperatorDef op = SampleOf(schema, with_optional);
    if (with_optional && !schema.inputs.empty() && schema.inputs.back().variadic) {
      const std::string& name = schema.inputs.back().name;
      op.set_input(op.input_size() - 1, name + "0");
      op.add_input(name + "1");
    }
    for (const WithArguments& one : WithRequired(schema, op)) samples.push_back(one.op);
  }
  return samples;
}

std::string GradientText(const OperatorSchema& schema) {
  if (schema.gradient_kind == GradientKind::kStops) return "stops here: the inputs get none";
  if (schema.gradient_kind == GradientKind::kNone) return "none is declared: where one is needed, that is an error";
  if (HasDecomposition(schema.type)) return "of the operators that it stands for";
  try {
    const SampleGradient gradient = SampleGradientOf(schema);
    const bool has_formula = !GradientFormulaText(schema).empty();
    if (has_formula) {
      std::vector<std::string> types;
      for (const GradientOp& op : gradient.ops) types.push_back(op.type);
      return Join(types, ", ");
    }
    return StrCat(gradient.with.empty() ? "" : StrCat("with ", gradient.with, ": "), Join(TextsOf(gradient), "; "));
  } catch (const Error&) {
    return "depends on the arguments";
  }
}

std::string GradientFormulaText(const OperatorSchema& schema) {
  if (schema.gradient_kind != GradientKind::kRule) return "";
  try {
    std::vector<std::string> texts;
    const std::vector<GradientOp> ops = SampleGradientOf(schema).ops;
    for (const GradientOp& op : ops) {
      const OperatorSchema& gradient = GetOperator(op.type);
      const auto is_gradient = [&](const Formal& output) {
        return output.name.starts_with('d') && IndexOf(schema.inputs, output.name.substr(1), &Formal::name) >= 0;
      };
      if (std::ranges::none_of(gradient.outputs, is_gradient)) continue;
      std::string text = FormulaText(gradient);
      if (text.empty()) continue;
      if (const std::string sums = RepeatedGradientsText(schema, gradient); !sums.empty()) text += "; " + sums;
      texts.push_back(ops.size() == 1 ? text : StrCat(op.type, ": ", text));
    }
    return Join(texts, "; ");
  } catch (const Error&) {
    return "";
  }
}

}  // namespace stepnet
