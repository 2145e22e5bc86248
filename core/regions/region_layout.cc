#include "stepnet/core/regions/region_layout.h"

#include <algorithm>
#include <climits>
#include <cstring>
#include <functional>
#include <numeric>

#include "stepnet/core/regions/region_copies.h"
#include "stepnet/core/regions/region_instructions.h"
#include "stepnet/core/target.h"
namespace stepnet {
namespace {

constexpr int kMaxRowMemory = 4;             // slots for values of rows in memory, of a simple program
constexpr std::int64_t kMaxBlock = 1 << 18;  // elements, so that cancellation is looked for

std::int64_t Aligned(std::int64_t size) { return (size + kRegionAlignment - 1) / kRegionAlignment * kRegionAlignment; }

// Whether values of the run are loaded, computed and repeated over a block, no more.
bool HasPlainSetup(const RegionCode& code) {
  return std::ranges::all_of(code.setup, [](const RegionInstruction& instruction) {
    using Kind = RegionInstruction::Kind;
    return instruction.kind == Kind::kCompute || instruction.kind == Kind::kSplat;
  });
}

// Whether blocks are nothing but kernels, of elements and of rows that all rows share.
bool HasKernelsOnly(const RegionCode& code) {
  using Kind = RegionInstruction::Kind;
  const RegionCode::Phase& phase = code.phases[0];
  const auto is_kernel = [](const RegionInstruction& instruction) {
    return instruction.kind == Kind::kCompute || instruction.kind == Kind::kOfRows ||
           instruction.kind == Kind::kSeveral;
  };
  return code.phases.size() == 1 && code.requirements.empty() && code.tile_loads.empty() && phase.row.empty() &&
         phase.end.empty() && std::ranges::all_of(phase.block, is_kernel);
}

// Whether a phase has such an instruction.
bool HasKind(const RegionCode& code, RegionInstruction::Kind kind) {
  const auto is_it = [&](const RegionInstruction& instruction) { return instruction.kind == kind; };
  return std::ranges::any_of(code.phases, [&](const RegionCode::Phase& phase) {
    return std::ranges::any_of(phase.block, is_it) || std::ranges::any_of(phase.end, is_it);
  });
}

class Layout {
 public:
  Layout(const RegionSlots& slots, RegionCode* code) : slots_(slots), code_(*code) {}

  void Run() {
    CutIntoParts();
    ChooseWidth();
    PlaceBuffers();
    FillConstants();
    for (const int operand : code_.memory_operands) {
      code_.memory.push_back(MemoryOf(operand));
      code_.num_input_memory += code_.memory.back().is_input ? 1 : 0;
    }
    const bool has_phases = code_.phases.size() > 1 || code_.has_row_outputs;
    code_.is_simple = (has_phases ? HasRowKernelsOnly() : HasKernelsOnly(code_)) &&
                      code_.sizes[0] * code_.sizes[1] == 1 && code_.cut != RegionCode::Cut::kColumns &&
                      HasPlainSetup(code_) && NumSlots(has_phases) <= kSimpleSlots && buffer_bytes_ <= kSimpleBytes;
    if (code_.phases.size() > 1 && MemoryBytes() >= kCpuTarget.regions.filled_cache_bytes) MarkFarResults();
    code_.has_setup = !code_.run_loads.empty() || !code_.setup.empty();
    code_.runs_whole_rows = code_.is_simple && (has_phases || code_.joins_rows);
    if (code_.is_simple) MakeSimple();
    if (code_.is_flat && code_.is_simple && slots_.buffers.empty() && code_.phases[0].block.size() == 1) {
      MakeDirect(code_.phases[0].block[0]);
    }
  }

 private:
  int num_memory() const { return static_cast<int>(code_.memory_operands.size()); }
  int NumSlots(bool has_phases) const {
    const int row_memory = has_phases ? kMaxRowMemory : 0;
    return num_memory() + slots_.num_constants() + static_cast<int>(slots_.buffers.size()) + row_memory;
  }

