// A region whose rows are of two kinds, each of which computes something else: those of sequences that have ended, and
// the others.
#pragma once

#include <cstdint>
#include <optional>

#include "stepnet/core/regions/region.h"

namespace stepnet {

// A condition of rows that compares one number of the row, or of all, with another: as lengths with the step.
struct RowComparison {
  struct Number {
    int input = 0;
    std::int64_t offset = 0;
    std::int64_t stride = 0;
  };
  bool is_less = true;  // a < b; else a <= b
  Number a;
  Number b;

  // `input` returns where an input of the region begins.
  template <typename Input>
  bool Holds(const Input& input, std::int64_t row) const {
    const std::int32_t x = NumberOf(a, input, row), y = NumberOf(b, input, row);
    return is_less ? x < y : x <= y;
  }

 private:
  template <typename Input>
  static std::int32_t NumberOf(const Number& of, const Input& input, std::int64_t row) {
    return static_cast<const std::int32_t*>(input(of.input))[of.offset + row * of.stride];
  }
};

struct RegionSplit {
  Region condition;                              // gives a bool for each row, one after the other
  std::optional<RowComparison> comparison = {};  // where it is one
  Region then;                                   // what rows compute for which it holds
  Region otherwise;
};

// Where all outputs are a choice by the same condition of rows, and what they choose between takes longer than to look
// for rows: the parts. Their inputs and outputs are those of the region.
std::optional<RegionSplit> SplitByRows(const Region& region);

}  // namespace stepnet
