// A formula is asked for the shapes that the node has, and regions are composed as for a run: what is printed is what
// runs, whichever inputs an operator has.
#include "stepnet/report/node_formulas.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <unordered_map>
#include <utility>

#include "stepnet/core/expressions/expr_scalar.h"
#include "stepnet/core/expressions/expr_text.h"
#include "stepnet/core/formulas/formula_cache.h"
#include "stepnet/core/regions/region_composition.h"
#include "stepnet/core/stored_float.h"
#include "stepnet/core/strings.h"
#include "stepnet/report/text.h"

namespace stepnet {
namespace {

// Names of inputs and of what is computed on the way, while expressions are text.
std::string InputWord(int number) { return StrCat("v", number, "_"); }
bool IsTemporary(const std::string& word) {
  return word.size() > 1 && word[0] == 't' && word.find_first_not_of("0123456789", 1) == std::string::npos;
}

bool IsOfWord(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// The words of a text that are neither numbers nor functions, renamed; all else, and what is quoted, stays.
template <typename NameOf>
std::string Renamed(const std::string& text, const NameOf& name_of) {
  std::string result;
  bool is_quoted = false;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && IsOfWord(text[end])) ++end;
    const bool is_word = end > at && std::isdigit(static_cast<unsigned char>(text[at])) == 0;
    const bool is_function = end < text.size() && text[end] == '(';
    if (end == at) is_quoted ^= text[end++] == '"' && (at == 0 || text[at - 1] != '\\');
    const std::string part = text.substr(at, end - at);
    result += is_word && !is_function && !is_quoted ? name_of(part) : part;
    at = end;
  }
  return result;
}

bool IsZero(const Expr& expr) {
  return expr.IsConstant() && expr.dtype() != DType::kBool &&
         DoubleOf({.dtype = expr.dtype(), .bits = expr->bits}) == 0;
}

// Expressions for people: inputs have words for names, and nothing is added to where it is 0.
std::vector<Expr> ForPeople(std::span<const Expr> roots) {
  std::unordered_map<const ExprNode*, Expr> made;
  for (const ExprNode* node : ExprNodes(roots)) {
    Expr& to = made[node];
    std::vector<Expr> operands;
    for (const ExprNode* operand : node->Operands()) operands.push_back(made.at(operand));
    if (node->op == ExprOp::kInput) {
      to = Expr::Input(node->number, InputWord(node->number), node->dtype);
    } else if (operands.empty()) {
      to = Expr::Of(node);
    } else if (node->op == ExprOp::kAdd && (IsZero(operands[0]) || IsZero(operands[1]))) {
      to = operands[IsZero(operands[0]) ? 1 : 0];
    } else {
      to = MakeExpr(node->op, operands, {.dtype = node->dtype, .number = node->number, .text = node->text});
    }
  }
  std::vector<Expr> result;
  for (const Expr& root : roots) result.push_back(made.at(root.node()));
  return result;
}

// Which elements of each row of a tensor a region goes through, all rows in their order; nothing where it goes through
// them otherwise. Dimensions that it repeats say nothing.
struct Columns {
  std::int64_t first = 0, count = 0;
};
std::optional<Columns> ColumnsOf(const RegionOperand& operand, const RegionIndex& sizes, const Shape& shape) {
  const std::int64_t width = shape.rank() == 0 ? 1 : shape[-1];
  if (operand.size == 0) return Columns{.first = 0, .count = width};
  std::int64_t next = 1, count = 0;  // where the next element would lie; those of a row, once rows have been met
  for (int d = kRegionDims - 1; d >= 0; --d) {
    const std::int64_t stride = operand.strides[d];
    if (sizes[d] == 1 || stride == 0) continue;
    if (stride != next) {
      if (count > 0 || next > width || stride != width) return {};
      count = next;
    }
    next = stride * sizes[d];
  }
  const bool is_one_row = operand.size == width;
  if (count == 0 && (next == operand.size || (is_one_row && next <= width))) {
    count = std::min(next, width);
  } else if (next != operand.size) {
    return {};
  }
  if (operand.offset + count > width) return {};
  return Columns{.first = operand.offset, .count = count};
}

class Printer {
 public:
  Printer(const StepGraph& graph, const StepNode& node) : graph_(graph), node_(node) {}

