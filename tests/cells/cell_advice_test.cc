// What is said to people who write what other languages have, or what they expect of a cell.
#include "stepnet/cells/cell_advice.h"

#include <algorithm>
#include <regex>

#include "stepnet/cells/cell.h"
#include "stepnet/cells/cell_expand.h"
#include "stepnet/core/operator.h"
#include "stepnet/core/strings.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

// The first line of what is wrong with the text, and what the others say beside the source.
std::string FaultOf(const std::string& text) {
  static const std::regex kSource("\n *[0-9]* \\| .*");
  try {
    ExpandCell(ParseCell(text, "c"));
  } catch (const Error& error) {
    return std::regex_replace(error.message(), kSource, "");
  }
  return "nothing";
}

// A cell of sizes D = 2 and H = 3 with the lines in it, the first of which is line 4.
std::string CellOf(const std::string& lines) {
  return "cell c(x[D]; h[H]) {\n  size D = 2\n  size H = 3\n" + lines + "\n}\n";
}
void ExpectFault(const std::string& lines, const std::string& fault) {
  EXPECT_EQ(FaultOf(CellOf(lines)), "c:" + fault);
}

TEST(CellAdvice, OfStatementsOfOtherLanguages) {
  const std::string where = "there is no if: both values are computed, and Where(condition, a, b) selects";
  ExpectFault("if timestep > 3: h = x", "4:13: '>' has no meaning here; " + where);
  ExpectFault("if (timestep) h = x", "4:1: \"if\" is no statement; " + where);
  ExpectFault("else: h = x", "4:5: ':' has no meaning here; " + where);
  ExpectFault(
      "for i in x: h = x",
      "4:11: ':' has no meaning here; there are no loops: a cell is one step, which runs for each of a sequence");
  ExpectFault(
      "return h",
      "4:1: \"return\" is no statement; nothing is returned; blobs that shall be seen outside are listed: output h");
  ExpectFault(
      "return (h)",
      "4:1: \"return\" is no statement; nothing is returned; blobs that shall be seen outside are listed: output h");
  ExpectFault("h = h if timestep else x", "4:7: the end of the statement is expected, not 'if'; " + where);
  ExpectFault("h = (h if timestep else x)", "4:8: ')' is expected, not 'if'; " + where);
  ExpectFault("let h = x", "4:1: \"let\" is no statement; a value needs no word before its name: h = …");
  ExpectFault("for = x\nh = y", "5:5: there is no blob \"y\" so far; if it is a parameter, add: param y[…]");
}

TEST(CellAdvice, OfColons) {
  ExpectFault("h := x", "4:3: ':' has no meaning here; a value is given by =, as in h = x");
  ExpectFault("h: float = x", "4:2: ':' has no meaning here; types of values are not written");
  ExpectFault("h = x[:, 0]", "4:7: ':' has no meaning here; parts of a value are Slice(x, starts=[…], ends=[…])");
  EXPECT_EQ(FaultOf("cell c(x[2]; h[2]):\n  h = x\n  output h\n"),
            "c:1:19: ':' has no meaning here; the lines of a cell stand in braces: cell NAME(inputs; states) { … }");
}

TEST(CellAdvice, OfAssignments) {
  ExpectFault("h += x", "4:3: '=' is expected, not '+'; write h = h + …");
  ExpectFault("h[t] = x", "4:2: '=' is expected, not '['; a blob is written whole, without an index: h = …");
  ExpectFault("h x = 2", "4:1: \"h\" is no statement");
  ExpectFault("a = x b = x",
              "4:7: the end of the statement is expected, not 'b'; the next one begins in a new line or behind ';'");
  ExpectFault("// h", "4:1: a comment begins with #, not with //");
  ExpectFault("h = x // h", "4:7: a comment begins with #, and x // y is Floor(x / y)");
}

