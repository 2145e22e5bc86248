// The table of operator types.
#include <algorithm>
#include <climits>

#include "stepnet/core/operator.h"
#include "stepnet/io/proto_io.h"
#include "stepnet/nets/decomposition.h"
#include "stepnet/nets/net.h"
#include "stepnet/nets/net_check.h"
#include "stepnet/proto/net.pb.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

const Registration once = Operator("test.Twice", "first.cc").Doc("the first");
const Registration twice = Operator("test.Twice", "second.cc").Doc("the second");

RunFn Nothing(const OperatorCall&) {
  return [](const OpRun&) {};
}

std::vector<TensorInfo> NoOutputs(const ShapeQuery&) { return {}; }

// Kernels of other files, registered before and after their type.
const KernelRegistration early("test.Kernels", DeviceKind::kCuda, {.make = Nothing});
const Registration kernels = Operator("test.Kernels").Shapes(NoOutputs).Cpu(Nothing);
const KernelRegistration first_kernel("test.KernelTwice", DeviceKind::kCuda, {.make = Nothing});
const Registration kernel_twice = Operator("test.KernelTwice").Cpu(Nothing);
const KernelRegistration second_kernel("test.KernelTwice", DeviceKind::kCuda, {.make = Nothing});
const KernelRegistration late("test.MoreKernels", DeviceKind::kCuda, {.make = Nothing});
const Registration more_kernels = Operator("test.MoreKernels").Shapes(NoOutputs);

// Nothing says their shapes.
const Registration shapeless = Operator("test.Shapeless", "shapeless.cc").Input("x", "").Output("y", "").Cpu(Nothing);
const KernelRegistration early_shapeless("test.ShapelessEarly", DeviceKind::kCuda, {.make = Nothing});
const Registration shapeless_early = Operator("test.ShapelessEarly", "shapeless.cc");
const Registration shapeless_late = Operator("test.ShapelessLate", "shapeless.cc");
const KernelRegistration late_shapeless("test.ShapelessLate", DeviceKind::kCuda, {.make = Nothing});
const Registration of_blobs = Operator("test.OfBlobs").Cpu({.make = Nothing, .takes_blobs = true});
const KernelRegistration of_shapes("test.OfBlobs", DeviceKind::kCuda, {.make = Nothing, .takes_blobs = true});

const Registration on_two_devices =
    Operator("test.OnTwoDevices")
        .Input("x", "")
        .Input("y", "")
        .Input("sizes", "")
        .Shapes(SameAsInput(0))
        .ShapesReadValues({2})
        .Cpu(Nothing)
        .On(DeviceKind::kCuda, {.make = Nothing, .takes_blobs = true, .host_inputs = {0}});

const Registration formals = Operator("test.Formals")
                                 .Input("x", "")
                                 .OptionalInput("lengths", "")
                                 .OptionalInputs("rest", "")
                                 .Output("y", "")
                                 .OptionalOutput("mask", "")
                                 .InPlace({{0, 0}, {1, 1}})
                                 .EnforceInPlace({{2, 1}});

const Registration variadic = Operator("test.Variadic").Inputs("xs", "").Outputs("ys", "").OneToOneInPlace();

TEST(Registry, F6ATypeRegisteredTwiceIsAnErrorNotAnExit) {
  const std::string message = "operator type \"test.Twice\" is registered twice: in first.cc and in second.cc";
  ExpectError([] { FindOperator("test.Twice"); }, "invalid net: " + message);
  ExpectError([] { GetOperator("test.Twice"); }, "invalid net: " + message);
  NetDef net;
  net.add_op()->set_type("test.Twice");
  ASSERT_EQ(CheckNet(net).size(), 1u);
  EXPECT_EQ(CheckNet(net)[0].message, message);
}

TEST(Registry, FindsTypesAndSuggestsThem) {
  EXPECT_EQ(GetOperator("Relu").type, "Relu");
  EXPECT_EQ(FindOperator("Rleu"), nullptr);
  ExpectError([] { GetOperator("Rleu"); }, "invalid net: no operator type \"Rleu\"; did you mean \"Relu\"?");
  ExpectError([] { GetOperator(""); }, "invalid net: no operator type \"\"");
  ExpectError([] { GetOperator("Formals"); },
              "invalid net: no operator type \"Formals\"; did you mean \"test.Formals\"?");
  ExpectError([] { GetOperator("acme.Whirl"); },
              "invalid net: no operator type \"acme.Whirl\"; types with a dot come from libraries of operators, which "
              "--op_library, LoadOperatorLibrary or Python's load_operator_library loads");
  const std::vector<std::string> types = OperatorTypes();
  EXPECT_TRUE(std::ranges::is_sorted(types));
  EXPECT_EQ(std::ranges::count(types, "Relu"), 1);
}

TEST(Registry, AKernelWithoutShapesThatTakesNoBlobsIsAnError) {
  const auto message = [](const std::string& type, const std::string& device) {
    return "invalid net: operator type \"" + type + "\", in shapeless.cc, has a kernel for " + device +
           " but nothing says what shapes its outputs have: add .Shapes() or .Formula(), or let the kernel set its "
           "outputs itself (Kernel::takes_blobs)";
  };
  ExpectError([] { GetOperator("test.Shapeless"); }, message("test.Shapeless", "cpu"));
  ExpectError([] { GetOperator("test.ShapelessEarly"); }, message("test.ShapelessEarly", "cuda"));
  ExpectError([] { GetOperator("test.ShapelessLate"); }, message("test.ShapelessLate", "cuda"));
  EXPECT_TRUE(RegistrationProblems().contains("test.Shapeless"));
  EXPECT_TRUE(GetOperator("test.OfBlobs").TakesBlobs(DeviceKind::kCuda));
  NetDef net;
  net.add_op()->set_type("test.Shapeless");
  ASSERT_EQ(CheckNet(net).size(), 1u);
  EXPECT_EQ("invalid net: " + CheckNet(net)[0].message, message("test.Shapeless", "cpu"));
}

