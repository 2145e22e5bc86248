#include "stepnet/core/declared_gradient.h"

#include <algorithm>
#include <map>

#include "stepnet/core/formulas/formula_kernel.h"
#include "stepnet/core/formulas/formula_layout.h"
#include "stepnet/core/formulas/formula_sample.h"
#include "stepnet/core/index_of.h"
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

// The number of the formal of which `name` is the gradient, or -1.
int IndexOfGradient(const std::vector<Formal>& formals, std::string_view name) {
  return name.starts_with('d') ? IndexOf(formals, name.substr(1), &Formal::name) : -1;
}

// What the name of an input of a gradient operator means.
Meaning ReadBy(const OperatorSchema& forward, std::string_view name) {
  if (const int i = IndexOf(forward.inputs, name, &Formal::name); i >= 0) return {Meaning::Kind::kInput, i};
  if (const int o = IndexOf(forward.outputs, name, &Formal::name); o >= 0) return {Meaning::Kind::kOutput, o};
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

// The type as far as it can be asked: null when it is not registered, or wrongly.
const OperatorSchema* FindUsable(const std::string& type) {
  try {
    return FindOperator(type);
  } catch (const Error&) {
    return nullptr;
  }
}

bool IsOfInput(const Meaning& means) {
  return means.kind == Meaning::Kind::kInput || means.kind == Meaning::Kind::kInputGradient;
}

// Whether it is what an operator may have any number of.
bool IsOfAny(const OperatorSchema& forward, const Meaning& means) {
  return means != Meaning{} && (IsOfInput(means) ? forward.inputs : forward.outputs)[means.index].variadic;
}

// Why the names do not say which gradient operator that is, or "": of inputs of which there may be any number, the last
// name means all.
std::string ProblemOfAny(const OperatorSchema& forward, const GradientOp& declared) {
  for (const auto& [names, meaning_of] :
       {std::pair(&declared.inputs, &ReadBy), std::pair(&declared.outputs, &GivenBy)}) {
    for (const std::string& name : *names) {
      const Meaning means = meaning_of(forward, name);
      if (!IsOfAny(forward, means)) continue;
      const std::string start =
          StrCat("the gradient of ", forward.type, " names \"", name, "\", of which there may be any number, ");
      if (!IsOfInput(means)) {
        return StrCat(start,
                      "and a name stands for one: declare the gradient by a function, .Gradient([](GradientBuilder& g) "
                      "{ … })");
      }
      if (name != names->back()) return StrCat(start, "before others: name it last");
    }
  }
  return "";
}

// The name of what a name is the gradient of.
std::string WithoutD(const std::string& name) { return name.substr(std::min<size_t>(1, name.size())); }

// Throws where a gradient arrives that the gradient operator is not given.
void ExpectGradientsRead(const GradientBuilder& g) {
  const OperatorSchema& schema = g.op().schema();
  for (int o = 0; o < g.op().num_outputs(); ++o) {
    if (!g.HasGO(o) || MayReadGradientOf(schema, o)) continue;
    const std::string& formal = schema.outputs[std::min(static_cast<size_t>(o), schema.outputs.size() - 1)].name;
    throw Error(ErrorCode::kInvalidNet,
                StrCat(schema.type, " passes no gradient through its output \"", formal, "\", here \"", g.O(o),
                       "\": its gradient, ", schema.declared_gradient->type, ", is not given d", formal,
                       "; let the loss not depend on it, or put a StopGradient behind it"));
  }
}

// Throws where a formula takes one of the names that it is given for another of its formals: of optional ones it has
// the first, wherever they stand.
void ExpectTaken(const OperatorSchema& forward, const std::vector<Formal>& formals,
                 const std::vector<std::string>& given, MeaningOf meaning_of) {
  for (size_t k = 0; k < formals.size() && !formals[k].variadic; ++k) {
    const int position = PositionOf(formals, static_cast<int>(k), static_cast<int>(given.size()));
    if (position < 0) continue;
    const Meaning says = meaning_of(forward, formals[k].name), is = meaning_of(forward, given[position]);
    if (says == is || says == Meaning{} || is == Meaning{}) continue;
    throw Error(
        ErrorCode::kInvalidNet,
        StrCat("the gradient of ", forward.type, " is given \"", given[position], "\" and not \"", formals[k].name,
               "\", both of which may be absent there: of those the first ones must be given"));
  }
}

// Throws unless input i of a gradient operator, `name`, is like the output of the forward operator that it is, or of
// which it is the gradient. Those of one element may have any number of dimensions.
void ExpectLikeOutput(const ShapeQuery& query, int i, const std::string& name, const std::string& forward,
                      const TensorInfo& output) {
  const TensorInfo& found = query.In(i);
  const bool is_type = found.dtype == output.dtype;
  const bool is_shape = found.shape == output.shape || (found.shape.size() == 1 && output.shape.size() == 1);
  if (is_type && is_shape) return;
  const OperatorCall& op = query.op();
  throw Error(is_type ? ErrorCode::kShapeMismatch : ErrorCode::kTypeMismatch,
              StrCat(op.type(), " needs ", name, " like what ", forward, " gives, ", output.Description(), "; ",
                     op.inputs()[i], " is ", found.Description()));
}

// The shape rule of a gradient operator whose first inputs are those of the forward operator: what that refuses, this
// one does, and gradients are like their inputs. With `checks_others` the other inputs are like outputs; a derivative
// says itself what it takes of them. Null: others are given, or the forward operator declares none.
ShapeRule ShapesOfForward(const OperatorSchema& forward, bool checks_others) {
  const GradientOp& declared = *forward.declared_gradient;
  const size_t num_formals = forward.inputs.size();
  ShapeRule shapes = DeclaredShapes(forward);
  if (!shapes || declared.inputs.size() < num_formals) return {};
  for (size_t i = 0; i < declared.inputs.size(); ++i) {
    const Meaning means = ReadBy(forward, declared.inputs[i]);
    const bool is_in_place = i < num_formals && means == Meaning{Meaning::Kind::kInput, static_cast<int>(i)};
    const bool is_required =
        i >= num_formals && means != Meaning{} && !IsOfInput(means) && !forward.outputs[means.index].optional;
    if (IsOfAny(forward, means) || (!is_in_place && !is_required)) return {};
  }
  struct Other {
    std::string name;
    int output;  // of the forward operator, that it is about
  };
  std::vector<Other> others;
  for (size_t i = num_formals; i < declared.inputs.size(); ++i) {
    others.push_back({declared.inputs[i], ReadBy(forward, declared.inputs[i]).index});
  }
  std::vector<int> differentiated;
  for (const std::string& name : declared.outputs) differentiated.push_back(IndexOfGradient(forward.inputs, name));
  if (std::ranges::count(differentiated, -1) > 0) return {};
  return [formals = forward.inputs, shapes = std::move(shapes), type = forward.type, differentiated, others,
          checks_others](const ShapeQuery& query) {
    std::vector<TensorInfo> inputs;
    for (int i = 0; i < query.num_inputs() - std::ssize(others); ++i) inputs.push_back(query.In(i));
    const std::vector<TensorInfo> given = shapes(ShapeQuery(query.op(), inputs));
    for (size_t k = 0; checks_others && k < others.size(); ++k) {
      const auto& [name, output] = others[k];
      if (output >= std::ssize(given)) continue;  // the rule follows the number of outputs, which are others here
      ExpectLikeOutput(query, static_cast<int>(inputs.size() + k), name, type, given[output]);
    }
    std::vector<TensorInfo> outputs;
    for (const int formal : differentiated) {
      const int position = PositionOf(formals, formal, static_cast<int>(inputs.size()));
      if (position >= 0) outputs.push_back({.dtype = inputs[position].dtype, .shape = inputs[position].shape});
    }
    return outputs;
  };
}

// The input of the forward operator that a blob is like; -1: its declaration says none.
int LikeInput(const OperatorSchema& forward, const Meaning& means) {
  if (means == Meaning{} || IsOfAny(forward, means)) return -1;
  const Formal& formal = (IsOfInput(means) ? forward.inputs : forward.outputs)[means.index];
  const bool is_alike = !formal.like.empty() && formal.types.empty();
  return is_alike ? IndexOf(forward.inputs, formal.like, &Formal::name) : IsOfInput(means) ? means.index : -1;
}

// What is said of the inputs and outputs of a gradient operator: `doc` of each and, where `checks`, what follows from
// the forward operator.
class FormalsOfGradient {
 public:
  FormalsOfGradient(const OperatorSchema& forward, bool checks) : forward_(forward), checks_(checks) {}

  FormalInfo Input(const std::string& name, std::string doc) {
    FormalInfo info(std::move(doc));
    const int like = LikeInput(forward_, ReadBy(forward_, name));
    if (!checks_ || like < 0) return info;
    if (const auto [first, is_first] = first_.emplace(like, name); !is_first) {
      info.like = first->second;
    } else {
      info.types = forward_.inputs[like].types;
    }
    return info;
  }
  FormalInfo Output(const std::string& name, std::string doc) const {
    FormalInfo info(std::move(doc));
    const auto first = first_.find(LikeInput(forward_, GivenBy(forward_, name)));
    if (first != first_.end()) info.like = first->second;
    return info;
  }

 private:
  const OperatorSchema& forward_;
  const bool checks_;
  std::map<int, std::string> first_;  // by what they are like: the first inputs
};

// Whether the declaration says of each blob that the gradient operator has what it is like.
bool AllAreLikeInputs(const OperatorSchema& forward) {
  const GradientOp& declared = *forward.declared_gradient;
  const auto are_like = [&](const std::vector<std::string>& names, MeaningOf meaning_of) {
    return std::ranges::all_of(
        names, [&](const std::string& name) { return LikeInput(forward, meaning_of(forward, name)) >= 0; });
  };
  return are_like(declared.inputs, ReadBy) && are_like(declared.outputs, GivenBy);
}

// What follows from the forward operator, which has a declared gradient. No StrCat: each process does this for some
// sixty types when it starts.
Operator GradientOf(const OperatorSchema& forward, std::string doc, bool is_derivative) {
  const GradientOp& declared = *forward.declared_gradient;
  Operator op(declared.type, forward.file.c_str());
  op.Doc(std::move(doc));
  const bool is_of_one = forward.inputs.size() == 1 && forward.outputs.size() == 1 && !forward.inputs[0].variadic;
  const bool is_alike = is_of_one && AllAreLikeInputs(forward);
  ShapeRule shapes = is_alike ? ShapeRule() : ShapesOfForward(forward, /*checks_others=*/!is_derivative);
  FormalsOfGradient formals(forward, /*checks=*/!shapes);
  // What may be absent there may be here.
  for (const std::string& name : declared.inputs) {
    const auto [kind, i] = ReadBy(forward, name);
    const bool is_input = kind == Meaning::Kind::kInput, is_output = kind == Meaning::Kind::kOutput;
    const bool is_optional = kind != Meaning::Kind::kNone && (is_input ? forward.inputs : forward.outputs)[i].optional;
    const FormalInfo info =
        formals.Input(name, is_input    ? "input of " + forward.type + ", " + forward.inputs[i].doc
                            : is_output ? "output of " + forward.type + ", " + forward.outputs[i].doc
                                        : "the shape of " + WithoutD(name));
    if (IsOfAny(forward, ReadBy(forward, name))) {
      is_optional ? op.OptionalInputs(name, info) : op.Inputs(name, info);
    } else {
      is_optional ? op.OptionalInput(name, info) : op.Input(name, info);
    }
  }
  for (const std::string& name : declared.outputs) {
    const auto [kind, i] = GivenBy(forward, name);
    const bool is_optional = kind == Meaning::Kind::kInputGradient && forward.inputs[i].optional;
    const std::string doc = "the shape of " + WithoutD(name);
    if (IsOfAny(forward, GivenBy(forward, name))) {
      const std::string each = "one for each, of " + doc;
      is_optional ? op.OptionalOutputs(name, each) : op.Outputs(name, each);
    } else {
      const FormalInfo info = formals.Output(name, doc);
      is_optional ? op.OptionalOutput(name, info) : op.Output(name, info);
    }
  }
  op.Args(forward.arguments);
  if (forward.check) op.Check(forward.check);
  if (forward.is_private) op.Private();
  if (shapes) op.Shapes(std::move(shapes));
  if (is_alike && forward.shape_check) op.CheckShapes(forward.shape_check);
  if (!is_of_one || !forward.AllowsInPlace(0, 0)) return op;
  std::vector<std::pair<int, int>> pairs;
  for (size_t i = 0; i < declared.inputs.size(); ++i) pairs.emplace_back(static_cast<int>(i), 0);
  op.InPlace(std::move(pairs));
  if (ShapeRule rule = DeclaredShapes(forward); rule && !is_alike) op.Shapes(std::move(rule));
  return op;
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

bool MayReadGradientOf(const OperatorSchema& schema, int output) {
  if (!schema.declared_gradient) return true;
  const int formal = std::min(output, static_cast<int>(schema.outputs.size()) - 1);
  return IndexOf(schema.declared_gradient->inputs, StrCat("d", schema.outputs[formal].name)) >= 0;
}

Operator GradientOf(const std::string& forward, std::string doc) {
  const OperatorSchema* const schema = FindUsable(forward);
  if (schema != nullptr && schema->declared_gradient)
    return GradientOf(*schema, std::move(doc), /*is_derivative=*/false);
  Operator op(forward + "Gradient");
  op.OptionalInputs("inputs", "").OptionalOutputs("outputs", "").AnyArguments();
  op.Check([forward](const OperatorCall& of, std::vector<NetProblem>* problems) {
    problems->push_back({.message = StrCat(of.type(), " is declared as the gradient of ", forward,
                                           ", which is not registered before it with a .Gradient by names")});
  });
  return op;
}

Operator DerivedGradientOf(const OperatorSchema& forward) {
  const std::string& doc = *forward.derived_gradient;
  return std::move(
      GradientOf(forward, doc.empty() ? StrCat("Gradient of ", forward.type, ".") : doc, /*is_derivative=*/true)
          .Formula(DerivativeOf(forward.type)));
}

void AddDeclaredGradient(GradientBuilder& g) {
  const OperatorSchema& schema = g.op().schema();
  const GradientOp& declared = *schema.declared_gradient;
  const OperatorSchema* gradient = FindUsable(declared.type);
  ExpectGradientsRead(g);
  GradientOp op{.type = declared.type, .inputs = {}, .outputs = {}};
  std::vector<std::string> reads, gives;  // what the declaration calls those of `op`
  // Optional ones may be absent.
  for (size_t k = 0; k < declared.inputs.size(); ++k) {
    const auto [kind, i] = ReadBy(schema, declared.inputs[k]);
    if (kind == Meaning::Kind::kNone) continue;  // DeclaredGradientProblem says so
    const bool is_input = kind == Meaning::Kind::kInput;
    const int position = is_input ? PositionOf(schema.inputs, i, g.op().num_inputs())
                                  : PositionOf(schema.outputs, i, g.op().num_outputs());
    if (position < 0) continue;
    const bool reads_shape = gradient != nullptr && gradient->ReadsShapeAlone(static_cast<int>(k));
    const int end = is_input && schema.inputs[i].variadic ? g.op().num_inputs() : position + 1;
    for (int p = position; p < end; ++p) {
      if (is_input && !reads_shape) ExpectInputKept(g.op(), p);
      op.inputs.push_back(is_input ? g.I(p) : kind == Meaning::Kind::kOutput ? g.O(p) : g.GO(p));
      reads.push_back(declared.inputs[k]);
    }
  }
  for (const std::string& name : declared.outputs) {
    const auto [kind, i] = GivenBy(schema, name);
    const int position = kind == Meaning::Kind::kNone ? -1 : PositionOf(schema.inputs, i, g.op().num_inputs());
    if (position < 0) continue;
    const int end = schema.inputs[i].variadic ? g.op().num_inputs() : position + 1;
    for (int p = position; p < end; ++p) {
      op.outputs.push_back(g.GI(p));
      gives.push_back(name);
    }
  }
  if (gradient != nullptr && gradient->formula && IsWrittenAsGradient(schema, *gradient)) {
    ExpectTaken(schema, gradient->inputs, reads, ReadBy);
    ExpectTaken(schema, gradient->outputs, gives, GivenBy);
  }
  g.Add(std::move(op));
}

std::string GradientBindingProblem(const OperatorSchema& forward, const GradientOp& made) {
  const OperatorSchema* gradient = FindUsable(made.type);
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
  const OperatorSchema* gradient = made.copies_arguments ? FindUsable(made.type) : nullptr;
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
  if (std::string problem = ProblemOfAny(schema, declared); !problem.empty()) return problem;
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