  std::vector<std::string> Run() const {
    switch (node_.kind) {
      case StepNode::Kind::kPack: return {};
      case StepNode::Kind::kProduct: return Products();
      case StepNode::Kind::kMove: return {MoveText()};
      default: break;
    }
    if (node_.IsOneOperator()) {
      if (std::vector<std::string> products = ProductsOfParts(); !products.empty()) return products;
    }
    std::vector<Call> calls;
    if (node_.IsOneOperator()) calls.push_back({node_.call.get(), node_.inputs, node_.outputs});
    for (const RegionCall& call : node_.calls()) {
      calls.push_back({call.call.get(), ValuesOf(call.inputs), ValuesOf(call.outputs)});
    }
    std::vector<std::string> all;
    std::vector<int> ends = node_.body ? node_.body->begins : std::vector<int>();
    ends.push_back(static_cast<int>(calls.size()));
    for (int begin = 0; const int end : ends) {
      AddRegion(std::span(calls).subspan(begin, end - begin), &all);
      begin = end;
    }
    return all;
  }

 private:
  struct Call {
    const OperatorCall* call;
    std::vector<int> inputs, outputs;  // values
  };

  void AddRegion(std::span<const Call> calls, std::vector<std::string>* all) const {
    if (const auto equations = AsOne(calls)) {
      std::ranges::copy(*equations, std::back_inserter(*all));
      return;
    }
    for (const Call& call : calls) {
      const auto equations = AsOne({&call, 1});
      std::ranges::copy(equations ? *equations : std::vector{CallText(call)}, std::back_inserter(*all));
    }
  }

  std::vector<int> ValuesOf(const std::vector<int>& operands) const {
    std::vector<int> values;
    for (const int operand : operands) values.push_back(operand == kNoValue ? kNoValue : node_.ValueOf(operand));
    return values;
  }

  std::string NameOf(int value) const { return ValueName(graph_, value); }
  const char* Gives(int value) const { return value != kNoValue && graph_.values[value].added ? " += " : " = "; }

  // Two values may have one name, as rows around the loop have: the one outside is what the other one is kept as.
  std::string MoveText() const {
    const int from = node_.inputs[0], to = node_.outputs[0];
    const std::string as = NameOf(from) == NameOf(to) ? (graph_.values[to].outside ? " outside" : " of the step") : "";
    return StrCat(NameOf(to), as, Gives(to), NameOf(from));
  }

  std::vector<std::string> Products() const {
    std::vector<std::string> formulas;
    const auto factor = [&](const ProductFactor& of) {
      return StrCat(NameOf(node_.inputs[of.input]), of.transposed ? "^T" : "");
    };
    for (size_t o = 0; o < node_.products.size(); ++o) {
      if (!node_.products[o] || node_.outputs[o] == kNoValue) continue;
      const Product& product = *node_.products[o];
      std::string text = product.right ? StrCat(factor(product.left), " @ ", factor(*product.right))
                                       : StrCat("sum over the rows of ", factor(product.left));
      if (product.bias >= 0) text += StrCat(" + ", NameOf(node_.inputs[product.bias]));
      formulas.push_back(StrCat(NameOf(node_.outputs[o]), Gives(node_.outputs[o]), text));
    }
    return formulas;
  }

  // Several products that are computed as one have no Product. Empty for other operators.
  std::vector<std::string> ProductsOfParts() const {
    const std::string& type = node_.call->type();
    const std::span<const int> inputs(node_.inputs), outputs(node_.outputs);
    if (type == "FCGradientOfParts") return GradientsOfParts(inputs, outputs);
    const bool has_bias = type == "FCOfPartsWithBias";
    if (!has_bias && type != "FCOfParts") return {};
    const std::string bias = has_bias ? StrCat(" + ", NameOf(inputs[1])) : "";
    return {StrCat(NameOf(outputs[0]), Gives(outputs[0]), NameOf(inputs[0]), " @ ",
                   OneBelowTheOther(inputs.subspan(has_bias ? 2 : 1)), "^T", bias)};
  }

