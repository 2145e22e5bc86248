#include "stepnet/core/formulas/column_programs.h"

#include <algorithm>

#include "stepnet/core/op_run.h"

namespace stepnet {
namespace {

// Columns [begin, end). An operand lies where it lay, from its first column on.
Region ColumnsOf(Region region, std::int64_t begin, std::int64_t end) {
  constexpr int kColumns = kRegionDims - 1;
  region.sizes[kColumns] = end - begin;
  const auto move = [&](RegionOperand& operand) { operand.offset += begin * operand.strides[kColumns]; };
  for (RegionOperand& input : region.inputs) move(input);
  for (RegionOutput& output : region.outputs) move(output.memory);
  return region;
}

}  // namespace

std::int64_t ColumnsApart(const Region& region) {
  const auto is_of_row = [](const Expr& root) { return root->has_row_reduction(); };
  const auto is_sum = [](const RegionOutput& output) { return output.kind != RegionOutputKind::kElements; };
  if (!region.requirements.empty() || std::ranges::any_of(region.Roots(), is_of_row) ||
      std::ranges::any_of(region.outputs, is_sum) || KnowsPlaces(region))
    return 0;
  return region.sizes[kRegionDims - 1];
}

void ColumnPrograms::Run(const Region& region, std::span<const void* const> inputs, std::span<void* const> outputs,
                         int part, int parts) {
  const std::int64_t columns = region.sizes[kRegionDims - 1];
  const auto make = [&] {
    auto made = std::make_shared<OfParts>();
    for (int p = 0; p < parts; ++p) {
      const auto [begin, end] = OpRun::ShareOfUnits(columns, p, parts);
      made->programs.emplace_back(ColumnsOf(region, begin, end));
    }
    return std::shared_ptr<const OfParts>(std::move(made));
  };
  programs_.With(
      make, [&](const OfParts& of) { of.programs[part].Run(inputs, outputs); }, parts);
}

}  // namespace stepnet
