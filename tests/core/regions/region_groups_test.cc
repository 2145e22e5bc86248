#include "stepnet/core/regions/region_groups.h"

#include <gtest/gtest.h>

#include <vector>

#include "dense_region.h"

namespace stepnet {
namespace {

const Expr x = Expr::Input(0, "x", DType::kFloat);

// y = value of x, both dense.
Region Of(const Expr& value, const Dense& dense) {
  return {
      .sizes = dense.Sizes(), .inputs = {dense.Elements()}, .outputs = {{.value = value, .memory = dense.Elements()}}};
}
constexpr Dense kWide = {.rows = 6, .columns = 8}, kNarrow = {.rows = 6, .columns = 2};
// The second pair of columns of kWide.
Region OfPart(const Expr& value) {
  Region region = Of(value, kNarrow);
  region.inputs[0] = {.size = 48, .offset = 2, .strides = {0, 0, 8, 1}};
  return region;
}

// The second one reads what the first one gives, memory 1.
std::int64_t GroupsOf(const Region& first, const Region& second) {
  const RegionOfMemory regions[] = {{&first, {0}, {1}}, {&second, {1}, {2}}};
  return GroupsApart(regions);
}

TEST(RegionGroups, AreRowsThatBothGoThrough) {
  EXPECT_EQ(GroupsOf(Of(x * RowSum(x), kWide), OfPart(x)), 6);
  EXPECT_EQ(GroupsOf(Of(x * x, kWide), Of(RowMax(x), {.rows = 3, .columns = 16})), 3) << "two rows a group";
  EXPECT_EQ(GroupsOf(Of(RowSum(x), kWide), Of(x, {.rows = 1, .columns = 48})), 6) << "elements, as one row";
}

TEST(RegionGroups, AreOneWhereElementsOfOthersAreRead) {
  Region turned = Of(x, kWide);
  turned.sizes = {1, 1, 6, 6};
  turned.inputs[0] = {.size = 48, .strides = {0, 0, 1, 6}};
  turned.outputs[0].memory = {.size = 36, .strides = {0, 0, 6, 1}};
  EXPECT_EQ(GroupsOf(Of(x, kWide), turned), 1);
  Region next_row = Of(x, {.rows = 3, .columns = 8});
  next_row.inputs[0] = {.size = 48, .offset = 8, .strides = {0, 0, 16, 1}};
  EXPECT_EQ(GroupsOf(Of(x, kWide), next_row), 3) << "within a pair of rows";
  next_row.inputs[0].offset = 12;
  EXPECT_EQ(GroupsOf(Of(x, kWide), next_row), 1) << "half of it in the next pair";
  next_row.inputs[0] = {.size = 48, .offset = 16, .strides = {0, 0, 8, 1}};
  EXPECT_EQ(GroupsOf(Of(x, kWide), next_row), 1);
  EXPECT_EQ(GroupsOf(Of(x, kWide), Of(x * RowSum(x), {.rows = 1, .columns = 48})), 1) << "a row of all";
}

// What only one region touches may be shared by all groups, and what is overwritten may not.
TEST(RegionGroups, AreOneWhereWhatOthersReadIsOverwritten) {
  Region first = Of(x, kWide);
  first.inputs[0] = {.size = 8, .strides = {0, 0, 0, 1}};
  EXPECT_EQ(GroupsOf(first, Of(x, kWide)), 6);
  const Region second = Of(x, kWide);
  const RegionOfMemory overwrites[] = {{&first, {0}, {1}}, {&second, {1}, {0}}};
  EXPECT_EQ(GroupsApart(overwrites), 1);
}

TEST(RegionGroups, AreNoneOfSumsAndPlacesAndWhatIsChecked) {
  Region sums = Of(x, kWide);
  sums.outputs[0] = {.value = x, .memory = {.size = 8, .strides = {0, 0, 0, 1}}, .kind = RegionOutputKind::kSums};
  EXPECT_EQ(GroupsOf(sums, Of(x, {.rows = 1, .columns = 8})), 0);
  EXPECT_EQ(GroupsOf(Of(x + Cast(DType::kFloat, Index(2)), kWide), Of(x, kWide)), 0);
  Region checks = Of(x, kWide);
  checks.requirements = {Require(x > 0, "{} is not positive", x)};
  EXPECT_EQ(GroupsOf(checks, Of(x, kWide)), 0);
  EXPECT_EQ(GroupsOf(Of(x, {.rows = 6, .columns = 0}), Of(x, {.rows = 6, .columns = 0})), 0);
}

TEST(RegionGroups, OfARegionGoThroughItsMemory) {
  const Region region = OfPart(x);
  EXPECT_EQ(FirstGroup(region, 3).sizes, (RegionIndex{1, 1, 2, 2}));
  EXPECT_EQ(GroupStride(region, region.inputs[0], 3), 16);
  EXPECT_EQ(GroupStride(region, region.outputs[0].memory, 3), 4);
}

}  // namespace
}  // namespace stepnet
