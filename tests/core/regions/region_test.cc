#include "stepnet/core/regions/region.h"

#include <gtest/gtest.h>

#include <string>

#include "stepnet/core/error.h"
#include "stepnet/tests/core/error_of.h"

namespace stepnet {
namespace {

const Expr x = Expr::Input(0, "x", DType::kFloat);

constexpr RegionOperand kDense = {.dtype = DType::kFloat, .size = 24, .strides = {0, 0, 6, 1}};

// [4, 6], one dense input and one dense output.
Region Good() { return {.sizes = {1, 1, 4, 6}, .inputs = {kDense}, .outputs = {{.value = Tanh(x), .memory = kDense}}}; }

std::string FaultOf(const Region& region) {
  return ErrorOf([&] { CheckRegion(region); });
}

TEST(Region, AcceptsRowsColumnsScalarsAndBlocks) {
  Region region = Good();
  EXPECT_EQ(FaultOf(region), "no error");
  region.inputs[0] = {.dtype = DType::kFloat, .size = 4, .strides = {0, 0, 1, 0}};
  EXPECT_EQ(FaultOf(region), "no error");
  region.inputs[0] = {.dtype = DType::kFloat, .size = 1};
  EXPECT_EQ(FaultOf(region), "no error");
  region.outputs[0].memory = {.dtype = DType::kFloat, .size = 96, .offset = 18, .strides = {0, 0, 24, 1}};
  EXPECT_EQ(FaultOf(region), "no error");
}

TEST(Region, RefusesOperandsBeyondTheirMemory) {
  Region region = Good();
  region.inputs[0].offset = 1;
  EXPECT_EQ(FaultOf(region),
            "shape mismatch: input 0 has offset 1 and strides [0, 0, 6, 1]; over [1, 1, 4, 6] it leaves its memory of "
            "24 elements");
  region = Good();
  region.outputs[0].memory.strides[2] = INT64_MAX / 2;
  EXPECT_NE(FaultOf(region).find("leaves its memory"), std::string::npos);
  region = Good();
  region.inputs[0].strides[3] = -1;
  EXPECT_EQ(FaultOf(region), "invalid argument: input 0 has offset 0 and strides [0, 0, 6, -1], must be at least 0");
  region = Good();
  region.sizes[2] = 0;
  region.inputs[0].size = region.outputs[0].memory.size = 0;
  EXPECT_EQ(FaultOf(region), "no error");
  region = Good();
  region.sizes[0] = -1;
  EXPECT_EQ(FaultOf(region), "invalid argument: a region of sizes [-1, 1, 4, 6]");
  region = Good();
  region.sizes[0] = region.sizes[1] = INT64_MAX / 2;
  EXPECT_NE(FaultOf(region).find("has more elements than int64 counts"), std::string::npos);
}

TEST(Region, RefusesWritesThatMeet) {
  Region region = Good();
  region.outputs[0].memory.strides = {0, 0, 5, 1};
  EXPECT_EQ(FaultOf(region),
            "shape mismatch: output 0 has strides [0, 0, 5, 1] over [1, 1, 4, 6]; elements that are written may meet");
  region.outputs[0].memory.strides = {0, 0, 0, 1};
  EXPECT_NE(FaultOf(region).find("may meet"), std::string::npos);
  region.outputs[0].kind = RegionOutputKind::kSums;
  EXPECT_EQ(FaultOf(region), "no error");
}

TEST(Region, RefusesDTypesAndInputsThatAreNotThose) {
  Region region = Good();
  region.inputs[0].dtype = DType::kDouble;
  EXPECT_EQ(FaultOf(region), "type mismatch: input 0 is double and x float");
  region = Good();
  region.outputs[0].memory.dtype = DType::kDouble;
  EXPECT_EQ(FaultOf(region), "type mismatch: output 0 is double and its value tanh(x) float");
  region = Good();
  region.inputs.clear();
  EXPECT_EQ(FaultOf(region), "invalid argument: x is input 0 of a region that has 0");
  region = Good();
  region.outputs[0].value = Expr();
  EXPECT_EQ(FaultOf(region), "invalid argument: an output has no value");
  region = Good();
  region.outputs[0].value = 1.5;
  EXPECT_EQ(FaultOf(region), "type mismatch: nothing says of what dtype 1.5 is");
}

TEST(Region, RefusesKindsThatDoNotFit) {
  Region region = Good();
  region.outputs[0].kind = RegionOutputKind::kRows;
  EXPECT_EQ(FaultOf(region), "shape mismatch: output 0 is of rows and has a stride along the last dimension");
  region.outputs[0].memory = {.dtype = DType::kFloat, .size = 4, .strides = {0, 0, 1, 0}};
  EXPECT_EQ(FaultOf(region), "internal error: output 0 is of rows, and tanh(x) differs between columns");
  region.outputs[0].value = RowSum(Tanh(x)) + 1;
  EXPECT_EQ(FaultOf(region), "no error");
  region.outputs[0].kind = RegionOutputKind::kSums;
  EXPECT_EQ(FaultOf(region), "no error") << "of one value for each row";
  region.outputs[0].value = Tanh(x);
  EXPECT_EQ(FaultOf(region), "shape mismatch: output 0 sums over the last dimension, for which RowSum is");
  region.outputs[0].memory.dtype = DType::kFloat16;
  region.outputs[0].value = RowSum(x);
  EXPECT_EQ(FaultOf(region), "no error") << "a sum of floats, rounded when it is complete";
  region.outputs[0].value = Cast(DType::kFloat16, RowSum(x));
  EXPECT_EQ(FaultOf(region), "type mismatch: output 0 is float16 and its value float16(row_sum(x)) float16");
  region = Good();
  region.outputs[0].adds = true;
  EXPECT_EQ(FaultOf(region), "invalid argument: output 0 adds, and is no sum");
  region = Good();
  region.in_place = {{.input = 0, .output = 0}};
  EXPECT_EQ(FaultOf(region), "no error");
  region.outputs[0].memory.size = region.inputs[0].size = 48;
  region.outputs[0].memory.offset = 6;
  EXPECT_EQ(FaultOf(region),
            "shape mismatch: output 0 in place of input 0 needs its dtype, offset and strides, and an element for each "
            "index");
  region.in_place = {{.input = 1, .output = 0}};
  EXPECT_EQ(FaultOf(region), "invalid argument: output 0 in place of input 1, which are not");
}

}  // namespace
}  // namespace stepnet