TEST(CellAdvice, OfComparisons) {
  const std::string advice = "EQ(a, b) compares, not a == b; LT(a, b), LE, GT and GE do, too";
  ExpectFault("h = Where(h == x, h, x)", "4:13: " + advice);
  ExpectFault("h = Where(h + 1 == x, h, x)", "4:17: " + advice);
  ExpectFault("h = (h == x)", "4:8: " + advice);
  ExpectFault("h = h == x", "4:7: " + advice);
}

TEST(CellAdvice, OfLists) {
  ExpectFault("h = ReduceSum(h, axes=-1)", "4:23: the argument axes takes a list: axes=[-1]");
  ExpectFault("h = Concat([x, h], axis=-1)", "4:12: the inputs of Concat are no list: Concat(a, b, …)");
  ExpectFault("h = Reshape(h, shape=2*H)", "4:22: the argument shape takes a list: shape=[2*H]");
}

TEST(CellAdvice, OfSeveralNames) {
  ExpectFault("i, h = x + h", "4:1: Add has one output, not 2; Split(…, axis=-1) cuts a value into 2");
  ExpectFault("i, f, h = x", "4:1: one value cannot be given to 3 names; Split(…, axis=-1) cuts a value into 3");
}

TEST(CellAdvice, OfMethods) {
  const std::string before = "operators stand before what they are given, as in ";
  ExpectFault("h = (x + h).tanh()", "4:12: '.' has no meaning here; " + before + "Tanh(…)");
  ExpectFault("h = (x + h).T", "4:12: '.' has no meaning here; " + before + "Transpose(…)");
  ExpectFault("h = (x + h).flap()", "4:12: '.' has no meaning here; " + before + "Tanh(…)");
  ExpectFault("h = (x + h).log_softmax(-1)", "4:12: '.' has no meaning here; " + before + "LogSoftmax(…, axis=-1)");
  ExpectFault("h = x.tanh()", "4:5: no operator type \"x.tanh\"; " + before + "Tanh(x)");
  // Without an axis it would mix the batch.
  ExpectFault("h = x.sum(-1)", "4:5: no operator type \"x.sum\"; " + before + "ReduceSum(x, axes=[-1])");
  ExpectFault("h = x.softmax(-1)", "4:5: no operator type \"x.softmax\"; " + before + "Softmax(x, axis=-1)");
  ExpectFault("h = x.matmul(w)",
              "4:5: no operator type \"x.matmul\"; products are written x @ w, with a parameter w[N, D]");
}

TEST(CellAdvice, OfTheGreatest) {
  const std::string greatest = "; ReduceMax(x, axes=[-1]) gives the greatest along the last dimension";
  const std::string least = "; ReduceMin(x, axes=[-1]) gives the least along the last dimension";
  ExpectFault("h = torch.min(x)",
              "4:5: no operator type \"torch.min\"; Min(a, b) compares values, and " + least.substr(2));
  ExpectFault("h = max(x, h)", "4:5: no operator type \"max\"; Max(a, b) compares values, and " + greatest.substr(2));
  ExpectFault("h = x.max()", "4:5: no operator type \"x.max\"; Max(a, b) compares values, and " + greatest.substr(2));
  ExpectFault("h = Max(x, axis=-1)\noutput h",
              "4:5: `h = Max(x)`: Max has no argument \"axis\"; Max of one input is that input" + greatest);
  ExpectFault("h = torch.norm(x)",
              "4:5: no operator type \"torch.norm\"; ReduceL2(x, axes=[-1]) gives the norm along the last dimension");
  const std::string all = "ReduceMax(x, axes=[-1]) + ReduceMin(x, axes=[-1]) + ReduceL2(x, axes=[-1])";
  EXPECT_EQ(FaultOf(CellOf("h = h + " + all + "\noutput h")), "nothing");
}

