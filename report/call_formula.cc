#include "stepnet/report/call_formula.h"

#include <cctype>
#include <map>
#include <sstream>

#include "stepnet/core/formulas/formula_text.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

bool IsOfName(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// The words of a text, renamed; blanks and signs stay.
template <typename NameOf>
std::string Renamed(const std::string& text, const NameOf& name_of) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && IsOfName(text[end])) ++end;
    const bool is_word = end > at && std::isdigit(static_cast<unsigned char>(text[at])) == 0;
    const bool is_function = end < text.size() && text[end] == '(';
    if (is_word && !is_function) {
      result += name_of(text.substr(at, end - at));
    } else {
      result += end > at ? text.substr(at, end - at) : text.substr(at, 1);
    }
    at = std::max(end, at + 1);
  }
  return result;
}

class Names {
 public:
  Names(const OperatorCall& call, const std::vector<std::string>& inputs, const std::vector<std::string>& outputs)
      : call_(call) {
    Add(call.schema().inputs, inputs);
    Add(call.schema().outputs, outputs);
  }

  // The blob, "gates[1]" for a part of one, or the value of an argument; what is none of these stays.
  std::string Of(const std::string& word) const {
    if (const auto found = blobs_.find(word); found != blobs_.end()) return found->second;
    const size_t line = word.rfind('_');
    if (line != std::string::npos && blobs_.contains(word.substr(0, line))) {
      return StrCat(blobs_.at(word.substr(0, line)), "[", word.substr(line + 1), "]");
    }
    const std::string argument = word.starts_with("arg_") ? word.substr(4) : word;
    const ArgumentSpec* const spec = call_.schema().FindArgument(argument);
    if (spec != nullptr) return ValueOf(*spec);
    const bool is_temporary = word.size() > 1 && word[0] == 't' && word.find_first_not_of("0123456789", 1) == word.npos;
    return is_temporary ? StrCat("$", word.substr(1)) : word;
  }

 private:
  std::string ValueOf(const ArgumentSpec& spec) const {
    switch (spec.type) {
      case ArgumentType::kFloat: return StrCat(call_.Float(spec.name));
      case ArgumentType::kInt: return StrCat(call_.Int(spec.name));
      case ArgumentType::kBool: return StrCat(call_.Bool(spec.name) ? 1 : 0);
      case ArgumentType::kNumber: return StrCat(call_.Number(spec.name));
      default: return spec.name;
    }
  }

  void Add(const std::vector<Formal>& formals, const std::vector<std::string>& blobs) {
    for (size_t i = 0; i < blobs.size(); ++i) {
      const Formal& formal = formals[std::min(i, formals.size() - 1)];
      const std::string name = formal.variadic ? StrCat(formal.name, i + 1 - formals.size()) : formal.name;
      blobs_[name] = blobs[i];
    }
  }

  const OperatorCall& call_;
  std::map<std::string, std::string> blobs_;
};

// The formula of the type stands for two inputs where there may be any number.
bool SaysItForAll(const OperatorCall& call, const std::string& formula) {
  const std::vector<Formal>& inputs = call.schema().inputs;
  const bool is_variadic = !inputs.empty() && inputs.back().variadic;
  if (!call.schema().outputs.empty() && call.schema().outputs.back().variadic) return false;
  return !formula.empty() && !formula.starts_with("with ") &&
         (!is_variadic || call.num_inputs() == static_cast<int>(inputs.size()) + 1);
}

// "y = Cast(x, to=int32)"
std::string CallText(const OperatorCall& call, std::vector<std::string> inputs,
                     const std::vector<std::string>& outputs) {
  for (const auto& [name, value] : call.arguments()) inputs.push_back(StrCat(name, "=", value.Description()));
  return StrCat(Join(outputs, ", "), " = ", call.type(), "(", Join(inputs, ", "), ")");
}

}  // namespace

std::vector<std::string> CallFormula(const OperatorCall& call, const std::vector<std::string>& inputs,
                                     const std::vector<std::string>& outputs) {
  const std::string formula = FormulaText(call.schema());
  if (!SaysItForAll(call, formula)) return {CallText(call, inputs, outputs)};
  const Names names(call, inputs, outputs);
  std::vector<std::string> equations;
  std::istringstream parts(formula);
  for (std::string part; std::getline(parts, part, ';');) {
    const std::string text =
        Renamed(part.substr(part.find_first_not_of(' ')), [&](const auto& word) { return names.Of(word); });
    if (!text.starts_with("_ = ")) equations.push_back(text);
  }
  return equations;
}

}  // namespace stepnet
