// Simple programs: nothing but kernels on the elements of rows in memory, or two such programs and which of them a row
// is of. They run with as few instructions of the machine beside the kernels as possible: these are a good part of what
// small regions take. So they ask where an operand begins when they need it, and of whom they run for: `input` and
// `output` return that by the number of the region's input or output.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/regions/region_code.h"
#include "stepnet/core/regions/region_copies.h"
#include "stepnet/core/regions/region_split.h"

namespace stepnet {

// An element, of a size that is not known to the compiler, without a call for that.
[[gnu::always_inline]] inline void CopyElement(char* to, const char* from, std::int64_t bytes) {
  if (bytes == 4) {
    std::memcpy(to, from, 4);
  } else if (bytes == 8) {
    std::memcpy(to, from, 8);
  } else if (bytes == 2) {
    std::memcpy(to, from, 2);
  } else {
    *to = *from;
  }
}

// A kernel on elements some of whose operands rows share. Never inlined: an array on the stack slows callers down.
[[gnu::noinline]] inline void ComputeOfRows(const RegionInstruction& instruction, char* const* slots, std::int64_t rows,
                                            std::int64_t columns) {
  const void* arrays[kMaxExprOperands] = {};
  for (int k = 0; k < instruction.num_operands; ++k) arrays[k] = slots[instruction.operands[k]];
  instruction.row_operand_kernel(slots[instruction.out], arrays, instruction.repeated, rows, columns);
}

inline void ReduceRows(const RegionInstruction& reduce, char* const* slots, std::int64_t rows, std::int64_t columns) {
  const char* const a = slots[reduce.operands[0]];
  const char* const b = reduce.num_operands > 1 ? slots[reduce.operands[1]] : nullptr;
  if (reduce.row_sums_kernel != nullptr) {
    reduce.row_sums_kernel(slots[reduce.sum], slots[reduce.out], a, b, reduce.repeated, rows, columns);
  } else {
    reduce.rows_kernel(slots[reduce.out], a, b, reduce.repeated, rows, columns);
  }
}

// A run of one simple program.
class SimpleRun {
 public:
  // REQUIRES code.is_simple.
  explicit SimpleRun(const RegionCode& code) : code_(code), num_memory_(code.memory.size()) {}
  SimpleRun(const SimpleRun&) = delete;  // slots are in it
  SimpleRun& operator=(const SimpleRun&) = delete;

  bool has_begun() const { return row_ >= 0; }
  // Begins at column `column` of row `row`, of rows of `columns`. Comes before RunRows.
  template <typename Input, typename Output>
  void Begin(const Input& input, const Output& output, std::int64_t row, std::int64_t column, std::int64_t columns) {
    const RegionMemory* of = code_.memory.data();
    char** slot = slots_;
    for (char** const outputs = slots_ + code_.num_input_memory; slot != outputs; ++of) {
      *slot++ = static_cast<char*>(const_cast<void*>(static_cast<const void*>(input(of->number)))) + of->offset;
    }
    for (char** const end = slots_ + num_memory_; slot != end; ++of) {
      *slot++ = static_cast<char*>(output(of->number)) + of->offset;
    }
    row_ = row;
    if (row != 0) Move(&RegionMemory::row, row);
    if (column != 0) Move(&RegionMemory::element, column);
    for (void* const constant : code_.constants) *slot++ = static_cast<char*>(constant);
    for (const std::int64_t offset : code_.buffer_offsets) *slot++ = buffers_ + offset;
    for (const RegionMemory& rows : code_.row_memory) {
      const void* const base = rows.is_input ? input(rows.number) : output(rows.number);
      *slot++ = static_cast<char*>(const_cast<void*>(base)) + rows.offset + row * rows.row;
    }
    if (!code_.has_setup) return;
    for (const auto& [operand, to] : code_.run_loads) {
      const RegionCode::Operand& of = code_.operands[operand];
      CopyElement(slots_[to], static_cast<const char*>(input(operand)) + of.offset * of.bytes, of.bytes);
    }
    SetUp(columns);
  }

  // Runs those columns of the only row that the region has.
  void RunOnlyRow(std::int64_t columns) {
    if (code_.runs_whole_rows) return RunWhole(1, columns);
    RunRow(columns);
  }

  // The columns [column, column + columns) of the rows [first, last). REQUIRES: neither is empty.
  void RunRows(std::int64_t first, std::int64_t last, std::int64_t columns) {
    if (first != row_) MoveRows(first - row_);
    row_ = first;
    if (!code_.runs_whole_rows && columns <= code_.width) {  // with as little as can be between two rows
      for (RunBlock(columns); ++row_ != last; RunBlock(columns)) GoToNextRow();
      --row_;
      return;
    }
    for (;;) {
      const std::int64_t rows = std::min(code_.max_rows, last - row_);
      if (code_.runs_whole_rows) {
        RunWhole(rows, columns);
      } else {
        RunRow(columns);
      }
      if (row_ + rows == last) break;
      MoveRows(rows);
      row_ += rows;
    }
  }

 private:
  // Values of the run that are not loaded.
  void SetUp(std::int64_t columns);

  void RunRow(std::int64_t columns) {
    if (columns <= code_.width) return RunBlock(columns);
    std::int64_t at = 0;
    for (; columns - at > code_.width; at += code_.width) {
      RunBlock(code_.width);
      Move(&RegionMemory::element, code_.width);
    }
    RunBlock(columns - at);
    Move(&RegionMemory::element, -at);
  }