TEST(CellAdvice, OfWhatThereIsNoOperatorFor) {
  const std::string sign = "Cast(GT(x, 0), to=\"float\") - Cast(LT(x, 0), to=\"float\")";
  ExpectFault("h = torch.sign(x)", "4:5: no operator type \"torch.sign\"; it is " + sign);
  ExpectFault(
      "h = torch.nn.Embedding(x)",
      "4:5: no operator type \"torch.nn.Embedding\"; with words as an input word[] and a parameter emb[V, D] it is "
      "Gather(emb, Cast(word, to=\"int32\"))");
  ExpectFault("h = GroupNorm(x, 2)",
              "4:5: no operator type \"GroupNorm\"; of G groups of x, [1, B, H], it is Reshape(LayerNorm(Reshape(x, "
              "shape=[1, -1, G, H/G]), axis=-1), shape=[1, -1, H])");
  ExpectFault(
      "h = BatchNorm(x)",
      "4:5: no operator type \"BatchNorm\"; it would mix the items of a batch; LayerNorm(x, axis=-1) normalises "
      "each by itself");
  ExpectFault("a, b = Split(x, 2)",
              "4:17: arguments of operators are named: a, b = Split(…, axis=-1), which makes a part for each name");
  const std::string norm = "Reshape(LayerNorm(Reshape(x, shape=[1, -1, 2, D/2]), axis=-1), shape=[1, -1, D])";
  EXPECT_EQ(FaultOf(CellOf("y = " + sign + " + " + norm + "\nh = h + ReduceSum(y, axes=[-1])\noutput h")), "nothing");
}

TEST(CellAdvice, OfWholeNumbersWhereFloatsAreTaken) {
  const std::string cast = "\n  Cast(timestep, to=\"float\") makes floats of int32";
  for (const std::string step : {"h = h + ReduceMean(x, axes=[-1]) + Scale(timestep, scale=0.5)",
                                 "h = h + ReduceMean(x, axes=[-1]) + 0.5 * timestep"}) {
    EXPECT_NE(FaultOf(CellOf(step + "\noutput h")).find(cast), std::string::npos)
        << FaultOf(CellOf(step + "\noutput h"));
  }
  EXPECT_NE(FaultOf(CellOf("h = h + ReduceMean(x, axes=[-1]) + ConstantFill(h, value=1.0, dtype=13)\noutput h"))
                .find("\n  ConstantFill(…, dtype=1) gives what the cell computes in, which is double where it is one "
                      "of float64"),
            std::string::npos);
}

TEST(CellAdvice, OfOuterProducts) {
  const auto fault = [](const std::string& header, const std::string& c) {
    return FaultOf("cell c(" + header + ") {\n  C = " + c + "\n  output C\n}\n");
  };
  const std::string outer =
      "\n  a * b is element by element; the outer product of each item is ExpandDims(v, dims=[3]) * ExpandDims(k, "
      "dims=[2])";
  const auto advice = [](const std::string& text) { return text.substr(std::min(text.find('\n'), text.size())); };
  EXPECT_EQ(advice(fault("v[4], k[4]; C[4, 4]", "C + v * k")), outer);
  EXPECT_EQ(advice(fault("v[4], k[4]; C[4, 4]", "v * k - C")), outer);
  EXPECT_EQ(advice(fault("v[4], k[5]; C[4, 5]", "C + v * k")), outer);
  EXPECT_EQ(
      advice(fault("v[4], k[5]; C[5, 4]", "C + v * k")),
      "\n  a * b is element by element; the outer product of each item is ExpandDims(v, dims=[2]) * ExpandDims(k, "
      "dims=[3])");
  EXPECT_EQ(
      advice(fault("v[4], k[5]; C[4, 5]", "C + (v + 1) * k")),
      "\n  a * b is element by element; the outer product of each item is ExpandDims(…, dims=[3]) * ExpandDims(k, "
      "dims=[2])");
  EXPECT_EQ(fault("v[4], k[4]; C[4, 4]", "C + ExpandDims(v, dims=[3]) * ExpandDims(k, dims=[2])"), "nothing");
  // Where there is no matrix that it could be, it is not what somebody meant.
  EXPECT_EQ(advice(fault("v[4], k[5]; C[4, 4]", "C + ExpandDims(v * k, dims=[3])")), "");
  EXPECT_EQ(advice(fault("v[4], k[4]; C[4, 4]", "C + v + 0 * k")), "");
}

