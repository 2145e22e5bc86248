#include "stepnet/core/declared_gradient.h"

#include <algorithm>

#include "stepnet/core/formulas/formula.h"
#include "stepnet/core/formulas/formula_sample.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

// What the name of a blob stands for, seen from the forward operator.
struct Meaning {
  enum class Kind { kNone, kInput, kOutput, kOutputGradient, kInputGradient };
  Kind kind = Kind::kNone;
  int index = 0;
  bool operator==(const Meaning&) const = default;
};

int IndexOfFormal(const std::vector<Formal>& formals, std::string_view name) {
  for (size_t i = 0; i < formals.size(); ++i) {
    if (formals[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

// The number of the formal of which `name` is the gradient, or -1.
int IndexOfGradient(const std::vector<Formal>& formals, std::string_view name) {
  return name.starts_with('d') ? IndexOfFormal(formals, name.substr(1)) : -1;
}

// What the name of an input of a gradient operator means.
Meaning ReadBy(const OperatorSchema& forward, std::string_view name) {
  if (const int i = IndexOfFormal(forward.inputs, name); i >= 0) return {Meaning::Kind::kInput, i};
  if (const int o = IndexOfFormal(forward.outputs, name); o >= 0) return {Meaning::Kind::kOutput, o};
  if (const int o = IndexOfGradient(forward.outputs, name); o >= 0) return {Meaning::Kind::kOutputGradient, o};
  return {};
}

// What the name of one of its outputs means.
Meaning GivenBy(const OperatorSchema& forward, std::string_view name) {
  const int i = IndexOfGradient(forward.inputs, name);
  return i >= 0 ? Meaning{Meaning::Kind::kInputGradient, i} : Meaning{};
}

using MeaningOf = Meaning (*)(const OperatorSchema& forward, std::string_view name);

// What the gradient operator calls `formal` and is bound to something else, in a position.
struct Contradiction {
  size_t position = 0;
  const Formal* formal = nullptr;  // null: there is none
};

// The first one. Optional formals may be absent, so that what comes after them takes their positions.
Contradiction FindContradiction(const OperatorSchema& forward, const std::vector<Formal>& formals,
                                const std::vector<std::string>& bound, MeaningOf meaning_of) {
  size_t position = 0;
  for (size_t k = 0; k < formals.size() && position < bound.size() && !formals[k].variadic; ++k) {
    const Meaning says = meaning_of(forward, formals[k].name), is = meaning_of(forward, bound[position]);
    const bool fits = says == Meaning{} || is == Meaning{} || says == is;
    const bool may_be_absent = formals[k].optional && formals.size() - k > bound.size() - position;
    if (!fits && !may_be_absent) return {position, &formals[k]};
    if (fits) ++position;
  }
  return {};
}

bool IsWrittenAsGradient(const OperatorSchema& forward, const OperatorSchema& gradient) {
  return std::ranges::any_of(gradient.outputs,
                             [&](const Formal& formal) { return GivenBy(forward, formal.name) != Meaning{}; });
}

// The gradient operator as far as it can be asked: null when it is not registered, or twice.
const OperatorSchema* FindGradient(const GradientOp& made) {
  try {
    return FindOperator(made.type);
  } catch (const Error&) {
    return nullptr;
  }
}

bool IsSame(const ArgumentValue& a, const ArgumentValue& b) {
  return a.f == b.f && a.i == b.i && a.s == b.s && a.floats == b.floats && a.ints == b.ints && a.strings == b.strings &&
         a.net == b.net;
}

}  // namespace

void ExpectInputKept(const OperatorCall& op, int input) {
  const std::string& name = op.inputs()[input];
  if (std::ranges::count(op.outputs(), name) == 0) return;
  throw Error(ErrorCode::kInvalidNet,
              StrCat("the gradient of ", op.type(), " needs its input \"", name, "\", and the operator overwrites it"));
}

Operator DerivedGradientOf(const OperatorSchema& forward) {
  const GradientOp& declared = *forward.declared_gradient;
  Operator op(declared.type, forward.file.c_str());
  op.Doc(forward.derived_gradient->empty() ? StrCat("Gradient of ", forward.type, ".") : *forward.derived_gradient);
  for (const std::string& name : declared.inputs) {
    const auto [kind, i] = ReadBy(forward, name);
    if (kind == Meaning::Kind::kInput) {
      const std::string doc = StrCat("input of ", forward.type, ", ", forward.inputs[i].doc);
      forward.inputs[i].optional ? op.OptionalInput(name, doc) : op.Input(name, doc);
    } else if (kind == Meaning::Kind::kOutput) {
      op.Input(name, StrCat("output of ", forward.type, ", ", forward.outputs[i].doc));
    } else {
      op.Input(name, StrCat("the shape of ", name.substr(std::min<size_t>(1, name.size()))));
    }
  }
  for (const std::string& name : declared.outputs) {
    op.Output(name, StrCat("the shape of ", name.substr(std::min<size_t>(1, name.size()))));
  }
  op.Args(forward.arguments).Formula(DerivativeOf(forward.type));
  if (forward.check) op.Check(forward.check);
  if (forward.is_private) op.Private();
  if (forward.inputs.size() != 1 || forward.outputs.size() != 1 || !forward.AllowsInPlace(0, 0)) return op;
  std::vector<std::pair<int, int>> pairs;
  for (size_t i = 0; i < declared.inputs.size(); ++i) pairs.emplace_back(static_cast<int>(i), 0);
  op.InPlace(std::move(pairs));
  if (forward.shapes) op.Shapes(forward.shapes);
  return op;
}

void AddDeclaredGradient(GradientBuilder& g) {
  const OperatorSchema& schema = g.op().schema();
  const GradientOp& declared = *schema.declared_gradient;
  GradientOp op{.type = declared.type, .inputs = {}, .outputs = {}};
  const OperatorSchema* gradient = FindGradient(declared);
  // Optional ones may be absent.
  for (size_t k = 0; k < declared.inputs.size(); ++k) {
    const auto [kind, i] = ReadBy(schema, declared.inputs[k]);
    if (kind == Meaning::Kind::kInput) {
      if (i >= g.op().num_inputs()) continue;
      const bool reads_shape = gradient != nullptr && gradient->ReadsShapeAlone(static_cast<int>(k));
      if (!reads_shape) ExpectInputKept(g.op(), i);
      op.inputs.push_back(g.I(i));
    } else if (i < g.op().num_outputs()) {
      op.inputs.push_back(kind == Meaning::Kind::kOutput ? g.O(i) : g.GO(i));
    }
  }
  for (const std::string& name : declared.outputs) {
    if (const int i = GivenBy(schema, name).index; i < g.op().num_inputs()) op.outputs.push_back(g.GI(i));
  }
  g.Add(std::move(op));
}

std::string GradientBindingProblem(const OperatorSchema& forward, const GradientOp& made) {
  const OperatorSchema* gradient = FindGradient(made);
  if (gradient == nullptr || !IsWrittenAsGradient(forward, *gradient)) return "";
  if (const auto [i, formal] = FindContradiction(forward, gradient->inputs, made.inputs, ReadBy); formal != nullptr) {
    return StrCat("the gradient of ", forward.type, " gives \"", made.inputs[i], "\" to ", made.type, " as input ", i,
                  ", which that declares as \"", formal->name, "\"");
  }
  if (const auto [o, formal] = FindContradiction(forward, gradient->outputs, made.outputs, GivenBy);
      formal != nullptr) {
    return StrCat("the gradient of ", forward.type, " takes \"", made.outputs[o], "\" from ", made.type, " as output ",
                  o, ", which that declares as \"", formal->name, "\"");
  }
  return "";
}

std::string GradientDefaultProblem(const OperatorSchema& forward, const GradientOp& made) {
  const OperatorSchema* gradient = made.copies_arguments ? FindGradient(made) : nullptr;
  if (gradient == nullptr) return "";
  for (const ArgumentSpec& spec : forward.arguments) {
    const ArgumentSpec* same = gradient->FindArgument(spec.name);
    if (same == nullptr || spec.required || same->required || made.arguments.contains(spec.name)) continue;
    if (IsSame(spec.default_value, same->default_value)) continue;
    return StrCat("where a net leaves out \"", spec.name, "\" it is ", spec.default_value.Description(), " in ",
                  forward.type, " and ", same->default_value.Description(), " in its gradient operator ", made.type);
  }
  return "";
}

std::string GradientOpProblem(const OperatorSchema& forward, const GradientOp& made) {
  try {
    if (FindOperator(made.type) != nullptr) return GradientDefaultProblem(forward, made);
  } catch (const Error& error) {  // whatever uses it fails
    return error.message();
  }
  return StrCat("no operator type \"", made.type, "\", which the gradient of ", forward.type, " names",
                DidYouMean(made.type, OperatorTypes()));
}

std::string DeclaredGradientProblem(const OperatorSchema& schema) {
  if (!schema.declared_gradient) return "";
  const GradientOp& declared = *schema.declared_gradient;
  for (const std::string& name : declared.inputs) {
    if (ReadBy(schema, name) != Meaning{}) continue;
    return StrCat("the gradient of ", schema.type, " reads \"", name,
                  "\", which is no input and no output, and not \"d\" and an output");
  }
  for (const std::string& name : declared.outputs) {
    if (GivenBy(schema, name) != Meaning{}) continue;
    return StrCat("the gradient of ", schema.type, " gives \"", name, "\", which is not \"d\" and an input");
  }
  for (const auto find : {GradientBindingProblem, GradientOpProblem}) {
    if (std::string problem = find(schema, declared); !problem.empty()) return problem;
  }
  const std::optional<Error> fault = schema.derived_gradient ? FormulaFault(GetOperator(declared.type)) : std::nullopt;
  return fault ? fault->message() : "";
}

}  // namespace stepnet
