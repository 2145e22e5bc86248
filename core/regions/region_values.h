// RegionValues: what CompileRegion knows of the values of a region before they get slots: how often each is computed,
// in which phase of a row, and which of them are one instruction.
#pragma once

#include <cstdint>
#include <vector>

#include "stepnet/core/regions/region.h"
#include "stepnet/core/regions/region_code.h"

namespace stepnet {

struct RegionValue {
  const ExprNode* expr = nullptr;
  int operands[kMaxExprOperands] = {-1, -1, -1, -1, -1};  // values, before it; those of the pattern where it has one
  int num_operands = 0;
  int uses = 0;          // by other values and as an output
  int requirement = -1;  // which one, for Require
  RegionLevel level = RegionLevel::kRun;
  int phase = 0;                   // of a row
  bool is_splat = false;           // of the run, and instructions on elements read it
  bool is_row_splat = false;       // of the run, and instructions on rows read it
  bool is_of_columns = false;      // an input of joined rows, which has one row for all
  bool is_read_as_is = false;      // likewise, and an instruction reads that row
  bool is_spread = false;          // of the row or of columns, and instructions read as much as a block has
  bool is_output_element = false;  // an output that has elements is this
  bool is_absorbed = false;        // a part of the pattern of what uses it
  RegionPattern pattern = {};
  RegionKernel kernel = nullptr;  // of the pattern
  // A pattern of several values, of which this is the first and has the instruction: its kernel, and all of them. The
  // others are absorbed.
  RegionSeveralKernel several_kernel = nullptr;
  int results[kMaxRegionResults] = {};
  int num_results = 0;
  RowsKernel rows_kernel = nullptr;  // likewise, of a reduction
  int sum = -1;                      // of a sum of products: that of the first factor, which is computed with it
  bool is_with_products = false;     // such a sum
  RowOperandKernel row_operand_kernel = nullptr;
  RepeatedOperands repeated;  // which operands instructions read as values of rows or columns

  bool is_reduction() const { return expr->op == ExprOp::kRowSum || expr->op == ExprOp::kRowMax; }
  // Whether blocks have an instruction for it. For a reduction that is what adds elements to partial results.
  bool is_in_blocks() const {
    const bool is_computed = level == RegionLevel::kElement && expr->op != ExprOp::kInput;
    return (is_computed && !is_absorbed) || (is_reduction() && !is_with_products);
  }
  // The phase of that instruction: a reduction is done when what uses it starts.
  int block_phase() const { return phase - (is_reduction() ? 1 : 0); }
};

struct RegionValues {
  std::vector<RegionValue> all;  // operands before what uses them
  std::vector<int> outputs;      // the value of each output
  bool are_kept = true;          // those of a row, from phase to phase; else phases compute them again
};

// Chooses patterns too. Fills sizes, operands, phases, whether rows are joined and the requirements of `code` too.
// REQUIRES: CheckRegion. `keeps_rows`: rows stay those of the region.
RegionValues FindRegionValues(const Region& region, bool keeps_rows, RegionCode* code);

}  // namespace stepnet
