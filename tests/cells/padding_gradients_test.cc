// Gradients where steps do not count and the cell has none that is finite at some value: they are those of the
// sequences by themselves, each without padding.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "stepnet/cells/cell_expand.h"
#include "stepnet/cells/finite_gradients.h"
#include "stepnet/core/formulas/formula.h"
#include "stepnet/core/operator.h"
#include "stepnet/core/strings.h"
#include "stepnet/nets/net_blobs.h"
#include "stepnet/tests/examples/cell_case.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

using Counts = std::vector<std::vector<bool>>;  // of each sequence, which steps count

Counts OfLengths(int num_steps, const std::vector<int>& lengths) {
  Counts counts;
  for (const int length : lengths) {
    counts.emplace_back(num_steps, false);
    std::fill_n(counts.back().begin(), length, true);
  }
  return counts;
}

CellSource Cell(const std::string& text, const std::string& options) {
  return ParseCell(StrCat(text, options, "}\n"), "c");
}

// What is given for each step or item, of one sequence, and of that the steps which count.
Tensor OfSequence(const Tensor& all, bool has_steps, int b, const std::vector<bool>& counts) {
  const std::int64_t batch = all.dim(1), size = all.shape().SizeFrom(2);
  std::vector<double> elements;
  for (std::int64_t t = 0; t < all.dim(0); ++t) {
    if (has_steps && !counts[t]) continue;
    const double* const row = all.data<double>() + (t * batch + b) * size;
    elements.insert(elements.end(), row, row + size);
  }
  const Shape shape = all.shape().With(0, static_cast<std::int64_t>(elements.size()) / size).With(1, 1);
  return Tensor::Of<double>(shape, elements);
}

bool HasSteps(const CellNetInput& input) { return input.dims[0] == CellNetInput::kSteps; }

struct Padded {
  CellNet net;
  Tensors given, weights;
};

// Random values, NaN where steps do not count, and weights of the first output.
Padded MakePadded(const std::string& text, const std::string& options, const Counts& counts) {
  const auto num_steps = std::ssize(counts[0]), batch = std::ssize(counts);
  CellCase cell{Cell(text, options), CellUse(), num_steps, batch};
  Padded padded{.net = cell.Expand(), .given = {}, .weights = {}};
  padded.given = cell.RandomValues(padded.net);
  for (const CellNetInput& input : padded.net.inputs) {
    Tensor& tensor = padded.given.at(input.blob);
    for (std::int64_t b = 0; b < batch; ++b) {
      if (input.dtype == DType::kInt32) {
        tensor.data<std::int32_t>()[b] = static_cast<std::int32_t>(std::ranges::count(counts[b], true));
      }
      for (std::int64_t t = 0; HasSteps(input) && t < num_steps; ++t) {
        const std::int64_t row = t * batch + b;
        if (input.dtype == DType::kBool) {
          tensor.data<bool>()[row] = counts[b][t];
        } else if (!counts[b][t]) {
          const std::int64_t size = tensor.shape().SizeFrom(2);
          std::fill_n(tensor.data<double>() + row * size, size, std::numeric_limits<double>::quiet_NaN());
        }
      }
    }
  }
  const std::string& output = padded.net.outputs[0];
  Tensor weights = RunCell(padded.net, padded.given).at(output).Clone();
  std::mt19937 random(3);
  for (std::int64_t i = 0; i < weights.size(); ++i) {
    weights.data<double>()[i] = std::uniform_real_distribution<double>(-1, 1)(random);
  }
  padded.weights = {{output, weights}};
  return padded;
}

// The gradients of the parameters, added up over sequences that are run one by one.
Tensors OneByOne(const Padded& padded, const std::string& text, const std::string& options, const Counts& counts) {
  Tensors sums;
  for (int b = 0; b < std::ssize(counts); ++b) {
    const CellNet net = ExpandCell(Cell(text, options));
    Tensors given = padded.given;
    for (const CellNetInput& input : net.inputs) {
      given[input.blob] = OfSequence(padded.given.at(input.blob), HasSteps(input), b, counts[b]);
    }
    Tensors weights;
    for (const auto& [name, all] : padded.weights) weights[name] = OfSequence(all, true, b, counts[b]);
    const Tensors gradients = CellGradients(net, given, weights);
    for (const std::string& name : net.parameters) {
      Tensor& sum = sums.try_emplace(name, Tensor::Zeros(DType::kDouble, gradients.at(name).shape())).first->second;
      for (std::int64_t i = 0; i < sum.size(); ++i) sum.data<double>()[i] += gradients.at(name).data<double>()[i];
    }
  }
  return sums;
}