TEST(Registry, AKernelRegisteredTwiceIsAnError) {
  ExpectError([] { GetOperator("test.KernelTwice"); },
              "invalid net: the kernel of operator type \"test.KernelTwice\" for cuda is registered twice");
}

TEST(Registry, KernelsMayComeBeforeOrAfterTheirType) {
  EXPECT_NE(GetOperator("test.Kernels").FindKernel(DeviceKind::kCuda), nullptr);
  EXPECT_NE(GetOperator("test.Kernels").FindKernel(DeviceKind::kCpu), nullptr);
  EXPECT_EQ(GetOperator("test.MoreKernels").FindKernel(DeviceKind::kCpu), nullptr);
  EXPECT_NE(GetOperator("test.MoreKernels").FindKernel(DeviceKind::kCuda), nullptr);
}

TEST(Registry, KnowsWhatKernelsOfEachDeviceDo) {
  const OperatorSchema& schema = GetOperator("test.OnTwoDevices");
  EXPECT_FALSE(schema.TakesBlobs(DeviceKind::kCpu));
  EXPECT_TRUE(schema.TakesBlobs(DeviceKind::kCuda));
  EXPECT_EQ(schema.HostInputs(DeviceKind::kCpu), std::vector<int>{2}) << "of which shapes are made, wherever it runs";
  EXPECT_EQ(schema.HostInputs(DeviceKind::kCuda), (std::vector<int>{0, 2}));
  // Without kernel and without shape rule.
  EXPECT_TRUE(GetOperator("test.Formals").TakesBlobs(DeviceKind::kCpu));
  EXPECT_FALSE(GetOperator("CopyCPUToGPU").TakesBlobs(DeviceKind::kCpu));
}

TEST(Registry, KnowsHowManyInputsATypeTakes) {
  const OperatorSchema& schema = GetOperator("test.Formals");
  EXPECT_EQ(schema.min_inputs(), 1);
  EXPECT_EQ(schema.max_inputs(), INT_MAX);
  EXPECT_EQ(schema.min_outputs(), 1);
  EXPECT_EQ(schema.max_outputs(), 2);
  EXPECT_EQ(GetOperator("test.Variadic").min_inputs(), 1);
  EXPECT_EQ(GetOperator("test.Variadic").max_outputs(), INT_MAX);
}

TEST(Registry, KnowsWhatMayWorkInPlace) {
  const OperatorSchema& schema = GetOperator("test.Formals");
  EXPECT_TRUE(schema.AllowsInPlace(0, 0));
  EXPECT_FALSE(schema.AllowsInPlace(0, 1));
  EXPECT_TRUE(schema.AllowsInPlace(2, 1));  // what must be may be
  EXPECT_TRUE(GetOperator("test.Variadic").AllowsInPlace(7, 7));
  EXPECT_FALSE(GetOperator("test.Variadic").AllowsInPlace(7, 6));
}

// Every registered type, whoever registered it.
TEST(Registry, DeclarationsAreComplete) {
  for (const std::string& type : OperatorTypes()) {
    if (type.starts_with("test.")) continue;
    const OperatorSchema& schema = GetOperator(type);
    SCOPED_TRACE(type);
    EXPECT_FALSE(schema.doc.empty());
    const bool is_of_another_device = type == "CopyCPUToGPU" || type == "CopyGPUToCPU";
    const bool has_no_kernel = is_of_another_device || HasDecomposition(type);
    EXPECT_NE(schema.kernels.contains(DeviceKind::kCpu), has_no_kernel);
    for (const auto& [device, kernel] : schema.kernels) {
      EXPECT_TRUE(schema.shapes != nullptr || kernel.takes_blobs) << "a shape rule, or a kernel that takes blobs";
      for (const int input : kernel.host_inputs) EXPECT_LT(input, schema.max_inputs());
      EXPECT_TRUE(device != DeviceKind::kCpu || kernel.host_inputs.empty()) << "all that it reads is on the host";
    }
    for (const auto& list : {schema.inputs, schema.outputs}) {
      bool optional = false;
      for (size_t i = 0; i < list.size(); ++i) {
        EXPECT_FALSE(list[i].name.empty());
        EXPECT_FALSE(list[i].doc.empty()) << list[i].name;
        EXPECT_TRUE(!list[i].variadic || i + 1 == list.size()) << list[i].name << " is variadic and not the last";
        // Formulas count what is there; others go by position.
        EXPECT_TRUE(list[i].optional || !optional || schema.formula)
            << list[i].name << " is required after an optional one";
        optional = list[i].optional;
      }
    }
    for (const ArgumentSpec& argument : schema.arguments) {
      EXPECT_FALSE(argument.doc.empty()) << "argument " << argument.name;
      // Without default: the operator asks whether it is there.
      if (argument.required || argument.default_value.empty()) continue;
      // 0 may stand for "not given".
      const bool is_unset = argument.default_value.i == 0;
      if (!is_unset) {
        EXPECT_EQ(argument.Problem(argument.name, argument.default_value), "") << "the default of " << argument.name;
      }
    }
    for (const int input : schema.shape_value_inputs) EXPECT_LT(input, schema.max_inputs());
    EXPECT_TRUE(schema.shapes || schema.shape_value_inputs.empty()) << "no shape rule that could read values";
  }
}

}  // namespace
}  // namespace stepnet
