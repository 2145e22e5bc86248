// SimpleRun: a run of a simple program, which is nothing but kernels on the elements of rows in memory, with as few
// instructions of the machine beside them as possible: they are a good part of what small regions take.
#pragma once

#include <cstdint>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/regions/region_code.h"
#include "stepnet/core/regions/region_run.h"

namespace stepnet {

class SimpleRun {
 public:
  // REQUIRES code.is_simple.
  explicit SimpleRun(const RegionCode& code) : code_(code), num_memory_(code.memory.size()) {}
  SimpleRun(const SimpleRun&) = delete;  // slots are in it
  SimpleRun& operator=(const SimpleRun&) = delete;

  bool has_begun() const { return row_ >= 0; }
  // From column `column` of row `row` on, for rows of `columns`. Comes before RunRows.
  void Begin(RegionInputs inputs, RegionOutputs outputs, std::int64_t row, std::int64_t column, std::int64_t columns) {
    row_ = row;
    const RegionMemory* const memory = code_.memory.data();
    const void* const* const from = inputs.data();
    void* const* const to = outputs.data();
    for (size_t i = 0; i < num_memory_; ++i) {
      const RegionMemory& of = memory[i];
      const void* const first = of.is_input ? from[of.number] : to[of.number];
      slots_[i] = static_cast<char*>(const_cast<void*>(first)) + of.offset + row * of.row + column * of.element;
    }
    char** slot = slots_ + num_memory_;
    for (void* const constant : code_.constants) *slot++ = static_cast<char*>(constant);
    for (const std::int64_t offset : code_.buffer_offsets) *slot++ = buffers_ + offset;
    if (code_.has_setup) SetUp(from, columns);
  }

  // The columns [column, column + columns) of the rows [first, last). REQUIRES: neither is empty.
  void RunRows(std::int64_t first, std::int64_t last, std::int64_t columns) {
    if (first != row_) Move(&RegionMemory::row, first - row_);
    for (row_ = first;;) {
      RunRow(columns);
      if (row_ + 1 == last) break;
      Move(&RegionMemory::row, 1);
      ++row_;
    }
  }

 private:
  // Values of the run.
  void SetUp(const void* const* inputs, std::int64_t columns);

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
    for (const RegionStep& step : code_.steps) {
      step.kernel(slots_[step.out], slots_[step.operands[0]], slots_[step.operands[1]], slots_[step.operands[2]],
                  slots_[step.operands[3]], n);
    }
  }

  void Move(std::int64_t RegionMemory::*stride, std::int64_t times) {
    const RegionMemory* const memory = code_.memory.data();
    for (size_t i = 0; i < num_memory_; ++i) slots_[i] += times * (memory[i].*stride);
  }

  const RegionCode& code_;
  const size_t num_memory_;
  std::int64_t row_ = -1;  // that slots are at
  char* slots_[kSimpleSlots];
  alignas(kRegionAlignment) char buffers_[kSimpleBytes];  // which is touched where a program has some
};

}  // namespace stepnet