void ExpectGradientsOneByOne(const std::string& text, const std::string& steps, const std::string& options,
                             const Counts& counts) {
  SCOPED_TRACE(text + steps + options);
  const Padded padded = MakePadded(text, options + steps, counts);
  const Tensors gradients = CellGradients(padded.net, padded.given, padded.weights);
  const Tensors expected = OneByOne(padded, text, options, counts);
  ASSERT_GE(expected.size(), 1U);
  for (const auto& [name, sum] : expected) {
    ASSERT_TRUE(std::isfinite(sum.data<double>()[0])) << name;
  }
  ExpectTensorsNear(gradients, expected, 1e-9);
  for (const CellNetInput& input : padded.net.inputs) {
    if (!HasSteps(input) || input.dtype != DType::kFloat) continue;
    const Tensor& gradient = gradients.at(input.blob);
    for (std::int64_t row = 0; row < gradient.dim(0) * gradient.dim(1); ++row) {
      if (counts[row % gradient.dim(1)][row / gradient.dim(1)]) continue;
      const std::int64_t size = gradient.shape().SizeFrom(2);
      for (std::int64_t i = 0; i < size; ++i) ASSERT_EQ(gradient.data<double>()[row * size + i], 0) << input.blob;
    }
  }
}

constexpr const char* kLengths = "  option lengths = n\n";
constexpr const char* kMask = "  option mask = m\n";

// The length of what is read of x, of a state, and of how far x has moved, which is 0 where it is x of the step before.
const std::string kOfInput =
    "cell c(x[D]; h[2]) {\n  size D = 2\n  param w[2, D]\n  k = x @ w\n"
    "  h = 0.5 * h + k / Sqrt(ReduceSum(k * k, axes=[-1]))\n  output h\n";
const std::string kOfMove =
    "cell c(x[D]; h[2], p[D]) {\n  size D = 2\n  param w[2, D]\n  k = (x - p) @ w\n"
    "  h = 0.5 * h + k / Sqrt(ReduceSum(k * k, axes=[-1]))\n  p = x\n  output h\n";
// The rest of what a state was at first, 0 behind four steps.
const std::string kOfRest =
    "cell c(x[2]; h[2], rest[1]) {\n  state rest initial=4\n  param w[2, 2]\n"
    "  h = h + (x @ w) / rest\n  rest = rest - 1\n  output h\n";
const std::string kOfTwo =
    "cell c(x[2], y[2]; h[2]) {\n  state h initial=0.7\n  param w[2, 2]\n"
    "  h = Tanh(h + x @ w) * Sqrt(y * y) + Log(h * h)\n  output h\n";
const std::string kOfWindow =
    "cell c(x[2]; h[2], seen[2]) {\n  state seen window=2 initial=0.3\n  param w[2, 2]\n"
    "  k = ReduceSum(seen, axes=[0]) + x @ w\n  h = 0.5 * h + k / Sqrt(ReduceSum(k * k, axes=[-1]))\n  seen = x\n"
    "  output h\n";
// What is put out is no state.
const std::string kOfOutput =
    "cell c(x[D]; h[2]) {\n  size D = 2\n  param w[2, D]\n  h = 0.5 * h + x @ w\n"
    "  y = h / Sqrt(ReduceSum(h * h, axes=[-1]))\n  output y\n";

TEST(PaddingGradients, AreThoseOfSequencesOneByOne) {
  for (const std::string& text : {kOfInput, kOfMove, kOfRest, kOfTwo, kOfWindow, kOfOutput}) {
    const bool is_of_rows = text == kOfWindow;  // rows of steps that do not count are among those of a window
    for (const std::string options : {"", "  option direction = reverse\n"}) {
      ExpectGradientsOneByOne(text, kLengths, options, OfLengths(4, {4, 1, 2, 0}));
      ExpectGradientsOneByOne(text, kLengths, options, OfLengths(4, {0, 3, 1}));
      if (is_of_rows) continue;
      ExpectGradientsOneByOne(text, kMask, options, {{1, 1, 1, 1}, {0, 0, 1, 0}, {0, 1, 0, 1}, {0, 0, 0, 0}});
    }
  }
}

