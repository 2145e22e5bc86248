#include "stepnet/core/declaration_check.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "stepnet/core/formal_shapes.h"
#include "stepnet/core/formulas/formula.h"
#include "stepnet/core/name_characters.h"
#include "stepnet/core/printable.h"

namespace stepnet {
namespace {

bool IsName(std::string_view name) {
  return !name.empty() && IsNameStart(name[0]) && std::ranges::all_of(name, IsNamePart);
}

// A name that two have, or "" where all differ. There are few, and each process looks at those of all types when it
// starts.
template <typename Named>
std::string_view NameOfTwo(const std::vector<Named>& all) {
  for (auto one = all.begin(); one != all.end(); ++one) {
    if (std::find_if(all.begin(), one, [&](const Named& other) { return other.name == one->name; }) != one) {
      return one->name;
    }
  }
  return "";
}

// Names stand in nets, in formulas that people read, in tables and in messages.
std::string SpellingProblem(const OperatorSchema& schema) {
  const std::string_view rule = "\": a name is letters, digits, \"_\" and \".\", and starts with a letter or \"_\"";
  if (!IsName(schema.type)) {
    return StrCat("an operator in ", schema.file, " has the type \"", PrintableLine(schema.type), rule);
  }
  std::string problem;
  const auto check = [&](const char* what, const auto& all) {
    for (const auto& one : all) {
      const std::string_view name = one.name;
      const bool is_any = name.starts_with("*.");  // an argument: ArgumentSpec::Matches
      if (!problem.empty() || IsName(is_any ? name.substr(2) : name)) continue;
      problem = StrCat(schema.type, " declares ", what, " named \"", PrintableLine(one.name), rule);
    }
  };
  check("an input", schema.inputs);
  check("an output", schema.outputs);
  check("an argument", schema.arguments);
  return problem;
}

std::string NameProblem(const OperatorSchema& schema) {
  const std::pair<const char*, std::string_view> doubled[] = {{"inputs", NameOfTwo(schema.inputs)},
                                                              {"outputs", NameOfTwo(schema.outputs)},
                                                              {"arguments", NameOfTwo(schema.arguments)}};
  for (const auto& [what, name] : doubled) {
    if (!name.empty()) {
      return StrCat(schema.type, " declares two ", what, " named \"", name, "\": give each a name of its own");
    }
  }
  for (const std::vector<Formal>* formals : {&schema.inputs, &schema.outputs}) {
    for (size_t i = 0; i + 1 < formals->size(); ++i) {
      if ((*formals)[i].variadic) {
        return StrCat(schema.type, " declares \"", (*formals)[i].name,
                      "\", of which there may be any number, before others: declare it last");
      }
    }
  }
  return "";
}

// "input 5" or "output 3", the first that a declaration names and does not have.
class OperandNumbers {
 public:
  explicit OperandNumbers(const OperatorSchema& schema) : schema_(schema) {}

  void Input(int i, const char* where) { Note("input", i, schema_.max_inputs(), where); }
  void Output(int i, const char* where) { Note("output", i, schema_.max_outputs(), where); }
  const std::string& problem() const { return problem_; }

 private:
  void Note(const char* what, int i, int count, const char* where) {
    if (!problem_.empty() || (i >= 0 && i < count)) return;
    problem_ = StrCat(schema_.type, " names ", what, " ", i, " in .", where, ", its declaration has ", count,
                      ", counted from 0");
  }

  const OperatorSchema& schema_;
  std::string problem_;
};

std::string NumberProblem(const OperatorSchema& schema) {
  OperandNumbers numbers(schema);
  const auto check_pairs = [&](const std::vector<std::pair<int, int>>& pairs, const char* where) {
    for (const auto& [input, output] : pairs) {
      if (input == -1 && output == -1) continue;  // any with the same number
      numbers.Input(input, where);
      numbers.Output(output, where);
    }
  };
  check_pairs(schema.in_place, "InPlace");
  check_pairs(schema.enforced_in_place, "EnforceInPlace");
  for (const int i : schema.shape_value_inputs) numbers.Input(i, "ShapesReadValues");
  for (const int i : schema.shape_inputs) numbers.Input(i, "ReadsShapes");
  for (const auto& [device, kernel] : schema.kernels) {
    for (const int i : kernel.host_inputs) numbers.Input(i, "host_inputs");
    for (const int i : kernel.can_add) numbers.Output(i, "can_add");
    for (const int i : kernel.bfloat16_weights) numbers.Input(i, "bfloat16_weights");
    if (kernel.packing) numbers.Input(kernel.packing->input, "packing");
  }
  return numbers.problem();
}

// A kernel of its own may run other dtypes than expressions have, of which the formula says nothing.
std::string BesideFormulaProblem(const OperatorSchema& schema) {
  if (!schema.formula || schema.kernels.contains(DeviceKind::kCpu)) return "";
  if (schema.formula.target<FormulaWhere>() != nullptr) {
    return StrCat(schema.type, " declares a FormulaWhere, and no kernel for where that does not apply: add .Cpu");
  }
  const char* said = schema.elementwise ? "Elementwise" : schema.rows ? "Rows" : nullptr;
  if (said == nullptr) return "";
  return StrCat(schema.type, " declares .", said, " beside .Formula, from which that follows: leave out .", said);
}

std::string DerivedGradientProblem(const OperatorSchema& schema) {
  if (!schema.derived_gradient || schema.formula) return "";
  return StrCat(schema.type,
                " declares a gradient that follows from its formula, and no formula: add .Formula, or declare ",
                "the gradient operator by .Gradient and a registration of its own");
}

}  // namespace

std::string DeclarationProblem(const OperatorSchema& schema) {
  if (schema.type.empty()) return StrCat("an operator in ", schema.file, " has no name");
  for (const auto find :
       {SpellingProblem, NameProblem, FormalProblem, NumberProblem, BesideFormulaProblem, DerivedGradientProblem}) {
    if (std::string problem = find(schema); !problem.empty()) return problem;
  }
  return "";
}

RowsRule CheckedRows(RowsRule rule) {
  return [rule = std::move(rule)](const ShapeQuery& query) {
    std::optional<RowOperands> rows = rule(query);
    if (!rows) return rows;
    const auto check = [&](const std::vector<int>& operands, int count, const char* what) {
      for (const int i : operands) {
        if (i >= 0 && i < count) continue;
        throw Error(ErrorCode::kInternal, StrCat("the rows rule of ", query.op().type(), " names ", what, " ", i,
                                                 ", the operator has ", count, ", counted from 0"));
      }
    };
    check(rows->inputs, query.num_inputs(), "input");
    check(rows->outputs, query.op().num_outputs(), "output");
    return rows;
  };
}

}  // namespace stepnet
