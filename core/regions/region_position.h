// RegionPosition: where a run of a region's program is, and what goes between the memory of operands and slots there.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "stepnet/core/floating.h"
#include "stepnet/core/regions/region_code.h"
#include "stepnet/core/regions/region_copies.h"
#include "stepnet/core/regions/region_run.h"
#include "stepnet/core/regions/region_simple.h"

namespace stepnet {

// The block that a run is at: rows, and columns of them. Slots of memory follow it.
class RegionPosition {
 protected:
  // `memory`: run_bytes of the code.
  RegionPosition(const RegionCode& code, RegionInputs inputs, RegionOutputs outputs, char* memory)
      : code_(code), buffers_(memory + code.buffers_at) {
    slots_ = reinterpret_cast<char**>(memory);
    rows_ = reinterpret_cast<char**>(memory + code.rows_at);
    bases_ = rows_ + code.operands.size();
    for (size_t i = 0; i < code.operands.size(); ++i) {
      const bool is_input = i < static_cast<size_t>(code.num_inputs);
      const void* const first = is_input ? inputs[i] : outputs[i - code.num_inputs];
      const RegionCode::Operand& of = code.operands[i];
      bases_[i] = static_cast<char*>(const_cast<void*>(first)) + of.offset * of.bytes;
    }
    char** slot = slots_ + code.memory_operands.size();
    for (void* const constant : code.constants) *slot++ = static_cast<char*>(constant);
    for (const std::int64_t offset : code.buffer_offsets) *slot++ = buffers_ + offset;
  }

  void GoToRow(std::int64_t row) {
    row_ = row;
    column_ = 0;
    slots_column_ = -1;
    if (code_.sizes[0] * code_.sizes[1] == 1) {
      index_[2] = row;
      for (size_t i = 0; i < code_.operands.size(); ++i) {
        const RegionCode::Operand& of = code_.operands[i];
        rows_[i] = bases_[i] + row * of.strides[2] * of.bytes;
      }
      return;
    }
    index_[2] = row % code_.sizes[2];
    index_[1] = row / code_.sizes[2] % code_.sizes[1];
    index_[0] = row / code_.sizes[2] / code_.sizes[1];
    for (size_t i = 0; i < code_.operands.size(); ++i) rows_[i] = bases_[i] + OffsetOf(code_.operands[i], index_);
  }

  // Asks for what the next block, of whole rows, has of one operand of `to_ask_`, which are some: what this block
  // computes gives it time to come, where all at once would wait for each other.
  void AskForNext() {
    const int operand = std::countr_zero(to_ask_);
    to_ask_ &= to_ask_ - 1;
    const std::int64_t row = row_ + num_rows_;
    const RegionCode::Operand& of = code_.operands[operand];
    if (of.strides[2] == 0 || row >= code_.NumRows()) return;
    const std::int64_t outer = row / code_.sizes[2];
    const std::int64_t index[] = {outer / code_.sizes[1], outer % code_.sizes[1], row % code_.sizes[2]};
    const char* const next = bases_[operand] + OffsetOf(of, index);
    for (std::int64_t at = 0; at < code_.width * of.bytes; at += kLineBytes) __builtin_prefetch(next + at);
  }

  void GoToColumn(std::int64_t at) {
    column_ = at;
    if (slots_column_ == at) return;  // as in all phases of a row that is one block
    slots_column_ = at;
    for (size_t i = 0; i < code_.memory_operands.size(); ++i) {
      const int operand = code_.memory_operands[i];
      slots_[i] = rows_[operand] + at * code_.operands[operand].bytes;
    }
    for (const auto& [slot, offset, element] : code_.kept) slots_[slot] = buffers_ + offset + at * element;
  }

  // Elements of the block, from the column `at` on.
  void LoadElements(const RegionMove& move, std::int64_t at) {
    ForBlocks(move, at, [](char* memory, char* block, const BlockRows& rows) { LoadBlock(memory, block, rows); });
  }
  void StoreElements(const RegionMove& move, std::int64_t at) {
    ForBlocks(move, at, [](char* memory, char* block, const BlockRows& rows) { StoreBlock(block, memory, rows); });
  }
  void AddElements(int operand, const char* from, std::int64_t at) {
    const RegionCode::Operand& of = code_.operands[operand];
    const std::int64_t row_bytes = num_columns_ * of.bytes, stride = of.strides[3];
    ForRuns(operand, at, [&](std::int64_t i, std::int64_t rows, char* memory, std::int64_t row_stride) {
      const char* const block = from + i * row_bytes;
      if (row_stride == 0 && stride == 1 && IsFloatOrDouble(of.dtype)) {
        AddRows(block, memory, of.dtype, rows, num_columns_);
      } else if (row_stride == row_bytes && stride == 1) {
        AddStrided(block, memory, stride, of.dtype, rows * num_columns_);
      } else {
        for (std::int64_t row = 0; row < rows; ++row) {
          AddStrided(block + row * row_bytes, memory + row * row_stride, stride, of.dtype, num_columns_);
        }
      }
    });
  }

