#include "stepnet/report/operator_text.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "stepnet/core/formulas/formula_sample.h"
#include "stepnet/core/formulas/formula_text.h"
#include "stepnet/core/name_characters.h"
#include "stepnet/core/number_text.h"
#include "stepnet/core/strings.h"
#include "stepnet/nets/decomposition.h"
#include "stepnet/report/expansion_text.h"
#include "stepnet/report/gradient_text.h"
#include "stepnet/report/text.h"

namespace stepnet {
namespace {

std::string FormalDoc(const Formal& formal) {
  const char* count = formal.variadic   ? (formal.optional ? "none or more: " : "one or more: ")
                      : formal.optional ? "optional: "
                                        : "";
  return count + formal.doc;
}

std::string ConstraintText(const Constraint& constraint) {
  const auto& [low, high, one_of] = constraint;
  if (low && high) return StrCat("between ", NumberText(*low), " and ", NumberText(*high));
  if (low) return StrCat("at least ", NumberText(*low));
  if (high) return StrCat("at most ", NumberText(*high));
  if (!one_of.empty()) return StrCat("one of ", Join(one_of, ", "));
  return "";
}

// "0.5", "[]", "required": what an argument is when a net leaves it out.
std::string DefaultText(const ArgumentSpec& spec) {
  if (spec.required) return "required";
  switch (spec.type) {
    case ArgumentType::kBool: return spec.default_value.i.value_or(0) != 0 ? "true" : "false";
    case ArgumentType::kFloats:
    case ArgumentType::kInts:
    case ArgumentType::kStrings: return spec.default_value.empty() ? "[]" : spec.default_value.Description();
    case ArgumentType::kAny:
    case ArgumentType::kNet: return "none";
    default: return spec.default_value.Description();
  }
}

std::string FormalName(const std::vector<Formal>& formals, int i) {
  return i < static_cast<int>(formals.size()) ? formals[i].name : StrCat(i);
}

std::string InPlaceText(const OperatorSchema& schema) {
  std::vector<std::string> items;
  const auto add = [&](const std::vector<std::pair<int, int>>& pairs, const char* verb) {
    for (const auto& [from, to] : pairs) {
      items.push_back(from == -1
                          ? StrCat("each output ", verb, " the input of the same number")
                          : StrCat(FormalName(schema.outputs, to), " ", verb, " ", FormalName(schema.inputs, from)));
    }
  };
  add(schema.in_place, "may be");
  add(schema.enforced_in_place, "must be");
  return Join(items, ", ");
}

std::string PropertiesText(const OperatorSchema& schema) {
  std::vector<std::string> items;
  if (IsElementwise(schema)) items.push_back("elementwise");
  if (schema.has_side_effects) items.push_back("has side effects");
  if (schema.draws) items.push_back("draws random numbers");
  if (schema.files) items.push_back("opens files");
  if (schema.arguments_as_in_file) items.push_back("accepts any argument");
  std::vector<std::string> values;
  for (const int i : schema.shape_value_inputs) values.push_back(FormalName(schema.inputs, i));
  if (!values.empty()) {
    items.push_back(StrCat("shapes may depend on what ", Join(values, " and "),
                           values.size() == 1 ? " holds, which" : " hold, which",
                           " the host then reads: it waits for a GPU"));
  }
  return Join(items, ", ");
}

std::string KernelsText(const OperatorSchema& schema) {
  if (HasDecomposition(schema.type)) return "of the operators that it stands for";
  std::vector<std::string> names;
  for (const DeviceKind device : {DeviceKind::kCpu, DeviceKind::kCuda}) {
    const Kernel* kernel = schema.FindKernel(device);  // which may follow from the formula
    if (kernel == nullptr) continue;
    std::vector<std::string> facts;
    if (kernel->takes_blobs) facts.emplace_back("sets its outputs itself");
    for (const int i : kernel->host_inputs) {
      facts.push_back(StrCat("reads ", FormalName(schema.inputs, i), " on the host"));
    }
    names.push_back(StrCat(DeviceKindName(device), facts.empty() ? "" : StrCat(" (", Join(facts, ", "), ")")));
  }
  return names.empty() ? "none" : Join(names, ", ");
}

std::string OwnFormulaText(const OperatorSchema& schema) {
  if (!schema.formula) return "";
  const std::string text = FormulaText(schema);
  if (text.empty() && FormulaFault(schema)) return "";  // `ops` says what is wrong with it
  if (text.empty())
    return "not shown, because it takes none of the inputs that were tried, or is another one for each of them";
  const std::string sums = RepeatedGradientsText(schema, schema);  // of a gradient operator
  return sums.empty() ? text : StrCat(text, "; ", sums);
}

// "float, double", or "x, dy: float, double" where other inputs have types of their own.
std::string TypesText(const OperatorSchema& schema) {
  const auto [inputs, dtypes] = DTypesTakenBy(schema);
  if (inputs.empty()) return "";
  const bool are_all = inputs.size() >= schema.inputs.size();
  std::vector<std::string> names;
  for (const int i : inputs) names.push_back(FormalName(schema.inputs, i));
  return StrCat(are_all ? "" : StrCat(Join(names, ", "), ": "), Join(dtypes, ", "));
}

// The facts that fit a line each, in the order in which both formats show them.
std::vector<std::pair<std::string, std::string>> Facts(const OperatorSchema& schema) {
  std::vector<std::pair<std::string, std::string>> facts = {{"types", TypesText(schema)},
                                                            {"formula", OwnFormulaText(schema)}};
  for (std::string& variant : FormulaVariants(schema)) facts.emplace_back("formula", std::move(variant));
  facts.insert(facts.end(), {{"made of", ExpansionText(schema)},
                             {"in place", InPlaceText(schema)},
                             {"properties", PropertiesText(schema)},
                             {"gradient", GradientText(schema)},
                             {"formula of the gradient", GradientFormulaText(schema)},
                             {"kernels", KernelsText(schema)}});
  std::erase_if(facts, [](const auto& fact) { return fact.second.empty(); });
  return facts;
}

std::string FormalsText(const std::vector<Formal>& formals, const std::string& title) {
  if (formals.empty()) return "";
  Table table({});
  for (const Formal& formal : formals) table.Add({formal.name, FormalDoc(formal)});
  return title + "\n" + table.Text("  ");
}

// "<blob>" would be a tag, of which nothing is seen; within backquotes it is none.
std::string WithoutTags(const std::string& text) {
  std::string result;
  bool is_code = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '`') is_code = !is_code;
    const bool is_tag = text[i] == '<' && i + 1 < text.size() && IsNameStart(text[i + 1]);
    result += is_tag && !is_code ? "&lt;" : std::string(1, text[i]);
  }
  return result;
}

