// What declarations say of inputs and outputs beside a text: it is checked, and shapes follow from it.
#include "stepnet/core/formal_shapes.h"

#include "stepnet/core/declared_gradient.h"
#include "stepnet/core/formulas/formula.h"
#include "stepnet/core/input_checks.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

using Infos = std::vector<TensorInfo>;

// What the shape rule of the type says of an operator with these inputs and so many outputs.
Infos ShapesOf(const std::string& type, const Infos& inputs, int num_outputs = 1) {
  OperatorDef def;
  def.set_type(type);
  for (size_t i = 0; i < inputs.size(); ++i) def.add_input(StrCat("in", i));
  for (int o = 0; o < num_outputs; ++o) def.add_output(StrCat("out", o));
  const OperatorCall op(def);
  return op.schema().shapes(ShapeQuery(op, inputs));
}

TensorInfo Of(DType dtype, const Shape& shape) { return {.dtype = dtype, .shape = shape}; }
const TensorInfo kX = Of(DType::kFloat, {2, 3}), kMask = Of(DType::kBool, {2, 3});

RunFn Nothing(const OperatorCall&) {
  return [](const OpRun&) {};
}

const Registration masked = Operator("test.MaskedByKernel")
                                .Private()
                                .Input("x", OfFloats("[N, C]"))
                                .Input("mask", OfTypes({DType::kBool}, "which count", "x"))
                                .OptionalInput("w", Like("x", "weights"))
                                .Output("y", Like("x"))
                                .OptionalOutput("kept", OfTypes({DType::kBool}, "which are kept", "x"))
                                .CheckShapes([](const ShapeQuery& query) {
                                  if (query.In(0).shape.rank() != 2) throw WrongInputs(query, {0}, "needs x [N, C]");
                                })
                                .Cpu(Nothing);

TEST(FormalShapes, GiveOutputsThatAreLikeInputs) {
  EXPECT_EQ(ShapesOf("test.MaskedByKernel", {kX, kMask}), (Infos{kX, kMask}));
  const TensorInfo x = Of(DType::kDouble, {0, 3});
  EXPECT_EQ(ShapesOf("test.MaskedByKernel", {x, Of(DType::kBool, {0, 3}), x}, 2)[0], x);
}

TEST(FormalShapes, RefuseInputsThatAreNotWhatIsSaid) {
  const auto refuse = [](const Infos& inputs, const std::string& message) {
    ExpectError([&] { ShapesOf("test.MaskedByKernel", inputs); }, message);
  };
  refuse({Of(DType::kInt32, {2, 3}), kMask},
         "type mismatch: test.MaskedByKernel works on float and double; in0 is int32 [2, 3]");
  refuse({kX, kX}, "type mismatch: test.MaskedByKernel works on bool; in1 is float [2, 3]");
  refuse({kX, Of(DType::kBool, {3, 2})},
         "shape mismatch: test.MaskedByKernel needs inputs of one shape; in0 is float [2, 3] and in1 is bool [3, 2]");
  refuse({kX, kMask, Of(DType::kDouble, {2, 3})},
         "type mismatch: test.MaskedByKernel needs inputs of one type; in0 is float [2, 3] and in2 is double [2, 3]");
  refuse({Of(DType::kFloat, {6}), Of(DType::kBool, {6})},
         "shape mismatch: test.MaskedByKernel needs x [N, C]; in0 is float [6]");
}

TEST(FormalShapes, SayInTheReferenceOfWhatShapeSomethingIs) {
  const OperatorSchema& schema = GetOperator("test.MaskedByKernel");
  EXPECT_EQ(schema.inputs[2].doc, "the shape of x; weights");
  EXPECT_EQ(schema.outputs[0].doc, "the shape of x");
}

const Registration any_number = Operator("test.AnyNumberAlike")
                                    .Private()
                                    .Input("first", "any shape")
                                    .Inputs("x", OfNumbers("one or more of one shape and type", "x"))
                                    .Output("y", Like("x"))
                                    .Outputs("dx", Like("first", "one for each x"))
                                    .Cpu(Nothing);

TEST(FormalShapes, AreOfAnyNumber) {
  const TensorInfo first = Of(DType::kBool, {4}), x = Of(DType::kInt64, {3});
  EXPECT_EQ(ShapesOf("test.AnyNumberAlike", {first, x, x}, 3), (Infos{x, first, first}));
  ExpectError(
      [&] {
        ShapesOf("test.AnyNumberAlike", {first, x, Of(DType::kFloat, {3})});
      },
      "type mismatch: test.AnyNumberAlike needs inputs of one type; in1 is int64 [3] and in2 is float [3]");
  ExpectError(
      [&] {
        ShapesOf("test.AnyNumberAlike", {first, first});
      },
      "type mismatch: test.AnyNumberAlike works on float, double, int32 and int64; in1 is bool [4]");
}

