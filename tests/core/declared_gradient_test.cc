// Operators and their gradient operators: what one declares of the other.
#include "stepnet/core/declared_gradient.h"

#include <cmath>
#include <map>
#include <set>

#include "stepnet/core/formulas/formula.h"
#include "stepnet/core/input_checks.h"
#include "stepnet/nets/backward.h"
#include "stepnet/nets/gradient.h"
#include "stepnet/proto/net.pb.h"
#include "stepnet/tests/core/error_of.h"
#include "stepnet/tests/executor/recurrent_case.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

Operator Forward(const char* type) { return std::move(Operator(type).Input("x", "").Input("s", "").Output("y", "")); }

const Registration from_result =
    Operator("test.FromResult").Input("y", "").Input("dy", "").Output("dx", "").OptionalOutput("ds", "");

const Registration fits = Forward("test.Fits").Gradient("test.FromResult", {"y", "dy"}, {"dx", "ds"});
const Registration reads_x = Forward("test.ReadsX").Gradient("test.FromResult", {"x", "dy"}, {"dx"});
const Registration swaps = Forward("test.Swaps").Gradient("test.FromResult", {"y", "dy"}, {"ds", "dx"});
const Registration misspelt_input = Forward("test.ReadsZ").Gradient("test.FromResult", {"z", "dy"}, {"dx"});
const Registration misspelt_output = Forward("test.GivesX").Gradient("test.FromResult", {"y", "dy"}, {"x"});

// What is optional may be absent.
const Registration from_both = Operator("test.FromBoth")
                                   .Input("x", "")
                                   .OptionalInput("y", "")
                                   .OptionalInput("dy", "")
                                   .OptionalOutput("dx", "")
                                   .OptionalOutput("ds", "");
const Registration leaves_out = Forward("test.LeavesOut").Gradient("test.FromBoth", {"x", "dy"}, {"ds"});
const Registration leaves_none_out = Forward("test.LeavesNoneOut").Gradient("test.FromBoth", {"x", "dy", "y"}, {"ds"});

// It is the gradient of others, too, and its names are not about theirs.
const Registration negative = Operator("test.AnyNegative").Input("x", "").Output("y", "");
const Registration general = Forward("test.IsGeneral").Gradient("test.AnyNegative", {"dy"}, {"dx"});

const Registration without = Forward("test.WithoutGradient").Gradient("test.Unregistered", {"x", "dy"}, {"dx"});

const Registration slope =
    Operator("test.SlopeGradient").Input("dy", "").Output("dx", "").Arg("slope", 0.5f, "").Arg("axis", 1, "");
Operator Sloped(const char* type, float slope) {
  return std::move(Forward(type).Arg("slope", slope, "").Arg("axis", 1, "").Arg("own", 3, ""));
}
const Registration same_slope = Sloped("test.SameSlope", 0.5f).Gradient("test.SlopeGradient", {"dy"}, {"dx"});
const Registration other_slope = Sloped("test.OtherSlope", 0.25f).Gradient("test.SlopeGradient", {"dy"}, {"dx"});
const Registration slope_by_rule = Sloped("test.SlopeByRule", 0.25f).Gradient([](GradientBuilder& g) {
  g.Add({.type = "test.SlopeGradient", .inputs = {g.GO(0)}, .outputs = {g.GI(0)}});
});
const Registration slope_given = Sloped("test.SlopeGiven", 0.25f).Gradient([](GradientBuilder& g) {
  const double slope = g.op().Float("slope");
  g.Add({.type = "test.SlopeGradient",
         .inputs = {g.GO(0)},
         .outputs = {g.GI(0)},
         .arguments = {{"slope", {.f = slope}}}});
});
const Registration slope_left_out = Sloped("test.SlopeLeftOut", 0.25f).Gradient([](GradientBuilder& g) {
  g.Add({.type = "test.SlopeGradient", .inputs = {g.GO(0)}, .outputs = {g.GI(0)}, .copies_arguments = false});
});

const Registration derived =
    Operator("test.Tempered")
        .Doc("y = tanh(k x) s")
        .Input("x", "any shape")
        .OptionalInput("s", "as x")
        .Output("y", "the shape of x")
        .Arg("k", 2.0f, "steepness", AtLeast(0))
        .InPlace({{0, 0}})
        .DerivedGradient({"x", "s", "dy"}, {"dx", "ds"})
        .Formula([](Formula& f) { f.Out({Tanh(f.Number("k") * f.In("x")) * (f.Has("s") ? f.In("s") : Expr(1))}); });
