// Everything that can be wrong with a cell, and what is said about it: file, line, column, and what would be right.
#include <filesystem>
#include <regex>

#include "stepnet/cells/cell.h"
#include "stepnet/cells/cell_advice.h"
#include "stepnet/cells/cell_expand.h"
#include "stepnet/core/strings.h"
#include "stepnet/io/file.h"
#include "stepnet/tests/core/source_path.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

// Without the lines of the source that it shows.
Error WithoutSource(const Error& error) {
  static const std::regex kSource("\n *[0-9]* \\| .*");
  Error result(error.code(), std::regex_replace(error.message(), kSource, ""));
  for (const Place& place : error.places()) result.At(place);
  return result;
}

// The error of reading and expanding the text as a file "c"; what it shows of the source is tested below.
void ExpectFault(const std::string& text, const std::string& error) {
  SCOPED_TRACE(text.substr(0, 500));
  const auto fault = [&] {
    try {
      ExpandCell(ParseCell(text, "c"));
    } catch (const Error& thrown) {
      throw WithoutSource(thrown);
    }
  };
  ExpectError(fault, error);
}

// A cell of sizes D = 2 and H = 3 with the lines in it, the first of which is line 4.
std::string CellOf(const std::string& lines) {
  return "cell c(x[D]; h[H]) {\n  size D = 2\n  size H = 3\n" + lines + "\n}\n";
}
void ExpectSyntaxFault(const std::string& lines, const std::string& error) {
  ExpectFault(CellOf(lines), "syntax error: c:" + error);
}

const char kStep[] = "param w[H, D]\nh = Tanh(x @ w)\noutput h\n";

TEST(CellErrors, OfWords) {
  ExpectSyntaxFault("h = x ^ 2", "4:7: '^' has no meaning here; powers are Sqr(x) and Pow(x, exponent=3)");
  ExpectSyntaxFault("h = x ** 2", "4:7: powers are Sqr(x) and Pow(x, exponent=3), not x ** 3");
  ExpectSyntaxFault("h = x[:, 0]", "4:7: ':' has no meaning here; parts of a value are Slice(x, starts=[…], ends=[…])");
  ExpectSyntaxFault("h = x > 0", "4:7: '>' has no meaning here; LT(a, b), LE, GT, GE and EQ compare");
  ExpectSyntaxFault("h = x ? x : h", "4:7: '?' has no meaning here; Where(condition, a, b) chooses");
  ExpectSyntaxFault("h = h[0] + x", "4:6: a value is not indexed; parts of it are Slice(x, starts=[…], ends=[…])");
  ExpectSyntaxFault("h = \x01", "4:5: the control character (U+0001) has no meaning here");
  ExpectSyntaxFault("h = \xff", "4:5: the byte 255 has no meaning here");
  ExpectSyntaxFault("h = F(x, mode=\"a b", "4:15: the string does not end on its line");
  ExpectSyntaxFault("h = 2x", "4:5: a name cannot start with a digit");
  ExpectSyntaxFault("h = x + 1e999", "4:9: 1e999 is beyond what a number can be");
  ExpectSyntaxFault("h = x + 1e300", "4:7: 1e+300 is beyond what a float can hold");
  ExpectSyntaxFault("h = x / 0", "4:7: inf is beyond what a float can hold");
}

TEST(CellErrors, OfTheHeader) {
  ExpectFault("cell", "syntax error: c:1:5: the name of the cell is expected, not the end of the line");
  ExpectFault("cell c[", "syntax error: c:1:7: '(' is expected, not '['");
  ExpectFault("cell c(x; h[2]) {}", "syntax error: c:1:9: \"x\" needs a shape, as in x[D]");
  ExpectFault("cell c(x[2], h[2]) {}",
              "syntax error: c:1:18: ';' is expected between inputs and states, not ')'; a cell without states has it, "
              "too: cell c(…;)");
  ExpectFault("cell c(x[2]; x[2]) {}", "syntax error: c:1:14: \"x\" is declared twice");
  ExpectFault("cell c(x[2; h[2]) {}", "syntax error: c:1:11: ']' is expected, not ';'");
  ExpectFault("cell c(x[]; h[,]) {}", "syntax error: c:1:15: a size is expected, not ','");
  ExpectFault("cell c(x[D]; ) {\n  y = x\n  output y\n", "syntax error: c:1:16: '{' is not closed; '}' is missing");
  ExpectFault("cell c(x[2]; ) {\n  y = x\n  output y\n}\n}", "syntax error: c:5:1: '}' behind the end of the cell");
  ExpectFault("cell c(x[D]; ) {\n  y = x\n  output y\n}",
              "syntax error: c:1:8: the shape of \"x\" has a size D, which the cell does not declare; add: size D");
  ExpectFault(
      "cell c(x[Hh]; ) {\n  size H = 1\n  y = x\n  output y\n}",
      "syntax error: c:1:8: the shape of \"x\" has a size Hh, which the cell does not declare; did you mean \"H\"?");
}

