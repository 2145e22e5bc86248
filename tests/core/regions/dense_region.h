// Regions over whole matrices, as tests write them.
#pragma once

#include <cstdint>

#include "stepnet/core/regions/region.h"

namespace stepnet {

// A region over dense [rows, columns] operands of float.
struct Dense {
  std::int64_t rows = 1;
  std::int64_t columns = 1;

  RegionOperand Elements(DType dtype = DType::kFloat) const {
    return {.dtype = dtype, .size = rows * columns, .strides = {0, 0, columns, 1}};
  }
  RegionOperand Rows() const { return {.dtype = DType::kFloat, .size = rows, .strides = {0, 0, 1, 0}}; }
  RegionIndex Sizes() const { return {1, 1, rows, columns}; }
};

}  // namespace stepnet