const Registration derived_in_place = Operator("test.Halved")
                                          .Input("x", "any shape")
                                          .Output("y", "the shape of x")
                                          .Shapes([](const ShapeQuery& query) {
                                            ExpectAlike(query, 0, query.op().num_inputs() - 1);
                                            return SameAsInput(0)(query);
                                          })
                                          .InPlace({{0, 0}})
                                          .Check([](const OperatorCall& op, std::vector<NetProblem>* problems) {
                                            if (op.num_inputs() > 1 && op.inputs()[0] == "odd")
                                              problems->push_back({.message = "odd is not halved"});
                                          })
                                          .DerivedGradient({"y", "dy"}, {"dx"}, "half of it")
                                          .Formula([](Formula& f) { f.Out({0.5 * f.In("x")}); });
const Registration derived_misspelt =
    Forward("test.DerivedMisspelt").DerivedGradient({"x", "dz"}, {"dx"}).Formula([](Formula& f) {
      f.Out({f.In("x") * f.In("s")});
    });

TEST(DerivedGradient, FollowsFromTheForwardOperator) {
  const OperatorSchema& schema = GetOperator("test.TemperedGradient");
  EXPECT_EQ(schema.doc, "Gradient of test.Tempered.");
  ASSERT_EQ(schema.inputs.size(), 3U);
  EXPECT_EQ(schema.inputs[0].doc, "input of test.Tempered, any shape");
  EXPECT_TRUE(schema.inputs[1].optional);
  EXPECT_EQ(schema.inputs[2].doc, "the shape of y");
  EXPECT_EQ(schema.outputs[1].doc, "the shape of s");
  EXPECT_EQ(schema.FindArgument("k")->default_value.f, 2);
  EXPECT_FALSE(schema.AllowsInPlace(0, 0));
  OpTest("test.Tempered").Arg("k", 0.5f).Random("x", {3, 5}, 1).Random("s", {3, 5}, 2).GradientMatches();
}

TEST(DerivedGradient, OfOneInputMayWorkInPlaceAndFollowsItsShapes) {
  const OperatorSchema& schema = GetOperator("test.HalvedGradient");
  EXPECT_EQ(schema.doc, "half of it");
  EXPECT_TRUE(schema.AllowsInPlace(0, 0));
  EXPECT_TRUE(schema.AllowsInPlace(1, 0));
  OpTest("test.Halved").Random("x", {3, 5}, 1).GradientMatches();
  const auto run = [](const std::string& y, const Shape& shape) {
    Workspace workspace;
    workspace.SetTensor(y, Random(shape, 1));
    workspace.SetTensor("dy", Random({2, 3}, 2));
    NetDef net;
    *net.add_op() = ParseOp("dx = test.HalvedGradient(" + y + ", dy)");
    return ErrorOf([&] { RunNetOnce(net, workspace); });
  };
  EXPECT_EQ(run("y", {2, 3}), "no error");
  EXPECT_NE(run("y", {3}).find("test.HalvedGradient needs inputs of one shape"), std::string::npos) << run("y", {3});
  EXPECT_NE(run("odd", {2, 3}).find("odd is not halved"), std::string::npos) << "the check is that of test.Halved";
}

const Registration by_hand = Operator("test.Cubed")
                                 .Input("x", "any shape")
                                 .Output("y", "the shape of x")
                                 .Arg("k", 2.0f, "factor")
                                 .InPlace({{0, 0}})
                                 .Private()
                                 .Gradient("test.CubedGradient", {"x", "dy"}, {"dx"})
                                 .Formula([](Formula& f) {
                                   const Expr x = f.In("x");
                                   f.Out({f.Number("k") * x * x * x});
                                 });
const Registration by_hand_gradient = GradientOf("test.Cubed", "dx = 3 k x^2 dy").Formula([](Formula& f) {
  const Expr x = f.In("x");
  f.Out({f.In("dy") * (3 * f.Number("k") * x * x)});
});

