#include "stepnet/core/region_program.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/expr_evaluate.h"
#include "stepnet/core/expr_text.h"
#include "stepnet/core/region_code.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

using Kind = RegionInstruction::Kind;

constexpr std::int64_t kStackBytes = 32 << 10;  // of the buffers of most programs
constexpr std::int64_t kAlignment = 64;

// One run of one part.
class Runner {
 public:
  Runner(const RegionCode& code, std::span<const void* const> inputs, std::span<void* const> outputs, char* memory)
      : code_(code), inputs_(inputs), outputs_(outputs) {
    slots_ = reinterpret_cast<char**>(memory);
    rows_ = reinterpret_cast<char**>(memory + code.rows_at);
    bases_ = rows_ + code.operands.size();
    for (size_t i = 0; i < code.operands.size(); ++i) bases_[i] = Base(static_cast<int>(i));
    char** slot = slots_ + code.memory_operands.size();
    for (const std::int64_t offset : code.buffer_offsets) *slot++ = memory + code.buffers_at + offset;
  }

  void Run(int part, int parts) {
    const std::int64_t rows = code_.NumRows();
    const std::int64_t columns = code_.sizes[3];
    const auto share = [&](std::int64_t n) {
      if (parts == 1) return std::pair<std::int64_t, std::int64_t>(0, n);  // without a division of 128 bits
      return std::pair(static_cast<std::int64_t>(static_cast<__int128>(n) * part / parts),
                       static_cast<std::int64_t>(static_cast<__int128>(n) * (part + 1) / parts));
    };
    if (code_.cut == RegionCode::Cut::kColumns) {
      const auto [first, last] = share((columns + kRowPartials - 1) / kRowPartials);
      const std::int64_t begin = first * kRowPartials;
      const std::int64_t end = std::min(columns, last * kRowPartials);
      ClearSums(begin, end);
      if (!SetUp()) return;
      for (std::int64_t row = 0; row < rows; ++row) RunRow(row, begin, end);
      return;
    }
    if (!SetUp()) return;
    if (code_.cut == RegionCode::Cut::kRows) {
      const auto [begin, end] = share(rows);
      for (std::int64_t row = begin; row < end; ++row) RunRow(row, 0, columns);
    } else if (columns == 0) {
      return;
    } else if (code_.crosses_rows) {
      const std::int64_t elements = rows * columns;
      const auto [first, last] = share((elements + code_.width - 1) / code_.width);
      RunAcrossRows(first * code_.width, std::min(elements, last * code_.width));
    } else {
      const std::int64_t blocks = code_.row_blocks;
      auto [first, last] = share(rows * blocks);
      if (blocks == 1) {  // without divisions: small regions are done in the time of some
        for (std::int64_t row = first; row < last; ++row) RunRow(row, 0, columns);
        return;
      }
      while (first < last) {
        const std::int64_t row = first / blocks;
        const std::int64_t end = std::min(last, (row + 1) * blocks);
        RunRow(row, first % blocks * code_.width, std::min(columns, (end - row * blocks) * code_.width));
        first = end;
      }
    }
  }

  bool has_fault() const { return fault_element_ >= 0; }
  RegionFault Fault() const {
    const RegionCode::Requirement& failed = code_.requirements[fault_requirement_];
    return {.element = fault_element_, .message = FaultMessage(*failed.require, fault_value_)};
  }

 private:
  char* Base(int operand) const {
    const char* first = operand < code_.num_inputs ? static_cast<const char*>(inputs_[operand])
                                                   : static_cast<char*>(outputs_[operand - code_.num_inputs]);
    const RegionCode::Operand& of = code_.operands[operand];
    return const_cast<char*>(first) + of.offset * of.bytes;
  }

  // Values of the run. False where there is no row, and operands may have no memory.
  bool SetUp() {
    if (code_.NumRows() == 0) return false;
    for (const auto& [slot, bits] : code_.constants) std::memcpy(slots_[slot], &bits, sizeof(bits));
    for (const auto& [operand, slot] : code_.run_loads) {
      std::memcpy(slots_[slot], bases_[operand], static_cast<size_t>(code_.operands[operand].bytes));
    }
    row_ = 0;
    column_ = 0;
    for (const RegionInstruction& instruction : code_.setup) Execute(instruction, 1);
    return true;
  }