TEST(CellAdvice, OfTypes) {
  const auto fault = [](const std::string& value) {
    return FaultOf(CellOf("param w[H, D]\nh = x @ w + " + value + "\noutput h"));
  };
  const auto advice = [&](const std::string& value) {
    const std::string text = fault(value);
    EXPECT_TRUE(text.starts_with("Add needs inputs of one type; ")) << text;
    return text.substr(std::min(text.find('\n'), text.size()));
  };
  EXPECT_EQ(advice("ConstantFill(h, value=0)"), "\n  ConstantFill makes int64 of value=0 and floats of value=0.0");
  EXPECT_EQ(advice("ConstantFill(h, value=0, dtype=2)"), "\n  Cast(…, to=\"float\") makes floats of int32");
  const std::string own =
      "\n  Cast(…, to=\"float\") gives what the cell computes in, which is double where it is one of float64";
  EXPECT_EQ(advice("Cast(h, to=\"double\")"), own);
  EXPECT_EQ(advice("Cast(h, to=13)"), own);
  EXPECT_EQ(advice("timestep"), "\n  Cast(timestep, to=\"float\") makes floats of int32");
  EXPECT_EQ(advice("GT(h, 0)"), "\n  Cast(GT(…), to=\"float\") makes floats of bool");
  EXPECT_EQ(FaultOf("cell c(x[2]; h[2]) {\nh = GT(x, 0) * h\noutput h\n}\n"),
            "Mul works on float, double, float16, bfloat16, int32 and int64; h.2 is bool [1, B, 2]\n"
            "  Cast(GT(…), to=\"float\") makes floats of bool");
  EXPECT_EQ(FaultOf(CellOf("h = Where(GT(x, 0), x, timestep)\noutput h")),
            "Where needs inputs of one type; x_t is float [1, B, 2] and timestep is int32 [1]\n"
            "  Cast(timestep, to=\"float\") makes floats of int32");
  EXPECT_EQ(FaultOf(CellOf("h = Where(And(GT(x, 0), x), x, x)\noutput h")),
            "And needs inputs of one type; h.2 is bool [1, B, 2] and x_t is float [1, B, 2]");
}

TEST(CellAdvice, OfFills) {
  ExpectFault("param a[H] = UniformFill(0, 3)", "4:26: arguments of operators are named: UniformFill(min=0, max=3)");
  ExpectFault("param a[H] = UniformFill(-1, 3)", "4:26: arguments of operators are named: UniformFill(min=-1, max=3)");
  ExpectFault("param a[H] = GaussianFill(0, 0.1)",
              "4:27: arguments of operators are named: GaussianFill(mean=0, std=0.1)");
  ExpectFault("param a[H] = ConstantFill(0.5)", "4:27: arguments of operators are named: ConstantFill(value=0.5)");
  ExpectFault("param a[H] = XavierFill(0.5)", "4:25: an argument is expected, not '0.5'");
  for (const std::string fill : {"normal(0, 0.1)", "orthogonal", "eye(H)", "nn.init.zeros_"}) {
    const std::string type = fill.substr(0, fill.find('('));
    ExpectFault("param a[H] = " + fill, StrCat("4:14: no operator type \"", type, "\"; ", FillsText()));
  }
  ExpectFault("param a[H] = one", "4:14: no operator type \"one\"; " + FillsText());
  ExpectFault("param a[H] = UniformFil(min=0)", "4:14: no operator type \"UniformFil\"; did you mean \"UniformFill\"?");
}

