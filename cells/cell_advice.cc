#include "stepnet/cells/cell_advice.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <map>

#include "stepnet/core/floating.h"
#include "stepnet/core/name_characters.h"
#include "stepnet/core/strings.h"
#include "stepnet/nets/op_arguments.h"

namespace stepnet {
namespace {

std::string Lower(const std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

// The first word of a line.
std::string FirstWordOf(std::string_view line) {
  const auto is_letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; };
  const auto* const begin = std::ranges::find_if_not(line, [](char c) { return c == ' ' || c == '\t'; });
  return {begin, std::find_if_not(begin, line.end(), is_letter)};
}

// What a colon is for elsewhere.
const char* AdviceOnColon(const SignPlace& place) {
  if (place.behind.starts_with('=')) return "; a value is given by =, as in h = x";
  if (place.is_in_index) return "; parts of a value are Slice(x, starts=[…], ends=[…])";
  if (place.is_in_header) return "; the lines of a cell stand in braces: cell NAME(inputs; states) { … }";
  return "; types of values are not written";
}

// Operators by names that they have elsewhere, in lower case and without underscores.
const std::map<std::string, const char*>& OtherNames() {
  static const std::map<std::string, const char*> names = {{"bmm", "BatchMatMul"},
                                                           {"cat", "Concat"},
                                                           {"chunk", "Split"},
                                                           {"clamp", "Clip"},
                                                           {"concatenate", "Concat"},
                                                           {"detach", "StopGradient"},
                                                           {"divide", "Div"},
                                                           {"dot", "BatchMatMul"},
                                                           {"linear", "FC"},
                                                           {"logicaland", "And"},
                                                           {"logicalnot", "Not"},
                                                           {"logicalor", "Or"},
                                                           {"matmul", "FC"},
                                                           {"mean", "ReduceMean"},
                                                           {"mm", "FC"},
                                                           {"multiply", "Mul"},
                                                           {"narrow", "Slice"},
                                                           {"neg", "Negative"},
                                                           {"oneslike", "ConstantFill"},
                                                           {"permute", "Transpose"},
                                                           {"repeat", "Tile"},
                                                           {"sigma", "Sigmoid"},
                                                           {"square", "Sqr"},
                                                           {"subtract", "Sub"},
                                                           {"sum", "ReduceSum"},
                                                           {"t", "Transpose"},
                                                           {"unsqueeze", "ExpandDims"},
                                                           {"view", "Reshape"},
                                                           {"zeroslike", "ConstantFill"}};
  return names;
}

// The greatest, and the least, of the elements of a row, and of two values.
constexpr char kGreatest[] = "ReduceMax(x, axes=[-1]) gives the greatest along the last dimension";
constexpr char kLeast[] = "ReduceMin(x, axes=[-1]) gives the least along the last dimension";
constexpr char kGreater[] =
    "Max(a, b) compares values, and ReduceMax(x, axes=[-1]) gives the greatest along the last dimension";
constexpr char kLess[] =
    "Min(a, b) compares values, and ReduceMin(x, axes=[-1]) gives the least along the last dimension";

// What to write for operators that there are not, by names as above.
const std::map<std::string, const char*>& Recipes() {
  static const std::map<std::string, const char*> recipes = {
      {"amax", kGreatest},
      {"amin", kLeast},
      {"max", kGreater},
      {"min", kLess},
      {"batchnorm", "it would mix the items of a batch; LayerNorm(x, axis=-1) normalises each by itself"},
      {"embedding",
       "with words as an input word[] and a parameter emb[V, D] it is Gather(emb, Cast(word, to=\"int32\"))"},
      {"groupnorm",
       "of G groups of x, [1, B, H], it is Reshape(LayerNorm(Reshape(x, shape=[1, -1, G, H/G]), axis=-1), shape=[1, "
       "-1, H])"},
      {"einsum", "products are x @ w with a parameter w[N, D], and BatchMatMul(a, b) of the matrices of each item"},
      {"logsigmoid", "it is -Softplus(-x)"},
      {"norm", "ReduceL2(x, axes=[-1]) gives the norm along the last dimension"},
      {"rmsnorm", "it is x * Rsqrt(ReduceMean(Sqr(x), axes=[-1], keepdims=1) + 1e-6)"},
      {"sqrt", "the root of a blob is Sqrt(x), and that of a number, as of a size, sqrt(…)"},
      {"sign", "it is Cast(GT(x, 0), to=\"float\") - Cast(LT(x, 0), to=\"float\")"},
      {"cumsum", "a sum over the steps is a state, s = s + x"}};
  return recipes;
}

// A name in lower case and without underscores, as the lists above have it.
std::string WithoutStyle(std::string_view name) {
  std::string result = Lower(name);
  std::erase(result, '_');
  return result;
}

// The operator that people mean by such a name; "" for none.
std::string TypeMeant(const std::string& name) {
  const std::vector<std::string> types = OperatorTypes();
  const auto same = std::ranges::find(types, name, Lower);
  const auto other = OtherNames().find(name);
  const std::string meant = other != OtherNames().end() ? other->second : same != types.end() ? *same : "";
  return std::ranges::binary_search(types, meant) ? meant : "";
}

// Whether names of functions begin so elsewhere; names of other operators begin with that of their library.
bool IsModule(const std::string& name) {
  constexpr std::array kModules = {"torch", "F", "nn", "np", "numpy", "jnp", "jax", "tf", "keras", "math"};
  return std::ranges::find(kModules, name) != kModules.end();
}

// The operator before k that writes the blob; -1 for none.
int WriterBefore(const CellDef& cell, int k, const std::string& blob) {
  int made = k - 1;
  while (made >= 0 && std::ranges::find(cell.op(made).output(), blob) == cell.op(made).output().end()) --made;
  return made;
}

// What operator k reads, as people wrote it: a part of an expression, `h.2`, has no name in the short form.
std::string TextOf(const CellDef& cell, int k, const std::string& input) {
  static const std::set<std::string> signs = {"Add", "ConstantFill", "Div", "FC", "Mul", "Negative", "Scale", "Sub"};
  const size_t dot = input.rfind('.');
  const bool is_part = dot != std::string::npos && dot + 1 < input.size() &&
                       std::all_of(input.begin() + static_cast<std::ptrdiff_t>(dot) + 1, input.end(), IsDigit);
  const int made = is_part ? WriterBefore(cell, k, input) : -1;
  if (made < 0) return input;
  return signs.contains(cell.op(made).type()) ? "…" : StrCat(cell.op(made).type(), "(…)");
}

// Whether the operator gives as much for any batch and cannot be told of dimensions.
bool GivesOneForAll(const OperatorDef& op) {
  const OperatorSchema& schema = GetOperator(op.type());
  if (!schema.shapes || schema.FindArgument("axis") != nullptr || schema.FindArgument("axes") != nullptr) return false;
  OperatorDef plain = op;
  plain.clear_arg();
  const auto given = [&](std::int64_t batch) {
    const OperatorCall call(plain);
    const std::vector<TensorInfo> inputs(op.input_size(), {.dtype = DType::kFloat, .shape = {1, batch, 2}});
    return call.schema().shapes(ShapeQuery(call, inputs)).front();
  };
  try {
    const TensorInfo first = given(/*batch=*/3), second = given(/*batch=*/4);
    return first.dtype == DType::kFloat && first.shape == second.shape;
  } catch (const Error&) {
    return false;  // it needs other inputs, or is told more
  } catch (const ValueUnknown&) {
    return false;
  }
}

// What to say to an operator that makes one number of all items of the batch: "" for others.
std::string AdviceOnTotal(const OperatorDef& op) {
  static const std::map<std::string, const char*> of_items = {
      {"AveragedLoss", "ReduceMean(x, axes=[-1])"},
      {"L1Distance", "ReduceSum(Abs(x - y), axes=[-1])"},
      {"SquaredL2Distance", "ReduceSum(Sqr(x - y), axes=[-1]) / 2"},
      {"SumElements", "ReduceSum(x, axes=[-1])"},
      {"SumSqrElements", "ReduceSum(Sqr(x), axes=[-1])"}};
  if (!GivesOneForAll(op)) return "";
  const auto found = of_items.find(op.type());
  return StrCat(op.type(), " gives one number for all of the batch",
                found == of_items.end() ? "" : StrCat("; one for each item is ", found->second));
}

}  // namespace

std::string AdviceOnWord(const std::string& word) {
  static const std::map<std::string, const char*> words = {
      {"if", "there is no if: both values are computed, and Where(condition, a, b) selects"},
      {"elif", "there is no if: both values are computed, and Where(condition, a, b) selects"},
      {"else", "there is no if: both values are computed, and Where(condition, a, b) selects"},
      {"for", "there are no loops: a cell is one step, which runs for each of a sequence"},
      {"while", "there are no loops: a cell is one step, which runs for each of a sequence"},
      {"return", "nothing is returned; blobs that shall be seen outside are listed: output h"},
      {"def", "a cell calls operators alone, and begins with: cell NAME(inputs; states) {"},
      {"class", "a cell begins with: cell NAME(inputs; states) {"},
      {"import", "operators are there without it, and a cell begins with: cell NAME(inputs; states) {"},
      {"from", "operators are there without it, and a cell begins with: cell NAME(inputs; states) {"},
      {"let", "a value needs no word before its name: h = …"},
      {"var", "a value needs no word before its name: h = …"},
      {"const", "a value needs no word before its name: h = …"}};
  const auto found = words.find(word);
  return found == words.end() ? "" : StrCat("; ", found->second);
}

std::string AdviceOnSign(char sign, const SignPlace& place) {
  if (std::string advice = AdviceOnWord(FirstWordOf(place.line)); !advice.empty()) return advice;
  switch (sign) {
    case '^': return "; powers are Sqr(x) and Pow(x, exponent=3)";
    case '<':
    case '>': return "; LT(a, b), LE, GT, GE and EQ compare";
    case '?': return "; Where(condition, a, b) chooses";
    case '!':
    case '~': return "; Not(x) is true where x is false";
    case '&': return "; And(a, b) is true where both are";
    case '|': return "; Or(a, b) is true where one is";
    case ':': return AdviceOnColon(place);
    case '.': {
      const auto* const end = std::ranges::find_if_not(place.behind, IsWordPart);
      return AdviceOnMethod({place.behind.begin(), end}, "…");
    }
    case '%': return "; Mod(x, divisor=2) is the rest of a division";
    default: return "";
  }
}

std::string AdviceOnType(const std::string& type) {
  const size_t dot = type.rfind('.');
  const bool is_of_module = dot != std::string::npos;
  if (is_of_module && !IsModule(type.substr(0, type.find('.')))) return "";
  const std::string name = WithoutStyle(std::string_view(type).substr(is_of_module ? dot + 1 : 0));
  if (const auto recipe = Recipes().find(name); recipe != Recipes().end()) return StrCat("; ", recipe->second);
  const std::string meant = TypeMeant(name);
  if (meant.empty()) return "";
  if (meant == "FC") return "; did you mean `x @ w`, with a parameter w[N, D]?";
  return StrCat("; did you mean \"", meant, "\"?");
}

std::string AdviceOnMethod(std::string_view method, const std::string& value) {
  const std::string name = WithoutStyle(method);
  if (const auto recipe = Recipes().find(name); recipe != Recipes().end()) return StrCat("; ", recipe->second);
  const std::string meant = TypeMeant(name);
  if (meant == "FC") return StrCat("; products are written ", value, " @ w, with a parameter w[N, D]");
  const OperatorSchema* const schema = FindOperator(meant);
  const bool has_axis = schema != nullptr && schema->FindArgument("axis") != nullptr;
  return StrCat("; operators stand before what they are given, as in ", meant.empty() ? "Tanh" : meant, "(", value,
                meant.starts_with("Reduce") ? ", axes=[-1]"
                : has_axis                  ? ", axis=-1"
                                            : "",
                ")");
}

std::string AdviceOnBatch(const std::string& name) {
  if (name != "B" && name != "T") return "";
  return StrCat("; ", name, " stands for the ", name == "B" ? "batch" : "steps",
                " in shapes, and is no number that a step knows");
}

std::string AdviceOnBatch(const OperatorDef& op, const std::string& argument) {
  if (op.type() == "Reshape") return "; the batch is -1 in Reshape, as in shape=[1, -1, 4]";
  if (op.type() == "Slice") return "; all of a dimension is from 0 to -1";
  const ArgumentSpec* const shape = GetOperator(op.type()).FindArgument("shape");
  if (argument == "shape" && shape != nullptr) {
    return StrCat("; ", op.type(), "(x, …) makes a tensor in the shape of x");
  }
  return "; write what does not depend on it";
}

std::set<std::string> BlobsOfTheStep(const CellDef& cell) {
  std::set<std::string> of_step = {"timestep"};
  for (const CellInput& input : cell.input()) of_step.insert(input.name());
  for (const CellState& state : cell.state()) of_step.insert(PreviousOf(state));
  for (const OperatorDef& op : cell.op()) {
    const auto is_of_step = [&](const std::string& input) { return of_step.contains(input); };
    if (std::ranges::any_of(op.input(), is_of_step)) of_step.insert(op.output().begin(), op.output().end());
  }
  return of_step;
}

std::string AdviceOnTwoValues(const CellSource& source, int k, const std::set<std::string>& of_the_step) {
  const OperatorDef& op = source.def.op(k);
  if (!IsShortCell(source.text) || op.type() != "FC" || op.input_size() < 2) return "";
  if (!of_the_step.contains(op.input(1))) return "";
  return "`@` multiplies by parameters w[N, D]; two values of the step are multiplied by BatchMatMul(a, b), as "
         "matrices [1, B, M, K] and [1, B, K, N], or by a * b, element by element";
}

std::string AdviceOnProduct(const CellSource& source, int k) {
  const OperatorDef& op = source.def.op(k);
  if (!IsShortCell(source.text) || op.type() != "FC" || op.input_size() < 2) return "";
  if (const std::string advice = AdviceOnTwoValues(source, k, BlobsOfTheStep(source.def)); !advice.empty()) {
    return "\n  " + advice;
  }
  return "\n  `x @ w` takes parameters w[N, D], where D is the last size of x, and `x @ w + b` also b[N]";
}

std::string AdviceOnAxis(const OperatorDef& op) {
  const OperatorSchema& schema = GetOperator(op.type());
  if (schema.FindArgument("axes") != nullptr && op.type().starts_with("Reduce") &&
      FindArgument(op, "axes") == nullptr) {
    return StrCat(op.type(),
                  " is over all dimensions where no axes are given, and the batch is one of them; over the last ",
                  "one it is axes=[-1]");
  }
  if (const std::string advice = AdviceOnTotal(op); !advice.empty()) return advice;
  const ArgumentSpec* axis = schema.FindArgument("axis");
  if (axis == nullptr || axis->default_value.i != 1 || FindArgument(op, "axis") != nullptr) return "";
  if (FindArgument(op, "order") != nullptr) return "";
  return StrCat(op.type(), " has axis=1 where it is not given, and that is the batch; the last dimension is axis=-1");
}

std::string AdviceOnOneInput(const OperatorDef& op) {
  static const std::map<std::string, std::string> meant = {
      {"Concat", ""},
      {"Max", StrCat("; ", kGreatest)},
      {"Min", StrCat("; ", kLeast)},
      {"Sum", "; ReduceSum(x, axes=[-1]) sums over the last dimension"}};
  const auto found = meant.find(op.type());
  if (found == meant.end() || op.input_size() != 1) return "";
  return StrCat(op.type(), " of one input is that input", found->second);
}

std::string AdviceOnWindow(const CellState& state) {
  const std::string& name = state.name();
  return StrCat("make a state of each row, as ", name, "_2 = ", name, "_1_prev; ", name,
                "_1 = …, and read the rows as Concat(", name, "_2_prev, ", name, "_1_prev, axis=0)");
}

std::string AdviceOnTypes(const CellDef& cell, int k, const std::vector<std::optional<DType>>& dtypes,
                          bool works_on_floats) {
  const auto is_float = [](std::optional<DType> dtype) { return dtype && IsFloatOrDouble(*dtype); };
  static const std::set<std::string> of_truths = {"And", "Or", "Xor"};
  const bool wants_floats = works_on_floats || cell.op(k).input_size() == 1 || std::ranges::any_of(dtypes, is_float);
  const bool is_beside_floats = wants_floats && !of_truths.contains(cell.op(k).type());
  std::string advice;
  for (int i = 0; i < cell.op(k).input_size(); ++i) {
    const std::string& input = cell.op(k).input(i);
    const int made = WriterBefore(cell, k, input);
    const OperatorDef op = made < 0 ? OperatorDef() : cell.op(made);
    const Argument* const value = FindArgument(op, "value");
    const Argument* const to = FindArgument(op, "to");
    const Argument* const dtype = FindArgument(op, "dtype");
    const bool is_other = is_beside_floats && dtypes[i] && !is_float(dtypes[i]);
    if (op.type() == "ConstantFill" && value != nullptr && value->has_i() && FindArgument(op, "dtype") == nullptr) {
      advice += StrCat("\n  ConstantFill makes int64 of value=", value->i(), " and floats of value=", value->i(), ".0");
    } else if (op.type() == "Cast" && to != nullptr && (Lower(to->s()) == "double" || to->i() == TensorProto::DOUBLE)) {
      advice += "\n  Cast(…, to=\"float\") gives what the cell computes in, which is double where it is one of float64";
    } else if (op.type() == "ConstantFill" && dtype != nullptr && dtype->i() == TensorProto::DOUBLE) {
      advice +=
          "\n  ConstantFill(…, dtype=1) gives what the cell computes in, which is double where it is one of float64";
    } else if (is_other) {
      advice += StrCat("\n  Cast(", TextOf(cell, k, input), ", to=\"float\") makes floats of ", *dtypes[i]);
    }
  }
  return advice;
}

std::string AdviceOnOuterProduct(const CellDef& cell, int k, const ShapeOfBlob& shape_of) {
  const OperatorDef& op = cell.op(k);
  // Whether the outer product of a, [1, B, V], and b, [1, B, K], is [1, B, V, K].
  const auto is_outer = [&](const std::string& a, const std::string& b, const Shape& wanted) {
    const std::optional<Shape> left = shape_of(a), right = shape_of(b);
    if (!left || !right || left->rank() != 3 || right->rank() != 3 || wanted.rank() != 4) return false;
    return std::ranges::equal(left->dims(), wanted.dims().first(3)) && (*right)[1] == wanted[1] &&
           (*right)[2] == wanted[3];
  };
  const auto advice = [&](int product, const Shape& wanted) -> std::string {
    const std::string &a = cell.op(product).input(0), &b = cell.op(product).input(1);
    const bool is_column = is_outer(a, b, wanted);  // a; otherwise b is
    if (!is_column && !is_outer(b, a, wanted)) return "";
    return StrCat("\n  a * b is element by element; the outer product of each item is ExpandDims(",
                  TextOf(cell, product, a), ", dims=[", is_column ? 3 : 2, "]) * ExpandDims(", TextOf(cell, product, b),
                  ", dims=[", is_column ? 2 : 3, "])");
  };
  if (op.input_size() != 2) return "";
  if (op.type() == "Mul") {
    for (const CellState& state : cell.state()) {
      const std::optional<Shape> wanted = shape_of(PreviousOf(state));
      const std::string text = wanted ? advice(k, *wanted) : "";
      if (!text.empty()) return text;
    }
  }
  for (const int i : {0, 1}) {
    const int product = WriterBefore(cell, k, op.input(i));
    const std::optional<Shape> wanted = shape_of(op.input(1 - i));
    if (product < 0 || cell.op(product).type() != "Mul" || !wanted) continue;
    if (const std::string text = advice(product, *wanted); !text.empty()) return text;
  }
  return "";
}

std::string AdviceOnFill(const OperatorDef& fill, const CellParameter& parameter) {
  const Argument* const value = FindArgument(fill, "value");
  if (fill.type() != "ConstantFill" || value == nullptr) return "; " + FillsText();
  const std::string number = value->has_i() ? StrCat(value->i()) : ShortestText(value->f());
  return StrCat("; write param ", parameter.name(), "[", Join(parameter.shape(), ", "), "] = ", number,
                value->has_i() && FindArgument(fill, "dtype") == nullptr
                    ? StrCat(", or value=", number, ".0: ConstantFill makes int64 of whole numbers")
                    : "");
}

std::string FillsText() {
  return "a parameter starts as a number or as UniformFill(min=…, max=…), GaussianFill(mean=…, std=…), XavierFill(), "
         "MSRAFill() or GivenTensorFill(values=[…])";
}

std::string WithNames(const OperatorSchema& schema, bool has_inputs, const std::vector<double>& numbers) {
  if (schema.type == "Split") return "a, b = Split(…, axis=-1), which makes a part for each name";
  std::vector<std::string> items;
  size_t named = 0;
  if (has_inputs) items.emplace_back("…");
  for (const ArgumentSpec& spec : schema.arguments) {
    if (named == numbers.size()) break;
    const double number = numbers[named];
    const bool is_real = spec.type == ArgumentType::kFloat || spec.type == ArgumentType::kNumber;
    // A fill's integers are none of what it fills with, but its dtype.
    const bool takes_it = has_inputs ? is_real || (spec.type == ArgumentType::kInt && number == std::floor(number))
                                     : is_real || spec.type == ArgumentType::kAny;
    if (!takes_it) continue;
    items.push_back(StrCat(spec.name, "=", ShortestText(number)));
    ++named;
  }
  return named == 0 ? "" : StrCat(schema.type, "(", Join(items, ", "), ")");
}

}  // namespace stepnet
