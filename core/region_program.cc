#include "stepnet/core/region_program.h"

#include <algorithm>
#include <climits>
#include <utility>

#include "stepnet/core/region_code.h"
#include "stepnet/core/region_run.h"
#include "stepnet/core/region_split.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

constexpr std::int64_t kFewRows = 256;

}  // namespace

// Either one program, or those of the two kinds of rows and which kind a row is.
struct RegionProgram::Codes {
  RegionCode all;  // where rows are of one kind
  struct Kinds {
    RegionCode condition;
    RegionCode then;
    RegionCode otherwise;
  };
  std::optional<Kinds> kinds;

  explicit Codes(const Region& region) {
    CheckRegion(region);
    const std::optional<RegionSplit> split = SplitByRows(region);
    if (!split) {
      all = CompileRegion(region);
      return;
    }
    kinds.emplace(Kinds{.condition = CompileRegion(split->condition, true),
                        .then = CompileRegion(split->then, true),
                        .otherwise = CompileRegion(split->otherwise, true)});
  }

  // Runs the rows [begin, end), those of a kind that follow each other at once.
  void RunKinds(RegionInputs inputs, RegionOutputs outputs, std::int64_t begin, std::int64_t end, bool* holds) const {
    void* const of_condition[] = {holds - begin};
    RunRegionRows(kinds->condition, inputs, of_condition, begin, end);
    for (std::int64_t row = begin; row < end;) {
      const bool is_then = holds[row - begin];
      const std::int64_t first = row;
      while (row < end && holds[row - begin] == is_then) ++row;
      RunRegionRows(is_then ? kinds->then : kinds->otherwise, inputs, outputs, first, row);
    }
  }
};

RegionProgram::RegionProgram(const Region& region) : codes_(std::make_unique<Codes>(region)) {}
RegionProgram::RegionProgram(RegionProgram&&) noexcept = default;
RegionProgram& RegionProgram::operator=(RegionProgram&&) noexcept = default;
RegionProgram::~RegionProgram() = default;

int RegionProgram::max_parts() const {
  if (!codes_->kinds) return codes_->all.max_parts;
  return static_cast<int>(std::clamp<std::int64_t>(codes_->kinds->then.NumRows(), 1, INT_MAX));
}

std::optional<RegionFault> RegionProgram::Run(RegionInputs inputs, RegionOutputs outputs, int part, int parts) const {
  if (!codes_->kinds) return RunRegion(codes_->all, inputs, outputs, part, parts);
  const auto rows = static_cast<__int128>(codes_->kinds->then.NumRows());
  const auto begin = static_cast<std::int64_t>(rows * part / parts);
  const auto end = static_cast<std::int64_t>(rows * (part + 1) / parts);
  bool holds[kFewRows];
  for (std::int64_t row = begin; row < end; row += kFewRows) {
    codes_->RunKinds(inputs, outputs, row, std::min(end, row + kFewRows), holds);
  }
  return {};
}

int RegionProgram::MaxFlatParts(std::int64_t elements) {
  return static_cast<int>(std::clamp<std::int64_t>((elements + kRegionBlock - 1) / kRegionBlock, 1, INT_MAX));
}

bool RegionProgram::is_flat() const { return !codes_->kinds && codes_->all.is_flat; }

void RegionProgram::RunFlat(RegionInputs inputs, RegionOutputs outputs, std::int64_t elements, int part,
                            int parts) const {
  RunFlatRegion(codes_->all, inputs, outputs, elements, part, parts);
}

std::string RegionProgram::Text() const {
  if (!codes_->kinds) return RegionCodeText(codes_->all);
  const Codes::Kinds& kinds = *codes_->kinds;
  return StrCat("rows where:\n", RegionCodeText(kinds.condition), "then:\n", RegionCodeText(kinds.then), "otherwise:\n",
                RegionCodeText(kinds.otherwise));
}

}  // namespace stepnet
