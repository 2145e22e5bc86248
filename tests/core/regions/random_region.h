// Random regions with the memory of their operands.
#pragma once

#include <random>
#include <vector>

#include "stepnet/core/regions/region.h"

namespace stepnet {

// The memory of a region's operands, with one array for what is in place.
class RegionMemory {
 public:
  RegionMemory(const Region& region, std::mt19937& random);

  std::vector<const void*> Inputs() const;
  std::vector<void*> Outputs();
  // "" or where the outputs of two runs of one region differ.
  std::string DifferenceFrom(const RegionMemory& other, const Region& region) const;

 private:
  std::vector<std::vector<std::uint64_t>> arrays_;  // of inputs, then of outputs
  std::vector<int> of_output_;
  size_t num_inputs_;
};

struct RandomRegionOptions {
  bool reductions = true;
  bool requires_too = true;
  int steps = 15;
  bool only_usual = false;  // as RandomExprOptions has it, of floats or doubles
  bool matrices = false;    // some of many short rows, with operands that have one row or one column for a matrix
};
// A region that CheckRegion accepts.
Region RandomRegion(const RandomRegionOptions& options, std::mt19937& random);
// "", or where a program of the region, whole and in parts, differs from the definition.
std::string DifferenceFromDefinition(const Region& region, unsigned seed);
// Sizes, operands and expressions.
std::string RegionText(const Region& region);

}  // namespace stepnet
