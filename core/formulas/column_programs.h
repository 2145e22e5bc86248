// ColumnPrograms: the programs of a region for parts of its columns, where each of them is computed alone.
#pragma once

#include <memory>
#include <vector>

#include "stepnet/core/programs_by_shapes.h"
#include "stepnet/core/regions/region_program.h"

namespace stepnet {

// How many columns a region has that can be computed apart: no value is of a whole row, or knows its place; 0: they
// cannot.
std::int64_t ColumnsApart(const Region& region);

// Any number of threads may use it at once.
class ColumnPrograms {
 public:
  // Computes the columns of part `part` (OpRun::ShareOfUnits). REQUIRES: ColumnsApart, of the same region each
  // time.
  void Run(const Region& region, std::span<const void* const> inputs, std::span<void* const> outputs, int part,
           int parts);

 private:
  // Parts of so many columns, wherever they begin.
  struct OfColumns {
    std::int64_t columns;
    RegionProgram program;

    bool IsFor(std::int64_t other) const { return columns == other; }
  };
  ProgramsByShapes<OfColumns> programs_;
};

}  // namespace stepnet
