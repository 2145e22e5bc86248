// RegionCode: a region as a linear program over blocks of elements. RegionProgram makes and runs it; nobody else looks
// in.
//
// A value is computed once a run, once a row, or for each element, as it depends on nothing, on the row or on the
// column. A block holds several short rows, one row, or a part of a long one. Values live in slots: arrays that an
// instruction reads and writes, which are buffers of the run, constants of the program or, where a block's elements of
// an operand are one after the other, its memory. Reductions of rows cut the work on a row into phases: what feeds one
// belongs to a phase before what uses it. A row keeps the values that a later phase reads; one that is too long for
// that computes them again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "stepnet/core/regions/region.h"
#include "stepnet/core/regions/region_kernels.h"
#include "stepnet/core/target.h"

namespace stepnet {

inline constexpr std::int64_t kRegionBlock = kCpuTarget.regions.block_elements;

enum class RegionLevel : std::uint8_t { kRun, kRow, kElement };  // what a value differs between

// Primitives that one kernel computes.
struct RegionPattern {
  enum class Kind : std::uint8_t {
    kNone,
    kChain,
    kPair,
    kNegMulAdd,
    kSlope,
    kBlend,
    kGate,
    kGradient,
    kSelect,
    kScaledRest,
    kRowSum,
    kCopy,
    kFill
  };
  Kind kind = Kind::kNone;
  RegionChain chain = {};
  RegionPair pair = {};
  RegionSlope slope = {};
  RegionBlend blend = RegionBlend::kPlain;
  RegionGradient gradient = {};
  ExprOp op = ExprOp::kConstant;  // kSelect: the comparison
  bool casts = false;             // kRowSum: floats, or products of floats, in double
  const char* term = "";          // kRowSum: what is added, for people
};

struct RegionInstruction {
  enum class Kind : std::uint8_t {
    kCompute,  // kernel(out, operands)
    kOfRows,   // row_operand_kernel(out, operands), of which some are `repeated`
    kSeveral,  // several_kernel of `several`: kMaxRegionResults results and the operands
    kUniform,
    kIndex,       // out = the indices of rows along dimension `number`
    kColumns,     // out = the columns
    kSplat,       // out[1…] = out[0], for as many as a block has elements, where `number` is 0 rows
    kSpread,      // out: for each row as many copies of operands[0] as the block has columns
    kCheck,       // requirement `number` about operands[0]; the message shows the others
    kReduceRows,  // out: of rows that are whole in operands[0]; with row_sums_kernel also `sum`, that of operands[0]
    kStartRow,    // out: partial results
    kReduce,      // out: partial results, of operands[0]
    kFinishRow,   // out[0] of the partial results operands[0]
    // Between the memory of operand `number` of the program and a slot: of the elements of a block, or one a row.
    kLoad,      // to out
    kStore,     // from operands[0]
    kAdd,       // likewise, added
    kLoadRow,   // as kLoad
    kStoreRow,  // as kStore
    kAddRow,    // as kAdd
  };
  Kind kind = Kind::kCompute;
  ExprOp op = ExprOp::kConstant;
  DType dtype = DType::kFloat;  // of the result
  RegionLevel level = RegionLevel::kElement;
  int number = 0;
  int out = -1;
  int operands[kMaxExprOperands] = {-1, -1, -1, -1, -1};  // kCompute: those that it does not have are any slot
  int num_operands = 0;
  RegionKernel kernel = nullptr;
  RegionPattern pattern = {};  // kCompute: what the kernel does, where it is more than `op`
  RowOperandKernel row_operand_kernel = nullptr;
  RepeatedOperands repeated = {};
  RegionSeveralKernel several_kernel = nullptr;
  int several[kMaxRegionResults + kMaxExprOperands] = {};  // those that there are not are any slot
  int num_results = 0;
  RowKernel row_kernel = nullptr;
  RowsKernel rows_kernel = nullptr;
  RowSumsKernel row_sums_kernel = nullptr;
  int sum = -1;
};

// Elements from the memory of an operand into a slot, or the other way.
struct RegionMove {
  int operand = 0;
  int slot = 0;
};

inline constexpr std::int64_t kRegionAlignment = kLineBytes;  // of buffers
struct FreeAligned {
  void operator()(std::byte* memory) const { ::operator delete[](memory, std::align_val_t(kRegionAlignment)); }
};
using AlignedBytes = std::unique_ptr<std::byte[], FreeAligned>;
AlignedBytes MakeAlignedBytes(std::int64_t bytes);

// Where the elements of a slot that is memory are, in bytes.
struct RegionMemory {
  bool is_input = true;
  int number = 0;  // of the input or output
  std::int64_t offset = 0;
  std::int64_t row = 0;      // from one row to the next
  std::int64_t element = 0;  // of an element
};

// The instruction of a flat program that has one.
struct RegionDirect {
  struct Source {  // of an operand, in bytes
    const void* constant = nullptr;
    int input = 0;  // where there is no constant
    std::int64_t offset = 0;
    std::int64_t element = 0;  // from one to the next
  };
  RegionKernel kernel = nullptr;  // null: the program is another
  Source sources[4];
  int output = 0;
  std::int64_t offset = 0;
  std::int64_t element = 0;
  std::int64_t width = 0;  // elements of a block at most
};

inline constexpr int kSimpleSlots = 96;  // of a simple program, and bytes of its buffers
inline constexpr std::int64_t kSimpleBytes = 16 << 10;

// An instruction of a simple program: what SimpleRun needs of it.
struct SimpleInstruction {
  bool is_of_rows = false;  // on as many values as a block has rows
  RegionKernel kernel = nullptr;
  const RegionInstruction* other = nullptr;  // which it is where there is no kernel
  std::uint8_t out = 0;
  std::uint8_t operands[4] = {};
  std::uint8_t fill_bytes = 0;  // of an element, where it fills with what the one before fills with
};

struct RegionCode {
  struct KeptElements {
    int slot;
    std::int64_t offset;   // in the buffers, in bytes
    std::int64_t element;  // bytes of an element
  };
  struct Operand {  // inputs, then outputs
    RegionIndex strides;
    std::int64_t offset;
    std::int64_t bytes;  // of an element
    DType dtype;
  };
  struct Phase {
    std::vector<RegionInstruction> row;    // once for the rows of a block, before its elements
    std::vector<RegionInstruction> block;  // for each block
    std::vector<RegionInstruction> end;    // once for the rows of a block, after all their blocks
  };
  RegionIndex sizes = {};   // dimensions that move as one are one
  bool joins_rows = false;  // blocks hold several whole rows, because they are short
  // A block has no rows of two groups of so many: of those of one matrix, or of all.
  std::int64_t group_rows = 0;
  bool is_flat = false;    // one row of elements that lie one after the other, and nothing but kernels on them
  bool is_simple = false;  // nothing but kernels on the elements of rows in memory, on rows that all rows share, and on
                           // values of the run, few; or of rows that are whole in a block, then on their values, too
  bool runs_whole_rows = false;  // a simple program: blocks are whole rows
  RegionDirect direct;
  std::vector<SimpleInstruction> simple;  // of a simple program
  std::int64_t simple_work = 0;           // of an element of it, as CountWork has it
  std::int64_t width = 0;                 // elements of a block at most
  std::int64_t max_rows = 1;              // and rows
  int num_inputs = 0;
  std::vector<Operand> operands;
  std::vector<int> sums;             // outputs that are 0 before anything is added
  std::vector<int> memory_operands;  // of slots that are memory: the first ones
  std::vector<RegionMemory> memory;  // and where they are, those of inputs first
  int num_input_memory = 0;
  std::vector<RegionMemory> row_memory;      // of a simple program: memory of values of rows, as slots after all others
  std::vector<void*> constants;              // slots that follow: arrays of `width` equal elements
  std::vector<std::int64_t> buffer_offsets;  // of the other slots, in bytes
  std::vector<KeptElements> kept;            // those of them that hold a whole row
  // Where in the memory of a run what is: slots first, then where rows of operands begin and where operands do, then
  // buffers.
  std::int64_t rows_at = 0;
  std::int64_t buffers_at = 0;
  std::int64_t run_bytes = 0;
  std::vector<RegionMove> run_loads;
  std::vector<RegionInstruction> setup;  // once a run
  bool has_setup = false;                // run_loads or setup
  std::vector<RegionMove> tile_loads;    // once a run: elements that are the same in all rows
  std::vector<Phase> phases;
  bool has_row_outputs = false;  // outputs of one element a row, also where rows have none
  std::vector<Expr> requirements;
  // A run is cut into parts between units.
  enum class Cut : std::uint8_t { kBlocks, kRows, kColumns } cut = Cut::kBlocks;
  std::int64_t unit = 1;  // kBlocks: elements of a row or, where rows are joined, rows; kRows: rows; kColumns: columns
  int max_parts = 1;
  AlignedBytes constant_memory;

  std::int64_t NumRows() const { return sizes[0] * sizes[1] * sizes[2]; }
  bool has_groups() const { return group_rows != NumRows(); }
  // Whether the elements of a block are one after the other in the memory of an operand.
  bool IsContiguous(const Operand& operand) const;
};

// REQUIRES: CheckRegion. `keeps_rows`: rows stay those of the region, where else dimensions may be merged.
RegionCode CompileRegion(const Region& region, bool keeps_rows = false);

// An instruction a line, for people.
std::string RegionCodeText(const RegionCode& code);

}  // namespace stepnet
