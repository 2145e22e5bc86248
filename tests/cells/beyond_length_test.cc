// What outputs hold in steps that do not count.
#include <algorithm>
#include <functional>
#include <limits>

#include "stepnet/cells/cell_expand.h"
#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/tests/examples/cell_case.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

constexpr int kSteps = 4;

// A state that counts up and a blob that is none.
CellNet Counting(const std::string& options) {
  return ExpandCell(ParseCell(StrCat("cell c(x[1]; h[1]) {\n  state h initial=10\n  h = h + x\n  y = 2 * x\n"
                                     "  output h\n  output y\n  output h last\n  output y last\n",
                                     options, "}\n"),
                              "c"));
}

// x[t, b] = t + 1 for sequences of 4, 2 and 0 steps.
Tensors Given() {
  Tensors given = {{"x", Tensor(DType::kDouble, Shape({kSteps, 3, 1}))},
                   {"n", Tensor::Of<std::int32_t>({3}, {4, 2, 0})},
                   {"m", Tensor(DType::kBool, Shape({kSteps, 3}))},
                   {"h_init", Tensor::Of<double>({1, 1, 1}, {10})},
                   {"reverse/h_init", Tensor::Of<double>({1, 1, 1}, {10})}};
  for (int t = 0; t < kSteps; ++t) {
    for (int b = 0; b < 3; ++b) {
      given.at("x").data<double>()[3 * t + b] = t + 1;
      given.at("m").data<bool>()[3 * t + b] = t < given.at("n").data<std::int32_t>()[b];
    }
  }
  return given;
}

std::vector<double> Column(const Tensor& rows, int b) {
  std::vector<double> column;
  for (std::int64_t i = b; i < rows.size(); i += 3) column.push_back(rows.data<double>()[i]);
  return column;
}

using Values = std::vector<double>;

Values All(const Tensor& tensor) { return {tensor.data<double>(), tensor.data<double>() + tensor.size()}; }

TEST(BeyondLength, OutputsAreZeroByDefaultOrHeld) {
  for (const std::string steps : {"  option lengths = n\n", "  option mask = m\n"}) {
    for (const std::string option : {"", "  option beyond_length = zero\n", "  option beyond_length = held\n"}) {
      const bool is_held = option.find("held") != std::string::npos;
      const Tensors outputs = RunCell(Counting(steps + option), Given());
      EXPECT_EQ(Column(outputs.at("h"), 0), (Values{11, 13, 16, 20}));
      EXPECT_EQ(Column(outputs.at("y"), 0), (Values{2, 4, 6, 8}));
      EXPECT_EQ(Column(outputs.at("h"), 1), is_held ? (Values{11, 13, 13, 13}) : (Values{11, 13, 0, 0})) << option;
      EXPECT_EQ(Column(outputs.at("y"), 1), is_held ? (Values{2, 4, 4, 4}) : (Values{2, 4, 0, 0})) << option;
      EXPECT_EQ(Column(outputs.at("h"), 2), is_held ? (Values{10, 10, 10, 10}) : (Values{0, 0, 0, 0})) << option;
      EXPECT_EQ(Column(outputs.at("y"), 2), (Values{0, 0, 0, 0})) << option;
      EXPECT_EQ(outputs.at("h_last").data<double>()[1], 13);
      EXPECT_EQ(outputs.at("h_last").data<double>()[2], 10);
      EXPECT_EQ(outputs.at("y_last").data<double>()[1], 4);
    }
  }
}

TEST(BeyondLength, ReversedSequencesStartAtTheirOwnEnd) {
  const std::string reverse = "  option lengths = n\n  option direction = reverse\n";
  const Tensor zero = RunCell(Counting(reverse), Given()).at("h");
  EXPECT_EQ(Column(zero, 0), (Values{20, 19, 17, 14}));
  EXPECT_EQ(Column(zero, 1), (Values{13, 12, 0, 0}));
  EXPECT_EQ(Column(zero, 2), (Values{0, 0, 0, 0}));
  const Tensor held = RunCell(Counting(reverse + "  option beyond_length = held\n"), Given()).at("h");
  EXPECT_EQ(Column(held, 1), (Values{13, 12, 13, 13}));
}

// Gradients of rows that do not count go nowhere where those are zero, and to the last one that counts where they hold
// it.
TEST(BeyondLength, GradientsFollowWhatIsShown) {
  Tensor seeds(DType::kDouble, Shape({kSteps, 3, 1}));
  for (int i = 0; i < seeds.size(); ++i) seeds.data<double>()[i] = 1 + i / 3;  // t + 1
  const auto gradient = [&](const std::string& option) {
    return CellGradients(Counting("  option lengths = n\n" + option), Given(), {{"h", seeds}}).at("x");
  };
  const Tensor zero = gradient(""), held = gradient("  option beyond_length = held\n");
  EXPECT_EQ(Column(zero, 0), (Values{10, 9, 7, 4}));
  EXPECT_EQ(Column(held, 0), (Values{10, 9, 7, 4}));
  EXPECT_EQ(Column(zero, 1), (Values{3, 2, 0, 0}));
  EXPECT_EQ(Column(held, 1), (Values{10, 9, 0, 0}));
}