TEST(CellAdvice, NamesFillsThatAreThere) {
  const std::string text = FillsText();
  const std::regex fill("([A-Za-z]+Fill)\\(([a-z]*)");
  int found = 0;
  for (auto it = std::sregex_iterator(text.begin(), text.end(), fill); it != std::sregex_iterator(); ++it, ++found) {
    const OperatorSchema* schema = FindOperator((*it)[1]);
    ASSERT_NE(schema, nullptr) << (*it)[1];
    const std::string argument = (*it)[2];
    EXPECT_TRUE(argument.empty() || schema->FindArgument(argument) != nullptr) << argument;
  }
  EXPECT_EQ(found, 5);
}

TEST(CellAdvice, OfOperatorsOfModules) {
  ExpectFault("h = torch.tanh(x)", "4:5: no operator type \"torch.tanh\"; did you mean \"Tanh\"?");
  ExpectFault("h = F.layer_norm(x)", "4:5: no operator type \"F.layer_norm\"; did you mean \"LayerNorm\"?");
  ExpectFault("h = sum(x)", "4:5: no operator type \"sum\"; did you mean \"ReduceSum\"?");
  ExpectFault("h = torch.sum(x)", "4:5: no operator type \"torch.sum\"; did you mean \"ReduceSum\"?");
  ExpectFault("h = Mean(x)", "4:5: no operator type \"Mean\"; did you mean \"ReduceMean\"?");
  ExpectFault("h = np.matmul(x)",
              "4:5: no operator type \"np.matmul\"; did you mean `x @ w`, with a parameter w[N, D]?");
  ExpectFault("h = unsqueeze(x)", "4:5: no operator type \"unsqueeze\"; did you mean \"ExpandDims\"?");
  ExpectFault("h = RMSNorm(x)",
              "4:5: no operator type \"RMSNorm\"; it is x * Rsqrt(ReduceMean(Sqr(x), axes=[-1], keepdims=1) + 1e-6)");
  ExpectFault("h = LogSigmoid(x)", "4:5: no operator type \"LogSigmoid\"; it is -Softplus(-x)");
  ExpectFault("h = F.logsigmoid(x)", "4:5: no operator type \"F.logsigmoid\"; it is -Softplus(-x)");
  ExpectFault("h = sigma(x)", "4:5: no operator type \"sigma\"; did you mean \"Sigmoid\"?");
  ExpectFault("h = Einsum(x)",
              "4:5: no operator type \"Einsum\"; products are x @ w with a parameter w[N, D], and BatchMatMul(a, b) "
              "of the matrices of each item");
  const std::string root = "; the root of a blob is Sqrt(x), and that of a number, as of a size, sqrt(…)";
  ExpectFault("h = x / math.sqrt(D)", "4:9: no operator type \"math.sqrt\"" + root);
  ExpectFault("h = torch.sqrt(x)", "4:5: no operator type \"torch.sqrt\"" + root);
  ExpectFault("h = torch.cumsum(x)",
              "4:5: no operator type \"torch.cumsum\"; a sum over the steps is a state, s = s + x");
  ExpectFault("h = other.tanh(x)",
              "4:5: no operator type \"other.tanh\"; types with a dot come from libraries of operators, which "
              "--op_library, LoadOperatorLibrary or Python's load_operator_library loads");
}

TEST(CellAdvice, OfDeclarations) {
  ExpectFault("param s = 0.5", "4:9: the shape of the parameter is expected, not '='; one number is param s[] = …");
  ExpectFault("param s\nh = x",
              "4:8: the shape of the parameter is expected, not the end of the line; one number is param s[]");
  ExpectFault(
      "state h layers=2",
      "4:9: a state has no \"layers\", which is an option of the cell: option layers = …; it has initial, window, "
      "dropout and zoneout");
  ExpectFault("state h windw=2", "4:9: a state has no \"windw\"; did you mean \"window\"?");
  EXPECT_EQ(
      FaultOf("cell f(x[2]) {\n}\n"),
      "c:1:12: ';' is expected between inputs and states, not ')'; a cell without states has it, too: cell f(…;)");
}

