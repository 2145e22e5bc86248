// Formulas as text.
#include "stepnet/core/formulas/formula_text.h"

#include <algorithm>
#include <string>
#include <vector>

#include "stepnet/core/formulas/formula.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

TEST(FormulaText, NamesArgumentsSizesAndSums) {
  const auto text = [](const char* type) { return FormulaText(GetOperator(type)); };
  EXPECT_EQ(text("Scale"), "y = scale * x");
  EXPECT_EQ(text("Clip"), "y = min(arg_max, max(arg_min, x))");
  EXPECT_EQ(text("EluGradient"), "dx = dy * where(0 < y, 1, y + alpha)");
  EXPECT_EQ(text("SeluGradient"), "dx = dy * where(0 < y, scale, y + alpha * scale)");
  EXPECT_EQ(text("LayerNorm"),
            "t0 = row_sum(x) / row_size; t1 = x - t0; t2 = sqrt(row_sum(t1 * t1) / row_size + epsilon); y = t1 * (1 / "
            "t2); mean = t0; std = t2");
  EXPECT_EQ(text("AveragedLoss"), "y = float(row_sum(double(x)) / num_elements)");
  EXPECT_EQ(text("ElementwiseLinearGradient"), "dx = dy * w; dw = sum_over_rows(dy * x); db = sum_over_rows(dy)");
  EXPECT_EQ(text("DropoutGrad"), "of bool mask: dx = where(mask, dy * (1 / (1 - ratio)), 0)");
  EXPECT_EQ(text("Pow"), "y = pow(x, exponent)");
  EXPECT_EQ(text("WeightedSum"), "y = 0 + w0 * x0 + w1 * x1");
  EXPECT_EQ(text("UniformFill"),
            "with dtype = 0: t0 = float(arg_min + (arg_max - arg_min) * uniform(double, seed, operator, run, step, "
            "index(3))); y = t0");
  EXPECT_EQ(text("Cast"), "with to = \"int32\": y = int32(x)");
  EXPECT_EQ(
      text("MomentumSGDUpdate"),
      "t0 = mul_add(arg_momentum, momentum, lr * mul_add(weight_decay, param, grad)); step = t0; new_momentum = t0; "
      "new_param = param - t0");
}

TEST(FormulaText, SaysWhatArgumentsMakeOfTheFormula) {
  const auto variants = [](const char* type) { return FormulaVariants(GetOperator(type)); };
  EXPECT_EQ(variants("Mod"),
            std::vector<std::string>{"with sign_follow_divisor = true: t0 = x % divisor; y = where(t0 < 0, "
                                     "t0 + divisor, t0)"});
  EXPECT_EQ(variants("DropoutGrad"), std::vector<std::string>{"with is_test = true: dx = dy"});
  EXPECT_EQ(variants("Scale"), std::vector<std::string>());
  EXPECT_EQ(variants("LSTMUnit").back(),
            "without seq_lengths: t0 = mul_add(sigmoid(gates_1 + forget_bias), c_prev, sigmoid(gates_0) * "
            "tanh(gates_3)); h = sigmoid(gates_2) * tanh(t0); c = t0");
  EXPECT_EQ(variants("GRUUnit").back(),
            "without seq_lengths: t0 = sigmoid(gates_1); h = mul_add(h_prev, t0, (1 - t0) * tanh(gates_2))");
  EXPECT_EQ(variants("Div"),
            std::vector<std::string>{"of whole numbers: t0 = require(b != 0, \"Div of the integer {} by 0 for element "
                                     "{element} of the output, in a / b\", a); c = a / b"});
  EXPECT_EQ(variants("SequenceMask").back().find("with mode = \"sequence\", repeat_from_axis = -1, grad = true, "), 0);
}

Operator OfX(const char* type) {
  Operator op(type);
  op.Private().Input("x", "any shape").Output("y", "any shape");
  op.Arg("alpha", 0.5f, "a number").Arg("beta", 2.0f, "a number").Arg("mode", 0, "0 to 2");
  return op;
}
const Registration odd[] = {
    OfX("test.LessFour").Formula([](Formula& f) { f.Out({f.In("x") / static_cast<double>(f.ShapeOf("x")[-1] - 4)}); }),
    OfX("test.FirstOfThree").Formula([](Formula& f) { f.Out({f.In("x") / static_cast<double>(f.ShapeOf("x")[2])}); }),
    OfX("test.Literals").Formula([](Formula& f) { f.Out({f.In("x") * 1009 + 1013}); }),
    OfX("test.Messages")
        .Formula(
            [](Formula& f) {
              const Expr x = f.In("x");
              f.Check(x > 0, StrCat("{} of 1013 or ", f.ShapeOf("x")[-1], " or ", f.ShapeOf("x")[-1] + 3), x);
              f.Out({x});
            },
            {.checks_values = true}),
    OfX("test.Folds").Formula([](Formula& f) { f.Out({f.Number("alpha") * f.In("x") + f.Number("beta") * 3}); }),
    OfX("test.Chooses").Formula([](Formula& f) {
      const Expr x = f.In("x");
      f.Out({f.Int("mode") == 0 ? x * x : f.Int("mode") == 2 ? x : -x});
    }),
    OfX("test.ReadsTwice").Shapes(SameAsInput(0)).Formula([](Formula& f) {
      const Expr x = f.In("x");
      f.Out({x - f.Scalar("x")});
    }),
    OfX("test.OfTwoDimensions").Formula([](Formula& f) {
      const Expr x = f.In("x");
      f.Out({f.ShapeOf("x").rank() == 2 ? x : x * x});
    }),
    OfX("test.OfWholeNumbers").Formula([](Formula& f) { f.Out({f.In("x") + Index(3)}); }),
    Operator("test.RowSize").Private().Input("row_size", "any").Output("y", "any").Formula([](Formula& f) {
      f.Out({f.In("row_size") / static_cast<double>(f.ShapeOf("row_size")[-1])});
    })};