// A `|` would end the cell of a table.
std::string Cell(const std::string& text) {
  std::string cell;
  for (const char c : WithoutTags(text)) cell += c == '|' ? "\\|" : c == '\n' ? " " : std::string(1, c);
  return cell;
}

std::string FormalsAsMarkdown(const std::vector<Formal>& formals, const std::string& title) {
  if (formals.empty()) return "";
  std::string text = StrCat("\n| ", title, " | |\n|---|---|\n");
  for (const Formal& formal : formals) text += StrCat("| `", formal.name, "` | ", Cell(FormalDoc(formal)), " |\n");
  return text;
}

}  // namespace

std::string OperatorAsText(const OperatorSchema& schema) {
  std::string text = StrCat(schema.type, "\n", schema.doc.empty() ? "" : StrCat("  ", schema.doc, "\n"),
                            FormalsText(schema.inputs, "inputs"), FormalsText(schema.outputs, "outputs"));
  if (!schema.arguments.empty()) {
    Table table({});
    for (const ArgumentSpec& spec : schema.arguments) {
      std::string type = ArgumentTypeName(spec.type);
      if (const std::string constraint = ConstraintText(spec.constraint); !constraint.empty())
        type += ", " + constraint;
      table.Add({spec.name, type, spec.required ? "required" : "default " + DefaultText(spec), spec.doc});
    }
    text += "arguments\n" + table.Text("  ");
  }
  for (const auto& [name, fact] : Facts(schema)) text += StrCat(name, ": ", fact, "\n");
  return text;
}

std::string OperatorAsMarkdown(const OperatorSchema& schema) {
  std::string text =
      StrCat("## ", schema.type, "\n", schema.doc.empty() ? "" : StrCat("\n", WithoutTags(schema.doc), "\n"),
             FormalsAsMarkdown(schema.inputs, "input"), FormalsAsMarkdown(schema.outputs, "output"));
  if (!schema.arguments.empty()) {
    text += "\n| argument | type | default | |\n|---|---|---|---|\n";
    for (const ArgumentSpec& spec : schema.arguments) {
      std::string type = ArgumentTypeName(spec.type);
      if (const std::string constraint = ConstraintText(spec.constraint); !constraint.empty())
        type += ", " + constraint;
      text +=
          StrCat("| `", spec.name, "` | ", Cell(type), " | ", Cell(DefaultText(spec)), " | ", Cell(spec.doc), " |\n");
    }
  }
  std::vector<std::string> items;
  for (const auto& [name, fact] : Facts(schema)) items.push_back(StrCat("- ", name, ": ", fact, "\n"));
  return StrCat(text, "\n", Join(items, ""));
}

}  // namespace stepnet
