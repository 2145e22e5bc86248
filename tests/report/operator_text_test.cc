// What `rnn_runner ops` says of an operator beside its declaration.
#include "stepnet/report/operator_text.h"

#include <gtest/gtest.h>

#include "stepnet/core/formulas/formula.h"
#include "stepnet/report/expansion_text.h"

namespace stepnet {
namespace {

std::string LineOf(const std::string& type, const std::string& name) {
  const std::string text = "\n" + OperatorAsText(GetOperator(type));
  const size_t begin = text.find("\n" + name + ": ");
  if (begin == std::string::npos) return "";
  const size_t line = begin + name.size() + 3;
  return text.substr(line, text.find('\n', line) - line);
}

TEST(OperatorText, SaysWhatOperatorsWithoutFormulasAreMadeOf) {
  const auto text = [](const char* type) { return ExpansionText(GetOperator(type)); };
  EXPECT_EQ(text("FC"), "y = x * w^T + b (matrices)");
  EXPECT_EQ(text("FCGradient"), "dw = dy^T * x (matrices); db = the sum of the rows of dy; dx = dy * w (matrices)");
  EXPECT_EQ(text("MatMul"), "y = a * b (matrices)");
  EXPECT_EQ(text("Concat"), "y = copies of elements of x0, x1; split_info = constants");
  EXPECT_EQ(text("Slice"), "y = copies of elements of x");
  EXPECT_EQ(text("Transpose"), "y = copies of elements of x");
  EXPECT_EQ(text("ConstantFill"), "y = constants");
  EXPECT_EQ(text("Tanh"), "");
  EXPECT_EQ(LineOf("FC", "made of"), text("FC"));
}

TEST(OperatorText, IsThatOfEveryExpansion) {
  for (const std::string& type : OperatorTypes()) {
    const OperatorSchema* schema = type.starts_with("test.") ? nullptr : FindOperator(type);
    const bool has_many_inputs = type.starts_with("RNNWeights");  // more than are tried
    if (schema == nullptr || !schema->expansion || has_many_inputs) continue;
    EXPECT_NE(ExpansionText(*schema), "") << type;
  }
}

TEST(OperatorText, SaysWhichGradientsOfAGradientOperatorAreSummed) {
  EXPECT_EQ(LineOf("DivGradient", "formula"),
            "da = dc / b; db = -(dc * c) / b; db is summed over what b is repeated over");
}

const Registration odd = Operator("test.ReportOdd")
                             .Private()
                             .Input("x", "any shape")
                             .Output("y", "the shape of x")
                             .Shapes(SameAsInput(0))
                             .Formula([](Formula& f) {
                               if (f.ShapeOf("x").size() != 3) {
                                 throw Error(ErrorCode::kShapeMismatch, "test.ReportOdd needs three elements");
                               }
                               f.Out({f.In("x")});
                             });

TEST(OperatorText, SaysThatAFormulaIsNotShown) {
  EXPECT_EQ(LineOf("test.ReportOdd", "formula"),
            "not shown, because it takes none of the inputs that were tried, or is another one for each of them");
}

}  // namespace
}  // namespace stepnet
