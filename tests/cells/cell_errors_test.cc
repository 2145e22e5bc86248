// What can be wrong with the text of a cell and with its uses, and what is said about it: file, line, column, and what
// would be right. Sizes and shapes are in cell_shape_errors_test.cc.
#include <filesystem>

#include "stepnet/cells/cell.h"
#include "stepnet/cells/cell_advice.h"
#include "stepnet/cells/cell_expand.h"
#include "stepnet/core/strings.h"
#include "stepnet/io/file.h"
#include "stepnet/tests/cells/cell_faults.h"
#include "stepnet/tests/core/source_path.h"

namespace stepnet {
namespace {

TEST(CellErrors, OfWords) {
  ExpectSyntaxFault("h = x ^ 2", "4:7: '^' has no meaning here; powers are Sqr(x) and Pow(x, exponent=3)");
  ExpectSyntaxFault("h = x ** 2", "4:7: powers are Sqr(x) and Pow(x, exponent=3), not x ** 3");
  ExpectSyntaxFault("h = x[:, 0]", "4:7: ':' has no meaning here; parts of a value are Slice(x, starts=[…], ends=[…])");
  ExpectSyntaxFault("h = x > 0", "4:7: '>' has no meaning here; LT(a, b), LE, GT, GE and EQ compare");
  ExpectSyntaxFault("h = x ? x : h", "4:7: '?' has no meaning here; Where(condition, a, b) chooses");
  ExpectSyntaxFault("h = h[0] + x", "4:6: a value is not indexed; parts of it are Slice(x, starts=[…], ends=[…])");
  ExpectSyntaxFault("h = \x01", "4:5: the control character (U+0001) has no meaning here");
  ExpectSyntaxFault("h = γ * x",
                    "4:5: 'γ' (U+03B3) has no meaning here; names are made of a to z, A to Z, 0 to 9 and _");
  ExpectSyntaxFault("h = \xff", "4:5: the byte 255 has no meaning here");
  ExpectSyntaxFault("h = F(x, mode=\"a b", "4:15: the string does not end on its line");
  ExpectSyntaxFault("h = 2x", "4:5: a name cannot start with a digit");
  ExpectSyntaxFault("h = x + 1e999", "4:9: 1e999 is beyond what a number can be");
  ExpectSyntaxFault("h = x + 1e300", "4:7: 1e+300 is beyond what a float can hold");
  ExpectSyntaxFault("h = x / 0", "4:7: it divides by 0");
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
  ExpectSyntaxFault(
      "h = x output h",
      "4:7: the end of the statement is expected, not 'output'; the next one begins in a new line or behind ';'");
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
  ExpectSyntaxFault("state h initial=-info", "4:18: a number is expected, not 'info'");
  ExpectSyntaxFault("h = x + 1/0", "4:10: it divides by 0");
  ExpectSyntaxFault("h = ReduceSum(x, axes=[-1], keepdims=False)", "4:38: write false, not False");
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
  ExpectSyntaxFault("h = BatchMatMul(x, 1)",
                    "4:20: a number has no shape here; give the shape, as in ConstantFill(x, value=1.0), "
                    "or ConstantFill(x, value=1, dtype=2) of int32");
  ExpectSyntaxFault("h = 2 @ x", "4:7: @ needs tensors, not numbers");
  ExpectSyntaxFault("h = x\nh = x", "5:1: \"h\" is written twice; give the second value a name of its own");
  ExpectSyntaxFault("h, h = Split(x)", "4:1: \"h\" is written twice; give the second value a name of its own");
  ExpectSyntaxFault("x = h", "4:1: \"x\" is given to the step, which cannot write it");
  ExpectSyntaxFault("h_prev = x", "4:1: \"h_prev\" is given to the step, which cannot write it");
  ExpectSyntaxFault("a, b, h = Dropout(x)", "4:1: Dropout has at most 2 outputs, not 3");
  ExpectSyntaxFault("h = Print(x)", "4:5: Print has no output, so it is no value");
  ExpectSyntaxFault("h = Add(x, x, axis=1, axis=2)", "4:23: the argument axis is given twice");
  ExpectSyntaxFault("h = H",
                    "4:1: H is a number, without a shape; a tensor of it is ConstantFill(x, value=H, dtype=1), of "
                    "floats in the shape of x");
  ExpectSyntaxFault("h = BatchMatMul(x, 1/H)",
                    "4:20: 1/H is a number, without a shape; a tensor of it is ConstantFill(x, value=1/H, dtype=1), of "
                    "floats in the shape of x");
  ExpectSyntaxFault("h = x @ H", "4:7: @ needs tensors, not numbers");
  ExpectSyntaxFault("h = Sqrt(H)", "4:10: the root of a number is sqrt(…)");
  ExpectSyntaxFault("h = sqrt(x)",
                    "4:5: sqrt(…) is the root of a number, as sizes give them; that of a blob is Sqrt(x)");
  ExpectSyntaxFault("h = x * sqrt(-1)", "4:9: it takes the root of -1");
  ExpectSyntaxFault("h = x * (1/0 + H)", "4:11: it divides by 0");
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
  ExpectSyntaxFault("param w[H, D]\nh = h + ReduceSum(x)\noutput h", "4:7: nothing reads the parameter \"w\"");
  ExpectSyntaxFault("param w[H, D]\nh = Tanh(x)\noutput h",
                    "4:7: nothing reads the parameter \"w\"\nc:5:1: the state \"h\" is declared as [H], which is float "
                    "[1, B, 3] in a step of a batch of B, and the step writes float [1, B, 2]");
  ExpectSyntaxFault("size Q = 7\nh = Tanh(x)\noutput h", "4:6: nothing uses the size Q");
  for (const std::string use :
       {"h = Tanh(x) * Q", "h = Slice(x, starts=[0, 0, 0], ends=[1, 1, Q])", "param b[D] = 1/Q\nh = x * b",
        "param w[Q]\nh = x + ReduceSum(w)", "h = ConstantFill(x, value=1.0/Q)"}) {
    const CellSource cell = ParseCell(CellOf("size Q = 7\n" + use + "\noutput h"), "c");
    EXPECT_NO_THROW(CheckCell(cell)) << use;
  }
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
  ExpectSyntaxFault("state h window=H - 1",
                    "4:16: an integer is expected, not 'H': sizes cannot stand here, as they may change");
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
  // Elements would never leave it.
  const std::string keeps =
      ", of which zoneout keeps a part in every step when not training; start it at a number as -1e30, or leave it "
      "out: ";
  ExpectSyntaxFault(step + "state h initial=-inf zoneout=0.5",
                    StrCat("7:9: the state \"h\" starts at -inf", keeps, "state h initial=-inf zoneout=0"));
  ExpectSyntaxFault(step + "state h initial=inf\noption zoneout = 0.1",
                    StrCat("7:9: the state \"h\" starts at inf", keeps, "state h initial=inf zoneout=0"));
  ExpandCell(ParseCell(CellOf(step + "state h initial=-inf zoneout=0\noption zoneout = 0.1"), "c"));
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
                    "7:9: the state \"h\" has the initial value \"1e99\", must be a number, given (an input) or "
                    "learned (a parameter)");
  ExpectSyntaxFault(step + "state h initial=nan",
                    "7:9: the state \"h\" has the initial value \"nan\", must be a number, given (an input) or "
                    "learned (a parameter)");
  ExpandCell(ParseCell(CellOf(step + "state h initial=-inf"), "c"));
  ExpandCell(ParseCell(CellOf(step + "state h initial=inf"), "c"));
  ExpectSyntaxFault(step + "state h initial=learnt",
                    "7:9: the state \"h\" has the initial value \"learnt\", must be a number, given (an input) or "
                    "learned (a parameter); did you "
                    "mean \"learned\"?");
  ExpectSyntaxFault(step + "state h initial=2*3",
                    "7:18: initial is a number as it is written, given (an input) or learned (a parameter), not an "
                    "expression: '*' follows 2");
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
  cell.def.mutable_state(0)->set_initial("learned");  // all reasons at once
  ExpectError(
      [&] { ExpandCell(cell, {.carry = true}); },
      "…c: states can be carried from one part of a sequence to the next only forward\nc:1:14: the initial value "
      "of the state \"h\" is learned, and a state that is carried starts from what it is given: it would not be "
      "learned; write initial=0, or another number, and it starts from that");
  // A part may begin where a sequence has ended.
  const std::string step = "param w[H, D]\nh = Tanh(x @ w + h)\ny = Sigmoid(h)\noutput h\noption lengths = n\n";
  const std::string late = "param w[H, D]\nh = Tanh(x @ w) + h * Cast(timestep, to=\"float\")\noutput h\n";
  ExpectError(
      [&] { ExpandCell(ParseCell(CellOf(late), "c"), {.carry = true}); },
      "…states cannot be carried from one part of a sequence to the next, since it reads timestep, which begins "
      "at 0 in each; count steps in a state, as n = n + 1");
  ExpandCell(ParseCell(CellOf(step + "output y"), "c"), {.carry = true});
  ExpandCell(ParseCell(CellOf(step + "output y last"), "c"), {});
  for (const std::string kind : {"last", "beyond_length = held"}) {
    const std::string output = kind == "last" ? "output y last" : "output y\noption beyond_length = held";
    ExpectError([&] { ExpandCell(ParseCell(CellOf(step + output), "c"), {.carry = true}); },
                "…the output \"y\" is no state, so a part of a sequence that begins behind its end would not know what "
                "it was there (" +
                    kind + "); make it a state, or carry none");
  }
  const std::string window = "state h window=3\nparam w[H, D]\nh = Tanh(x @ w + ReduceSum(h, axes=[0]))\noutput h\n";
  ExpandCell(ParseCell(CellOf(window), "c"), {.carry = true});
  ExpandCell(ParseCell(CellOf(window + "option lengths = n"), "c"), {.outer_states = true});
  for (const std::string option : {"option lengths = n", "option mask = m"}) {
    ExpectError(
        [&] { ExpandCell(ParseCell(CellOf(window + option), "c"), {.carry = true}); },
        "invalid argument: c:4:9: the state \"h\" has window=3, out of which steps that do not count push rows, "
        "too: the next part of a sequence would begin with others than the last that count; make a state of each "
        "row, as h_2 = h_1_prev; h_1 = …, and read the rows as Concat(h_2_prev, h_1_prev, axis=0)\n"
        "  4 | state h window=3\n    |         ^");
  }
}

TEST(CellErrors, OfParametersThatAreNoFloats) {
  const auto cell = [](const std::string& fill) {
    return CellOf("param w[H, D]\nparam a[2*H - H] = " + fill + "\nh = Tanh(x @ w) * a + h\noutput h");
  };
  const std::string fills = "; " + FillsText();
  const auto expect = [&](const std::string& fill, const std::string& dtype, const std::string& advice) {
    ExpectFault(cell(fill),
                StrCat("type mismatch: c:5:7: the parameter \"a\" would be ", dtype, ", and all are float", advice));
  };
  const std::string why = ": ConstantFill makes int64 of whole numbers";
  expect("ConstantFill(value=2)", "int64", "; write param a[2*H - H] = 2, or value=2.0" + why);
  expect("ConstantFill(value=H)", "int64", "; write param a[2*H - H] = 3, or value=3.0" + why);
  expect("ConstantFill(value=2, dtype=2)", "int32", "; write param a[2*H - H] = 2");
  expect("ConstantFill(value=0.5, dtype=13)", "double", "; write param a[2*H - H] = 0.5");
  expect("GivenTensorIntFill(values=[1, 2, 3])", "int32", fills);
  expect("UniformIntFill(min=1, max=3)", "int32", fills);
  for (const std::string fill : {"ConstantFill(value=2.0)", "ConstantFill(value=2, dtype=1)", "2", "ConstantFill()",
                                 "GivenTensorFill(values=[1, 2, 3])", "RangeFill()"}) {
    for (const bool exact : {false, true}) {
      const CellNet net = ExpandCell(ParseCell(cell(fill), "c"), {.in_double = exact});
      EXPECT_EQ(net.parameters.size(), 2U);
    }
  }
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