TEST(CellErrors, OfStatements) {
  ExpectSyntaxFault("parm w[H, D]", "4:1: \"parm\" is no statement; did you mean \"param\"?");
  ExpectSyntaxFault("h = x output h", "4:7: the end of the statement is expected, not 'output'");
  ExpectSyntaxFault("size D = 3", "4:6: \"D\" is declared twice");
  ExpectSyntaxFault(
      "size E = 2*D",
      "4:10: a size is a number and does not follow from D; write 2*D where it is needed, as in param w[2*D]");
  ExpectSyntaxFault("size E = 99999999999999999999", "4:10: \"99999999999999999999\" is no size: it is too large");
  ExpectSyntaxFault("param w[H, D\nh = x", "4:8: '[' is not closed; ']' is missing");
  ExpectSyntaxFault("param w[H D]", "4:11: ']' is expected, not 'D'");
  ExpectSyntaxFault("param w[H] = Unifrm()", StrCat("4:14: no operator type \"Unifrm\"; ", FillsText()));
  ExpectSyntaxFault("param w[H] = UniformFil()",
                    "4:14: no operator type \"UniformFil\"; did you mean \"UniformFill\"?");
  ExpectSyntaxFault("param w[H] = -1e39", "4:14: -1e39 is beyond what a float can hold");
  ExpectSyntaxFault("state hh window=2", "4:7: the cell has no state \"hh\"; did you mean \"h\"?");
  ExpectSyntaxFault("state h windows=2", "4:9: a state has no \"windows\"; did you mean \"window\"?");
  ExpectSyntaxFault("state h window=1e30", "4:16: an integer is expected, not 1e30");
  ExpectSyntaxFault("state h window=2.5", "4:16: an integer is expected, not 2.5");
  ExpectSyntaxFault("state h window=2 window=3", "4:18: window of \"h\" is given twice");
  ExpectSyntaxFault("state h zoneout=true", "4:17: a number is expected, not 'true'");
  ExpectSyntaxFault("option layer = 2", "4:8: there is no option \"layer\"; did you mean \"layers\"?");
  ExpectSyntaxFault("option layers = 9223372036854775808", "4:17: an integer is expected, not 9223372036854775808");
  ExpectSyntaxFault("option residual = 1", "4:19: true or false is expected, not '1'");
  ExpectSyntaxFault("option direction = sideways", "4:20: forward, reverse or bidirectional is expected");
  ExpectSyntaxFault("option lengths = true",
                    "4:18: lengths takes the name of an input, which the net then reads: option lengths = lengths");
  ExpectSyntaxFault("option layers = 2\noption layers = 3", "5:8: the option layers is given twice");
  ExpectSyntaxFault("output", "4:7: '=' is expected, not the end of the line; as a statement it is `output h`");
}

TEST(CellErrors, OfExpressions) {
  ExpectSyntaxFault("h = Tanh(y)", "4:10: there is no blob \"y\" so far; if it is a parameter, add: param y[…]");
  ExpectSyntaxFault("param w[H, D]\nh = x @ w.T",
                    "5:9: there is no blob \"w.T\" so far; x @ w multiplies by the transposed w already, Transpose(w, "
                    "axes=[1, 0]) is it, and BatchMatMul(a, b, trans_b=1) multiplies two values of the step so");
  ExpectSyntaxFault("param weights[H, D]\nh = x @ weihts",
                    "5:9: there is no blob \"weihts\" so far; did you mean \"weights\"?");
  ExpectSyntaxFault("h = Tahn(x)", "4:5: no operator type \"Tahn\"; did you mean \"Tanh\"?");
  ExpectSyntaxFault("h = Tanh(x", "4:9: '(' is not closed; ')' is missing");
  ExpectSyntaxFault("h = Tanh(x))", "4:12: the end of the statement is expected, not ')'");
  ExpectSyntaxFault("h = x +", "5:1: a value is expected, not '}'");
  ExpectSyntaxFault("h = 1",
                    "4:1: a number has no shape here; give the shape, as in ConstantFill(x, value=1.0), or "
                    "ConstantFill(x, value=1, dtype=2) of int32");
  ExpectSyntaxFault("h = Add(x, 1)",
                    "4:12: a number has no shape here; give the shape, as in ConstantFill(x, value=1.0), "
                    "or ConstantFill(x, value=1, dtype=2) of int32");
  ExpectSyntaxFault("h = 2 @ x", "4:7: @ needs tensors, not numbers");
  ExpectSyntaxFault("h = x\nh = x", "5:1: \"h\" is written twice; give the second value a name of its own");
  ExpectSyntaxFault("h, h = Split(x)", "4:1: \"h\" is written twice; give the second value a name of its own");
  ExpectSyntaxFault("x = h", "4:1: \"x\" is given to the step, which cannot write it");
  ExpectSyntaxFault("h_prev = x", "4:1: \"h_prev\" is given to the step, which cannot write it");
  ExpectSyntaxFault("h, y = Tanh(x)", "4:1: Tanh has at most 1 outputs, not 2");
  ExpectSyntaxFault("a, y = x", "4:1: one value cannot be given to 2 names");
  ExpectSyntaxFault("h = Print(x)", "4:5: Print has no output, so it is no value");
  ExpectSyntaxFault("h = Add(x, x, axis=1, axis=2)", "4:23: the argument axis is given twice");
  ExpectSyntaxFault("h = H",
                    "4:1: H is a number, without a shape; a tensor of it is ConstantFill(x, value=H, dtype=1), of "
                    "floats in the shape of x");
  ExpectSyntaxFault("h = Add(x, 1/H)",
                    "4:12: 1/H is a number, without a shape; a tensor of it is ConstantFill(x, value=1/H, dtype=1), of "
                    "floats in the shape of x");
  ExpectSyntaxFault("h = x @ H", "4:7: @ needs tensors, not numbers");
  ExpectSyntaxFault("h = Sqrt(H)", "4:10: the root of a number is sqrt(…)");
  ExpectSyntaxFault("h = sqrt(x)",
                    "4:5: sqrt(…) is the root of a number, as sizes give them; that of a blob is Sqrt(x)");
  ExpectSyntaxFault("h = x * sqrt(-1)", "4:9: it takes the root of -1");
  ExpectSyntaxFault("h = x * (1/0 + H)", "4:14: inf is beyond what a float can hold");
  ExpectSyntaxFault("H = x\nh = x * H", "5:9: H is a size and a blob; give one another name");
  std::string sum = "H";
  for (int k = 0; k < 400; ++k) sum += " + H";
  ExpectSyntaxFault("h = x * (" + sum + ")", "4:1008: an expression of sizes is too long");
  ExpectSyntaxFault("h = Softmax(x, axis=\"last\")",
                    "4:21: the argument axis takes numbers and expressions of sizes, without quotes");
  ExpectSyntaxFault("h = ConstantFill(x, value=\"H\")",
                    "4:27: the argument value takes numbers and expressions of sizes, without quotes");
  ExpectSyntaxFault("h = ConstantFill(x, value=Q)", "4:27: there is no size Q so far; a string stands in quotes");
  ExpectSyntaxFault("h = Scale(x, scale=1e300)", "4:20: 1e300 is beyond what a float can hold");
}