  // Whether phases are nothing but kernels, of elements, of whole rows and of their values.
  bool HasRowKernelsOnly() const {
    using Kind = RegionInstruction::Kind;
    int num_row_memory = 0;
    const auto may_be_step = [&](const RegionInstruction& instruction) {
      switch (instruction.kind) {
        case Kind::kCompute:
        case Kind::kOfRows:
        case Kind::kSeveral:
        case Kind::kSpread:
        case Kind::kReduceRows: return true;
        case Kind::kLoadRow:
        case Kind::kStoreRow:
          ++num_row_memory;
          return code_.operands[instruction.number].strides[2] == 1 || code_.NumRows() == 1;
        default: return false;
      }
    };
    const auto are_steps = [&](const std::vector<RegionInstruction>& instructions) {
      return std::ranges::all_of(instructions, may_be_step);
    };
    return code_.requirements.empty() && code_.tile_loads.empty() && code_.sums.empty() && code_.sizes[3] > 0 &&
           code_.width >= code_.sizes[3] &&
           std::ranges::all_of(code_.phases,
                               [&](const RegionCode::Phase& phase) {
                                 return are_steps(phase.row) && are_steps(phase.block) && are_steps(phase.end);
                               }) &&
           num_row_memory <= kMaxRowMemory;
  }

  // How many rows meet in one element of a sum: those of all dimensions from the first one on along which one stays.
  std::int64_t SummedRows() const {
    using Kind = RegionInstruction::Kind;
    int first = kRegionDims - 1;
    const auto look_at = [&](const RegionInstruction& instruction) {
      if (instruction.kind != Kind::kAdd && instruction.kind != Kind::kAddRow) return;
      const RegionIndex& strides = code_.operands[instruction.number].strides;
      for (int d = 0; d < first; ++d) {
        if (code_.sizes[d] != 1 && strides[d] == 0) first = d;
      }
    };
    for (const RegionCode::Phase& phase : code_.phases) {
      std::ranges::for_each(phase.block, look_at);
      std::ranges::for_each(phase.end, look_at);
    }
    return std::accumulate(code_.sizes.begin() + first, code_.sizes.end() - 1, std::int64_t{1}, std::multiplies<>());
  }

  void CutIntoParts() {
    using Kind = RegionInstruction::Kind;
    const bool has_rows = code_.phases.size() > 1 || code_.has_row_outputs;
    const std::int64_t rows = code_.NumRows();
    const std::int64_t columns = code_.sizes[3];
    std::int64_t parts = 1;
    const bool has_sums = HasKind(code_, Kind::kAddRow) || HasKind(code_, Kind::kAdd);
    const std::int64_t summed = has_sums ? SummedRows() : 1;
    if (has_sums && summed == rows) {
      code_.cut = RegionCode::Cut::kColumns;
      code_.unit = kFloatsOfLine;
      parts = has_rows ? 1 : columns / kFloatsOfLine;
    } else if (has_rows || has_sums || code_.joins_rows) {
      code_.cut = RegionCode::Cut::kRows;
      const std::int64_t elements = summed * std::max<std::int64_t>(1, columns);
      code_.unit = has_rows ? summed : summed * std::max<std::int64_t>(1, kRegionBlock / elements);
      parts = (rows + code_.unit - 1) / code_.unit;
    } else {
      code_.unit = kRegionBlock;
      parts = rows * (columns / code_.unit + (columns % code_.unit != 0 ? 1 : 0));  // of any number of columns
    }
    code_.max_parts = static_cast<int>(std::clamp<std::int64_t>(parts, 1, INT_MAX));
    code_.is_flat = HasKernelsOnly(code_) && code_.cut == RegionCode::Cut::kBlocks && code_.NumRows() == 1;
  }

  // How many elements a block has: as few as stay in the first cache with all that is computed of them.
  void ChooseWidth() {
    std::int64_t bytes = 0;  // of an element
    for (const RegionBuffer& buffer : slots_.buffers) {
      bytes += buffer.extent == RegionExtent::kBlock ? buffer.bytes : 0;
    }
    for (const RegionConstant& constant : slots_.constants) {
      if (constant.extent == RegionExtent::kBlock) bytes += DTypeBytes(constant.value.dtype());
    }
    if (code_.joins_rows && code_.phases.size() > 1) {
      for (const int operand : code_.memory_operands) bytes += code_.operands[operand].bytes;
    }
    const bool has_phases = code_.phases.size() > 1;
    // What is computed of a few rows takes as long as of a vector of them: blocks have more rows then, as many as leave
    // room for memory in the first cache.
    const bool has_row_values = code_.joins_rows && !code_.phases[0].row.empty();
    const RegionSizes& sizes = kCpuTarget.regions;
    const std::int64_t cache = !has_phases && !has_row_values ? sizes.block_bytes
                               : slots_.cuts_rows             ? sizes.block_bytes_beside_row
                                                              : sizes.block_bytes_of_rows;
    std::int64_t width = !has_phases && has_row_values && bytes > 0 ? 4 * kRegionBlock : kMaxBlock;
    while (width > kRegionBlock && width * bytes > cache) width /= 2;
    const std::int64_t columns = std::max<std::int64_t>(1, code_.sizes[3]);
    if (code_.joins_rows) {
      code_.max_rows = std::clamp<std::int64_t>(width / columns, 1, std::max<std::int64_t>(1, code_.group_rows));
      if (code_.has_groups()) {  // which are cut into equal blocks
        const std::int64_t blocks = (code_.group_rows + code_.max_rows - 1) / code_.max_rows;
        code_.max_rows = (code_.group_rows + blocks - 1) / blocks;
      }
      width = code_.max_rows * columns;
    } else if (slots_.has_whole_rows && !slots_.cuts_rows) {
      width = columns;
    } else if (!code_.is_flat) {
      width = std::min(width, columns);
    }
    code_.width = width;
  }

