// RegionRoots: what ComposeRegions looks up of a region.
#pragma once

#include <vector>

#include "stepnet/core/regions/region.h"

namespace stepnet {

struct RegionRoots {
  std::vector<Expr> roots;               // values of outputs, then requirements
  std::vector<std::vector<int>> inputs;  // by root: those that it reads
  std::vector<double> operations;        // by root: simple ones that take as long as an element of it, about
  bool keeps_rows = false;               // the last dimension means something of its own
  bool has_require = false;
};

// A function counts as many operations as Target says.
RegionRoots RootsOf(const Region& region, double operations_of_function);

// Whether it has no elements, and says nothing of rows.
bool ComputesNothing(const Region& region);

}  // namespace stepnet