  // Those of weights, of biases and of what all of them multiply, as far as they are wanted.
  std::vector<std::string> GradientsOfParts(std::span<const int> inputs, std::span<const int> outputs) const {
    const std::string x = NameOf(inputs[0]), dy = NameOf(inputs[1]);
    const size_t count = node_.call->Ints("parts").size();
    std::vector<std::string> formulas;
    const auto add = [&](std::span<const int> values, const std::string& text) {
      if (values.empty() || std::ranges::count(values, kNoValue) > 0) return;
      formulas.push_back(StrCat(OneBelowTheOther(values), Gives(values[0]), text));
    };
    add(outputs.first(count), StrCat(dy, "^T @ ", x));
    if (!node_.call->Bool("no_bias")) add(outputs.subspan(count, count), StrCat("sum over the rows of ", dy));
    if (inputs.size() > 2) add(outputs.last(1), StrCat(dy, " @ ", OneBelowTheOther(inputs.subspan(2))));
    return formulas;
  }

  // "[a; b]", as matrices that lie below each other are written.
  std::string OneBelowTheOther(std::span<const int> values) const {
    std::vector<std::string> names;
    for (const int value : values) names.push_back(NameOf(value));
    return values.size() == 1 ? names[0] : StrCat("[", Join(names, "; "), "]");
  }

  // "y = Cast(x, to=int32)"
  std::string CallText(const Call& call) const {
    std::vector<std::string> outputs, operands;
    for (const int value : call.outputs) outputs.push_back(NameOf(value));
    for (const int value : call.inputs) operands.push_back(NameOf(value));
    for (const auto& [name, value] : call.call->arguments()) operands.push_back(StrCat(name, "=", value.Description()));
    const bool adds = std::ranges::any_of(call.outputs, [&](int v) { return v != kNoValue && graph_.values[v].added; });
    return StrCat(Join(outputs, ", "), adds ? " += " : " = ", call.call->type(), "(", Join(operands, ", "), ")");
  }

  // The equations of operators that are one region, of values that are tensors of it; nothing where they are not, or
  // where one of them alone has no formula, so that its name says more than what is copied where.
  std::optional<std::vector<std::string>> AsOne(std::span<const Call> calls) const {
    if (node_.by_blobs || (calls.size() == 1 && !calls[0].call->schema().formula)) return {};
    try {
      const std::vector<RegionPart> parts = PartsOf(calls);
      if (parts.empty()) return {};
      std::vector<int> wanted;
      for (const Call& call : calls) {
        for (const int value : call.outputs) {
          if (value != kNoValue && !IsLocal(value)) wanted.push_back(value);
        }
      }
      if (calls.size() == 1 && wanted.empty()) wanted = Given(calls[0]);
      if (wanted.empty()) return {};
      // The region says what values in no memory are where they have as many elements as what it gives.
      std::vector<int> named = wanted;
      for (const int value : node_.locals()) {
        const bool is_given = std::ranges::any_of(calls, [&](const Call& c) { return IsGiven(c, value); });
        if (calls.size() > 1 && is_given && SizeOf(value) == SizeOf(wanted[0])) named.push_back(value);
      }
      for (const std::vector<int>& of : {named, wanted}) {
        const auto composed = ComposeRegions(parts, {.wanted = of});
        if (const auto* region = std::get_if<ComposedRegion>(&composed)) {
          if (auto equations = Equations(*region, wanted)) return equations;
        }
      }
    } catch (const Error&) {
    } catch (const ValueUnknown&) {  // before a run
    }
    return {};
  }

  bool IsLocal(int value) const { return graph_.homes[graph_.values[value].home].kind == Home::Kind::kLocal; }
  static bool IsGiven(const Call& call, int value) { return std::ranges::count(call.outputs, value) > 0; }
  std::int64_t SizeOf(int value) const { return graph_.values[value].info.shape.size(); }
  static std::vector<int> Given(const Call& call) {
    std::vector<int> values;
    std::ranges::copy_if(call.outputs, std::back_inserter(values), [](int value) { return value != kNoValue; });
    return values;
  }

