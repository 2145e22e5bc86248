// Running the program of a region. Pointers are as EvaluateRegion has them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/regions/region_code.h"

namespace stepnet {

// Part `part` of `parts` of [0, n).
inline std::pair<std::int64_t, std::int64_t> ShareOf(std::int64_t n, int part, int parts) {
  if (parts == 1) return {0, n};  // without a division of 128 bits
  return {static_cast<std::int64_t>(static_cast<__int128>(n) * part / parts),
          static_cast<std::int64_t>(static_cast<__int128>(n) * (part + 1) / parts)};
}

using RegionInputs = std::span<const void* const>;
using RegionOutputs = std::span<void* const>;
// Where operands begin, as what runs programs asks for it.
template <typename Pointers>
auto PointersOf(Pointers pointers) {
  return [pointers](int number) { return pointers[static_cast<size_t>(number)]; };
}

// The elements [begin, end) of a program of one instruction, no more than a block: with as few instructions of the
// machine as possible, because they are a good part of what small regions take. `input` and `output` return where an
// operand begins.
template <typename Input, typename Output>
void RunDirect(const RegionDirect& direct, const Input& input, const Output& output, std::int64_t begin,
               std::int64_t end) {
  const char* from[4];
  for (int k = 0; k < 4; ++k) {
    const RegionDirect::Source& source = direct.sources[k];
    const void* const first = source.constant != nullptr ? source.constant : input(source.input);
    from[k] = static_cast<const char*>(first) + source.offset + begin * source.element;
  }
  CountWork(end - begin);
  direct.kernel(static_cast<char*>(output(direct.output)) + direct.offset + begin * direct.element, from[0], from[1],
                from[2], from[3], end - begin);
}

// Part `part` of `parts`; `moving` as RegionProgram::Run has it.
std::optional<RegionFault> RunRegion(const RegionCode& code, RegionInputs inputs, RegionOutputs outputs, int part,
                                     int parts, std::uint64_t moving = 0);
// A part of a flat program, of so many elements.
void RunFlatRegion(const RegionCode& code, RegionInputs inputs, RegionOutputs outputs, std::int64_t elements, int part,
                   int parts);
// The rows [first, last).
struct RowRange {
  std::int64_t first;
  std::int64_t last;
};
// Ranges that are not empty, of a program without sums and requirements.
void RunRegionRows(const RegionCode& code, RegionInputs inputs, RegionOutputs outputs,
                   std::span<const RowRange> ranges);

}  // namespace stepnet
