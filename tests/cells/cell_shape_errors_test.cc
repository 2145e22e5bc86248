// What can be wrong with the sizes and shapes of a cell, and what is said about it.
#include <gtest/gtest.h>

#include "stepnet/core/strings.h"
#include "stepnet/tests/cells/cell_faults.h"

namespace stepnet {
namespace {

// Both are known, and the shape is the mistake that left the parameter unread.
TEST(CellShapeErrors, AreToldBesideWhatNothingReads) {
  ExpectFault(
      "cell c(x[4]; h[4]) {\n  param w[4, 4]\n  param u[4, 4]\n  h = Concat(h, x) @ w\n  output h\n}",
      "syntax error: c:3:9: nothing reads the parameter \"u\"\n"
      "c:4:3: the state \"h\" is declared as [4], which is float [1, B, 4] in a step of a batch of B, and the step "
      "writes float [1, B*2, 4]");
  ExpectFault("cell c(x[D]; h[4]) {\n  size D\n  param u[4, D]\n  h = Tanh(h + Sum(x))\n  output h\n}",
              "syntax error: c:3:9: nothing reads the parameter \"u\"");
}

TEST(CellShapeErrors, OfSizes) {
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
      "invalid argument: cell \"c\" has no size layers; it is the option layers");
  ExpectError(
      [&] {
        ExpandCell(cell, {.sizes = {{"batch_first", 1}}});
      },
      "invalid argument: cell \"c\" has no size batch_first; it is the option batch_major");
  ExpectError([&] { ExpandCell(cell, {.sizes = {{"H", 0}}}); }, "invalid argument: the size H is 0, must be above 0");
}

TEST(CellShapeErrors, OfProductsTheWrongWayRound) {
  ExpectSyntaxFault("param w[H, D]\nh = Tanh(w @ x)\noutput h",
                    "5:12: the matrix of parameters, [N, D], stands on the right of @; did you mean `x @ w`?");
  ExpectSyntaxFault("param w[H, D]\nh = Tanh(w @ (x * 2))\noutput h",
                    "5:12: the matrix of parameters, [N, D], stands on the right of @; did you mean `… @ w`?");
}

TEST(CellShapeErrors, OfShapesNameTheBatchThatWasGiven) {
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

TEST(CellShapeErrors, OfShapes) {
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

// A second input or a capture is not bound to what the layer below gives, as the first input is.
TEST(CellShapeErrors, OfWhatAllLayersRead) {
  const auto cell = [](const std::string& header, const std::string& h, const std::string& options) {
    return StrCat("cell c(", header, ") {\n  size D = 2\n  size H = 3\n  param w[H, D]\n  h = ", h,
                  "\n  output h\n  option layers = 2\n", options, "}");
  };
  const std::string product = "Tanh((x * m) @ w + h)";
  const std::string slice = "Tanh((x * Slice(m, starts=[0], ends=[1])) @ w + h)";
  const std::string message =
      "layers cannot be put on each other: all layers read the same \"m\", whose size D is 2 in the first one and 3 "
      "where \"x\" is what the layer below gives; declare it by a size that \"x\" does not have";
  ExpectFault(cell("x[D], m[D]; h[H]", product, ""), "shape mismatch: c:1:14: " + message);
  ExpectFault(cell("x[D]; h[H]; m[2, B, D]", slice, ""), "shape mismatch: c:1:20: " + message);
  // Where sizes are the same in all layers, whatever they are called, nothing is to be said.
  EXPECT_EQ(ExpandCell(ParseCell(cell("x[D], m[D]; h[H]", product, ""), "c"), {.sizes = {{"D", 3}}}).inputs.size(), 2u);
  EXPECT_EQ(ExpandCell(ParseCell(cell("x[D]; h[H]; m[2, B, D]", slice, ""), "c"), {.sizes = {{"D", 3}}}).inputs.size(),
            2u);
  // Two directions are twice as wide, also where D and H are one size.
  ExpectFault(
      cell("x[H], m[H]; h[H]", "Tanh(x @ Transpose(w, axes=[1, 0]) @ w + m + h)",
           "  option direction = bidirectional\n"),
      "shape mismatch: c:1:14: layers cannot be put on each other: all layers read the same \"m\", whose size H "
      "is 3 in the first one and 6 where \"x\" is what the layer below gives; declare it by a size that \"x\" "
      "does not have");
}

// A size that the first input has twice can be bound to one number alone.
TEST(CellShapeErrors, OfASizeThatTheFirstInputHasTwice) {
  ExpectFault(
      "cell c(x[D, D]; ) {\n  size D = 2\n  y = Concat(x, x, axis=-1)\n  output y\n  option layers = 2\n}",
      "shape mismatch: c:1:8: layers cannot be put on each other: an item of the first output is [2, 4], and the first "
      "input has a size of D");
  // A size that follows from one behind it is bound, too.
  EXPECT_EQ(ExpandCell(ParseCell("cell c(x[2*D, D]; ) {\n  size D = 2\n  y = Concat(Concat(x, x, axis=2), Concat(x, x, "
                                 "axis=2), axis=3)\n  output y\n  option layers = 2\n}",
                                 "c"))
                .output_items[0],
            Shape({16, 8}));
}

TEST(CellShapeErrors, OfAWindowThatTheStepWrites) {
  ExpectFault(CellOf("param w[H, D]\nstate h window=4\nh = h + x @ w\noutput h"),
              "shape mismatch: c:6:1: the state \"h\" is declared as [H], which is float [1, B, 3] in a step of a "
              "batch of B, and the step writes "
              "float [4, B, 3]; with window=4 it reads 4 rows of h, the oldest first, and writes one: the newest is "
              "Slice(h, starts=[-2], ends=[-1])");
}

// FC, x and w are words of the net that a cell becomes; the cell has `@`.
TEST(CellShapeErrors, SayWhatAProductTakes) {
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

TEST(CellShapeErrors, OfSizesInArguments) {
  ExpectSyntaxFault("param w[H, D]\nh = Slice(x @ w, starts=[0, 0, K], ends=[-1, -1, -1])\noutput h",
                    "5:5: the argument \"starts\" of Slice has a size K, which the cell does not declare; add: size K");
}

// With the sizes that there are, and of fills too.
TEST(CellShapeErrors, OfValuesThatSizesGive) {
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

}  // namespace
}  // namespace stepnet