  std::int64_t CountOf(RegionExtent extent) const {
    switch (extent) {
      case RegionExtent::kOne: return 1;
      case RegionExtent::kRows: return code_.max_rows;
      case RegionExtent::kBlock: return code_.width;
      case RegionExtent::kWholeRow: break;
    }
    return code_.sizes[3];
  }

  void PlaceBuffers() {
    for (size_t i = 0; i < slots_.buffers.size(); ++i) {
      const RegionBuffer& buffer = slots_.buffers[i];
      if (buffer.extent == RegionExtent::kWholeRow) {
        const int slot = num_memory() + slots_.num_constants() + static_cast<int>(i);
        code_.kept.push_back({.slot = slot, .offset = buffer_bytes_, .element = buffer.bytes});
      }
      code_.buffer_offsets.push_back(buffer_bytes_);
      buffer_bytes_ += Aligned(buffer.bytes * CountOf(buffer.extent));
    }
    const auto pointers = [&](size_t n) { return Aligned(static_cast<std::int64_t>(n * sizeof(void*))); };
    code_.rows_at = pointers(static_cast<size_t>(num_memory()) + slots_.constants.size() + slots_.buffers.size());
    code_.buffers_at = code_.rows_at + pointers(2 * code_.operands.size());
    code_.run_bytes = code_.buffers_at + buffer_bytes_;
  }

  void FillConstants() {
    std::int64_t size = 0;
    const auto bytes_of = [&](const RegionConstant& constant) {
      return DTypeBytes(constant.value.dtype()) * CountOf(constant.extent);
    };
    for (const RegionConstant& constant : slots_.constants) size += Aligned(bytes_of(constant));
    if (size == 0) return;
    code_.constant_memory = MakeAlignedBytes(size);
    std::byte* array = code_.constant_memory.get();
    for (const RegionConstant& constant : slots_.constants) {
      const std::int64_t bytes = DTypeBytes(constant.value.dtype());
      std::memcpy(array, &constant.value->bits, static_cast<size_t>(bytes));
      Splat(array, bytes, CountOf(constant.extent));
      code_.constants.push_back(array);
      array += Aligned(bytes_of(constant));
    }
  }

  RegionMemory MemoryOf(int operand) const {
    const RegionCode::Operand& of = code_.operands[operand];
    const bool is_input = operand < code_.num_inputs;
    return {.is_input = is_input,
            .number = is_input ? operand : operand - code_.num_inputs,
            .offset = of.offset * of.bytes,
            .row = of.strides[2] * of.bytes,
            .element = of.bytes};
  }

  // Bytes of the elements that the program reads and writes in memory.
  std::int64_t MemoryBytes() const {
    std::int64_t bytes = 0;
    for (const int operand : code_.memory_operands) bytes += code_.operands[operand].bytes;
    return bytes * code_.NumRows() * code_.sizes[3];
  }

  // Those of memory that nothing has read or written before in a block, behind a phase that has read what they are
  // computed of: only their stores wait for the second cache. And sums of rows that have been read before, where no
  // cache of a core holds all: they have time to ask for the next rows.
  void MarkFarResults() {
    std::vector<bool> is_near(static_cast<size_t>(num_memory()));
    const auto touch = [&](int slot) {
      if (slot >= 0 && slot < num_memory()) is_near[slot] = true;
    };
    const bool is_beyond_core = MemoryBytes() >= kCpuTarget.regions.far_bytes;
    for (RegionCode::Phase& phase : code_.phases) {
      for (RegionInstruction& instruction : phase.block) {
        for (int k = 0; k < instruction.num_operands; ++k) touch(instruction.operands[k]);
        const int out = instruction.out;
        instruction.repeated.is_far = out >= 0 && out < num_memory() && !is_near[out];
        touch(out);
      }
      for (RegionInstruction& reduce : phase.end) {
        const int slot = reduce.num_operands > 0 ? reduce.operands[0] : -1;
        reduce.repeated.is_far = is_beyond_core && slot >= 0 && slot < num_memory() && is_near[slot];
        for (int k = 0; k < reduce.num_operands; ++k) touch(reduce.operands[k]);
      }
    }
  }