TEST(GradientOf, HasWhatFollowsFromTheForwardOperator) {
  const OperatorSchema& schema = GetOperator("test.CubedGradient");
  EXPECT_EQ(schema.doc, "dx = 3 k x^2 dy");
  ASSERT_EQ(schema.inputs.size(), 2U);
  EXPECT_EQ(schema.inputs[0].doc, "input of test.Cubed, any shape");
  EXPECT_EQ(schema.FindArgument("k")->default_value.f, 2);
  EXPECT_TRUE(schema.AllowsInPlace(1, 0));
  EXPECT_TRUE(schema.is_private);
  OpTest("test.Cubed").Arg("k", 0.5f).Random("x", {3, 5}, 1).GradientMatches();
}

const Registration weighed = Operator("test.Weighed")
                                 .Input("x", "[N, C]")
                                 .OptionalInput("w", "[N]")
                                 .Output("y", "[N]")
                                 .Shapes([](const ShapeQuery& query) -> std::vector<TensorInfo> {
                                   const TensorInfo& x = query.In(0);
                                   return {{.dtype = x.dtype, .shape = Shape({x.shape[0]})}};
                                 })
                                 .Gradient("test.WeighedGradient", {"x", "w", "dy"}, {"dx"})
                                 .Formula([](Formula& f) {
                                   const Expr sum = RowSum(f.In("x"));
                                   f.Out({OfRows(f.Has("w") ? sum * f.Row("w") : sum)});
                                 });
// Reads elements beyond what dy has unless its shape is checked before.
const Registration weighed_gradient = GradientOf("test.Weighed", "").Cpu([](const OperatorCall&) -> RunFn {
  return [](const OpRun& run) {
    const std::int64_t columns = run.Out(0).dim(1);
    for (std::int64_t i = 0; i < run.Out(0).size(); ++i) {
      const std::int64_t row = i / columns;
      const float weight = run.num_inputs() > 2 ? run.In(1).As<float>()[row] : 1;
      run.Out(0).As<float>()[i] = weight * run.In(run.num_inputs() - 1).As<float>()[row];
    }
  };
});

TEST(GradientOf, ChecksWhatIsLikeAnOutputBeforeAKernelReadsIt) {
  const auto run = [](const Shape& dy, bool has_weights) {
    OpTest test("test.WeighedGradient");
    test.Random("x", {2, 3}, 1);
    if (has_weights) test.Random("w", {2}, 2);
    test.Random("dy", dy, 3).Run();
  };
  const std::string needs = "…test.WeighedGradient needs dy like what test.Weighed gives, float [2]; dy is float [1]";
  for (const bool has_weights : {false, true}) {
    run({2}, has_weights);
    ExpectError([&] { run({1}, has_weights); }, needs);
  }
}

const Registration too_early = GradientOf("test.Later", "").Formula([](Formula& f) { f.Out({f.In("dy")}); });
const Registration later = Operator("test.Later")
                               .Input("x", "")
                               .Output("y", "")
                               .Gradient("test.LaterGradient", {"dy"}, {"dx"})
                               .Formula([](Formula& f) { f.Out({f.In("x")}); });

TEST(GradientOf, IsAnErrorBeforeTheForwardOperator) {
  Workspace workspace;
  workspace.SetTensor("dy", Random({2}, 1));
  NetDef net;
  *net.add_op() = ParseOp("dx = test.LaterGradient(dy)");
  const std::string error = ErrorOf([&] { RunNetOnce(net, workspace); });
  EXPECT_NE(
      error.find("test.LaterGradient is declared as the gradient of test.Later, which is not registered before it "
                 "with a .Gradient by names"),
      std::string::npos)
      << error;
}

const Registration derived_from_too_little =
    Forward("test.DerivedFromTooLittle").DerivedGradient({"x", "dy"}, {"dx"}).Formula([](Formula& f) {
      f.Out({f.In("x") * f.In("s")});
    });

Operator Noisy(const std::string& type) {
  return Operator(type)
      .Doc("x with noise.")
      .Input("x", "any shape")
      .Input("s", "any shape")
      .Output("y", "as x")
      .DrawsRandomNumbers();
}

const Registration derived_from_noise =
    Noisy("test.DerivedFromNoise").DerivedGradient({"dy"}, {"dx"}).Formula([](Formula& f) {
      f.RowsFrom("x", 0);
      f.Out({f.In("x") * f.Uniform(DType::kFloat)});
    });

const Registration derived_beside_noise =
    Noisy("test.DerivedBesideNoise").DerivedGradient({"dy"}, {"dx"}).Formula([](Formula& f) {
      f.RowsFrom("x", 0);
      f.Out({f.In("x") * 2 + f.Uniform(DType::kFloat)});
    });

