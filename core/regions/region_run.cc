#include "stepnet/core/regions/region_run.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/expressions/expr_evaluate.h"
#include "stepnet/core/regions/region_copies.h"
#include "stepnet/core/regions/region_position.h"
#include "stepnet/core/regions/region_simple.h"

namespace stepnet {
namespace {

using Kind = RegionInstruction::Kind;

constexpr std::int64_t kStackBytes = 32 << 10;  // of the buffers of most programs

// The elements of a part of a flat program.
std::pair<std::int64_t, std::int64_t> ShareOfElements(std::int64_t elements, int part, int parts) {
  if (parts == 1) return {0, elements};
  const auto [first, last] = ShareOf((elements + kRegionBlock - 1) / kRegionBlock, part, parts);
  return {first * kRegionBlock, std::min(elements, last * kRegionBlock)};
}

[[gnu::always_inline]] inline void Compute(const RegionInstruction& instruction, char* const* slots, std::int64_t n) {
  const int* const operands = instruction.operands;
  instruction.kernel(slots[instruction.out], slots[operands[0]], slots[operands[1]], slots[operands[2]],
                     slots[operands[3]], n);
}

}  // namespace

[[gnu::noinline]] void SimpleRun::SetUp(std::int64_t columns) {
  const std::int64_t elements = code_.joins_rows ? code_.width : std::min(code_.width, columns);  // of a block
  for (const RegionInstruction& instruction : code_.setup) {
    if (instruction.kind == Kind::kCompute) {
      Compute(instruction, slots_, 1);
    } else {
      Splat(slots_[instruction.out], DTypeBytes(instruction.dtype),
            instruction.number != 0 ? elements : code_.max_rows);
    }
  }
}

namespace {

// One run of one part.
class Runner : private RegionPosition {
 public:
  Runner(const RegionCode& code, RegionInputs inputs, RegionOutputs outputs, char* memory, std::uint64_t moving = 0)
      : RegionPosition(code, inputs, outputs, memory), moving_(moving) {}

  // The elements [begin, end) of a flat program.
  void RunFlat(std::int64_t begin, std::int64_t end) {
    splat_elements_ = std::min(code_.width, end - begin);
    SetUp();
    const std::vector<RegionInstruction>& block = code_.phases[0].block;
    for (std::int64_t at = begin; at < end; at += code_.width) {
      const std::int64_t n = std::min(code_.width, end - at);
      CountWork(n * static_cast<std::int64_t>(1 + block.size() / 4));
      for (size_t i = 0; i < code_.memory_operands.size(); ++i) {
        const int operand = code_.memory_operands[i];
        slots_[i] = bases_[operand] + at * code_.operands[operand].bytes;
      }
      for (const RegionInstruction& instruction : block) {
        if (instruction.kind == Kind::kCompute) {
          Compute(instruction, slots_, n);
        } else {
          instruction.several_kernel(slots_, instruction.several, n);
        }
      }
    }
  }

  void Run(int part, int parts) {
    const std::int64_t rows = code_.NumRows();
    const std::int64_t columns = code_.sizes[3];
    switch (code_.cut) {
      case RegionCode::Cut::kColumns: {
        const auto [first, last] = ShareOf((columns + code_.unit - 1) / code_.unit, part, parts);
        const std::int64_t begin = first * code_.unit;
        const std::int64_t end = std::min(columns, last * code_.unit);
        ClearSums(0, std::numeric_limits<std::int64_t>::max(), begin, end);  // those of no row, too
        return RunRows(0, rows, begin, end);
      }
      case RegionCode::Cut::kRows: {
        const auto [first, last] = ShareOf((rows + code_.unit - 1) / code_.unit, part, parts);
        const std::int64_t end = std::min(rows, last * code_.unit);
        if (!code_.sums.empty()) ClearSums(first * code_.unit, end, 0, columns);
        return RunRows(first * code_.unit, end, 0, columns);
      }
      case RegionCode::Cut::kBlocks: break;
    }
    const std::int64_t units = (columns + code_.unit - 1) / code_.unit;  // of a row
    if (parts == 1 || units <= 1) {  // without divisions: small regions are done in the time of some
      const auto [first, last] = ShareOf(rows, part, parts);
      return columns == 0 ? void() : RunRows(first, last, 0, columns);
    }
    auto [first, last] = ShareOf(rows * units, part, parts);
    while (first < last) {
      const std::int64_t row = first / units;
      const std::int64_t end = std::min(last, (row + 1) * units);
      RunRows(row, row + 1, first % units * code_.unit, std::min(columns, (end - row * units) * code_.unit));
      first = end;
    }
  }