  // Sums start from 0, over the columns [begin, end).
  void ClearSums(std::int64_t begin, std::int64_t end) {
    for (const int output : code_.sums) {
      const int operand = code_.num_inputs + output;
      const RegionCode::Operand& of = code_.operands[operand];
      RegionIndex sizes = code_.sizes;
      for (int d = 0; d < 3; ++d) {
        if (of.strides[d] == 0) sizes[d] = 1;
      }
      const std::uint64_t zero = 0;
      for (std::int64_t row = 0; row < sizes[0] * sizes[1] * sizes[2]; ++row) {
        if (end <= begin) break;
        const std::int64_t at = row / (sizes[1] * sizes[2]) * of.strides[0] +
                                row / sizes[2] % sizes[1] * of.strides[1] + row % sizes[2] * of.strides[2];
        CopyStrided(&zero, 0, bases_[operand] + (at + begin * of.strides[3]) * of.bytes, of.strides[3], of.bytes,
                    end - begin);
      }
    }
  }

  void GoToRow(std::int64_t row) {
    row_ = row;
    if (row == 0) {
      std::copy_n(bases_, code_.operands.size(), rows_);
      index_[0] = index_[1] = index_[2] = 0;
      return;
    }
    if (code_.sizes[0] * code_.sizes[1] == 1) {
      index_[2] = row;
    } else {
      index_[2] = row % code_.sizes[2];
      index_[1] = row / code_.sizes[2] % code_.sizes[1];
      index_[0] = row / code_.sizes[2] / code_.sizes[1];
    }
    for (size_t i = 0; i < code_.operands.size(); ++i) {
      const RegionCode::Operand& of = code_.operands[i];
      const std::int64_t at = index_[0] * of.strides[0] + index_[1] * of.strides[1] + index_[2] * of.strides[2];
      rows_[i] = bases_[i] + at * of.bytes;
    }
  }

  void RunRow(std::int64_t row, std::int64_t begin, std::int64_t end) {
    GoToRow(row);
    column_ = begin;
    for (const auto& [operand, slot] : code_.row_loads) {
      std::memcpy(slots_[slot], rows_[operand], static_cast<size_t>(code_.operands[operand].bytes));
    }
    for (const RegionCode::Phase& phase : code_.phases) {
      for (const RegionInstruction& instruction : phase.row) Execute(instruction, 1);
      for (std::int64_t at = begin; at < end; at += code_.width) RunBlock(phase, at, std::min(code_.width, end - at));
    }
    for (const auto& [operand, slot] : code_.row_stores) {
      std::memcpy(rows_[operand], slots_[slot], static_cast<size_t>(code_.operands[operand].bytes));
    }
  }

  // The elements [at, at + n) of the row.
  void RunBlock(const RegionCode::Phase& phase, std::int64_t at, std::int64_t n) {
    column_ = at;
    CountWork(n * static_cast<std::int64_t>(1 + phase.block.size() / 4));
    for (size_t i = 0; i < code_.memory_operands.size(); ++i) {
      const int operand = code_.memory_operands[i];
      slots_[i] = rows_[operand] + at * code_.operands[operand].bytes;
    }
    const auto place = [&](int operand) {
      const RegionCode::Operand& of = code_.operands[operand];
      return rows_[operand] + at * of.strides[3] * of.bytes;
    };
    for (const auto& [operand, slot] : phase.loads) {
      const RegionCode::Operand& of = code_.operands[operand];
      CopyStrided(place(operand), of.strides[3], slots_[slot], 1, of.bytes, n);
    }
    for (const RegionInstruction& instruction : phase.block) Execute(instruction, n);
    for (const auto& [operand, slot] : phase.stores) {
      const RegionCode::Operand& of = code_.operands[operand];
      CopyStrided(slots_[slot], 1, place(operand), of.strides[3], of.bytes, n);
    }
    for (const auto& [operand, slot] : phase.sums) {
      const RegionCode::Operand& of = code_.operands[operand];
      AddStrided(slots_[slot], place(operand), of.strides[3], of.dtype, n);
    }
  }

  // Calls fn(operand, its first element, position in the block, elements) for the part of each row in a block.
  template <typename Fn>
  void ForRowsOfBlock(std::int64_t begin, std::int64_t n, const Fn& fn) {
    const std::int64_t columns = code_.sizes[3];
    std::int64_t row = begin / columns;
    std::int64_t column = begin % columns;
    for (std::int64_t done = 0; done < n; ++row, column = 0) {
      const std::int64_t count = std::min(columns - column, n - done);
      const std::int64_t index[] = {row / code_.sizes[2] / code_.sizes[1], row / code_.sizes[2] % code_.sizes[1],
                                    row % code_.sizes[2]};
      fn(index, column, done, count);
      done += count;
    }
  }