TEST(PaddingGradients, OfLayersAndDirections) {
  for (const std::string& text : {kOfInput, kOfMove, kOfOutput}) {
    for (const std::string options : {"  option layers = 2\n", "  option layers = 3\n  option residual = true\n",
                                      "  option layers = 2\n  option direction = bidirectional\n",
                                      "  option layers = 2\n  option direction = reverse\n  option residual = true\n",
                                      "  option layers = 2\n  option zoneout = 0.2\n"}) {
      if (text == kOfOutput && options.find("zoneout") != std::string::npos) continue;
      ExpectGradientsOneByOne(text, kLengths, options, OfLengths(4, {4, 1, 2, 0}));
      ExpectGradientsOneByOne(text, kMask, options, {{1, 1, 1, 1}, {0, 0, 1, 0}, {0, 1, 0, 1}});
    }
  }
}

TEST(PaddingGradients, AreFiniteWhereOutputsAreHeld) {
  for (const std::string& text : {kOfInput, kOfMove, kOfOutput}) {
    for (const std::string options : {"", "  option layers = 2\n", "  option layers = 2\n  option residual = true\n"}) {
      const Padded padded =
          MakePadded(text, StrCat(options, kLengths, "  option beyond_length = held\n"), OfLengths(4, {4, 1, 2, 0}));
      for (const auto& [name, gradient] : CellGradients(padded.net, padded.given, padded.weights)) {
        for (std::int64_t i = 0; i < gradient.size(); ++i) {
          ASSERT_TRUE(std::isfinite(gradient.data<double>()[i])) << name << text << options;
        }
      }
    }
  }
}

TEST(PaddingGradients, OfNoStepsAndNoSequences) {
  for (const auto& [steps, batch] : {std::pair(0, 2), {3, 0}}) {
    CellCase cell{Cell(kOfMove, kLengths), CellUse(), steps, batch};
    const CellNet net = cell.Expand();
    Tensors given = cell.RandomValues(net);
    given["n"] = Tensor::Zeros(DType::kInt32, Shape({batch}));
    const Tensors weights = {{"h", RunCell(net, given).at("h").Clone()}};
    const Tensor gradient = CellGradients(net, given, weights).at("w");
    for (std::int64_t i = 0; i < gradient.size(); ++i) EXPECT_EQ(gradient.data<double>()[i], 0);
  }
}

bool HasType(const NetDef& net, const std::string& type) {
  return std::ranges::count(net.op(), type, &OperatorDef::type) > 0;
}

bool IsFinite(const CellDef& cell) {
  CellSizes sizes;
  for (const CellSize& size : cell.size()) sizes[size.name()] = size.value();
  return HasFiniteGradients(cell, sizes);
}

// Other cells are as they were: filling takes time.
TEST(PaddingGradients, AreMadeFiniteWhereTheyMayBeInfinite) {
  EXPECT_TRUE(HasType(ExpandCell(Cell(kOfInput, kLengths)).net, "FillPadding"));
  EXPECT_FALSE(HasType(ExpandCell(Cell(kOfInput, "")).net, "FillPadding"));
  for (const std::string& name : ExampleCells()) {
    EXPECT_EQ(IsFinite(ReadExampleCell(name).def), name != "slstm" && name != "delta_net") << name;
  }
  const auto is_finite = [](const std::string& value) {
    return IsFinite(ParseCell(StrCat("cell c(x[2]; ) {\n  param a[2]\n  y = ", value, "\n  output y\n}\n"), "c").def);
  };
  EXPECT_TRUE(is_finite("LayerNorm(x, axis=-1)"));
  EXPECT_FALSE(is_finite("LayerNorm(x, axis=-1, epsilon=0.0)"));
  EXPECT_TRUE(is_finite("x * Sqrt(a)"));  // of no step
  for (const std::string value :
       {"Mod(x, divisor=2)", "Pow(x, exponent=3.0)", "Clip(x)", "Clip(x, min=-1.0, max=1.0)", "Concat(x, a, axis=-1)",
        "Gather(a, Cast(x, to=\"int32\"))", "SquaredL2Distance(x, a)"}) {
    EXPECT_TRUE(is_finite(value)) << value;
  }
  for (const std::string value :
       {"Sqrt(x)", "x / a", "Log(x)", "Pow(x, exponent=0.5)", "Reciprocal(x)", "Exp(x)", "Mod(x, divisor=2) / x"}) {
    EXPECT_FALSE(is_finite(value)) << value;
  }
}