  // Tensors are values; what is left out, and what is read of the run, have numbers behind them. Empty where an
  // operator is no region.
  std::vector<RegionPart> PartsOf(std::span<const Call> calls) const {
    std::vector<RegionPart> all;
    auto unnamed = static_cast<int>(graph_.values.size()) + kNumRunValues;
    for (const Call& call : calls) {
      const std::vector<TensorInfo> infos = graph_.InfosOf(call.inputs);
      const auto made = FindParts(ShapeQuery(*call.call, infos));
      if (made->parts.empty()) return {};
      std::vector<int> tensors = call.inputs;
      for (const int value : call.outputs) tensors.push_back(value == kNoValue ? unnamed++ : value);
      for (RegionPart part : made->parts) {
        for (std::vector<int>* of : {&part.inputs, &part.outputs}) {
          for (int& tensor : *of) tensor = IsRunValue(tensor) ? FirstRunValue() + tensor - kStepOfRun : tensors[tensor];
        }
        all.push_back(std::move(part));
      }
    }
    return all;
  }
  int FirstRunValue() const { return static_cast<int>(graph_.values.size()); }

  // "gates[1]"; nothing where it is read or written otherwise than row by row.
  std::optional<std::string> OperandName(int tensor, const RegionOperand& operand, const Region& region,
                                         const std::set<std::string>& ambiguous) const {
    static constexpr const char* kRunValues[] = {"step", "number of the run", "operator", "seed"};
    if (tensor >= FirstRunValue()) return kRunValues[tensor - FirstRunValue()];
    std::string name = NameOf(tensor);
    if (ambiguous.contains(name)) {
      name = graph_.values[tensor].outside ? name + " outside" : NameText(graph_.NameOf(tensor));
    }
    const Shape& shape = graph_.values[tensor].info.shape;
    const std::int64_t width = shape.rank() == 0 ? 1 : shape[-1];
    const std::optional<Columns> columns = ColumnsOf(operand, region.sizes, shape);
    if (!columns) return {};
    const auto [first, count] = *columns;
    if (count == width) return name;
    if (count > 1 && first % count == 0 && width % count == 0) return StrCat(name, "[", first / count, "]");
    return StrCat(name, "[", first, ":", first + count, "]");
  }

  // Names that two of the tensors have: as a blob that is overwritten.
  std::set<std::string> Ambiguous(const ComposedRegion& composed) const {
    std::map<std::string, std::set<int>> by_name;
    for (const std::vector<int>* tensors : {&composed.inputs, &composed.outputs}) {
      for (const int tensor : *tensors) {
        if (tensor >= FirstRunValue()) continue;
        const StepValue& value = graph_.values[tensor];
        // One row outside is one thing, before something is added to it and afterwards.
        by_name[NameOf(tensor)].insert(value.outside ? -1 - value.home : tensor);
      }
    }
    std::set<std::string> names;
    for (const auto& [name, tensors] : by_name) {
      if (tensors.size() > 1) names.insert(name);
    }
    return names;
  }

  struct Output {
    std::string name;
    const RegionOutput* output;
    const char* gives;
    // Others may use what it is by its name.
    bool is_name() const { return output->kind != RegionOutputKind::kSums && gives == std::string(" = "); }
  };

  // Values that have an equation of their own, beside those that are wanted: of those in no memory, what is used
  // several times and what is computed in many steps, unless it is what has the name of one that is wanted.
  std::vector<bool> Chosen(std::span<const Expr> roots, const ComposedRegion& composed,
                           const std::vector<bool>& is_wanted) const {
    constexpr int kManySteps = 4;
    std::set<const ExprNode*> said;
    for (size_t r = 0; r < roots.size(); ++r) {
      const Output output{.output = &composed.region.outputs[r], .gives = Gives(composed.outputs[r])};
      if (is_wanted[r] && output.is_name()) said.insert(roots[r].node());
    }
    std::set<const ExprNode*> named;
    std::vector<Expr> wanted;
    for (size_t r = 0; r < roots.size(); ++r) {
      named.insert(roots[r].node());
      if (is_wanted[r]) wanted.push_back(roots[r]);
    }
    std::unordered_map<const ExprNode*, int> uses, steps;
    const std::vector<const ExprNode*> nodes = ExprNodes(wanted);
    for (const ExprNode* node : nodes) {
      for (const ExprNode* operand : node->Operands()) ++uses[operand];
    }
    std::set<const ExprNode*> chosen;
    for (const ExprNode* node : nodes) {
      if (node->Operands().empty()) continue;
      int& of_node = steps[node];
      for (const ExprNode* operand : node->Operands()) of_node = std::max(of_node, steps[operand] + 1);
      const bool is_given = std::ranges::any_of(wanted, [&](const Expr& root) { return root.node() == node; });
      if (!named.contains(node) || (!is_given && uses[node] < 2 && of_node < kManySteps)) continue;
      chosen.insert(node);
      of_node = 0;
    }
    std::vector<bool> is_chosen = is_wanted;
    for (size_t r = 0; r < roots.size(); ++r) {
      if (!is_wanted[r]) is_chosen[r] = chosen.contains(roots[r].node()) && !said.contains(roots[r].node());
    }
    return is_chosen;
  }