  void RunBlock(std::int64_t n) {
    CountWork(n * code_.simple_work);
    const SimpleInstruction* next = code_.simple.data();
    for (const SimpleInstruction* const end = next + code_.simple.size(); next != end;) {
      const SimpleInstruction& first = *next++;
      if (first.other != nullptr) {
        first.other->several_kernel(slots_, first.other->several, n);
        continue;
      }
      std::int64_t count = n;  // with fills of the memory behind, as that of the other gates of a unit
      while (next != end && next->fill_bytes != 0 &&
             slots_[next->out] == slots_[first.out] + count * next->fill_bytes) {
        count += n;
        ++next;
      }
      RunKernel(first, count);
    }
  }

  // Whole rows, which are one after the other.
  void RunWhole(std::int64_t rows, std::int64_t columns) {
    CountWork(rows * columns * code_.simple_work);
    for (const SimpleInstruction& instruction : code_.simple) {
      if (instruction.other == nullptr) {
        RunKernel(instruction, instruction.is_of_rows ? rows : rows * columns);
      } else {
        RunOther(*instruction.other, rows, columns);
      }
    }
  }
  void RunOther(const RegionInstruction& instruction, std::int64_t rows, std::int64_t columns) {
    using Kind = RegionInstruction::Kind;
    if (instruction.kind == Kind::kReduceRows) {
      ReduceRows(instruction, slots_, rows, columns);
    } else if (instruction.kind == Kind::kOfRows) {
      ComputeOfRows(instruction, slots_, rows, columns);
    } else if (instruction.kind == Kind::kSeveral) {
      instruction.several_kernel(slots_, instruction.several, rows * columns);
    } else {
      Spread(slots_[instruction.operands[0]], slots_[instruction.out], DTypeBytes(instruction.dtype), rows, columns);
    }
  }

  void RunKernel(const SimpleInstruction& instruction, std::int64_t n) {
    instruction.kernel(slots_[instruction.out], slots_[instruction.operands[0]], slots_[instruction.operands[1]],
                       slots_[instruction.operands[2]], slots_[instruction.operands[3]], n);
  }

  // REQUIRES: there is no row_memory.
  void GoToNextRow() {
    const RegionMemory* of = code_.memory.data();
    for (char **slot = slots_, **const end = slots_ + num_memory_; slot != end; ++slot, ++of) *slot += of->row;
  }

  void Move(std::int64_t RegionMemory::*stride, std::int64_t times) {
    const RegionMemory* const memory = code_.memory.data();
    for (size_t i = 0; i < num_memory_; ++i) slots_[i] += times * (memory[i].*stride);
  }

  void MoveRows(std::int64_t rows) {
    Move(&RegionMemory::row, rows);
    if (code_.row_memory.empty()) return;
    char** slot = slots_ + num_memory_ + code_.constants.size() + code_.buffer_offsets.size();
    for (const RegionMemory& memory : code_.row_memory) *slot++ += rows * memory.row;
  }

  const RegionCode& code_;
  const size_t num_memory_;
  std::int64_t row_ = -1;  // that slots are at
  char* slots_[kSimpleSlots];
  alignas(kRegionAlignment) char buffers_[kSimpleBytes];  // which is touched where a program has some
};

// What a simple region runs.
struct RegionSimple {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  const RegionCode* code = nullptr;       // of all rows, or of those of which `test` does not hold
  const RegionCode* of_others = nullptr;  // of the others; null: there is no test
  const RowTest* test = nullptr;
};

// Runs rows of two kinds. Where those of one kind are copies, which memory is slow with, they are under way while
// others are computed. `input` and `output` by value: callers keep them in registers.
template <typename Input, typename Output>
[[gnu::noinline]] void RunSimpleKinds(const RegionSimple& simple, Input input, Output output, std::int64_t begin,
                                      std::int64_t end, std::int64_t columns) {
  const RowTest& test = *simple.test;
  SimpleRun others(*simple.of_others), rows(*simple.code);  // which begin when there is a row of the kind
  for (std::int64_t row = begin; row < end;) {
    const bool is_other = test.Holds(input, row);
    const std::int64_t first = row++;
    while (row < end && test.Holds(input, row) == is_other) ++row;
    SimpleRun& run = is_other ? others : rows;
    if (!run.has_begun()) run.Begin(input, output, first, 0, columns);
    run.RunRows(first, row, columns);
  }
}

// The only row that the region has; `is_other`: its test holds.
template <typename Input, typename Output>
[[gnu::always_inline]] inline void RunOnlyRow(const RegionSimple& simple, bool is_other, const Input& input,
                                              const Output& output, std::int64_t columns) {
  SimpleRun run(is_other ? *simple.of_others : *simple.code);
  run.Begin(input, output, 0, 0, columns);
  run.RunOnlyRow(columns);
}

// The rows [begin, end) of `columns`; REQUIRES: neither is empty.
template <typename Input, typename Output>
[[gnu::always_inline]] inline void RunSimpleRows(const RegionSimple& simple, const Input& input, const Output& output,
                                                 std::int64_t begin, std::int64_t end, std::int64_t columns) {
  if (simple.rows == 1) {
    const bool is_other = simple.test != nullptr && simple.test->Holds(input, 0);
    return RunOnlyRow(simple, is_other, input, output, columns);
  }
  if (simple.test != nullptr) return RunSimpleKinds(simple, input, output, begin, end, columns);
  SimpleRun run(*simple.code);
  run.Begin(input, output, begin, 0, columns);
  run.RunRows(begin, end, columns);
}

}  // namespace stepnet
