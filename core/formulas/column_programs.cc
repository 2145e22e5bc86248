#include "stepnet/core/formulas/column_programs.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include "stepnet/core/op_run.h"

namespace stepnet {
namespace {

constexpr int kColumns = kRegionDims - 1;

Region WithColumns(Region region, std::int64_t columns) {
  region.sizes[kColumns] = columns;
  return region;
}

// Where column `begin` of an operand lies that is at `data`, which may be null.
template <typename Pointer>
Pointer AtColumn(Pointer data, const RegionOperand& operand, std::int64_t begin) {
  using Byte = std::conditional_t<std::is_same_v<Pointer, void*>, std::byte, const std::byte>;
  if (data == nullptr) return data;
  return static_cast<Byte*>(data) + begin * operand.strides[kColumns] * DTypeBytes(operand.dtype);
}

// Pointers of operands: memory of its own for a few, as most regions have.
template <typename Pointer>
class Pointers {
 public:
  explicit Pointers(size_t size)
      : many_(size > few_.size() ? size : 0), all_(many_.empty() ? few_.data() : many_.data(), size) {}
  Pointers(const Pointers&) = delete;
  Pointers& operator=(const Pointers&) = delete;
  Pointer& operator[](size_t i) { return all_[i]; }
  std::span<const Pointer> all() const { return all_; }

 private:
  std::array<Pointer, 32> few_;
  std::vector<Pointer> many_;
  std::span<Pointer> all_;
};

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
  const auto [begin, end] = OpRun::ShareOfUnits(region.sizes[kColumns], part, parts);
  const std::int64_t columns = end - begin;
  Pointers<const void*> from(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) from[i] = AtColumn(inputs[i], region.inputs[i], begin);
  Pointers<void*> to(outputs.size());
  for (size_t o = 0; o < outputs.size(); ++o) to[o] = AtColumn(outputs[o], region.outputs[o].memory, begin);
  const auto make = [&] {
    return std::make_shared<const OfColumns>(OfColumns{columns, RegionProgram(WithColumns(region, columns))});
  };
  programs_.With(
      make, [&](const OfColumns& of) { of.program.Run(from.all(), to.all()); }, columns);
}

}  // namespace stepnet