  // The columns [begin, end) of the rows [row, last).
  void RunRows(std::int64_t row, std::int64_t last, std::int64_t begin, std::int64_t end) {
    if (row >= last) return;  // operands may have no memory
    if (begin >= end && !code_.has_row_outputs) return;
    const bool is_whole = begin == 0 && end == code_.sizes[3];
    const std::int64_t max_rows = is_whole ? code_.max_rows : 1;
    first_row_ = row;
    first_column_ = begin;
    if (code_.has_setup || !code_.tile_loads.empty()) {
      GoToRow(0);
      SetUp();
      num_rows_ = std::min(max_rows, last - row);
      num_columns_ = end - begin;
      for (const RegionMove& move : code_.tile_loads) LoadElements(move, begin);
    }
    for (; row < last; row += num_rows_) {
      GoToRow(row);
      num_rows_ = std::min(max_rows, last - row);
      if (code_.has_groups()) num_rows_ = std::min(num_rows_, code_.group_rows - row % code_.group_rows);
      to_ask_ = code_.joins_rows && is_whole ? moving_ : 0;
      RunBlocks(begin, end);
    }
  }

  bool has_fault() const { return fault_element_ >= 0; }
  RegionFault Fault() const {
    return {.element = fault_element_, .message = FaultMessage(*code_.requirements[fault_requirement_], fault_values_)};
  }

 private:
  // Values of the run.
  void SetUp() {
    for (const auto& [operand, slot] : code_.run_loads) {
      CopyElement(slots_[slot], bases_[operand], code_.operands[operand].bytes);
    }
    for (const RegionInstruction& instruction : code_.setup) Execute(instruction, 1);
  }

  // Sums that start in the rows [first, last) start from 0, over the columns [begin, end).
  void ClearSums(std::int64_t first, std::int64_t last, std::int64_t begin, std::int64_t end) {
    for (const int output : code_.sums) {
      const int operand = code_.num_inputs + output;
      const RegionCode::Operand& of = code_.operands[operand];
      RegionIndex sizes = code_.sizes;
      for (int d = 0; d < 3; ++d) {
        if (of.strides[d] == 0) sizes[d] = 1;
      }
      const bool is_of_no_column = code_.sizes[3] == 0 && of.strides[3] == 0;  // the sum of what rows have
      const std::int64_t count = is_of_no_column ? 1 : end - begin;
      for (std::int64_t row = 0; row < sizes[0] * sizes[1] * sizes[2]; ++row) {
        if (count <= 0) break;
        const std::int64_t index[] = {row / (sizes[1] * sizes[2]), row / sizes[2] % sizes[1], row % sizes[2]};
        const std::int64_t start = (index[0] * code_.sizes[1] + index[1]) * code_.sizes[2] + index[2];
        if (start < first || start >= last) continue;
        const std::int64_t at = index[0] * of.strides[0] + index[1] * of.strides[1] + index[2] * of.strides[2];
        Clear(bases_[operand] + (at + begin * of.strides[3]) * of.bytes, of.strides[3], of.bytes, count);
      }
    }
  }

  // The columns [begin, end) of as many rows as a block holds.
  void RunBlocks(std::int64_t begin, std::int64_t end) {
    const std::int64_t width = code_.joins_rows ? end - begin : code_.width;
    for (const RegionCode::Phase& phase : code_.phases) {
      num_columns_ = std::min(width, end - begin);
      column_ = 0;
      for (const RegionInstruction& instruction : phase.row) Execute(instruction, num_rows_);
      if (!phase.block.empty()) {  // once without columns too, for what is reduced
        std::int64_t at = begin;
        do {
          num_columns_ = std::min(width, end - at);
          RunBlock(phase, at);
        } while ((at += width) < end);
      }
      if (phase.end.empty()) continue;
      num_columns_ = end - begin;
      GoToColumn(begin);
      ExecuteAll(phase.end, num_rows_);
    }
  }