TEST(CellAdvice, OfTheBatch) {
  const std::string rest = "\n  param w[H, D]\n  h = x @ w\n  output h\n";
  const std::string sizes = "  size D = 2\n  size H = 3";
  const auto fault = [&](const std::string& header) { return FaultOf(header + " {\n" + sizes + rest + "}\n"); };
  const std::string of_x =
      "c:1:8: \"x\" is declared by the shape of an item in a step, x[D]: the batch, B, and the steps, T, are implied";
  EXPECT_EQ(fault("cell c(x[B, D]; h[H])"), of_x);
  EXPECT_EQ(fault("cell c(x[T, B, D]; h[H])"), of_x);
  EXPECT_EQ(fault("cell c(x[D]; h[B, H])"),
            "c:1:14: \"h\" is declared by the shape of an item in a step, h[H]: the batch, B, and the steps, T, are "
            "implied");
  ExpectFault(
      "param w[B, D]\nh = x @ w\noutput h",
      "4:7: \"w\" is the same for all items and steps, w[D]: it has no dimension of the batch, B, or of steps, T");
  EXPECT_EQ(FaultOf("cell c(x[D], n[B]; h[H]) {\n" + sizes + rest + "  option lengths = n\n}\n"),
            "c:1:14: \"n\" is declared by the shape of an item in a step, n[]: the batch, B, and the steps, T, are "
            "implied; the lengths of sequences are no input that the cell declares: option lengths = n\n"
            "c:7:10: the name \"n\" is taken already; the option itself declares it, so that it does not stand among "
            "the inputs");
}

TEST(CellAdvice, OfSlicesThatTakeNothing) {
  const std::string window = "state h window=3\n";
  ExpectFault(window +
                  "a = Slice(h, starts=[-1], ends=[-1])\ny = x + 1\nh = Tanh(ReduceSum(a, axes=[0], "
                  "keepdims=1))\noutput h\noutput y",
              "5:5: the slice of \"h_prev\", float [3, B, 3], takes nothing: along dimension 0 (steps), of 3, it goes "
              "from 3 to 3; "
              "-1 is the end itself, and the last is Slice(h_prev, starts=[-2], ends=[-1])");
  ExpectFault(window +
                  "a = Slice(h, starts=[3], ends=[5])\ny = x + 1\nh = Tanh(ReduceSum(a, axes=[0], keepdims=1))\noutput "
                  "h\noutput y",
              "5:5: the slice of \"h_prev\", float [3, B, 3], takes nothing: along dimension 0 (steps), of 3, it goes "
              "from 3 to 3");
  ExpectFault("a = Slice(x, starts=[0, 0, H], ends=[-1, -1, 2*H])\nh = Concat(a, h, axis=-1)\noutput h",
              "4:5: the slice of \"x\", float [1, B, 2], takes nothing: along dimension 2, of 2, it goes from 2 to 2");
  EXPECT_EQ(FaultOf(CellOf(window + "y = x + 1\nh = Slice(h, starts=[-2], ends=[-1]) + 1\noutput h\noutput y")),
            "nothing");
  ExpectFault("a = Slice(h, starts=[2], ends=[0], steps=[1])\nh = a\ny = x + 1\noutput h\noutput y",
              "4:5: the slice of \"h_prev\", float [1, B, 3], takes nothing: along dimension 0 (steps), of 1, it is "
              "[2:0:1] as ONNX counts");
  // Also where an operator behind it is wrong because of that, be it one around the step.
  ExpectFault("a = Slice(h, starts=[-1], ends=[-1])\nh = a\ny = x + 1\noutput h\noutput y\noption lengths = n",
              "4:5: the slice of \"h_prev\", float [1, B, 3], takes nothing: along dimension 0 (steps), of 1, it goes "
              "from 1 to 1; "
              "-1 is the end itself, and the last is Slice(h_prev, starts=[-2], ends=[-1])");
}

