// RegionSource: a region as CUDA C++ for NVRTC, and how its kernels are launched.
//
//   const RegionSource source = PrintRegion(region, {.name = "Elu"});
//   CompileDeviceCode(source.Text(), "sm_90a")  // gpu/nvrtc.h; gpu/code_cache.h keeps what it gives
//   for (const RegionLaunch& launch : source.launches) {
//     const std::vector<std::uint64_t> words = source.Bind(launch, pointers);
//     void* parameters[] = {words.data()};  // launch.kernel on launch.blocks × launch.threads
//   }
//
// The text holds dtypes, expressions and which strides are 0 or 1; sizes, strides and most constants are parameters. So
// regions that differ in sizes have one text (but that a dimension of one element is none, neighbours that all operands
// go through as one are one, indices take 64 bits where 32 do not hold them, and few long rows are computed otherwise),
// and the text is the key by which compiled kernels are kept.
//
// Values are those of EvaluateRegion: bit for bit, but for the last bits of exp, expm1, log, log1p, tanh, sigmoid, erf,
// sin, cos and pow, and for what a NaN holds. Nothing depends on the launch.
// - Without anything of whole rows: a thread an element.
// - With it: a warp a row, or a block where rows are few and long. The 64 partial results that core/expressions/expr.h
// says are
//   those of lanes, or of threads.
// - Several regions as one kernel: a block a group, of which a warp takes a row, or the block one row after the other.
// - Sums over rows: a thread for each sum, which adds in row-major order. What such a sum reads of whole rows, a launch
//   before has written to scratch memory.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stepnet/core/formulas/formula.h"
#include "stepnet/core/regions/region.h"
#include "stepnet/gpu/device_fault.h"

namespace stepnet {

struct RegionSourceOptions {
  // What profiles call the kernels; what is no letter or digit becomes _. It is part of the text.
  std::string name = "region";
  // Inputs of int64, the same at every index, that are copied into the parameters when a kernel is launched. All others
  // are read from memory of the device when the kernel runs, as those have to that change between replays of a graph.
  std::vector<int> values = {};
  bool is_always_wide = false;  // indices take 64 bits whatever the sizes are: for tests
};
// They have the seed and the number of the operator as values; step and run are read from memory. `name` is any text.
RegionSourceOptions SourceOptionsOf(const FormulaRegion& formula, std::string_view name);

struct RegionLaunch {
  std::string kernel;                     // its name in the text
  std::int64_t blocks = 0;                // at least one
  int threads = 0;                        // of a block
  bool threads_exchange = false;          // values, in a warp or a block
  std::vector<std::uint64_t> words = {};  // the parameter, a struct by value; addresses are missing
};

// What launches are bound to.
struct RegionPointers {
  // On the device, as `size` counts it; of values: an int64 on the host.
  std::span<const void* const> inputs;
  std::span<void* const> outputs;
  void* scratch = nullptr;     // scratch_bytes
  void* fault = nullptr;       // a DeviceFault on the device; null: requirements are not checked
  DeviceFaultSite site = {};   // of the faults
  const void* stop = nullptr;  // a DeviceFault, of what ran before: where it is one, nothing is done
};

struct RegionSource {
  std::string kernels;                 // the text without what all texts have in common
  std::vector<RegionLaunch> launches;  // one after the other; none where there is nothing to compute
  std::int64_t scratch_bytes = 0;
  std::vector<Expr> requirements;  // that a DeviceFault names by number

  std::string Text() const;
  // The parameter of a launch, with addresses: of several regions those of one after the other.
  std::vector<std::uint64_t> Bind(const RegionLaunch& launch, const RegionPointers& pointers) const;
  std::vector<std::uint64_t> BindJoined(const RegionPointers& pointers) const;

  std::vector<std::int64_t> input_bytes;  // from where memory begins to the first element
  std::vector<std::int64_t> output_bytes;
  RegionSourceOptions options;
  std::vector<RegionSource> joined = {};  // of several regions: each, as a function with the parameters of its launch
};

// device_code.cuh, which the text of every kernel begins with.
std::string_view DeviceCodeText();

// REQUIRES: CheckRegion. Throws kInvalidArgument for a value that is not an int64 that all indices share.
RegionSource PrintRegion(const Region& region, const RegionSourceOptions& options = {});
// One kernel of regions that run one after the other, which keep so many groups apart (core/regions/region_groups.h): a
// block of threads takes each group through all of them. REQUIRES: as GroupsApart says, no inputs that are values.
RegionSource PrintRegions(std::span<const Region* const> regions, std::int64_t groups,
                          const RegionSourceOptions& options = {});

}  // namespace stepnet
