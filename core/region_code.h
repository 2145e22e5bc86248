// RegionCode: a region as a linear program over blocks of elements. RegionProgram makes and runs it; nobody else looks
// in.
//
// A value is computed once a run, once a row, or in blocks of elements, as it depends on nothing, on the row or on the
// column. Values live in slots: arrays that an instruction reads and writes, which are buffers of the run or, where an
// operand is contiguous, its memory. Reductions of rows cut a row into phases: what feeds one belongs to a phase before
// what uses it. A row that is one block keeps its values from phase to phase; a longer one computes them again.
#pragma once

#include <cstdint>
#include <vector>

#include "stepnet/core/region.h"
#include "stepnet/core/region_kernels.h"

namespace stepnet {

inline constexpr std::int64_t kRegionBlock = 256;  // elements: some ten arrays of them stay in the first cache

struct RegionInstruction {
  enum class Kind : std::uint8_t {
    kCompute,  // kernel(out, operands)
    kUniform,
    kIndex,      // out[0] = the index of the row along dimension `number`
    kColumns,    // out = the columns
    kSplat,      // out[1…] = out[0]
    kCheck,      // requirement `number` about operands[0]; operands[1], or -1, is what the message shows
    kStartRow,   // out: partial results
    kReduce,     // out: partial results, of operands[0]
    kFinishRow,  // out[0] of the partial results operands[0]
  };
  Kind kind = Kind::kCompute;
  ExprOp op = ExprOp::kConstant;
  DType dtype = DType::kFloat;  // of the result; kCheck: of what the message shows
  int number = 0;
  int out = -1;
  int operands[kMaxExprOperands] = {-1, -1, -1, -1, -1};
  RegionKernel kernel = nullptr;
  RegionChain chain = {};  // kCompute: what the kernel does, where it is more than `op`
  RowKernel row_kernel = nullptr;
};

// Elements from the memory of an operand into a slot, or the other way.
struct RegionMove {
  int operand = 0;
  int slot = 0;
};

struct RegionCode {
  struct Operand {  // inputs, then outputs
    RegionIndex strides;
    std::int64_t offset;
    std::int64_t bytes;  // of an element
    DType dtype;
  };
  struct Phase {
    std::vector<RegionInstruction> row;    // once a row, before its blocks
    std::vector<RegionMove> loads;         // of a block, before its instructions
    std::vector<RegionInstruction> block;  // for each block
    std::vector<RegionMove> stores;        // of a block, after its instructions
    std::vector<RegionMove> sums;          // likewise, added
  };
  struct Constant {
    int slot;
    std::uint64_t bits;
  };
  struct Requirement {
    Expr require;
    bool has_value;
  };

  RegionIndex sizes = {};       // dimensions that move as one are one
  bool crosses_rows = false;    // blocks are of all elements in their order, because rows are short
  std::int64_t width = 0;       // elements of a block
  std::int64_t row_blocks = 1;  // blocks of a row
  int num_inputs = 0;
  std::vector<Operand> operands;
  std::vector<int> sums;                     // outputs that are 0 before anything is added
  std::vector<int> memory_operands;          // of slots that are memory: the first ones
  std::vector<std::int64_t> buffer_offsets;  // of the other slots, in bytes
  std::int64_t buffer_bytes = 0;
  // Where in the memory of a run what is: slots first, then where rows of operands begin and where operands do, then
  // buffers.
  std::int64_t rows_at = 0;
  std::int64_t buffers_at = 0;
  std::int64_t run_bytes = 0;
  std::vector<Constant> constants;
  std::vector<RegionMove> run_loads;
  std::vector<RegionInstruction> setup;  // once a run
  std::vector<RegionMove> row_loads;
  std::vector<Phase> phases;
  std::vector<RegionMove> row_stores;
  std::vector<Requirement> requirements;
  int max_parts = 1;
  enum class Cut : std::uint8_t { kBlocks, kRows, kColumns } cut = Cut::kBlocks;

  std::int64_t NumRows() const { return sizes[0] * sizes[1] * sizes[2]; }
};

// Throws as CheckRegion.
RegionCode CompileRegion(const Region& region);

}  // namespace stepnet