// Products and functions of what is not a number would give such gradients, too.
TEST(BeyondLength, WhatInputsHoldThereReachesNothing) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const std::string steps : {"  option lengths = n\n", "  option mask = m\n"}) {
    for (const std::string option : {"", "  option beyond_length = held\n", "  option direction = bidirectional\n",
                                     "  option layers = 2\n", "  option layers = 2\n  option residual = true\n"}) {
      if (steps.find("mask") != std::string::npos && option.find("bidirectional") != std::string::npos) continue;
      CellCase cell{ParseCell(StrCat("cell c(x[2], y[2]; h[2]) {\n  param w[2, 2]\n  param u[2, 2]\n"
                                     "  h = Tanh(x @ w + h @ u + Exp(y))\n  output h\n",
                                     steps, option, "}\n"),
                              "c"),
                    CellUse(), kSteps, /*batch=*/3};
      const CellNet net = cell.Expand();
      Tensors zeros = cell.RandomValues(net);
      zeros["n"] = Given().at("n");
      zeros["m"] = Given().at("m");
      Tensors nans = zeros;
      for (const char* name : {"x", "y"}) {
        nans[name] = zeros[name].Clone();
        for (std::int64_t i = 0; i < zeros[name].size(); ++i) {
          if (zeros.at("m").data<bool>()[i / 2]) continue;
          zeros[name].data<double>()[i] = 0;
          nans[name].data<double>()[i] = nan;
        }
      }
      EXPECT_EQ(All(RunCell(net, nans).at("h")), All(RunCell(net, zeros).at("h"))) << steps << option;
      Tensors weights = {{"h", RunCell(net, zeros).at("h").Clone()}};
      for (std::int64_t i = 0; i < weights["h"].size(); ++i)
        weights["h"].data<double>()[i] = 0.1 * static_cast<double>(i % 7) - 0.2;
      const Tensors expected = CellGradients(net, zeros, weights), found = CellGradients(net, nans, weights);
      EXPECT_GT(expected.size(), 3U);
      for (const auto& [name, gradient] : expected)
        EXPECT_EQ(All(found.at(name)), All(gradient)) << name << "\n" << steps << option;
    }
  }
}

// Layers that share a step net, and those with something between them.
TEST(BeyondLength, LayersReadWhatCounts) {
  for (const std::string between : {"", "  option residual = true\n"}) {
    const Tensor h = RunCell(Counting("  option lengths = n\n  option layers = 2\n" + between),
                             [] {
                               Tensors given = Given();
                               for (const std::string layer : {"layer0/", "layer1/"})
                                 given[layer + "h_init"] = Tensor::Of<double>({1, 1, 1}, {10});
                               return given;
                             }())
                         .at("h");
    // The first layer gives 11, 13; the second adds those to 10.
    const double own = between.empty() ? 0 : 1;
    EXPECT_EQ(Column(h, 1), (Values{21 + own * 11, 34 + own * 13, 0, 0})) << between;
  }
}

void ExpectFault(const std::function<void()>& work, ErrorCode code, const std::string& text) {
  try {
    work();
    ADD_FAILURE() << "no fault: " << text;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    EXPECT_NE(error.message().find(text), std::string::npos) << error.message();
  }
}

TEST(BeyondLength, WhatCannotBeHeldIsRefused) {
  const auto expand = [](const std::string& body, const std::string& options) {
    return [=] { ExpandCell(ParseCell(StrCat("cell c(x[3]; ) {\n", body, options, "}\n"), "c")); };
  };
  const std::string held = "  option lengths = n\n  option beyond_length = held\n";
  ExpectFault(expand("  y = ArgMax(x, axis=2)\n  output y\n", held), ErrorCode::kTypeMismatch,
              "c:3:10: the output \"y\" is int64, and beyond_length = held is for what is floating alone");
  ExpectFault(expand("  y = SumReduceLike(x, x)\n  z = ReduceSum(x, axes=[2], keepdims=0)\n  output z\n", held),
              ErrorCode::kShapeMismatch, "beyond_length = held needs a dimension: ExpandDims(z, dims=[2])");
  ExpectFault(expand("  y = x * 2\n  output y\n", "  option beyond_length = held\n"), ErrorCode::kSyntaxError,
              "beyond_length needs lengths or a mask");
  ExpectFault(expand("  y = x * 2\n  output y\n", "  option lengths = n\n  option beyond_length = hold\n"),
              ErrorCode::kSyntaxError, "zero or held is expected");
}

// The shapes of a step are inferred with some number as the batch, which sizes may be without following from it.
TEST(BeyondLength, SizesThatAreABatchByChanceAreHeld) {
  const auto cell = [](const std::string& y, const std::string& output) {
    return ParseCell(StrCat("cell c(x[8]; h[8]) {\n  h = x + h\n  y = ", y, "\n  output h\n  output y", output, "}\n"),
                     "c");
  };
  const std::string last = " last\n  option lengths = n\n";
  const std::string held = "\n  option lengths = n\n  option beyond_length = held\n";
  for (const std::string& output : {last, held}) {
    for (const std::string copies : {"h, h", "h, h, h", "h, h, h, h", "h, h, h, h, h"}) {
      for (const std::int64_t batch : {0, 3, 5}) {
        SCOPED_TRACE(testing::Message() << copies << ", batch " << batch << output);
        EXPECT_NO_THROW(
            ExpandCell(cell(StrCat("Concat(", copies, ", axis=-1, add_axis=1)"), output), {.batch = batch}));
      }
    }
    ExpectFault([&] { ExpandCell(cell("BatchMatMul(x, x, trans_b=1)", output)); }, ErrorCode::kShapeMismatch,
                StrCat("the output \"y\" has items whose size follows from that of the batch, and there is no ",
                       output == last ? "`last` with a mask or lengths" : "beyond_length = held", " for such"));
  }
  // A constant of three rows is no batch.
  ExpectFault([&] { ExpandCell(cell("ConstantFill(shape=[3, 8], value=1.0)", "\n")); }, ErrorCode::kShapeMismatch,
              "the output \"y\" is float [3, 8] in a step of a batch of B");
}

}  // namespace
}  // namespace stepnet
