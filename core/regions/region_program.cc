#include "stepnet/core/regions/region_program.h"

#include <algorithm>
#include <climits>
#include <utility>

#include "stepnet/core/regions/region_code.h"
#include "stepnet/core/regions/region_run.h"
#include "stepnet/core/regions/region_simple.h"
#include "stepnet/core/regions/region_split.h"
#include "stepnet/core/regions/region_sums.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

constexpr std::int64_t kMaxRows = 256;  // whose conditions are on the stack

std::string TextOf(const RowTest& test) {
  const std::string a = StrCat("input ", test.a.input);
  if (test.kind == RowTest::Kind::kHolds) return StrCat(a, "\n");
  return StrCat(a, test.kind == RowTest::Kind::kLess ? " < " : " <= ", "input ", test.b.input, "\n");
}

}  // namespace

// Either one program, or those of the two kinds of rows and which kind a row is.
struct RegionProgram::Codes {
  RegionCode all;                     // where rows are of one kind
  std::optional<Region> stores_sums;  // what the program is for where it has floats in place of sums in 16 bits
  struct Kinds {
    std::optional<RowTest> test;
    RegionCode condition;  // where there is no test
    RegionCode then;
    RegionCode otherwise;
  };
  std::optional<Kinds> kinds;
  RegionSimple simple;  // without code: the program is not

  explicit Codes(const Region& given) {
    if (HasStoredSums(given)) stores_sums = given;
    Compile(stores_sums ? WithFloatSums(given) : given);
  }

  void Compile(const Region& region) {
    const std::optional<RegionSplit> split = SplitByRows(region);
    if (!split) {
      all = CompileRegion(region);
      if (all.is_simple) simple = {.rows = all.NumRows(), .columns = all.sizes[3], .code = &all};
      return;
    }
    kinds.emplace(Kinds{.test = split->test,
                        .condition = {},
                        .then = CompileRegion(split->then, true),
                        .otherwise = CompileRegion(split->otherwise, true)});
    if (!kinds->test) {
      kinds->condition = CompileRegion(split->condition, true);
    } else if (kinds->then.is_simple && kinds->otherwise.is_simple) {
      simple = {.rows = kinds->then.NumRows(),
                .columns = kinds->then.sizes[3],
                .code = &kinds->otherwise,
                .of_others = &kinds->then,
                .test = &*kinds->test};
    }
  }

  std::optional<RegionFault> Run(RegionInputs inputs, RegionOutputs outputs, int part, int parts,
                                 std::uint64_t moving) const {
    if (!kinds) return RunRegion(all, inputs, outputs, part, parts, moving);
    const auto [begin, end] = ShareOf(kinds->then.NumRows(), part, parts);
    RunKinds(inputs, outputs, begin, end);
    return {};
  }

  // Runs the rows [begin, end) in their order.
  void RunKinds(RegionInputs inputs, RegionOutputs outputs, std::int64_t begin, std::int64_t end) const {
    if (simple.code != nullptr) {
      return RunSimpleKinds(simple, PointersOf(inputs), PointersOf(outputs), begin, end, kinds->then.sizes[3]);
    }
    for (std::int64_t row = begin; row < end; row += kMaxRows) {
      RunFewRows(inputs, outputs, row, std::min(end, row + kMaxRows));
    }
  }

  // Runs the rows [begin, end), kMaxRows at most.
  void RunFewRows(RegionInputs inputs, RegionOutputs outputs, std::int64_t begin, std::int64_t end) const {
    bool holds[kMaxRows];
    if (kinds->test) {
      for (std::int64_t row = begin; row < end; ++row) holds[row - begin] = kinds->test->Holds(PointersOf(inputs), row);
    } else {
      bool* const of_first = holds;
      void* const of_condition[] = {of_first - begin};  // where that of row 0 would be
      const RowRange all_rows{.first = begin, .last = end};
      RunRegionRows(kinds->condition, inputs, of_condition, {&all_rows, 1});
    }
    RowRange ranges[2][kMaxRows / 2 + 1];
    size_t num_ranges[2] = {};
    for (std::int64_t row = begin; row < end;) {
      const bool is_then = holds[row - begin];
      const std::int64_t first = row;
      while (row < end && holds[row - begin] == is_then) ++row;
      ranges[is_then ? 1 : 0][num_ranges[is_then ? 1 : 0]++] = {.first = first, .last = row};
    }
    RunRegionRows(kinds->otherwise, inputs, outputs, {ranges[0], num_ranges[0]});
    RunRegionRows(kinds->then, inputs, outputs, {ranges[1], num_ranges[1]});
  }
};

RegionProgram::RegionProgram(const Region& region) {
  CheckRegion(region);
  codes_ = std::make_unique<const Codes>(region);
}
RegionProgram::RegionProgram(std::unique_ptr<const Codes> codes) : codes_(std::move(codes)) {}
RegionProgram RegionProgram::OfChecked(const Region& region) {
  return RegionProgram(std::make_unique<const Codes>(region));
}
RegionProgram::RegionProgram(RegionProgram&&) noexcept = default;
RegionProgram& RegionProgram::operator=(RegionProgram&&) noexcept = default;
RegionProgram::~RegionProgram() = default;

int RegionProgram::max_parts() const {
  if (codes_->stores_sums) return 1;
  if (!codes_->kinds) return codes_->all.max_parts;
  return static_cast<int>(std::clamp<std::int64_t>(codes_->kinds->then.NumRows(), 1, INT_MAX));
}

std::optional<RegionFault> RegionProgram::Run(RegionInputs inputs, RegionOutputs outputs, int part, int parts,
                                              std::uint64_t moving) const {
  if (!codes_->stores_sums) return codes_->Run(inputs, outputs, part, parts, moving);
  return RunWithFloatSums(*codes_->stores_sums, outputs,
                          [&](RegionOutputs to) { return codes_->Run(inputs, to, part, parts, moving); });
}

int RegionProgram::MaxFlatParts(std::int64_t elements) {
  return static_cast<int>(std::clamp<std::int64_t>((elements + kRegionBlock - 1) / kRegionBlock, 1, INT_MAX));
}

bool RegionProgram::is_flat() const { return !codes_->kinds && codes_->all.is_flat; }

const RegionDirect* RegionProgram::direct() const {
  return is_flat() && codes_->all.direct.kernel != nullptr ? &codes_->all.direct : nullptr;
}

const RegionSimple* RegionProgram::simple() const {
  const bool is_simple = codes_->simple.code != nullptr && !codes_->stores_sums;
  return is_simple ? &codes_->simple : nullptr;
}

void RegionProgram::RunFlat(RegionInputs inputs, RegionOutputs outputs, std::int64_t elements, int part,
                            int parts) const {
  RunFlatRegion(codes_->all, inputs, outputs, elements, part, parts);
}

std::string RegionProgram::Text() const {
  if (!codes_->kinds) return RegionCodeText(codes_->all);
  const Codes::Kinds& kinds = *codes_->kinds;
  return StrCat("rows where:\n", kinds.test ? TextOf(*kinds.test) : RegionCodeText(kinds.condition), "then:\n",
                RegionCodeText(kinds.then), "otherwise:\n", RegionCodeText(kinds.otherwise));
}

}  // namespace stepnet