  void RunAcrossRows(std::int64_t begin, std::int64_t end) {
    const RegionCode::Phase& phase = code_.phases[0];
    const auto place = [&](int operand, const std::int64_t* index, std::int64_t column) {
      const RegionCode::Operand& of = code_.operands[operand];
      const std::int64_t at =
          index[0] * of.strides[0] + index[1] * of.strides[1] + index[2] * of.strides[2] + column * of.strides[3];
      return bases_[operand] + at * of.bytes;
    };
    for (std::int64_t at = begin; at < end; at += code_.width) {
      const std::int64_t n = std::min(code_.width, end - at);
      CountWork(n * static_cast<std::int64_t>(1 + phase.block.size() / 4));
      column_ = at;  // of one long row
      for (size_t i = 0; i < code_.memory_operands.size(); ++i) {
        const int operand = code_.memory_operands[i];
        slots_[i] = bases_[operand] + at * code_.operands[operand].bytes;
      }
      for (const auto& [operand, slot] : phase.loads) {
        const RegionCode::Operand& of = code_.operands[operand];
        ForRowsOfBlock(at, n, [&](const std::int64_t* index, std::int64_t column, std::int64_t to, std::int64_t count) {
          CopyStrided(place(operand, index, column), of.strides[3], slots_[slot] + to * of.bytes, 1, of.bytes, count);
        });
      }
      for (const RegionInstruction& instruction : phase.block) Execute(instruction, n);
      for (const auto& [operand, slot] : phase.stores) {
        const RegionCode::Operand& of = code_.operands[operand];
        ForRowsOfBlock(at, n,
                       [&](const std::int64_t* index, std::int64_t column, std::int64_t from, std::int64_t count) {
                         CopyStrided(slots_[slot] + from * of.bytes, 1, place(operand, index, column), of.strides[3],
                                     of.bytes, count);
                       });
      }
    }
  }

  void Execute(const RegionInstruction& instruction, std::int64_t n) {
    char* const out = instruction.out >= 0 ? slots_[instruction.out] : nullptr;
    const auto operand = [&](int k) -> const char* {
      return instruction.operands[k] >= 0 ? slots_[instruction.operands[k]] : nullptr;
    };
    switch (instruction.kind) {
      case Kind::kCompute: return instruction.kernel(out, operand(0), operand(1), operand(2), n);
      case Kind::kReduce: return instruction.row_kernel(out, operand(0), n);
      default: return ExecuteOther(instruction, out, n);
    }
  }

  void ExecuteOther(const RegionInstruction& instruction, char* out, std::int64_t n) {
    switch (instruction.kind) {
      case Kind::kUniform: {
        const std::int64_t* operands[kMaxExprOperands];
        for (int k = 0; k < kMaxExprOperands; ++k) {
          operands[k] = reinterpret_cast<const std::int64_t*>(slots_[instruction.operands[k]]);
        }
        return DrawUniform(operands, instruction.dtype, out, n);
      }
      case Kind::kIndex: *reinterpret_cast<std::int64_t*>(out) = index_[instruction.number]; return;
      case Kind::kColumns:
        for (std::int64_t i = 0; i < n; ++i) reinterpret_cast<std::int64_t*>(out)[i] = column_ + i;
        return;
      case Kind::kSplat: return Splat(out, DTypeBytes(instruction.dtype), code_.width);
      case Kind::kStartRow: return StartRow(instruction.op, instruction.dtype, out);
      case Kind::kFinishRow: return FinishRow(instruction.op, instruction.dtype, slots_[instruction.operands[0]], out);
      default: return Check(instruction, n);
    }
  }

  // A requirement of the run or the row is about its first element.
  void Check(const RegionInstruction& check, std::int64_t n) {
    if (code_.sizes[3] == 0) return;
    const std::int64_t at = FirstFalse(reinterpret_cast<const bool*>(slots_[check.operands[0]]), n);
    if (at == n) return;
    const std::int64_t element = (code_.crosses_rows ? 0 : row_ * code_.sizes[3]) + column_ + at;
    const bool is_first =
        !has_fault() || element < fault_element_ || (element == fault_element_ && check.number < fault_requirement_);
    if (!is_first) return;
    fault_element_ = element;
    fault_requirement_ = check.number;
    fault_value_ = {.dtype = check.dtype};
    if (check.operands[1] < 0) return;
    const std::int64_t bytes = DTypeBytes(check.dtype);
    std::memcpy(&fault_value_.bits, slots_[check.operands[1]] + at * bytes, static_cast<size_t>(bytes));
  }

  const RegionCode& code_;
  std::span<const void* const> inputs_;
  std::span<void* const> outputs_;
  char** slots_;
  char** rows_;   // the first element of the row, of each operand
  char** bases_;  // and of all rows
  std::int64_t row_ = 0;
  std::int64_t index_[3] = {};
  std::int64_t column_ = 0;
  std::int64_t fault_element_ = -1;
  int fault_requirement_ = 0;
  ExprScalar fault_value_ = {};
};