  std::optional<std::vector<std::string>> Equations(const ComposedRegion& composed,
                                                    const std::vector<int>& wanted) const {
    const Region& region = composed.region;
    std::set<std::string> ambiguous;
    if (composed.outputs.size() > 1) ambiguous = Ambiguous(composed);
    std::map<std::string, std::string> names;  // of words
    for (size_t i = 0; i < region.inputs.size(); ++i) {
      const auto name = OperandName(composed.inputs[i], region.inputs[i], region, ambiguous);
      if (!name) return {};
      names[InputWord(static_cast<int>(i))] = *name;
    }
    std::vector<bool> is_wanted;
    for (const int tensor : composed.outputs) is_wanted.push_back(std::ranges::count(wanted, tensor) > 0);
    const std::vector<Expr> roots = ForPeople(region.Roots());
    const std::vector<bool> is_chosen = Chosen({roots.data(), is_wanted.size()}, composed, is_wanted);
    std::vector<Output> outputs;
    std::vector<Expr> printed;
    for (size_t o = 0; o < region.outputs.size(); ++o) {
      const int tensor = composed.outputs[o];
      const auto name = OperandName(tensor, region.outputs[o].memory, region, ambiguous);
      if (!name) return {};
      if (!is_chosen[o]) continue;
      outputs.push_back({*name, &region.outputs[o], Gives(tensor)});
      printed.push_back(roots[o]);
    }
    printed.insert(printed.end(), roots.begin() + static_cast<std::ptrdiff_t>(region.outputs.size()), roots.end());
    return Lines(PrintExprs(printed), printed, outputs, std::move(names));
  }

  // Takes the text of expressions apart, whose roots are outputs and then what is required.
  static std::vector<std::string> Lines(const std::string& text, std::span<const Expr> roots,
                                        std::span<const Output> outputs, std::map<std::string, std::string> names) {
    std::vector<std::string> given, roots_text;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("out ")) {
        roots_text.push_back(line.substr(4));
      } else if (!line.starts_with("in ")) {
        given.push_back(line);
      }
    }
    std::vector<bool> is_said(outputs.size(), false);
    for (size_t o = 0; o < outputs.size(); ++o) {
      if (roots[o].IsConstant()) roots_text[o] = ScalarText({.dtype = roots[o].dtype(), .bits = roots[o]->bits});
      if (!IsTemporary(roots_text[o]) || !outputs[o].is_name()) continue;
      is_said[o] = names.emplace(roots_text[o], outputs[o].name).second;
    }
    int num_temporaries = 0;
    const auto name_of = [&](const std::string& word) {
      if (const auto found = names.find(word); found != names.end()) return found->second;
      return IsTemporary(word) ? names.emplace(word, StrCat("$", num_temporaries++)).first->second : word;
    };
    std::vector<std::string> equations;
    for (const std::string& line : given) equations.push_back(Renamed(line, name_of));
    for (size_t o = 0; o < roots_text.size(); ++o) {
      const std::string value = Renamed(roots_text[o], name_of);
      if (o >= outputs.size()) {
        if (!IsTemporary(roots_text[o])) equations.push_back(value);
      } else if (!is_said[o]) {
        const bool is_sum = outputs[o].output->kind == RegionOutputKind::kSums;
        equations.push_back(
            StrCat(outputs[o].name, outputs[o].gives, is_sum ? StrCat("sum_over_rows(", value, ")") : value));
      }
    }
    return equations;
  }

  const StepGraph& graph_;
  const StepNode& node_;
};

}  // namespace

std::string ValueName(const StepGraph& graph, int value) {
  return value == kNoValue ? "_" : NameText(graph.values[value].blob);
}

std::vector<std::string> NodeFormulas(const StepGraph& graph, const StepNode& node) {
  return Printer(graph, node).Run();
}

}  // namespace stepnet