TEST(CellErrors, OfArgumentsWithoutNames) {
  ExpectSyntaxFault("h = Clip(x, -1, 1)", "4:13: arguments of operators are named: Clip(…, min=-1, max=1)");
  ExpectSyntaxFault("h = Clip(x, -1, max=1)", "4:13: arguments of operators are named: Clip(…, min=-1)");
  ExpectSyntaxFault("h = Clip(-1, x)", "4:10: arguments of operators are named: Clip(…, min=-1)");
  ExpectSyntaxFault("h = Clip(-1, x, 1)", "4:10: arguments of operators are named: Clip(…, min=-1, max=1)");
  ExpectSyntaxFault("h = Pow(x * 2, 2)", "4:16: arguments of operators are named: Pow(…, exponent=2)");
  ExpectSyntaxFault("h = Dropout(x, 0.3)", "4:16: arguments of operators are named: Dropout(…, ratio=0.3)");
}

// To find the line of each would take as long as the text is.
TEST(CellErrors, WarningsAreCountedBeyondAHundred) {
  std::string lines = "  h = Tanh(x)\n  output h";
  for (int i = 0; i < 130; ++i) lines += StrCat("\n  unread", i, " = Tanh(x)");
  const std::vector<std::string> warnings = WarningsOf(ParseCell(CellOf(lines), "c"));
  ASSERT_EQ(warnings.size(), 101u);
  EXPECT_TRUE(warnings[99].starts_with("c:105:14: nothing reads what `unread99 = Tanh(x)` writes")) << warnings[99];
  EXPECT_EQ(warnings[100], "… and 30 more");
}