  // One element of each row.
  void LoadOfRows(int operand, char* to) {
    const std::int64_t bytes = code_.operands[operand].bytes;
    ForRuns(operand, 0, [&](std::int64_t i, std::int64_t rows, const char* memory, std::int64_t row_stride) {
      CopyRun(to + i * bytes, bytes, memory, row_stride, bytes, rows);
    });
  }
  void StoreOfRows(int operand, const char* from) {
    const std::int64_t bytes = code_.operands[operand].bytes;
    ForRuns(operand, 0, [&](std::int64_t i, std::int64_t rows, char* memory, std::int64_t row_stride) {
      CopyRun(memory, row_stride, from + i * bytes, bytes, bytes, rows);
    });
  }
  void AddOfRows(int operand, const char* from) {
    const RegionCode::Operand& of = code_.operands[operand];
    ForRuns(operand, 0, [&](std::int64_t i, std::int64_t rows, char* memory, std::int64_t row_stride) {
      AddStrided(from + i * of.bytes, memory, row_stride / of.bytes, of.dtype, rows);
    });
  }

  void FillIndex(int dimension, std::int64_t* out) const {
    std::int64_t index[] = {index_[0], index_[1], index_[2]};
    for (std::int64_t i = 0; i < num_rows_; ++i) {
      out[i] = index[dimension];
      GoToNext(index);
    }
  }
  void FillColumns(std::int64_t* out) const {
    for (std::int64_t row = 0; row < num_rows_; ++row) {
      for (std::int64_t i = 0; i < num_columns_; ++i) *out++ = column_ + i;
    }
  }

  const RegionCode& code_;
  char* buffers_;
  char** slots_;
  char** bases_;  // the first element of each operand
  std::int64_t row_ = 0;
  std::int64_t column_ = 0;  // the first of the block
  std::int64_t num_rows_ = 1;
  std::int64_t num_columns_ = 0;
  std::uint64_t to_ask_ = 0;  // bit k: operand k, of which the next block is still to be asked for

 private:
  // Calls fn(memory of the operand, of the slot, rows) for all rows of the block, from the column `at` on.
  template <typename Fn>
  void ForBlocks(const RegionMove& move, std::int64_t at, const Fn& fn) {
    const RegionCode::Operand& of = code_.operands[move.operand];
    ForRuns(move.operand, at, [&](std::int64_t i, std::int64_t rows, char* memory, std::int64_t row_stride) {
      fn(memory, slots_[move.slot] + i * num_columns_ * of.bytes,
         BlockRows{.rows = rows,
                   .columns = num_columns_,
                   .bytes = of.bytes,
                   .row_stride = row_stride,
                   .stride = of.strides[3]});
    });
  }

  // Calls fn(i, rows, memory, row_stride) for the rows [i, i + rows) of the block, all of which are `row_stride` bytes
  // apart in the operand; `memory`: the element of the first at the column `at`.
  template <typename Fn>
  void ForRuns(int operand, std::int64_t at, const Fn& fn) {
    const RegionCode::Operand& of = code_.operands[operand];
    const std::int64_t row_stride = of.strides[2] * of.bytes, column = at * of.strides[3] * of.bytes;
    std::int64_t index[] = {index_[0], index_[1], index_[2]};
    char* memory = rows_[operand] + column;
    for (std::int64_t i = 0;;) {
      const std::int64_t rows = std::min(num_rows_ - i, code_.sizes[2] - index[2]);
      fn(i, rows, memory, row_stride);
      if ((i += rows) == num_rows_) return;
      index[2] += rows - 1;
      GoToNext(index);
      memory = bases_[operand] + column + OffsetOf(of, index);
    }
  }

  // An element of each of some rows.
  static void CopyRun(char* to, std::int64_t to_step, const char* from, std::int64_t from_step, std::int64_t bytes,
                      std::int64_t rows) {
    if (rows > 1 && to_step == bytes && from_step == bytes) {
      std::memcpy(to, from, static_cast<size_t>(rows * bytes));
      return;
    }
    for (std::int64_t i = 0; i < rows; ++i) CopyElement(to + i * to_step, from + i * from_step, bytes);
  }

  static std::int64_t OffsetOf(const RegionCode::Operand& of, const std::int64_t (&index)[3]) {
    return (index[0] * of.strides[0] + index[1] * of.strides[1] + index[2] * of.strides[2]) * of.bytes;
  }

  void GoToNext(std::int64_t (&index)[3]) const {
    if (++index[2] < code_.sizes[2]) return;
    index[2] = 0;
    if (++index[1] < code_.sizes[1]) return;
    index[1] = 0;
    ++index[0];
  }

  char** rows_;                     // the first element of the row, of each operand
  std::int64_t index_[3] = {};      // of the row
  std::int64_t slots_column_ = -1;  // that slots are at
};

}  // namespace stepnet
