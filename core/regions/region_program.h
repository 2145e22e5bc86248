// RegionProgram: a region made ready to run on the CPU, over blocks of elements that stay in the first cache, on the
// widest vectors that the machine has.
//
// How a program is made: values, how often each is computed and in which phase of a row (region_values), what one
// kernel computes (region_patterns), the region of each kind of row where rows are of two kinds (region_split),
// instructions (region_compile, region_instructions), lengths of blocks and places of slots (region_layout); and run:
// region_run and region_simple, with region_position, region_kernels, region_chains, region_gates, region_row_operands
// and region_reductions.
//
// Results are those of EvaluateRegion bit for bit (but for what a NaN holds), in however many parts and on whatever
// vectors it runs. A program is immutable; any number of threads may run it at once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "stepnet/core/regions/region.h"

namespace stepnet {

struct RegionDirect;
struct RegionSimple;

class RegionProgram {
 public:
  // Throws as CheckRegion.
  explicit RegionProgram(const Region& region);
  // The same of a region that has been checked.
  static RegionProgram OfChecked(const Region& region);
  RegionProgram(RegionProgram&&) noexcept;
  RegionProgram& operator=(RegionProgram&&) noexcept;
  ~RegionProgram();

  // Into how many parts a run may be cut: of blocks, of rows where something is computed of whole rows, of columns
  // where there are sums over rows; one where there are both.
  int max_parts() const;

  // Computes part `part` of `parts`; pointers and what is required of them as in EvaluateRegion. Parts write elements
  // of their own. The fault is the first of this part. Bit k of `moving`, of operand k, outputs behind inputs: its
  // memory is in no near cache, so that blocks of several rows ask for that of the next one. Throws kCancelled.
  std::optional<RegionFault> Run(std::span<const void* const> inputs, std::span<void* const> outputs, int part = 0,
                                 int parts = 1, std::uint64_t moving = 0) const;

  // Whether all operands are elements one after the other, so that the program is right for any number of them.
  bool is_flat() const;
  // max_parts of a flat program for so many elements.
  static int MaxFlatParts(std::int64_t elements);
  // The instruction of a flat program that has no other; null: it is another program.
  const RegionDirect* direct() const;
  // What a simple program runs; null: it is another one.
  const RegionSimple* simple() const;
  // Run, of so many elements. REQUIRES is_flat().
  void RunFlat(std::span<const void* const> inputs, std::span<void* const> outputs, std::int64_t elements, int part = 0,
               int parts = 1) const;

  // The program, an instruction a line, for people.
  std::string Text() const;

 private:
  struct Codes;
  explicit RegionProgram(std::unique_ptr<const Codes> codes);

  std::unique_ptr<const Codes> codes_;
};

}  // namespace stepnet