// "+ tanh *" for tanh(a + b) * c.
std::string ChainText(const RegionInstruction& instruction) {
  const auto step = [](ChainStep step) {
    constexpr const char* kSigns[] = {"", "+", "-", "from -", "*"};
    return kSigns[static_cast<int>(step)];
  };
  const RegionChain& chain = instruction.chain;
  std::vector<std::string> names;
  if (chain.before != ChainStep::kNone) names.emplace_back(step(chain.before));
  if (chain.f != ExprOp::kConstant) names.emplace_back(ExprOpName(chain.f));
  if (chain.after != ChainStep::kNone) names.emplace_back(step(chain.after));
  return names.empty() ? ExprOpName(instruction.op) : Join(names, " ");
}

std::string InstructionText(const RegionInstruction& instruction) {
  const auto slot = [](int number) { return StrCat("s", number); };
  std::vector<std::string> operands;
  for (const int operand : instruction.operands) {
    if (operand >= 0) operands.push_back(slot(operand));
  }
  const std::string all = Join(operands, ", ");
  switch (instruction.kind) {
    case Kind::kCompute:
    case Kind::kUniform: return StrCat(slot(instruction.out), " = ", ChainText(instruction), " ", all);
    case Kind::kIndex: return StrCat(slot(instruction.out), " = index ", instruction.number);
    case Kind::kColumns: return StrCat(slot(instruction.out), " = columns");
    case Kind::kSplat: return StrCat("splat ", slot(instruction.out));
    case Kind::kCheck: return StrCat("check ", instruction.number, " ", all);
    case Kind::kStartRow: return StrCat("start ", ExprOpName(instruction.op), " ", slot(instruction.out));
    case Kind::kReduce: return StrCat(ExprOpName(instruction.op), " ", slot(instruction.out), " ", all);
    case Kind::kFinishRow: return StrCat(slot(instruction.out), " = finish ", ExprOpName(instruction.op), " ", all);
  }
  return "";
}

}  // namespace

RegionProgram::RegionProgram(const Region& region) : code_(std::make_unique<RegionCode>(CompileRegion(region))) {}
RegionProgram::RegionProgram(RegionProgram&&) noexcept = default;
RegionProgram& RegionProgram::operator=(RegionProgram&&) noexcept = default;
RegionProgram::~RegionProgram() = default;

int RegionProgram::max_parts() const { return code_->max_parts; }

std::optional<RegionFault> RegionProgram::Run(std::span<const void* const> inputs, std::span<void* const> outputs,
                                              int part, int parts) const {
  const auto run = [&](char* memory) -> std::optional<RegionFault> {
    Runner runner(*code_, inputs, outputs, memory);
    runner.Run(part, parts);
    if (!runner.has_fault()) return {};
    return runner.Fault();
  };
  const std::int64_t bytes = code_->run_bytes;
  if (bytes <= kStackBytes) {
    alignas(kAlignment) char memory[kStackBytes];
    return run(memory);
  }
  struct Free {
    void operator()(char* memory) const { ::operator delete(memory, std::align_val_t(kAlignment)); }
  };
  const std::unique_ptr<char, Free> memory(
      static_cast<char*>(::operator new(static_cast<size_t>(bytes), std::align_val_t(kAlignment))));
  return run(memory.get());
}

std::string RegionProgram::Text() const {
  TextStream out;
  const auto print = [&](const char* when, const std::vector<RegionInstruction>& instructions) {
    for (const RegionInstruction& instruction : instructions) out << when << InstructionText(instruction) << "\n";
  };
  const auto moves = [&](const char* what, const std::vector<RegionMove>& list) {
    for (const auto& [operand, slot] : list) {
      const bool is_input = operand < code_->num_inputs;
      out << what << " s" << slot << ", " << (is_input ? "input " : "output ")
          << (is_input ? operand : operand - code_->num_inputs) << "\n";
    }
  };
  out << "sizes [" << Join(code_->sizes, ", ") << "], blocks of " << code_->width
      << (code_->crosses_rows ? " across rows" : "") << ", " << code_->buffer_bytes << " bytes\n";
  for (size_t i = 0; i < code_->memory_operands.size(); ++i) {
    moves("memory", {{.operand = code_->memory_operands[i], .slot = static_cast<int>(i)}});
  }
  for (const auto& [slot, bits] : code_->constants) out << "constant s" << slot << "\n";
  moves("run: load", code_->run_loads);
  print("run: ", code_->setup);
  moves("row: load", code_->row_loads);
  for (const RegionCode::Phase& phase : code_->phases) {
    print("row: ", phase.row);
    moves("block: load", phase.loads);
    print("block: ", phase.block);
    moves("block: store", phase.stores);
    moves("block: add", phase.sums);
  }
  moves("row: store", code_->row_stores);
  return std::move(out).str();
}

}  // namespace stepnet
