// rnn_runner ops: what the registrations say about operators.
#include <iostream>
#include <optional>

#include "stepnet/core/declared_gradient.h"
#include "stepnet/core/formulas/formula_sample.h"
#include "stepnet/core/operator.h"
#include "stepnet/report/gradient_text.h"
#include "stepnet/report/operator_text.h"
#include "stepnet/report/text.h"
#include "stepnet/tools/rnn_runner/common_flags.h"

namespace stepnet::runner {
namespace {

std::vector<const OperatorSchema*> PublicOperators() {
  std::vector<const OperatorSchema*> schemas;
  for (const std::string& type : OperatorTypes()) {
    const OperatorSchema* schema = FindOperator(type);
    if (schema != nullptr && !schema->is_private) schemas.push_back(schema);
  }
  return schemas;
}

std::string FirstSentence(const std::string& doc) {
  const size_t stop = doc.find(". ");
  return stop == std::string::npos ? doc : doc.substr(0, stop + 1);
}

// What is wrong with the gradient of the type, or "".
std::string GradientProblem(const OperatorSchema& schema) {
  if (schema.gradient_kind != GradientKind::kRule) return "";
  std::string problem = DeclaredGradientProblem(schema);
  if (!problem.empty()) return problem;
  try {
    for (const GradientOp& op : SampleGradientOf(schema).ops) {
      problem = GradientOpProblem(schema, op);
      if (!problem.empty()) break;
    }
  } catch (const Error&) {  // it depends on the arguments
  }
  return problem;
}

std::string AllAsMarkdown() {
  const std::vector<const OperatorSchema*> schemas = PublicOperators();
  std::string text = StrCat(
      "# Operators\n\nWritten by `rnn_runner ops --format=markdown` from the registrations; not to be edited.\n"
      "Sizes are letters: `T` steps, `B` or `N` batch, `D` input size, `H` state size.\n"
      "The gradient of `x` is called `dx` in the declarations and `x_grad` in nets. Operators that a gradient is made "
      "of\n"
      "have the arguments of the operator where they declare them and nothing else is said.\n"
      "Types are those that inputs with fractions may have, all of them the same; others are said with the inputs.\n"
      "A formula is that of float inputs and default arguments where nothing else is said; arguments that are numbers "
      "stand\n"
      "there by name. `row_size`, `num_rows` and `num_elements` are sizes of what it computes over.\n\n",
      Count(static_cast<std::int64_t>(schemas.size()), "operator"), ":\n");
  std::string letter;
  for (const OperatorSchema* schema : schemas) {
    std::string anchor = schema->type;
    for (char& c : anchor) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    std::erase(anchor, '.');
    text += StrCat(letter == schema->type.substr(0, 1) ? ", "
                   : letter.empty()                    ? "\n"
                                                       : ",\n",
                   "[", schema->type, "](#", anchor, ")");
    letter = schema->type.substr(0, 1);
  }
  text += "\n";
  for (const OperatorSchema* schema : schemas) text += "\n" + OperatorAsMarkdown(*schema);
  return text;
}

std::string AllAsText() {
  Table table({});
  for (const OperatorSchema* schema : PublicOperators()) table.Add({schema->type, FirstSentence(schema->doc)});
  return table.Text();
}

const std::vector<std::string> kFormats = {"text", "markdown"};

std::vector<std::string> ListedTypes() {
  std::vector<std::string> types;
  for (const OperatorSchema* schema : PublicOperators()) types.push_back(schema->type);
  return types;
}

int Ops(const std::vector<std::string>& operands) {
  CheckFormat(kFormats);
  const bool markdown = FLAGS_format == "markdown";
  if (operands.empty()) {
    std::cout << (markdown ? AllAsMarkdown() : AllAsText());
    return kOk;
  }
  const std::string& type = operands.front();
  const OperatorSchema* schema = FindOperator(type);
  if (schema == nullptr) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("no operator type \"", type, "\"", DidYouMean(type, OperatorTypes())));
  }
  std::cout << (markdown ? OperatorAsMarkdown(*schema) : OperatorAsText(*schema));
  if (const std::optional<Error> fault = FormulaFault(*schema)) throw *fault;
  if (const std::string problem = GradientProblem(*schema); !problem.empty()) {
    throw Error(ErrorCode::kInvalidNet, problem);
  }
  return kOk;
}

}  // namespace

const Command kOps = {
    .name = "ops",
    .operands = "[NAME]",
    .doc = "lists the operators, or tells all about one",
    .details =
        "From the registrations, those of --op_library included. Operators that only the library itself uses are\n"
        "left out of the list.",
    .example = "rnn_runner ops LSTMUnit",
    .flags = WithCommonFlags({FormatFlag(kFormats)}),
    .min_operands = 0,
    .max_operands = 1,
    .operand_kind = ValueKind::kText,
    .operand_choices = ListedTypes,
    .run = Ops,
};

}  // namespace stepnet::runner