// The formula alone would repeat y over x, take integers and, of x with three dimensions, make rows of all but the
// first.
const Registration by_formula = Operator("test.DistanceByFormula")
                                    .Private()
                                    .Input("x", OfFloats("[N, …]"))
                                    .Input("y", Like("x"))
                                    .Output("nearer", Like("x"))
                                    .Output("d", "[N]")
                                    .Gradient("test.DistanceByFormulaGradient", {"dd", "x", "nearer", "y"}, {"dy"})
                                    .Formula([](Formula& f) {
                                      f.RowsFrom("x", 1);
                                      const Expr x = f.In("x"), difference = x - f.In("y");
                                      f.Out({Where(difference > 0, x, 0), OfRows(RowSum(difference))});
                                    });
const Registration by_formula_gradient = GradientOf("test.DistanceByFormula", "").Formula([](Formula& f) {
  f.RowsFrom("x", 1);
  f.Out({f.Row("dd") * (f.In("x") - f.In("nearer"))});
});

TEST(FormalShapes, LeaveToAFormulaWhatTheySayNothingOf) {
  const TensorInfo x = Of(DType::kFloat, {2, 3, 4});
  EXPECT_EQ(ShapesOf("test.DistanceByFormula", {x, x}, 2), (Infos{x, Of(DType::kFloat, {2})}));
  ExpectError(
      [&] {
        ShapesOf("test.DistanceByFormula", {x, Of(DType::kFloat, {4})}, 2);
      },
      "shape mismatch: test.DistanceByFormula needs inputs of one shape; in0 is float [2, 3, 4] and in1 is float [4]");
}

TEST(FormalShapes, AreThoseOfTheGradientOperator) {
  const TensorInfo x = Of(DType::kFloat, {2, 3}), dd = Of(DType::kFloat, {2}), row = Of(DType::kFloat, {3});
  const std::string type = "test.DistanceByFormulaGradient";
  EXPECT_EQ(ShapesOf(type, {dd, x, x, x}), Infos{x});
  const std::string needs = "shape mismatch: " + type + " needs inputs of one shape; in1 is float [2, 3] and ";
  ExpectError([&] { ShapesOf(type, {dd, x, row, x}); }, needs + "in2 is float [3]");
  ExpectError([&] { ShapesOf(type, {dd, x, x, row}); }, needs + "in3 is float [3]");
  ExpectError(
      [&] {
        ShapesOf(type, {dd, Of(DType::kInt32, {2, 3}), x, x});
      },
      "…works on float, double, float16 and bfloat16; in1 is int32 [2, 3]");
}

const Registration sloped = Operator("test.SlopedAlongAxis")
                                .Private()
                                .Input("x", OfFloats("any shape"))
                                .Output("y", Like("x"))
                                .Arg("axis", 0, "a dimension of x")
                                .CheckShapes([](const ShapeQuery& query) {
                                  query.In(0).shape.CanonicalAxis(query.op().Int("axis"), "axis of the slope");
                                })
                                .DerivedGradient({"y", "dy"}, {"dx"})
                                .Formula([](Formula& f) { f.Out({2 * f.In("x")}); });

TEST(FormalShapes, OfOneInputAndItsOutputAreCheckedInTheGradientOperatorToo) {
  EXPECT_EQ(ShapesOf("test.SlopedAlongAxisGradient", {kX, kX}), Infos{kX});
  ExpectError(
      [&] {
        ShapesOf("test.SlopedAlongAxisGradient", {kX, Of(DType::kFloat, {3})});
      },
      "…needs inputs of one shape; in0 is float [2, 3] and in1 is float [3]");
  const TensorInfo scalar = Of(DType::kFloat, {});
  ExpectError([&] { ShapesOf("test.SlopedAlongAxisGradient", {scalar, scalar}); }, "…axis of the slope");
}

const Registration of_nothing = Operator("test.CheckedAlone")
                                    .Input("x", OfFloats("any shape"))
                                    .Output("y", "any shape")
                                    .CheckShapes([](const ShapeQuery&) {})
                                    .Cpu(Nothing);

TEST(FormalShapes, ChecksAloneAreNoShapes) {
  const std::string problem = RegistrationProblems().at("test.CheckedAlone");
  EXPECT_NE(problem.find("nothing says what shapes its outputs have"), std::string::npos) << problem;
}

}  // namespace
}  // namespace stepnet