  // The slot of the values of rows that an operand of the program has in memory.
  int RowMemory(int operand) {
    code_.row_memory.push_back(MemoryOf(operand));
    return num_memory() + slots_.num_constants() + static_cast<int>(slots_.buffers.size() + code_.row_memory.size()) -
           1;
  }

  void AddSimple(const RegionInstruction& instruction, bool is_of_rows) {
    using Kind = RegionInstruction::Kind;
    RegionInstruction made = instruction;
    if (instruction.kind == Kind::kLoadRow || instruction.kind == Kind::kStoreRow) {
      const bool loads = instruction.kind == Kind::kLoadRow;
      const int memory = RowMemory(instruction.number);
      made = {.out = loads ? instruction.out : memory,
              .kernel = CopyKernelOf(code_.operands[instruction.number].dtype)};
      SetOperands(&made, {loads ? memory : instruction.operands[0]});
    }
    SimpleInstruction simple{.is_of_rows = is_of_rows};
    if (made.kind == Kind::kCompute) {
      simple.kernel = made.kernel;
      simple.out = static_cast<std::uint8_t>(made.out);
      std::copy_n(made.operands, std::size(simple.operands), simple.operands);
      if (!code_.simple.empty() && made.pattern.kind == RegionPattern::Kind::kFill) {
        const SimpleInstruction& before = code_.simple.back();
        const bool is_same = before.kernel == simple.kernel && before.operands[0] == simple.operands[0];
        if (is_same && before.is_of_rows == is_of_rows)
          simple.fill_bytes = static_cast<std::uint8_t>(DTypeBytes(made.dtype));
      }
    } else {
      simple.other = &instruction;
    }
    code_.simple.push_back(simple);
  }

  void MakeSimple() {
    for (const RegionCode::Phase& phase : code_.phases) {
      for (const RegionInstruction& instruction : phase.row) AddSimple(instruction, true);
      for (const RegionInstruction& instruction : phase.block) AddSimple(instruction, false);
      for (const RegionInstruction& instruction : phase.end) AddSimple(instruction, true);
    }
    code_.simple_work = static_cast<std::int64_t>(1 + code_.simple.size() / 4);
  }

  void MakeDirect(const RegionInstruction& instruction) {
    const auto is_memory = [&](int slot) { return slot < num_memory(); };
    if (instruction.kind != RegionInstruction::Kind::kCompute || !is_memory(instruction.out)) return;
    const RegionMemory& to = code_.memory[instruction.out];
    RegionDirect direct{.kernel = instruction.kernel,
                        .output = to.number,
                        .offset = to.offset,
                        .element = to.element,
                        .width = code_.width};
    for (int k = 0; k < 4; ++k) {
      const int slot = instruction.operands[k];
      RegionDirect::Source& source = direct.sources[k];
      if (is_memory(slot)) {
        const RegionMemory& from = code_.memory[slot];
        if (!from.is_input) return;
        source = {.input = from.number, .offset = from.offset, .element = from.element};
      } else {
        source = {.constant = code_.constants[slot - num_memory()]};
      }
    }
    code_.direct = direct;
  }

  const RegionSlots& slots_;
  RegionCode& code_;
  std::int64_t buffer_bytes_ = 0;
};

}  // namespace

bool RegionCode::IsContiguous(const Operand& operand) const {
  std::int64_t stride = 1;
  for (int d = kRegionDims - 1; d >= (has_groups() ? 2 : 0); --d) {
    if (sizes[d] != 1 && operand.strides[d] != stride) return false;
    if (!joins_rows) return true;
    stride *= sizes[d];
  }
  return true;
}

AlignedBytes MakeAlignedBytes(std::int64_t bytes) {
  return AlignedBytes(new (std::align_val_t(kRegionAlignment)) std::byte[static_cast<size_t>(bytes)]);
}

void LayOutRegion(const RegionSlots& slots, RegionCode* code) { Layout(slots, code).Run(); }

}  // namespace stepnet
