// What expressions require, in programs of regions: which element fails first, and what its message shows.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "dense_region.h"
#include "stepnet/core/regions/region_program.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

const Expr x = Expr::Input(0, "x", DType::kFloat);

std::string FaultText(const std::optional<RegionFault>& fault) {
  return fault ? StrCat(fault->element, ": ", fault->message) : "none";
}

// What is required once a run is checked too, however simple the rest is.
TEST(RegionChecks, ChecksValuesOfTheRun) {
  const Expr n = Expr::Input(1, "n", DType::kInt32);
  const Dense dense{.rows = 1, .columns = 5};
  const Region region{.sizes = dense.Sizes(),
                      .inputs = {dense.Elements(), {.dtype = DType::kInt32, .size = 1}},
                      .outputs = {{.value = x * x, .memory = dense.Elements()}},
                      .requirements = {Require(n > 0, "n is {}", n)}};
  const float values[5] = {};
  float results[5];
  std::int32_t number = 1;
  const void* inputs[] = {values, &number};
  void* outputs[] = {results};
  EXPECT_FALSE(RegionProgram(region).Run(inputs, outputs));
  number = -1;
  EXPECT_EQ(FaultText(RegionProgram(region).Run(inputs, outputs)), "0: n is -1");
}

TEST(RegionChecks, ShowsSeveralValuesOfWhatItChecks) {
  const Expr n = Expr::Input(0, "n", DType::kInt32);
  const Expr row = Expr::Input(1, "row", DType::kInt64);
  const Dense dense{.rows = 4, .columns = 5};
  const Region region{
      .sizes = dense.Sizes(),
      .inputs = {dense.Elements(DType::kInt32), {.dtype = DType::kInt64, .size = 4, .strides = {0, 0, 1, 0}}},
      .outputs = {},
      .requirements = {Require(n < 7, "[{}, {}] is {} and not {}", Index(2), Index(3), n, row),
                       Require(row < 9, "row {} is {}", Index(2), row)}};
  std::vector<std::int32_t> values(20, 1);
  std::int64_t rows[] = {5, 6, 7, 8};
  const void* inputs[] = {values.data(), rows};
  const RegionProgram program(region);
  values[13] = 8;
  EXPECT_EQ(FaultText(program.Run(inputs, {})), "13: [2, 3] is 8 and not 7");
  rows[1] = 10;
  EXPECT_EQ(FaultText(program.Run(inputs, {})), "5: row 1 is 10");
}

TEST(RegionChecks, ChecksEveryElement) {
  const Expr n = Expr::Input(0, "n", DType::kInt32);
  const Dense dense{.rows = 3, .columns = 500};
  const Region region{.sizes = dense.Sizes(),
                      .inputs = {dense.Elements(DType::kInt32)},
                      .outputs = {},
                      .requirements = {Require(NotEqual(n, 0), "Div of the integer 1 by {}", n)}};
  std::vector<std::int32_t> values(1500, 7);
  const void* inputs[] = {values.data()};
  const RegionProgram program(region);
  EXPECT_FALSE(program.Run(inputs, {}));
  values[1400] = values[777] = 0;
  const auto fault = program.Run(inputs, {});
  EXPECT_EQ(FaultText(fault), "777: Div of the integer 1 by 0");
}

}  // namespace
}  // namespace stepnet