// What is printed is what runs, whichever numbers are those of the samples that are asked.
TEST(FormulaText, NamesWhatItDependsOnAndNothingElse) {
  const auto text = [](const char* type) { return FormulaText(GetOperator(type)); };
  EXPECT_EQ(text("test.LessFour"), "y = x / size1; size1 is a number that follows from the shapes");
  EXPECT_EQ(text("test.FirstOfThree"), "y = x / size1; size1 is a number that follows from the shapes");
  EXPECT_EQ(text("test.Literals"), "y = x * 1009 + 1013");
  EXPECT_EQ(text("test.Messages"),
            "y = x; require(0 < x, \"{} of 1013 or row_size or size1\", x); size1 is a number that follows from the "
            "shapes");
  EXPECT_EQ(text("test.Folds"), "with beta = 2: y = alpha * x + 6");
  EXPECT_EQ(text("test.Chooses"), "with mode = 0: y = x * x");
  EXPECT_EQ(text("test.ReadsTwice"), "y = x - x_of_all");
  EXPECT_EQ(text("test.OfTwoDimensions"), "of 2 dimensions: y = x");
  EXPECT_EQ(text("test.OfWholeNumbers"), "of int64 x: y = x + index(3)");
  EXPECT_EQ(text("test.RowSize"), "y = row_size / the_row_size");
}

TEST(FormulaText, SaysWhichNumbersAreSpecial) {
  const auto variants = [](const char* type) { return FormulaVariants(GetOperator(type)); };
  EXPECT_EQ(variants("test.Chooses"), (std::vector<std::string>{"with mode = -2: y = -x", "with mode = 2: y = x"}));
  EXPECT_EQ(variants("test.Folds"), std::vector<std::string>());
  const std::vector<std::string> of_pow = variants("Pow");
  for (const char* one : {"with exponent = -1: y = 1 / x", "with exponent = 2: y = x * x"}) {
    EXPECT_EQ(std::ranges::count(of_pow, one), 1) << one;
  }
}

const Registration of_values = Operator("test.OfValues")
                                   .Private()
                                   .Input("x", "the shape of y")
                                   .Output("y", "of whole numbers")
                                   .ShapesReadValues({0})
                                   .Shapes([](const ShapeQuery& query) -> std::vector<TensorInfo> {
                                     return {{.dtype = DType::kInt32, .shape = Shape(query.IntsOf(0))}};
                                   })
                                   .Formula([](Formula& f) {
                                     f.Over(f.OutputByRule().shape);
                                     f.Out({Cast(f.OutputByRule().dtype, Index(3))});
                                   });

TEST(FormulaText, IsThatOfInputsThatHoldShapes) {
  EXPECT_EQ(FormulaText(GetOperator("test.OfValues")), "of int32 x: y = int32(index(3))");
}

// A product, and a gradient of it.
Operator Product(const char* type, const char* gradient, FormalInfo w) {
  Operator op(type);
  op.Private().Input("x", "any shape").Input("w", std::move(w)).Output("y", "the shape of both, repeated");
  op.Gradient(gradient, {"x", "w", "dy"}, {"dx", "dw"}).Formula([](Formula& f) { f.Out({f.In("x") * f.In("w")}); });
  return op;
}
Operator ProductGradient(const char* type, const char* of) {
  Operator op(type);
  op.Private().Input("x", "as there").Input("w", "as there").Input("dy", "the shape of y");
  op.Output("dx", "the shape of x").Output("dw", "the shape of w").Formula(DerivativeOf(of));
  return op;
}
const Registration products[] = {Product("test.Repeats", "test.RepeatsGradient", "any shape"),
                                 ProductGradient("test.RepeatsGradient", "test.Repeats"),
                                 Product("test.OfOneShape", "test.OfOneShapeGradient", Like("x")),
                                 ProductGradient("test.OfOneShapeGradient", "test.OfOneShape")};

TEST(FormulaText, SaysWhichGradientsAreSummed) {
  const auto text = [](const std::string& type) {
    return RepeatedGradientsText(GetOperator(type), GetOperator(type + "Gradient"));
  };
  EXPECT_EQ(text("test.Repeats"),
            "dx is summed over what x is repeated over; dw is summed over what w is repeated over");
  EXPECT_EQ(text("test.OfOneShape"), "");
  EXPECT_EQ(text("Pow"), "");                // x alone says the shape
  EXPECT_EQ(text("ElementwiseLinear"), "");  // the formula says it
  const OperatorSchema& div_gradient = GetOperator("DivGradient");
  EXPECT_EQ(RepeatedGradientsText(div_gradient, div_gradient), "db is summed over what b is repeated over");
}

TEST(FormulaText, IsThatOfEveryFormula) {
  for (const std::string& type : OperatorTypes()) {
    const OperatorSchema* schema = type.starts_with("test.") ? nullptr : &GetOperator(type);
    if (schema == nullptr || !schema->formula) continue;
    std::vector<std::string> texts = FormulaVariants(*schema);
    texts.push_back(FormulaText(*schema));
    EXPECT_NE(texts.back(), "") << type;
    for (const std::string& text : texts) {
      for (const char* size : {"1009", "1013", "1022117"})
        EXPECT_GE(text.find(size), text.size()) << type << ": " << text;
    }
  }
}

}  // namespace
}  // namespace stepnet