const Registration derived_from_kept_noise = Noisy("test.DerivedFromKeptNoise")
                                                 .Output("noise", "as x")
                                                 .DerivedGradient({"noise", "dy"}, {"dx"})
                                                 .Formula([](Formula& f) {
                                                   f.RowsFrom("x", 0);
                                                   const Expr noise = f.Uniform(DType::kFloat);
                                                   f.Out({f.In("x") * noise, noise});
                                                 });

// What an operator may have any number of has one name for all, which is the last.
void SumOfSquares(Formula& f) {
  Expr sum = 0.0;
  for (const Expr& x : f.Ins("x")) sum = sum + x * x;
  f.Out({sum});
}
const Registration any_derived = Operator("test.AnyDerived")
                                     .Inputs("x", "any shape")
                                     .Output("y", "as x")
                                     .DerivedGradient({"x", "dy"}, {"dx"})
                                     .Formula(SumOfSquares);
const Registration any_besides = Operator("test.AnyBesides")
                                     .Input("a", "any shape")
                                     .Inputs("x", "any shape")
                                     .Output("y", "as x")
                                     .DerivedGradient({"a", "dy"}, {"da"})
                                     .Formula(SumOfSquares);
const Registration any_given = Operator("test.AnyGiven")
                                   .Input("x", "any shape")
                                   .Input("s", "any shape")
                                   .Outputs("y", "as x")
                                   .Gradient("test.FromResult", {"y", "dy"}, {"dx"});

const std::map<std::string, std::string>& Wrong() {
  static const std::map<std::string, std::string> wrong = {
      {"test.ReadsX",
       "the gradient of test.ReadsX gives \"x\" to test.FromResult as input 0, which that declares as \"y\""},
      {"test.Swaps",
       "the gradient of test.Swaps takes \"ds\" from test.FromResult as output 0, which that declares as \"dx\""},
      {"test.LeavesNoneOut",
       "the gradient of test.LeavesNoneOut gives \"dy\" to test.FromBoth as input 1, which that declares as \"y\""},
      {"test.ReadsZ",
       "the gradient of test.ReadsZ reads \"z\", which is no input and no output, and not \"d\" and an output"},
      {"test.WithoutGradient",
       "no operator type \"test.Unregistered\", which the gradient of test.WithoutGradient names"},
      {"test.DerivedMisspelt",
       "the gradient of test.DerivedMisspelt reads \"dz\", which is no input and no output, and not \"d\" and an "
       "output"},
      {"test.DerivedFromTooLittle",
       "test.DerivedFromTooLittleGradient is declared as the derivative of test.DerivedFromTooLittle, and its formula "
       "reads \"s\", which it is not given: declare .Input(\"s\", …) here, and name it where "
       "test.DerivedFromTooLittle says what its gradient is"},
      {"test.DerivedFromNoise",
       "test.DerivedFromNoiseGradient is declared as the derivative of test.DerivedFromNoise, which draws random "
       "numbers that its gradient needs, and would draw others: let test.DerivedFromNoise give them, or what follows "
       "from them, as an output, and declare that as an input here"},
      {"test.AnyDerived",
       "the gradient of test.AnyDerived names \"x\", of which there may be any number, before others: name it last"},
      {"test.AnyBesides",
       "test.AnyBesidesGradient is declared as the derivative of test.AnyBesides, of whose input \"x\" there may be "
       "any number, which names do not tell apart: declare .Inputs(\"x\", …) here, too, or say here what the gradient "
       "is"},
      {"test.AnyGiven",
       "the gradient of test.AnyGiven names \"y\", of which there may be any number, and a name stands for one: "
       "declare "
       "the gradient by a function, .Gradient([](GradientBuilder& g) { … })"},
      {"test.GivesX", "the gradient of test.GivesX gives \"x\", which is not \"d\" and an input"},
      {"test.OtherSlope",
       "where a net leaves out \"slope\" it is 0.25 in test.OtherSlope and 0.5 in its gradient operator "
       "test.SlopeGradient"}};
  return wrong;
}

OperatorGradient GradientOf(const std::string& type) {
  return MakeGradient(ParseOp("y = " + type + "(x, s)"), {{.dense = "y_grad"}});
}

