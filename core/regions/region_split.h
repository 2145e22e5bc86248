// A region whose rows are of two kinds, each of which computes something else: those of sequences that have ended, and
// the others.
#pragma once

#include <cstdint>
#include <optional>

#include "stepnet/core/regions/region.h"

namespace stepnet {

// A condition of rows that needs no program: a bool of the row, or one number of the row, or of all, compared with
// another: as lengths with the step.
struct RowTest {
  enum class Kind {
    kLess,       // a < b
    kLessEqual,  // a <= b
    kHolds,      // a, a bool
  };
  struct Number {
    int input = 0;
    std::int64_t offset = 0;
    std::int64_t stride = 0;
  };
  Kind kind = Kind::kLess;
  Number a;
  Number b;  // of a bool as `a`

  // `input` returns where an input of the region begins.
  template <typename Input>
  bool Holds(const Input& input, std::int64_t row) const {
    if (kind == Kind::kHolds) return NumberOf<bool>(a, input, row);
    const std::int32_t x = NumberOf<std::int32_t>(a, input, row), y = NumberOf<std::int32_t>(b, input, row);
    return kind == Kind::kLess ? x < y : x <= y;
  }

 private:
  template <typename T, typename Input>
  static T NumberOf(const Number& of, const Input& input, std::int64_t row) {
    return static_cast<const T*>(input(of.input))[of.offset + row * of.stride];
  }
};

struct RegionSplit {
  Region condition;                  // gives a bool for each row, one after the other
  std::optional<RowTest> test = {};  // where the condition is one
  Region then;                       // what rows compute for which it holds
  Region otherwise;
};

// Where all outputs are a choice by the same condition of rows, and what they choose between takes longer than to look
// for rows: the parts. Their inputs and outputs are those of the region.
std::optional<RegionSplit> SplitByRows(const Region& region);

}  // namespace stepnet