TEST(CellAdvice, OfStatesOfAnotherShape) {
  for (const std::string option : {"", "\noption lengths = n", "\noption mask = m", "\noption zoneout = 0.1"}) {
    SCOPED_TRACE(option);
    ExpectFault(
        "y = Tanh(h)\nh = x\noutput y" + option,
        "5:1: the state \"h\" is declared as [H], which is float [1, B, 3] in a step of a batch of B, and the step "
        "writes float [1, B, 2]");
  }
}

TEST(CellAdvice, OfAnAxisThatIsNotGiven) {
  EXPECT_NE(
      FaultOf(CellOf("h = Tanh(Concat(x, h))\noutput h"))
          .find("\n  Concat has axis=1 where it is not given, and that is the batch; the last dimension is axis=-1"),
      std::string::npos);
  EXPECT_EQ(FaultOf(CellOf("h = Tanh(Concat(x, h, axis=0))\noutput h")).find("where it is not given"),
            std::string::npos);
}

TEST(CellAdvice, WarnsOfWindowsThatMaskedStepsTakeRowsOf) {
  const auto warnings = [](const std::string& window, const std::string& option) {
    return Join(WarningsOf(ParseCell(
                    StrCat("cell c(x[4]; h[4]) {\n  state h", window,
                           "\n  h = Slice(h, starts=[-1, 0, 0], ends=[-1, -1, -1]) + x\n  output h\n", option, "}\n"),
                    "c")),
                "\n");
  };
  const std::string mask = "  option mask = m\n";
  EXPECT_TRUE(
      warnings(" window=3", mask)
          .starts_with(
              "c:2:11: the state \"h\" has window=3, of which steps that the mask leaves out take rows, too: the "
              "newest row comes again in each; make a state of each row, as h_2 = h_1_prev; h_1 = …, and read "
              "the rows as Concat(h_2_prev, h_1_prev, axis=0)\n"))
      << warnings(" window=3", mask);
  EXPECT_EQ(warnings(" window=3", ""), "");
  EXPECT_EQ(warnings(" window=3", "  option lengths = n\n"), "") << "they count up to the end";
  EXPECT_EQ(warnings("", mask), "");
}