  // The columns from `at` on.
  void RunBlock(const RegionCode::Phase& phase, std::int64_t at) {
    const std::int64_t n = num_rows_ * num_columns_;
    CountWork((num_rows_ + n) * static_cast<std::int64_t>(1 + phase.block.size() / 4));
    GoToColumn(at);
    ExecuteAll(phase.block, n);
  }

  void ExecuteAll(const std::vector<RegionInstruction>& instructions, std::int64_t n) {
    if (to_ask_ != 0) return ExecuteAndAsk(instructions, n);
    for (const RegionInstruction& instruction : instructions) Execute(instruction, n);
  }
  [[gnu::noinline]] void ExecuteAndAsk(const std::vector<RegionInstruction>& instructions, std::int64_t n) {
    for (const RegionInstruction& instruction : instructions) {
      if (to_ask_ != 0) AskForNext();
      Execute(instruction, n);
    }
  }

  void Execute(const RegionInstruction& instruction, std::int64_t n) {
    if (instruction.kind == Kind::kCompute) return Compute(instruction, slots_, n);
    ExecuteOther(instruction, n);
  }

  void ExecuteOther(const RegionInstruction& instruction, std::int64_t n) {
    char* const out = instruction.out >= 0 ? slots_[instruction.out] : nullptr;
    const char* const from = instruction.num_operands > 0 ? slots_[instruction.operands[0]] : nullptr;
    switch (instruction.kind) {
      case Kind::kCompute: return Compute(instruction, slots_, n);
      case Kind::kSeveral: return instruction.several_kernel(slots_, instruction.several, n);
      case Kind::kOfRows: return ComputeOfRows(instruction, slots_, num_rows_, num_columns_);
      case Kind::kUniform: return Draw(instruction, out, n);
      case Kind::kIndex: return FillIndex(instruction.number, reinterpret_cast<std::int64_t*>(out));
      case Kind::kColumns: return FillColumns(reinterpret_cast<std::int64_t*>(out));
      case Kind::kSplat:
        return Splat(out, DTypeBytes(instruction.dtype), instruction.number != 0 ? splat_elements_ : code_.max_rows);
      case Kind::kSpread: return Spread(from, out, DTypeBytes(instruction.dtype), num_rows_, num_columns_);
      case Kind::kStartRow: return StartRow(instruction.op, instruction.dtype, out);
      case Kind::kReduce: return instruction.row_kernel(out, from, n);
      case Kind::kReduceRows: return ReduceRows(instruction);
      case Kind::kFinishRow: return FinishRow(instruction.op, instruction.dtype, from, out);
      case Kind::kCheck: return Check(instruction, n);
      case Kind::kLoad: return LoadElements({.operand = instruction.number, .slot = instruction.out}, column_);
      case Kind::kStore:
        return StoreElements({.operand = instruction.number, .slot = instruction.operands[0]}, column_);
      case Kind::kAdd: return AddElements(instruction.number, from, column_);
      case Kind::kLoadRow: return LoadOfRows(instruction.number, out);
      case Kind::kStoreRow: return StoreOfRows(instruction.number, from);
      case Kind::kAddRow: return AddOfRows(instruction.number, from);
    }
  }

  void ReduceRows(const RegionInstruction& reduce) const {
    CountWork(num_rows_ * num_columns_);
    stepnet::ReduceRows(reduce, slots_, num_rows_, num_columns_);
  }

  void Draw(const RegionInstruction& draw, char* out, std::int64_t n) const {
    const std::int64_t* operands[kMaxExprOperands];
    for (int k = 0; k < kMaxExprOperands; ++k) {
      operands[k] = reinterpret_cast<const std::int64_t*>(slots_[draw.operands[k]]);
    }
    DrawUniform(operands, static_cast<unsigned>(draw.number), draw.dtype, out, n);
  }

  std::int64_t IndexOfElement(int dimension, std::int64_t element) const {
    for (int d = kRegionDims - 1; d > dimension; --d) element /= code_.sizes[d];
    return element % code_.sizes[dimension];
  }