// Operators of others are known by their formulas, and their gradients by theirs.
Registration Unary(const char* type, Expr (*function)(const Expr& x)) {
  return Operator(type)
      .Doc("A function.")
      .Input("x", OfFloats("any shape"))
      .Output("y", Like("x"))
      .Formula([function](Formula& f) { f.Out({function(f.In("x"))}); })
      .DerivedGradient({"x", "dy"}, {"dx"});
}
const Registration bell = Unary("test.Bell", [](const Expr& x) { return 1 / (1 + x * x); });
const Registration logistic_log = Unary("test.LogOfSigmoid", [](const Expr& x) { return Log(Sigmoid(x)); });
const Registration root_of_size = Unary("test.RootOfSize", [](const Expr& x) { return Sqrt(Abs(x)); });
const Registration smooth_size = Unary("test.SmoothSize", [](const Expr& x) { return Sqrt(x * x + 0.01); });

TEST(PaddingGradients, OfOtherOperatorsFollowFromTheirFormulas) {
  const auto is_finite = [](const std::string& type) {
    return IsFinite(ParseCell(StrCat("cell c(x[2]; ) {\n  y = ", type, "(x)\n  output y\n}\n"), "c").def);
  };
  EXPECT_TRUE(is_finite("test.Bell"));
  EXPECT_TRUE(is_finite("test.SmoothSize"));
  EXPECT_FALSE(is_finite("test.LogOfSigmoid"));  // sigmoid may be 0 in floats
  EXPECT_FALSE(is_finite("test.RootOfSize"));    // itself is, and its gradient is not
}

// The gradient of an operator of one or two inputs, numbers of all sizes, where 0 comes back to it; nothing where there
// is no such cell.
std::vector<double> GradientsOfZero(const std::string& value) {
  const std::vector<double> numbers = {0, 0.5, 1, 2, 30, 1e4, -0.5, -1, -2, -30, -1e4};
  const auto count = std::ssize(numbers);
  Tensor x(DType::kDouble, Shape({1, count, count})), y(DType::kDouble, x.shape());
  for (std::int64_t i = 0; i < x.size(); ++i) {
    x.data<double>()[i] = numbers[i / count];
    y.data<double>()[i] = numbers[i % count];
  }
  std::vector<double> gradients;
  try {
    const CellSource cell = Cell(StrCat("cell c(x[11], y[11]; ) {\n  z = ", value, " + y\n  output z\n"), "");
    if (!IsFinite(cell.def)) return {};
    const CellNet net = ExpandCell(cell);
    const Tensors given = {{"x", x}, {"y", y}};
    const Tensors weights = {{"z", Tensor::Zeros(DType::kDouble, RunCell(net, given).at("z").shape())}};
    for (const auto& [name, gradient] : CellGradients(net, given, weights)) {
      gradients.insert(gradients.end(), gradient.data<double>(), gradient.data<double>() + gradient.size());
    }
  } catch (const Error&) {
    return {};  // it needs arguments, has no gradient, or gives another shape or type
  }
  return gradients;
}

TEST(PaddingGradients, AreFiniteOfOperatorsThatAreSaidToBe) {
  int num_operators = 0;
  for (const std::string& type : OperatorTypes()) {
    for (const char* const inputs : {"x", "x, y"}) {
      const std::vector<double> gradients = GradientsOfZero(StrCat(type, "(", inputs, ")"));
      if (!gradients.empty()) ++num_operators;
      EXPECT_EQ(std::ranges::count(gradients, 0), std::ssize(gradients)) << type << ", " << inputs;
    }
  }
  EXPECT_GT(num_operators, 30);
}

}  // namespace
}  // namespace stepnet