// Where an axis is given, whichever, it is meant.
TEST(CellAdvice, WarnsOfOperatorsThatMixTheBatch) {
  const auto warnings = [](const std::string& value) {
    return Join(
        WarningsOf(ParseCell(CellOf("param w[H, D]\nh = Tanh(x @ w)\ny = " + value + "\noutput h\noutput y"), "c")),
        "\n");
  };
  for (const std::string type : {"LayerNorm", "Softmax", "LogSoftmax"}) {
    EXPECT_TRUE(
        warnings(type + "(h)")
            .starts_with("c:6:5: " + type +
                         " has axis=1 where it is not given, and that is the batch; the last dimension is axis=-1\n"))
        << warnings(type + "(h)");
    EXPECT_EQ(warnings(type + "(h, axis=1)") + warnings(type + "(h, axis=-1)"), "");
  }
  for (const std::string type : {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceL2"}) {
    EXPECT_TRUE(
        warnings("x * " + type + "(h)")
            .starts_with("c:6:9: " + type +
                         " is over all dimensions where no axes are given, and the batch is one of them; over the "
                         "last one it is axes=[-1]\n"))
        << warnings("x * " + type + "(h)");
    EXPECT_EQ(warnings(type + "(h, axes=[-1], keepdims=1)"), "");
  }
  const auto total = [&](const std::string& call, const std::string& of_items) {
    const std::string type = call.substr(0, call.find('('));
    EXPECT_TRUE(
        warnings("h * " + call)
            .starts_with(StrCat("c:6:9: ", type, " gives one number for all of the batch; one for each item is ",
                                of_items, "\n")))
        << warnings("h * " + call);
  };
  total("SumElements(h, average=1)", "ReduceSum(x, axes=[-1])");
  total("SumSqrElements(h)", "ReduceSum(Sqr(x), axes=[-1])");
  total("AveragedLoss(h)", "ReduceMean(x, axes=[-1])");
  total("L1Distance(h, h)", "ReduceSum(Abs(x - y), axes=[-1])");
  total("SquaredL2Distance(h, h)", "ReduceSum(Sqr(x - y), axes=[-1]) / 2");
  EXPECT_EQ(warnings("x * ReduceSum(w) + h * Softmax(w) * SumElements(w)"), "");  // of what has no batch
  EXPECT_EQ(warnings("h @ Transpose(w, axes=[1, 0]) + TopK(x, k=1) * timestep"), "");
}

TEST(CellAdvice, WarnsOfOperatorsOfOneInputThatDoNothing) {
  const auto warnings = [](const std::string& value) {
    const std::vector<std::string> told = WarningsOf(ParseCell(CellOf("h = h + " + value + "\noutput h"), "c"));
    return Join(told, "\n");
  };
  EXPECT_TRUE(warnings("Sum(x)").starts_with(
      "c:4:9: Sum of one input is that input; ReduceSum(x, axes=[-1]) sums over the last dimension\n"));
  EXPECT_TRUE(warnings("Max(x)").starts_with(
      "c:4:9: Max of one input is that input; ReduceMax(x, axes=[-1]) gives the greatest along the last dimension\n"));
  EXPECT_TRUE(warnings("Min(x)").starts_with(
      "c:4:9: Min of one input is that input; ReduceMin(x, axes=[-1]) gives the least along the last dimension\n"));
  EXPECT_TRUE(warnings("Concat(x, axis=-1)").starts_with("c:4:9: Concat of one input is that input\n"));
  EXPECT_EQ(warnings("Sum(x, x) + Max(x, 0) + Tanh(x)"), "");
}

TEST(CellAdvice, OfTheBatchInPlaceOfASize) {
  const std::string batch = "B stands for the batch in shapes, and is no number that a step knows";
  ExpectFault("h = Reshape(x, shape=[1, B, H]) + h\noutput h",
              "4:5: the argument \"shape\" of Reshape has B; " + batch +
                  "; the batch is -1 in Reshape, as in shape=[1, -1, 4]");
  ExpectFault("h = Slice(x, starts=[0, 0, 0], ends=[1, B, H])\noutput h",
              "4:5: the argument \"ends\" of Slice has B; " + batch + "; all of a dimension is from 0 to -1");
  ExpectFault("h = ConstantFill(shape=[1, B, H]) + x\noutput h",
              "4:5: the argument \"shape\" of ConstantFill has B; " + batch +
                  "; ConstantFill(x, …) makes a tensor in the shape of x");
  ExpectFault("h = Scale(x, scale=1/T)\noutput h",
              "4:5: the argument \"scale\" of Scale has T; T stands for the steps in shapes, and is no number "
              "that a step knows; write what does not depend on it");
  ExpectFault("h = x / B\noutput h", "4:9: there is no blob \"B\" so far; " + batch);
  ExpectFault("param b[H] = 1/B\nh = x + b\noutput h", "4:14: there is no size B so far; " + batch);
}

// Beside the parameter that was meant, which nothing reads then.
TEST(CellAdvice, OfAProductOfTwoValues) {
  const std::string product =
      "`@` multiplies by parameters w[N, D]; two values of the step are multiplied by BatchMatMul(a, b), as matrices "
      "[1, B, M, K] and [1, B, K, N], or by a * b, element by element\n";
  ExpectFault("param w[H, D]\nh = x @ h\noutput h", "5:7: " + product + "c:4:7: nothing reads the parameter \"w\"");
  ExpectFault("param w[H, D]\na = Tanh(h)\nh = Tanh(x @ a)\noutput h",
              "6:12: " + product + "c:4:7: nothing reads the parameter \"w\"");
  ExpectFault("param w[H, D]\nparam u[H, D]\nh = x @ Tanh(u)\noutput h", "4:7: nothing reads the parameter \"w\"");
}

}  // namespace
}  // namespace stepnet