TEST(DeclaredGradient, IsComparedWithItsOperatorWhereRegistrationsAreChecked) {
  const std::map<std::string, std::string> problems = RegistrationProblems();
  EXPECT_FALSE(problems.contains("test.DerivedBesideNoise"));
  EXPECT_FALSE(problems.contains("test.DerivedFromKeptNoise"));
  for (const auto& [type, message] : Wrong()) {
    const auto found = problems.find(type);
    EXPECT_EQ(found == problems.end() ? "" : found->second, message) << type;
  }
  for (const auto& [type, message] : problems) {
    EXPECT_TRUE(type.starts_with("test.")) << type << ": " << message;
  }
  for (const char* type : {"test.Fits", "test.LeavesOut", "test.IsGeneral", "test.SameSlope"}) {
    EXPECT_FALSE(problems.contains(type)) << problems.at(type);
  }
}

TEST(DeclaredGradient, IsRefusedWhereItIsAskedFor) {
  for (const auto& [type, message] : Wrong()) ExpectError([&] { GradientOf(type); }, "invalid net: " + message);
  ExpectError([&] { GradientOf("test.SlopeByRule"); },
              "invalid net: where a net leaves out \"slope\" it is 0.25 in test.SlopeByRule and 0.5 in its gradient "
              "operator test.SlopeGradient");
  for (const char* type : {"test.Fits", "test.SameSlope", "test.SlopeGiven", "test.SlopeLeftOut"}) {
    EXPECT_EQ(GradientOf(type).ops.size(), 1u) << type;
  }
}

Operator ThreeResults(const std::string& type) {
  return Operator(type).Input("x", "any shape").Output("y", "as x").Output("w", "as x").Output("n", "as x");
}
void ThreeOfX(Formula& f) {
  const Expr x = f.In("x");
  f.Out({Sin(x), Cos(x), x * x});
}
const Registration leaves_n = ThreeResults("test.LeavesN").DerivedGradient({"x", "dy", "dw"}, {"dx"}).Formula(ThreeOfX);

// Gradients of the sum of the losses with respect to x, in a net of one operator.
std::vector<double> GradientOfX(const std::string& op, const std::vector<std::string>& losses) {
  NetDef net;
  *net.add_op() = ParseOp(op);
  const NetWithGradients made = AddGradients(net, losses, {"x"});
  Workspace workspace;
  workspace.SetTensor("x", Tensor::Of<double>({2}, {0.5, -2}));
  RunNetOnce(made.net, workspace);
  return ToDoubles(workspace.GetTensor(made.gradients.at("x").dense));
}

TEST(DeclaredGradient, RefusesGradientsThatArriveWhereItTakesNone) {
  for (const std::vector<std::string>& losses : {std::vector<std::string>{"y", "b"}, {"b"}}) {
    ExpectError(
        [&] { GradientOfX("y, a, b = test.LeavesN(x)", losses); },
        "…invalid net: test.LeavesN passes no gradient through its output \"n\", here \"b\": its gradient, "
        "test.LeavesNGradient, is not given dn; let the loss not depend on it, or put a StopGradient behind it");
  }
}

// The gradient of w, which is needed where that of y is taken, is zeros; none are made for n, which takes none.
TEST(DeclaredGradient, NeedsNoneOfOutputsThatTheLossDoesNotDependOn) {
  const std::vector<double> gradient = GradientOfX("y, a, b = test.LeavesN(x)", {"y"});
  ASSERT_EQ(gradient.size(), 2U);
  EXPECT_NEAR(gradient[0], std::cos(0.5), 1e-6);
  EXPECT_NEAR(gradient[1], std::cos(-2.0), 1e-6);
}

// s may be absent, and stands before t, which may not; so may w.
Operator Optional(const std::string& type) {
  return Operator(type)
      .Input("x", "any shape")
      .OptionalInput("s", "as x")
      .Input("t", "as x")
      .Output("y", "as x")
      .OptionalOutput("w", "as x");
}
void ScaledByWhatIsThere(Formula& f) {
  const Expr x = f.In("x"), scaled = Sin(x) * f.In("t") * f.In("t") * (f.Has("s") ? f.In("s") : Expr(1));
  f.Out({scaled, x * scaled});
}
const Registration may_scale = Optional("test.MayScale")
                                   .DerivedGradient({"x", "s", "t", "w", "dy", "dw"}, {"dx", "ds", "dt"})
                                   .Formula(ScaledByWhatIsThere);
