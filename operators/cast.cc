// Cast: y = x as another type.
//
// Numbers out of the range of an integer type become the nearest in it, and NaN becomes 0; integers go to narrower ones
// by their low bits; what is not 0 is true.
//
// The formula says it for the dtypes of regions, the kernel for whole numbers of 8 and 16 bits.
#include <algorithm>
#include <cctype>
#include <type_traits>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/formulas/formula.h"
#include "stepnet/core/formulas/formula_kernel.h"
#include "stepnet/core/input_checks.h"
#include "stepnet/core/stored_float.h"
#include "stepnet/operators/dtypes.h"

namespace stepnet {
namespace {

const std::vector<DType> kNumeric = {DType::kFloat, DType::kDouble, DType::kFloat16, DType::kBFloat16,
                                     DType::kInt8,  DType::kInt16,  DType::kInt32,   DType::kInt64,
                                     DType::kUInt8, DType::kUInt16, DType::kBool};

std::string InCapitals(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

// The dtype that an argument names, by the number or the name of a TensorProto.DataType.
DType DTypeArgument(const ArgumentMap& arguments, const std::string& name) {
  const ArgumentValue& value = arguments.find(name)->second;
  DType dtype = DType::kString;
  if (value.i) {
    dtype = DTypeOfCode(*value.i, name);
  } else if (value.s) {
    const std::string wanted = InCapitals(*value.s);
    for (const DType candidate : kNumeric) {
      if (wanted == InCapitals(DTypeName(candidate))) dtype = candidate;
    }
    if (wanted == "BYTE") dtype = DType::kUInt8;
  }
  if (dtype != DType::kString) return dtype;
  throw Error(ErrorCode::kInvalidArgument,
              StrCat("Cast: ", name, " is ", value.Description(), ", must name one of ", Join(kNumeric, ", ")));
}

template <typename To, typename From>
To Convert(From x) {
  constexpr bool kIsHalf = std::is_same_v<From, Float16> || std::is_same_v<From, BFloat16>;
  if constexpr (kIsHalf) {
    return Convert<To>(ToFloat(x));
  } else if constexpr (std::is_same_v<To, Float16> || std::is_same_v<To, BFloat16>) {
    return StoredAs<To>(x);
  } else {
    return scalar::Cast<To>(x);
  }
}

// Calls fn with a value of the C++ type of `dtype`, which is no string.
template <typename Fn>
void ForNumericType(DType dtype, Fn&& fn) {
  ForDType(dtype, [&](auto zero) {
    if constexpr (!std::is_same_v<decltype(zero), std::string>) fn(zero);
  });
}

void CastKernel(const OpRun& run) {
  if (run.In(0).dtype == run.Out(0).dtype) {
    CopyElements(run.In(0), run.Out(0));
    return;
  }
  ForNumericType(run.In(0).dtype, [&](auto from) {
    ForNumericType(run.Out(0).dtype, [&](auto to) {
      const auto* x = run.In(0).As<decltype(from)>();
      auto* y = run.Out(0).As<decltype(to)>();
      InBlocks(run.Out(0).size(), 2, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) y[i] = Convert<decltype(to)>(x[i]);
      });
    });
  });
}

const Registration cast =
    Operator("Cast")
        .Doc(
            "y = x as another type. Numbers out of the range of an integer type become the nearest in it, NaN becomes "
            "0; integers go to narrower ones by their low bits; what is not 0 is true.")
        .Input("x", OfTypes(kNumeric, "any shape and type but string"))
        .Output("y", "the shape of x")
        .RequiredArg("to", ArgumentType::kAny, "the type: its name, as \"float\", or number in TensorProto.DataType")
        .Args({{.name = "from_type",
                .type = ArgumentType::kAny,
                .default_value = {.s = ""},
                .doc = "the type of x, as in `to`: an integer type says that x needs no gradient"}})
        .Elementwise()
        .Check(CheckBy([](const OperatorCall& op) { DTypeArgument(op.arguments(), "to"); }))
        .Shapes([](const ShapeQuery& query) {
          return std::vector<TensorInfo>{
              {.dtype = DTypeArgument(query.op().arguments(), "to"), .shape = query.In(0).shape}};
        })
        .Gradient([](GradientBuilder& g) {
          if (!IsFloating(DTypeArgument(g.op().arguments(), "to"))) return;
          if (g.op().HasArg("from_type") && !IsFloating(DTypeArgument(g.op().arguments(), "from_type"))) return;
          g.Add({.type = "CastGradient", .inputs = {g.GO(0), g.I(0)}, .outputs = {g.GI(0)}, .copies_arguments = false});
        })
        .Formula([](Formula& f) { f.Out({Cast(DTypeArgument(f.arguments(), "to"), f.In("x"))}); })
        .Cpu(FormulaKernelOr([](const OperatorCall&) -> RunFn { return CastKernel; }));

// By hand, because x, of which the type alone is read, may be integers, through which no derivative flows.
const Registration cast_gradient =
    Operator("CastGradient")
        .Doc("dx = dy as the type of x.")
        .Input("dy", OfTypes(kNumeric, "any shape and type but string"))
        .Input("x", OfTypes(kNumeric, "input of Cast; its elements are not read"))
        .Output("dx", "the shape of dy, the type of x")
        .ReadsShapes({1})
        .Elementwise()
        .Shapes([](const ShapeQuery& query) {
          return std::vector<TensorInfo>{{.dtype = query.In(1).dtype, .shape = query.In(0).shape}};
        })
        .Formula([](Formula& f) { f.Out({Cast(f.TypeOf("x"), f.In("dy"))}); })
        .Cpu(FormulaKernelOr([](const OperatorCall&) -> RunFn { return CastKernel; }));

}  // namespace
}  // namespace stepnet