  // A requirement of the run or of a row is about its first element, and reported by the part that has this.
  void Check(const RegionInstruction& check, std::int64_t n) {
    if (code_.sizes[3] == 0) return;
    if (check.level != RegionLevel::kElement && first_column_ != 0) return;
    if (check.level == RegionLevel::kRun && first_row_ != 0) return;
    const std::int64_t at = FirstFalse(reinterpret_cast<const bool*>(slots_[check.operands[0]]), n);
    if (at == n) return;
    std::int64_t element = 0;
    if (check.level == RegionLevel::kRow) element = (row_ + at) * code_.sizes[3];
    if (check.level == RegionLevel::kElement) element = row_ * code_.sizes[3] + column_ + at;
    const bool is_first =
        !has_fault() || element < fault_element_ || (element == fault_element_ && check.number < fault_requirement_);
    if (!is_first) return;
    fault_element_ = element;
    fault_requirement_ = check.number;
    fault_values_.clear();
    for (int k = 1; k < check.num_operands; ++k) {
      const ExprNode& shown = *code_.requirements[check.number]->operands[k];
      if (shown.op == ExprOp::kIndex) {
        fault_values_.push_back(ScalarOf(IndexOfElement(shown.number, element)));
        continue;
      }
      ExprScalar& value = fault_values_.emplace_back();
      value.dtype = shown.dtype;
      const std::int64_t bytes = DTypeBytes(value.dtype);
      std::memcpy(&value.bits, slots_[check.operands[k]] + at * bytes, static_cast<size_t>(bytes));
    }
  }

  const std::uint64_t moving_;  // as RegionProgram::Run has it
  std::int64_t first_row_ = 0;  // of those that are run
  std::int64_t first_column_ = 0;
  std::int64_t splat_elements_ = code_.width;
  std::int64_t fault_element_ = -1;
  int fault_requirement_ = 0;
  std::vector<ExprScalar> fault_values_ = {};
};

// Calls fn with memory for a run.
template <typename Fn>
auto WithMemory(const RegionCode& code, const Fn& fn) {
  if (code.run_bytes <= kStackBytes) {
    alignas(kRegionAlignment) char memory[kStackBytes];
    return fn(memory);
  }
  const AlignedBytes memory = MakeAlignedBytes(code.run_bytes);
  return fn(reinterpret_cast<char*>(memory.get()));
}

}  // namespace

std::optional<RegionFault> RunRegion(const RegionCode& code, RegionInputs inputs, RegionOutputs outputs, int part,
                                     int parts, std::uint64_t moving) {
  if (code.is_flat) {
    RunFlatRegion(code, inputs, outputs, code.sizes[3], part, parts);
    return {};
  }
  if (code.is_simple && parts == 1) {
    if (code.NumRows() == 0 || code.sizes[3] == 0) return {};
    RunSimpleRows({.code = &code}, PointersOf(inputs), PointersOf(outputs), 0, code.NumRows(), code.sizes[3]);
    return {};
  }
  return WithMemory(code, [&](char* memory) -> std::optional<RegionFault> {
    Runner runner(code, inputs, outputs, memory, moving);
    runner.Run(part, parts);
    if (!runner.has_fault()) return {};
    return runner.Fault();
  });
}

void RunFlatRegion(const RegionCode& code, RegionInputs inputs, RegionOutputs outputs, std::int64_t elements, int part,
                   int parts) {
  const auto [begin, end] = ShareOfElements(elements, part, parts);
  if (begin >= end) return;
  if (code.direct.kernel != nullptr && end - begin <= code.direct.width) {
    return RunDirect(code.direct, PointersOf(inputs), PointersOf(outputs), begin, end);
  }
  if (code.is_simple) {
    SimpleRun run(code);
    run.Begin(PointersOf(inputs), PointersOf(outputs), 0, begin, end - begin);
    return run.RunRows(0, 1, end - begin);
  }
  WithMemory(code, [&](char* memory) { Runner(code, inputs, outputs, memory).RunFlat(begin, end); });
}

void RunRegionRows(const RegionCode& code, RegionInputs inputs, RegionOutputs outputs,
                   std::span<const RowRange> ranges) {
  const std::int64_t columns = code.sizes[3];
  if (ranges.empty()) return;
  if (code.is_simple) {
    if (columns == 0) return;
    SimpleRun run(code);
    run.Begin(PointersOf(inputs), PointersOf(outputs), ranges[0].first, 0, columns);
    for (const auto& [first, last] : ranges) run.RunRows(first, last, columns);
    return;
  }
  WithMemory(code, [&](char* memory) {
    Runner runner(code, inputs, outputs, memory);
    for (const auto& [first, last] : ranges) runner.RunRows(first, last, 0, columns);
  });
}

}  // namespace stepnet
