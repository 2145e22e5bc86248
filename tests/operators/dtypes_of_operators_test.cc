// The dtypes that operators take are those that their refusals and their documentation name.
#include <algorithm>

#include "op_test.h"
#include "stepnet/core/formulas/formula.h"
#include "stepnet/core/formulas/formula_sample.h"
#include "stepnet/core/input_checks.h"
#include "stepnet/tests/core/error_of.h"

namespace stepnet {
namespace {

constexpr DType kNumeric[] = {DType::kFloat, DType::kDouble, DType::kFloat16, DType::kBFloat16,
                              DType::kInt8,  DType::kInt16,  DType::kInt32,   DType::kInt64,
                              DType::kUInt8, DType::kUInt16, DType::kBool};

// Takes float16 through its second input where the first is no float.
const Registration scaled_count =
    Operator("test.ScaledCount")
        .Input("count", "int64")
        .Input("x", "any shape")
        .Output("y", "the shape of x")
        .Shapes([](const ShapeQuery& query) {
          ExpectType(query, 0, {DType::kInt64});
          ExpectType(query, 1, {DType::kFloat, DType::kInt32});
          return SameAsInput(1)(query);
        })
        .Formula([](Formula& f) { f.Out({f.In("x") * Cast(f.In("x").dtype(), f.In("count"))}); });

// "float, double and int32" of dtypes; "" of none.
std::string ListOf(const std::vector<DType>& dtypes) {
  std::string list;
  for (size_t i = 0; i < dtypes.size(); ++i) {
    list += StrCat(i == 0 ? "" : i + 1 == dtypes.size() ? " and " : ", ", dtypes[i]);
  }
  return list;
}

// The operator with all of its inputs, each [4, 6] of this dtype: ones, by which whole numbers can be divided.
std::string ErrorWith(const OperatorSchema& schema, DType dtype) {
  const Tensor ones = OpTest("Cast").Arg("to", DTypeName(dtype)).Input("x", {4, 6}, std::vector(24, 1.0)).Run()[0];
  OpTest op(schema.type, static_cast<int>(schema.outputs.size()));
  for (const Formal& input : schema.inputs) op.Input(input.name, ones);
  return ErrorOf([&] { op.Run(); });
}

// All operators whose inputs may be alike, by trying every dtype.
TEST(DTypesOfOperators, AreThoseThatARefusalNames) {
  int tried = 0;
  for (const std::string& type : OperatorTypes()) {
    if (type.starts_with("test.")) continue;
    const OperatorSchema& schema = GetOperator(type);
    if (schema.inputs.empty() || schema.has_side_effects) continue;
    std::vector<DType> taken;
    std::vector<std::string> refusals;
    for (const DType dtype : kNumeric) {
      const std::string error = ErrorWith(schema, dtype);
      if (error == "no error") taken.push_back(dtype);
      if (error.find(" works on ") != std::string::npos) refusals.push_back(error);
    }
    if (taken.empty()) continue;
    TakenDTypes said = DTypesTakenBy(schema);
    std::erase(said.dtypes, DType::kString);
    if (said.inputs.size() >= schema.inputs.size()) {
      EXPECT_EQ(ListOf(said.dtypes), ListOf(taken)) << type;
    }
    tried += refusals.empty() ? 0 : 1;
    for (const std::string& refusal : refusals) {
      EXPECT_TRUE(refusal.starts_with(StrCat("type mismatch: ", type, " works on ", ListOf(taken), "; ")))
          << refusal << "and takes " << ListOf(taken);
    }
  }
  EXPECT_GT(tried, 60);
}

TEST(DTypesOfOperators, OfALaterInputAreNamedToo) {
  const auto error_with = [](DType dtype) {
    return ErrorOf([&] {
      OpTest("test.ScaledCount")
          .Input("count", Tensor::Of<std::int64_t>({1}, {3}))
          .Input("x", Tensor::Zeros(dtype, {2}))
          .Run();
    });
  };
  EXPECT_EQ(error_with(DType::kBFloat16), "no error");
  EXPECT_TRUE(error_with(DType::kDouble)
                  .starts_with("type mismatch: test.ScaledCount works on float, float16, bfloat16 and int32; x is "
                               "double [2]\n"));
}

}  // namespace
}  // namespace stepnet