TEST(CellErrors, DoNotNestForEver) {
  const std::string many(100'000, '(');
  ExpectSyntaxFault("h = " + many, "4:206: the expression nests too deep");
  ExpectSyntaxFault("h = " + std::string(100'000, '-') + "x", "4:206: the expression nests too deep");
  std::string calls = "h = ";
  for (int k = 0; k < 100'000; ++k) calls += "Tanh(";
  ExpectSyntaxFault(calls, "4:1010: the expression nests too deep");
  ExpectSyntaxFault("param w[" + many, "4:9: \"" + many.substr(0, 60) + "…\" is no size: it nests too deep");
  std::string sum = "h = x";
  for (int k = 0; k < 20'000; ++k) sum += " + x";
  EXPECT_EQ(ParseShortCell(CellOf(sum), "c").def.op_size(), 20'000);
}

TEST(CellErrors, OfWhatACellLacks) {
  ExpectFault("cell c(x[2]; ) {}", "syntax error: c:1:1: the cell has no output\nc:1:8: nothing reads the input \"x\"");
  ExpectSyntaxFault("param w[H, D]\nh = Tanh(x)\noutput h", "4:7: nothing reads the parameter \"w\"");
  ExpectFault("cell c(x[2]; h, c[2]) {\n  h = Tanh(x)\n  output h\n}",
              "syntax error: c:1:17: the state \"c\" is written by no operator");
  ExpectFault("cell c(x[2]; h[2]; keys[S, B]) {\n  size S = 2\n  h = Tanh(x)\n  output h\n}",
              "syntax error: c:1:20: nothing reads \"keys\"");
  ExpectFault("cell c(x[]; a[]) {\n  a = a + x\n  output a\n}",
              "syntax error: c:1:13: the state \"a\" has no dimensions; a[1] is one number an item");
  ExpectSyntaxFault("h = x\noutput hh", "5:8: the output \"hh\" is written by no operator; did you mean \"h\"?");
  ExpectSyntaxFault("h = x\noutput h last", "5:8: the first output must be of every step");
  ExpectSyntaxFault("h = x\noutput h\noutput h", "6:8: two outputs are called \"h\"");
  ExpectSyntaxFault("h = x\noutput h as x", "5:8: the output \"x\" has the name of what the net reads");
  // A size that is missing is told of each declaration once.
  ExpectSyntaxFault("param w[E, E]\nh = Tanh(x @ w)\noutput h",
                    "4:7: the shape of \"w\" has a size E, which the cell does not declare; add: size E");
  // All at once.
  ExpectSyntaxFault(
      "param w[H, D]\nparam u[E]\nh = x\noutput x",
      "5:7: the shape of \"u\" has a size E, which the cell does not declare; add: size E\n"
      "c:7:8: the output \"x\" is written by no operator\nc:7:8: the output \"x\" has the name of what the "
      "net reads\nc:4:7: nothing reads the parameter \"w\"\nc:5:7: nothing reads the parameter \"u\"");
}

TEST(CellErrors, OfValues) {
  const std::string step = kStep;
  ExpectSyntaxFault(step + "option layers = 0", "7:8: layers is 0, must be between 1 and 1000");
  ExpectSyntaxFault(step + "option layers = 1001", "7:8: layers is 1001, must be between 1 and 1000");
  ExpectSyntaxFault(step + "option dropout = 1", "7:8: dropout is 1, must be at least 0 and below 1");
  ExpectSyntaxFault(step + "option recurrent_dropout = -0.5",
                    "7:8: recurrent_dropout is -0.5, must be at least 0 and below 1");
  ExpectSyntaxFault(
      step + "option recurrent_dropout = 0.5",
      "7:8: recurrent_dropout is of the first state, \"h\", which the step never reads; of another one it "
      "is: state NAME dropout=…");
  ExpectFault("cell c(x[2]; ) {\n  y = Tanh(x)\n  output y\n  option recurrent_dropout = 0.5\n}",
              "syntax error: c:4:10: recurrent_dropout is of the first state, and the cell has none");
  ExpectFault("cell c(x[2]; ) {\n  y = Tanh(x)\n  output y\n  option zoneout = 0.5\n}",
              "syntax error: c:4:10: zoneout is of all states, and the cell has none");
  ExpectSyntaxFault(step + "state h dropout=0.5",
                    "7:9: dropout is of what the step reads of the state, and it never reads \"h\"");
  ExpectSyntaxFault(
      "h = Tanh(x + Slice(h, starts=[0, 0, 0], ends=[-1, -1, D]))\noutput h\nstate h dropout=0.5\n"
      "option recurrent_dropout = 0.5",
      "7:8: recurrent_dropout is of the first state, \"h\", which has a dropout of its own");
  ExpectSyntaxFault(step + "option dropout = 0.5",
                    "7:8: dropout is between layers, and the cell has one; in the step it is Dropout(…), of a state "
                    "that steps hand on: state NAME dropout=…");
  ExpectSyntaxFault(step + "option residual = true",
                    "7:8: residual adds from the second layer on, and the cell has one");
  ExpandCell(ParseCell(CellOf(step + "option dropout = 0\noption residual = false\noption zoneout = 0"), "c"));
  ExpectSyntaxFault(step + "option zoneout = 1.5", "7:8: zoneout is 1.5, must be at least 0 and below 1");
  ExpectSyntaxFault(step + "state h dropout=2", "7:9: dropout is 2, must be at least 0 and below 1");
  ExpectSyntaxFault(step + "state h window=0", "7:9: the state \"h\" has a window of 0, must be at least 1");
  ExpectSyntaxFault(step + "state h initial=1e99",
                    "7:9: the state \"h\" has the initial value \"1e99\", must be a number, given or learned");
  ExpectSyntaxFault(
      step + "state h initial=learnt",
      "7:9: the state \"h\" has the initial value \"learnt\", must be a number, given or learned; did you "
      "mean \"learned\"?");
  ExpectSyntaxFault(step + "option lengths = x",
                    "7:8: the name \"x\" is taken already; the option itself declares it, so that it does not stand "
                    "among the inputs");
  ExpectSyntaxFault(step + "option lengths = l\noption mask = m", "8:8: a cell has lengths or a mask, not both");
  ExpectSyntaxFault("param w[H, D] = Tanh\nh = Tanh(x @ w)\noutput h",
                    "4:17: Tanh cannot fill a parameter: it makes no tensor of a shape");
  ExpectSyntaxFault("param w[H, D] = UniformFill(mn=2)\nh = Tanh(x @ w)\noutput h",
                    "4:17: UniformFill has no argument \"mn\"; did you mean \"min\"?");
  ExpectSyntaxFault("param w[H, D] = UniformFill(shape=[2])\nh = Tanh(x @ w)\noutput h",
                    "4:17: \"w\" has a shape already; its initializer needs none");
  ExpectSyntaxFault("param w[H, D]\nh = Softmax(x @ w, axes=2)\noutput h",
                    "5:5: `h = Softmax(h.1)`: Softmax has no argument \"axes\"; did you mean \"axis\"?");
  ExpectSyntaxFault("size B = 2\nh = x\noutput h",
                    "4:6: B stands for the batch, which shapes are declared without, and cannot be a size of the cell");
  ExpectSyntaxFault("size E = 0\nh = x\noutput h", "4:6: the size E is 0, must be above 0");
}

TEST(CellErrors, OfSizes) {
  ExpectFault("cell c(x[D]; ) {\n  size D\n  y = x\n  output y\n}",
              "invalid argument: c:2:8: cell \"c\" needs a value for its size D");
  ExpectFault(CellOf("param w[H/2, D]\nh = Tanh(x @ w)\noutput h"),
              "invalid argument: c:4:7: \"H/2\" is no size: 3 cannot be divided by 2");
  ExpectFault(CellOf("param w[H - 3, D]\nh = Tanh(x @ w)\noutput h"),
              "invalid argument: c:4:7: the size H - 3 is 0, must be above 0");
  ExpectFault(CellOf("h = x / (H - 3)\noutput h"),
              "invalid argument: c:4:7: \"1/(H - 3)\" is no number: it divides by 0");
  ExpectFault(CellOf("h = x * sqrt(D - H)\noutput h"),
              "invalid argument: c:4:7: \"sqrt(D - H)\" is no number: it takes the root of -1");
  ExpectFault("cell c(x[9000000000000000000]; ) {\n  y = x\n  output y\n}",
              "shape mismatch: c:1:8: the sizes of [B, 9000000000000000000] multiply to more than 2^63");
  ExpectFault(CellOf("h = Slice(x, starts=[H/2], ends=[D])\noutput h"),
              "invalid argument: c:4:5: \"H/2\" is no size: 3 cannot be divided by 2");
  ExpectFault(
      CellOf("h = ConstantFill(x, value=1/H)\noutput h"),
      "invalid argument: c:4:5: \"1/H\" is no size: 1 cannot be divided by 3; value may be a whole number, so a "
      "fraction has a point in it, as 1.0/H");
  ExpectSyntaxFault("param p[H] = 1/K\nh = Tanh(x * p)\noutput h", "4:14: there is no size K so far");
  ExpectFault("cell c(x[H]; ) {\n  size H = 3\n  param p[H] = 1/(H - 3)\n  y = x * p\n  output y\n}",
              "invalid argument: c:3:9: \"1/(H - 3)\" is no number: it divides by 0");
  const CellSource cell = ParseCell(CellOf(kStep), "c");
  ExpectError(
      [&] {
        ExpandCell(cell, {.sizes = {{"h", 4}}});
      },
      "invalid argument: cell \"c\" has no size h; did you mean \"H\"?; its sizes are D, H");
  ExpectError(
      [&] {
        ExpandCell(cell, {.sizes = {{"layers", 2}}});
      },
      "invalid argument: cell \"c\" has no size layers; it is an option, which the cell says: option layers = …");
  ExpectError(
      [&] {
        ExpandCell(cell, {.sizes = {{"batch_first", 1}}});
      },
      "invalid argument: cell \"c\" has no size batch_first; it is an option, which the cell says: option batch_major "
      "= …");
  ExpectError([&] { ExpandCell(cell, {.sizes = {{"H", 0}}}); }, "invalid argument: the size H is 0, must be above 0");
}

TEST(CellErrors, ShowTheLine) {
  ExpectError([] { ParseCell(CellOf("param w[H, D]\nh = Tanh(x @ w) + w2\noutput h\n"), "c"); },
              "syntax error: c:5:19: there is no blob \"w2\" so far; did you mean \"w\"?\n  5 | h = Tanh(x @ w) + w2\n"
              "    |                   ^");
  ExpectError([] { ExpandCell(ParseCell(CellOf("param w[H, D]\nparam u[H, H]\nh = Tanh(x @ w)\noutput h\n"), "c")); },
              "syntax error: c:5:7: nothing reads the parameter \"u\"\n  5 | param u[H, H]\n    |       ^");
  ExpectError([] { ExpandCell(ParseCell(CellOf("param w[D, H]\nh = Tanh(x @ w)\noutput h\n"), "c")); },
              "… `x @ w + b` also b[N]\n  5 | h = Tanh(x @ w)\n    |            ^\n  at op 0 ");
}

// A file is what its name says, whatever its first word is.
TEST(CellErrors, OfFilesWhoseNamesAreThoseOfCells) {
  ExpectError([] { ParseCell("cel c(x[2]; h[2]) {\n}\n", "c.cell"); },
              "…c.cell:1:1: \"cell\" is expected, not 'cel'; did you mean \"cell\"?");
  ExpectError([] { ParseCell("", "c.cell"); }, "…c.cell:1:1: \"cell\" is expected, not the end of the text");
  EXPECT_EQ(ParseCell("name: 'c' input { name: 'x' }", "c.cell").def.name(), "c");
}

TEST(CellErrors, OfProductsTheWrongWayRound) {
  ExpectSyntaxFault("param w[H, D]\nh = Tanh(w @ x)\noutput h",
                    "5:12: the matrix of parameters, [N, D], stands on the right of @; did you mean `x @ w`?");
  ExpectSyntaxFault("param w[H, D]\nh = Tanh(w @ (x * 2))\noutput h",
                    "5:12: the matrix of parameters, [N, D], stands on the right of @; did you mean `… @ w`?");
}

TEST(CellErrors, OfShapesNameTheBatchThatWasGiven) {
  const auto error_with = [](std::int64_t batch) {
    try {
      ExpandCell(ParseCell(CellOf("param w[D, H]\nh = Tanh(x @ w)\noutput h\n"), "c"), {.batch = batch});
    } catch (const Error& error) {
      return error.message().substr(0, error.message().find('\n'));
    }
    return std::string();
  };
  for (const std::int64_t batch : {1, 2, 3, 7}) {  // 2 and 3 are sizes of the cell too
    EXPECT_NE(error_with(batch).find(StrCat("x_t is float [1, ", batch, ", 2] and")), std::string::npos)
        << error_with(batch);
  }
}

TEST(CellErrors, OfShapes) {
  ExpectFault(CellOf("param w[H, D]\nparam u[H, D]\nh = Tanh(x @ w + h @ u)\noutput h"),
              "shape mismatch: FC needs x [M, K] and w [N, K], where K are the sizes of x from axis 2 on; h_prev is "
              "float [1, B, 3] and u is float [3, 2]\n"
              "  `x @ w` takes parameters w[N, D], where D is the last size of x, and `x @ w + b` also b[N]\n"
              "  at op 1 `h.2 = FC(h_prev, u)` with h_prev float [1, B, 3], u "
              "float [3, 2]\n  in net \"c_step\"\n  in file c:6:20");
  ExpectFault(CellOf("param w[2*H, D]\nh = Tanh(x @ w)\noutput h"),
              "shape mismatch: c:5:1: the state \"h\" is declared as [H], which is float [1, B, 3] in a step of a "
              "batch of B, and the step writes float "
              "[1, B, 6]");
  // The batch is no size of the cell, so that dimensions in a wrong order are found.
  ExpectFault("cell c(x[3]; h[3]) {\n  h = Transpose(x, axes=[0, 2, 1])\n  output h\n}",
              "shape mismatch: c:2:3: the state \"h\" is declared as [3], which is float [1, B, 3] in a step of a "
              "batch of B, and the step writes float "
              "[1, 3, B]");
  ExpectFault(
      CellOf("param w[H, D]\nh = Tanh(x @ w)\noutput h\nk = Reshape(h, shape=[-1])\noutput k"),
      "shape mismatch: c:8:8: the output \"k\" is float [B*3] in a step of a batch of B; it must be [1, B, …] or "
      "[B, …]");
  ExpectFault(
      CellOf(std::string(kStep) +
             "m = ReduceSum(h, axes=[0, 2], keepdims=0)\noutput m\noption direction = bidirectional"),
      "shape mismatch: c:8:8: the output \"m\" is one number an item, and has no dimension in which two directions "
      "could be put side by side");
  ExpectFault("cell c(x[2]; h[3]) {\n  param w[3, 2]\n  h = Tanh(x @ w)\n  output h\n  option layers = 2\n}",
              "shape mismatch: c:1:8: layers cannot be put on each other: an item of the first output is [3], and the "
              "first input has a size of 2");
  ExpectFault(
      "cell c(x[D]; h[3]) {\n  size D = 2\n  param w[3, D]\n  h = Tanh(x @ w)\n  y = ExpandDims(h, dims=[3])\n"
      "  output y\n  option layers = 2\n}",
      "shape mismatch: c:1:8: layers cannot be put on each other: an item of the first output is [3, 1], of the "
      "first input it has 1 dimensions");
  ExpectFault(
      "cell c(x[D]; ) {\n  size D = 2\n  y = Concat(x, x, axis=-1)\n  output y\n  option layers = 2\n"
      "  option residual = true\n}",
      "shape mismatch: c:6:10: residual adds the input of layer 1, [4] an item, to its output, [8]");
}

TEST(CellErrors, OfAWindowThatTheStepWrites) {
  ExpectFault(CellOf("param w[H, D]\nstate h window=4\nh = h + x @ w\noutput h"),
              "shape mismatch: c:6:1: the state \"h\" is declared as [H], which is float [1, B, 3] in a step of a "
              "batch of B, and the step writes "
              "float [4, B, 3]; with window=4 it reads 4 rows of h, the oldest first, and writes one: the newest is "
              "Slice(h, starts=[-2], ends=[-1])");
}

// FC, x and w are words of the net that a cell becomes; the cell has `@`.
TEST(CellErrors, SayWhatAProductTakes) {
  ExpectFault(CellOf("param w[D]\nh = Tanh(x @ w + h)\noutput h"),
              "shape mismatch: FC needs w [N, K], divided before axis_w = 1; w is float [2]\n"
              "  `x @ w` takes parameters w[N, D], where D is the last size of x, and `x @ w + b` also b[N]\n"
              "  at op 0 `h.1 = FC(x_t, w)` with x_t float [1, B, 2], w float [2]\n"
              "  in net \"c_step\"\n  in file c:5:12");
  ExpectFault(CellOf("param w[H, D]\nk = Tanh(x @ w)\nh = k @ h\noutput h"),
              "shape mismatch: FC needs x [M, K] and w [N, K], where K are the sizes of x from axis 2 on; k is float "
              "[1, B, 3] and h_prev is float [1, B, 3]\n"
              "  `@` multiplies by parameters w[N, D]; two values of the step are multiplied by BatchMatMul(a, b), as "
              "matrices [1, B, M, K] and [1, B, K, N], or by a * b, element by element\n"
              "  at op 2 `h_t = FC(k, h_prev)` with k float [1, B, 3], h_prev float [1, B, 3]\n"
              "  in net \"c_step\"\n  in file c:6:7");
  // What is computed of parameters alone is a weight like another; a cell as a message has no `@`.
  ExpectError([] { ExpandCell(ParseCell(CellOf("param w[D]\nh = Tanh(x @ Tanh(w) + h)\noutput h"), "c")); },
              "…FC needs w [N, K], divided before axis_w = 1; h.1 is float [2]\n  `x @ w` takes parameters");
  const CellSource cell = ParseCell(CellOf("param w[D]\nh = Tanh(x @ w + h)\noutput h"), "c");
  ExpectError([&] { ExpandCell({.def = cell.def, .file = {}}); },
              "…FC needs w [N, K], divided before axis_w = 1; w is float [2]\n  at op 0");
}

TEST(CellErrors, OfUses) {
  CellSource cell = ParseCell(CellOf(kStep), "c");
  cell.def.mutable_options()->set_direction(CellOptions::REVERSE);
  ExpectError([&] { ExpandCell(cell, {.carry = true}); },
              "invalid argument: c: states can be carried from one part of a sequence to the next only forward");
  CellSource learned = ParseCell(CellOf(kStep), "c");
  learned.def.mutable_state(0)->set_initial("learned");
  ExpectError(
      [&] { ExpandCell(learned, {.carry = true}); },
      "…the initial value of the state \"h\" is learned, and a state that is carried starts from what it is given: "
      "it would not be learned; write initial=0, or another number, and it starts from that");
  // A part may begin where a sequence has ended.
  const std::string step = "param w[H, D]\nh = Tanh(x @ w + h)\ny = Sigmoid(h)\noutput h\noption lengths = n\n";
  ExpandCell(ParseCell(CellOf(step + "output y"), "c"), {.carry = true});
  ExpandCell(ParseCell(CellOf(step + "output y last"), "c"), {});
  for (const std::string kind : {"last", "beyond_length = held"}) {
    const std::string output = kind == "last" ? "output y last" : "output y\noption beyond_length = held";
    ExpectError([&] { ExpandCell(ParseCell(CellOf(step + output), "c"), {.carry = true}); },
                "…the output \"y\" is no state, so a part of a sequence that begins behind its end would not know what "
                "it was there (" +
                    kind + "); make it a state, or carry none");
  }
}

TEST(CellErrors, OfSizesInArguments) {
  ExpectSyntaxFault("param w[H, D]\nh = Slice(x @ w, starts=[0, 0, K], ends=[-1, -1, -1])\noutput h",
                    "5:5: the argument \"starts\" of Slice has a size K, which the cell does not declare; add: size K");
}

// With the sizes that there are, and of fills too.
TEST(CellErrors, OfValuesThatSizesGive) {
  const std::string uses = "\nh = Tanh(x @ w)\noutput h";
  ExpectFault(
      CellOf("param w[H, D] = GivenTensorFill(values=[1, 2])" + uses),
      "invalid argument: c:4:7: `w = GivenTensorFill()`: GivenTensorFill has 2 values for a tensor [3, 2] of 6");
  ExpectFault(CellOf("param w[H, D] = UniformFill(min=1/D, max=1/H)" + uses),
              "invalid argument: c:4:7: `w = UniformFill()`: UniformFill: min is 0.5, must not exceed max, 0.333333");
  ExpectFault(CellOf("param w[H, D] = UniformFill(max=1/(H - 3))" + uses),
              "invalid argument: c:4:7: \"1/(H - 3)\" is no number: it divides by 0");
  ExpectFault(CellOf("param w[H, D] = GaussianFill(std=D - H)" + uses),
              "invalid argument: c:4:7: `w = GaussianFill()`: GaussianFill: std is -1, must be at least 0");
  ExpectSyntaxFault(
      "param w[H, D] = UniformFill(max=1/K)" + uses,
      "4:17: the argument \"max\" of UniformFill has a size K, which the cell does not declare; add: size K");
  ExpectFault(CellOf("param w[H, D]\na = Dropout(x, ratio=H/D)\nh = Tanh(a @ w)\noutput h"),
              "invalid argument: c:5:5: `a = Dropout(x_t)`: Dropout: ratio is 1.5, must be less than 1");
  ExpectFault(CellOf("p = GivenTensorFill(shape=[H], values=[1, 2])\nh = x * p + h\noutput h"),
              "invalid argument: c:4:5: `p = GivenTensorFill()`: GivenTensorFill has 2 values for a tensor [3] of 3");
  ExpectSyntaxFault("h = Reshape(x, shape=[sqrt(H)])",
                    "4:23: \"sqrt(H)\" is no size: sqrt(…) is for arguments that take a float");
}

TEST(CellErrors, OfACellWithoutAText) {
  CellSource cell = ParseCell(CellOf(kStep), "c");
  cell.def.mutable_input(0)->set_shape(0, "E");
  ExpectFault(PrintShortCell(cell.def),
              "syntax error: c:1:8: the shape of \"x\" has a size E, which the cell does not declare; add: size E");
  cell = {.def = cell.def, .file = {}};
  ExpectError([&] { ExpandCell(cell); },
              "invalid net: cell \"c\": the shape of \"x\" has a size E, which the cell does not declare; add: size E");
}

// Messages as text, in which parts have their places too.
TEST(CellErrors, OfMessages) {
  const std::string start = "name: \"c\"\ninput { name: \"x\" shape: \"2\" }\nstate { name: \"h\" shape: \"2\" }\n";
  ExpectFault(start + "op { type: \"Tahn\" input: \"x\" output: \"h\" }\noutput { blob: \"h\" }",
              "syntax error: c:4:1: `h = Tahn(x)`: no operator type \"Tahn\"; did you mean \"Tanh\"?");
  ExpectFault(
      start + "op { type: \"Tanh\" input: \"y\" output: \"h\" }\n  output { blob: \"k\" }",
      "syntax error: c:4:1: `h = Tanh(y)` reads \"y\", which is no input, state or parameter and which no operator "
      "before it writes\nc:5:3: the output \"k\" is written by no operator\nc:2:1: nothing reads the input \"x\"");
  ExpectFault(
      start + "op { type: \"Tanh\" input: \"x\" output: \"h_prev\" }\noutput { blob: \"h_prev\" }",
      "syntax error: c:4:1: `h_prev = Tanh(x)` writes \"h_prev\", which a step is given\nc:3:1: the state \"h\" is "
      "written by no operator");
  ExpectFault(start +
                  "state { name: \"h\" shape: \"2\" }\nop { type: \"Tanh\" input: \"x\" output: \"h\" }\noutput { "
                  "blob: \"h\" }",
              "syntax error: c:4:1: the name \"h\" is taken already\nc:4:1: the name \"h_prev\" is taken already");
  ExpectFault(start +
                  "size { name: \"D\" } size { name: \"D\" }\nop { type: \"Tanh\" input: \"x\" output: \"h\" }\noutput "
                  "{ blob: \"h\" }",
              "syntax error: c:4:20: the size D is declared twice");
  ExpectFault(start +
                  "input { name: \"timestep\" }\ncapture { }\nop { type: \"Tanh\" input: \"x\" output: \"h\" }\noutput "
                  "{ blob: \"h\" }",
              "…syntax error: c:4:1: \"timestep\" is the number of the step\nc:5:1: a name is missing");
  ExpectFault(start +
                  "parameter { name: \"w\" shape: \"2^\" }\nop { type: \"Mul\" input: \"x\" input: \"w\" output: \"h\" "
                  "}\noutput { blob: \"h\" }",
              "syntax error: c:4:1: \"2^\" is no size: '^' is not expected");
  ExpectFault(
      "name: \"c\"\ninput { nam: \"x\" }",
      "input/output error: c:2:12: Message type \"CellInput\" has no field named \"nam\"; did you mean \"name\"?");
  ExpectFault("name: \"c\"\ninput { name: \"x\"", "…c:2:");
}

// Any example with another byte, one less, or cut off, is read or refused.
TEST(CellErrors, OfDamagedExamples) {
  const std::string bytes = "\n(){}[],;=+-*/@#\"\\0x.\xff\0";
  for (const auto& entry : std::filesystem::directory_iterator(SourcePath("examples/cells"))) {
    if (entry.path().extension() != ".cell") continue;
    const std::string text = ReadFile(entry.path());
    for (size_t at = text.find("cell "); at < text.size(); at += 3) {
      std::string damaged = text;
      damaged[at] = bytes[at % bytes.size()];
      for (const std::string& content : {damaged, text.substr(0, at), text.substr(0, at) + text.substr(at + 1)}) {
        try {
          ExpandCell(ParseCell(content, "damaged"));
        } catch (const Error&) {
        }
      }
    }
  }
}

}  // namespace
}  // namespace stepnet