const Registration may_scale_one = Optional("test.MayScaleOne")
                                       .DerivedGradient({"x", "s", "t", "dy", "dw"}, {"dx", "ds", "dt"})
                                       .Formula(ScaledByWhatIsThere);

TEST(DerivedGradient, MayLackWhatTheOperatorLacks) {
  const OperatorSchema& schema = GetOperator("test.MayScaleGradient");
  std::vector<std::string> optional;
  for (const auto& formals : {schema.inputs, schema.outputs}) {
    for (const Formal& formal : formals) {
      if (formal.optional) optional.push_back(formal.name);
    }
  }
  EXPECT_EQ(optional, (std::vector<std::string>{"s", "w", "dw", "ds"}));
  for (const char* type : {"test.MayScale", "test.MayScaleOne"}) {
    OpTest(type).Random("x", {2, 3}, 1).Random("t", {2, 3}, 3).GradientMatches();
    OpTest(type).Random("x", {2, 3}, 1).Random("s", {2, 3}, 2).Random("t", {2, 3}, 3).GradientMatches();
    OpTest(type, 2).Random("x", {2, 3}, 1).Random("s", {2, 3}, 2).Random("t", {2, 3}, 3).GradientMatches();
  }
}

// The formula would take the first ones of s, w and dw for what it is given.
TEST(DerivedGradient, RefusesOptionalOperandsThatWouldBeTakenForOthers) {
  ExpectError([] { OpTest("test.MayScaleOne", 2).Random("x", {2}, 1).Random("t", {2}, 3).GradientMatches(); },
              "invalid net: the gradient of test.MayScaleOne is given \"t\" and not \"s\", both of which may be absent "
              "there: of those the first ones must be given");
}

// The operators of the gradient of an operator whose blobs have the names of its formals, gradients "d" before them;
// nothing where its rule wants to know more than that.
std::vector<GradientOp> SampleGradient(const OperatorSchema& schema, bool with_optional) {
  OperatorDef def;
  def.set_type(schema.type);
  std::vector<GradientBlobs> gradients;
  for (const Formal& formal : schema.inputs) {
    if (with_optional || !formal.optional) def.add_input(formal.name);
  }
  for (int o = 0; o < static_cast<int>(schema.outputs.size()); ++o) {
    const std::string& name = schema.outputs[o].name;
    def.add_output(name);
    gradients.push_back({.dense = MayReadGradientOf(schema, o) ? "d" + name : ""});
  }
  try {
    const OperatorCall call(def);
    GradientBuilder builder(call, gradients);
    schema.gradient(builder);
    std::map<std::string, std::string> declared;  // names of gradients
    for (int i = 0; i < call.num_inputs(); ++i) declared[builder.input_gradients()[i].dense] = "d" + call.inputs()[i];
    std::vector<GradientOp> ops = builder.ops();
    for (GradientOp& op : ops) {
      for (std::string& output : op.outputs) {
        if (declared.contains(output)) output = declared.at(output);
      }
    }
    return ops;
  } catch (const Error&) {
    return {};
  }
}

TEST(DeclaredGradient, GradientsOfAllOperatorsFitThem) {
  std::set<std::string> not_asked;
  int asked = 0;
  for (const std::string& type : OperatorTypes()) {
    if (type.starts_with("test.")) continue;
    const OperatorSchema& schema = GetOperator(type);
    if (schema.gradient_kind != GradientKind::kRule) continue;
    bool is_asked = false;
    for (const bool with_optional : {false, true}) {
      for (const GradientOp& op : SampleGradient(schema, with_optional)) {
        EXPECT_EQ(GradientBindingProblem(schema, op), "");
        EXPECT_EQ(GradientDefaultProblem(schema, op), "");
        is_asked = true;
      }
    }
    ++asked;
    if (!is_asked) not_asked.insert(type);
  }
  // They pass gradients on without an operator, need arguments, or stand for others that have the gradients.
  EXPECT_EQ(not_asked, (std::set<std::string>{"Alias", "Cast", "ExpandDims", "Gather", "LSTMStateClip", "Mod", "Pow",
                                              "RNN", "RNNWeights", "RecurrentNetwork", "SequenceMask",
                                              "SoftmaxWithLoss", "Squeeze", "Sum", "TopK"}));
  EXPECT_GT(asked, 80);
}

}  // namespace
}  // namespace stepnet
