#include "random_region.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>

#include "stepnet/core/error.h"
#include "stepnet/core/expressions/expr_text.h"
#include "stepnet/core/regions/region_program.h"
#include "stepnet/core/strings.h"
#include "stepnet/tests/core/expressions/random_exprs.h"

namespace stepnet {
namespace {

int Below(int limit, std::mt19937& random) { return static_cast<int>(random() % static_cast<unsigned>(limit)); }

template <typename T>
const T& Any(const std::vector<T>& items, std::mt19937& random) {
  return items[static_cast<size_t>(Below(static_cast<int>(items.size()), random))];
}

// Strides along the dimensions that `moves` names, with gaps, some in another order.
RegionOperand RandomOperand(DType dtype, const RegionIndex& sizes, const std::array<bool, 4>& moves,
                            std::mt19937& random) {
  RegionOperand operand{.dtype = dtype};
  std::vector<int> dims = {3, 2, 1, 0};
  if (Below(4, random) == 0) std::ranges::shuffle(dims, random);
  std::int64_t stride = Below(8, random) == 0 ? 2 : 1;
  for (const int d : dims) {
    if (!moves[d]) continue;
    operand.strides[d] = stride;
    stride *= std::max<std::int64_t>(sizes[d], 1);
    if (Below(4, random) == 0) stride += Below(5, random);
  }
  if (Below(3, random) == 0) operand.offset = Below(7, random);
  operand.size = operand.offset + stride + 1;
  for (int d = 0; d < kRegionDims; ++d) {
    if (sizes[d] > 0) operand.size = std::max(operand.size, operand.offset + sizes[d] * operand.strides[d] + 1);
  }
  return operand;
}

std::array<bool, 4> RandomMoves(bool matrices, std::mt19937& random) {
  if (matrices && Below(2, random) == 0) return {true, true, Below(2, random) == 0, Below(4, random) != 0};
  switch (Below(6, random)) {
    case 0: return {true, true, true, false};
    case 1: return {false, false, false, true};
    case 2: return {false, false, false, false};
    case 3: return {Below(2, random) == 0, Below(2, random) == 0, Below(2, random) == 0, Below(2, random) == 0};
    default: return {true, true, true, true};
  }
}

RegionIndex RandomSizes(bool matrices, std::mt19937& random) {
  if (matrices) {
    static const std::vector<std::int64_t> few = {1, 2, 3}, rows = {4, 16, 17, 37},
                                           columns = {8, 15, 16, 20, 32, 48, 64, 70};
    return {Any(few, random), Any(few, random), Any(rows, random), Any(columns, random)};
  }
  static const std::vector<std::int64_t> outer = {1, 1, 1, 2, 3, 5};
  static const std::vector<std::int64_t> columns = {1,   2,   3,   7,   16,  31,  64,  100,
                                                    127, 130, 255, 256, 257, 300, 523, 2100};
  RegionIndex sizes = {Any(outer, random), Any(outer, random), Any(outer, random), Any(columns, random)};
  if (sizes[3] > 100) sizes[Below(3, random)] = 1;
  if (sizes[3] > 2000) sizes[0] = sizes[1] = 1;
  if (Below(20, random) == 0) sizes[Below(4, random)] = 0;
  return sizes;
}

}  // namespace

Region RandomRegion(const RandomRegionOptions& options, std::mt19937& random) {
  for (;;) {
    Region region{.sizes = RandomSizes(options.matrices, random)};
    std::vector<Expr> leaves;
    const DType usual = Below(4, random) == 0 ? DType::kDouble : DType::kFloat;
    for (int i = 0; i < 9; ++i) {
      const DType dtype = options.only_usual ? usual : i < 5 ? kExprTypes[i] : DType::kFloat;
      region.inputs.push_back(RandomOperand(i < 7 ? dtype : kStoredTypes[i - 7], region.sizes,
                                            RandomMoves(options.matrices, random), random));
      leaves.push_back(Expr::Input(i, StrCat("x", i), region.inputs.back().dtype));
      if (i >= 7) leaves.push_back(Cast(dtype, leaves.back()));
    }
    const std::vector<RandomExprStep> steps =
        RandomExprSteps(leaves,
                        {.steps = options.steps,
                         .reductions = options.reductions && Below(2, random) == 0,
                         .requires_too = options.requires_too && Below(3, random) == 0,
                         .stored_too = true,
                         .only_usual = options.only_usual},
                        random);
    for (int i = 0; i < 1 + Below(3, random); ++i) {
      const size_t recent = std::min<size_t>(steps.size(), 8);
      RegionOutput output{.value = steps[steps.size() - 1 - random() % recent].result};
      const bool is_stored = output.value.dtype() == DType::kFloat && Below(4, random) == 0;
      std::array<bool, 4> moves = {true, true, true, true};
      output.kind = static_cast<RegionOutputKind>(std::max(0, Below(6, random) - 3));
      if (output.kind == RegionOutputKind::kRows) moves[3] = false;
      if (output.kind == RegionOutputKind::kSums) {
        for (int d = 0; d < 3; ++d) moves[d] = Below(3, random) == 0;
        moves[3] = Below(3, random) != 0;
        output.adds = Below(2, random) == 0;
      } else if (is_stored) {
        output.value = Cast(kStoredTypes[Below(2, random)], output.value);
      }
      output.memory = RandomOperand(output.value.dtype(), region.sizes, moves, random);
      const bool is_sum = output.kind == RegionOutputKind::kSums;
      if (is_sum && is_stored) output.memory.dtype = kStoredTypes[Below(2, random)];
      if (output.kind == RegionOutputKind::kElements && Below(2, random) == 0) {
        int input = Below(9, random);
        for (int k = 0; k < 9 && region.inputs[input].dtype != output.memory.dtype; ++k) input = (input + 1) % 9;
        const bool is_taken = std::ranges::any_of(region.in_place, [&](auto& pair) { return pair.input == input; });
        if (!is_taken && region.inputs[input].dtype == output.memory.dtype) {
          output.memory = region.inputs[input];
          region.in_place.push_back({.input = input, .output = i});
        }
      }
      region.outputs.push_back(std::move(output));
    }
    for (const RandomExprStep& step : steps) {
      if (step.result->op == ExprOp::kRequire) region.requirements.push_back(step.result);
    }
    try {
      CheckRegion(region);
      return region;
    } catch (const Error&) {  // a row output that is none, an output that would write over itself
    }
  }
}

RegionMemory::RegionMemory(const Region& region, std::mt19937& random) : num_inputs_(region.inputs.size()) {
  const auto make = [&](const RegionOperand& operand) {
    const std::int64_t bytes = DTypeBytes(operand.dtype);
    std::vector<std::uint64_t> array(static_cast<size_t>(operand.size * bytes / 8 + 1));
    for (std::int64_t i = 0; i < operand.size; ++i) {
      const ExprScalar value = RandomScalar(operand.dtype, random);
      std::memcpy(reinterpret_cast<char*>(array.data()) + i * bytes, &value.bits, static_cast<size_t>(bytes));
    }
    arrays_.push_back(std::move(array));
  };
  for (const RegionOperand& input : region.inputs) make(input);
  for (const RegionOutput& output : region.outputs) {
    of_output_.push_back(static_cast<int>(arrays_.size()));
    make(output.memory);
  }
  for (const auto& [input, output] : region.in_place) of_output_[output] = input;
}

std::vector<const void*> RegionMemory::Inputs() const {
  std::vector<const void*> inputs;
  for (size_t i = 0; i < num_inputs_; ++i) inputs.push_back(arrays_[i].data());
  return inputs;
}

std::vector<void*> RegionMemory::Outputs() {
  std::vector<void*> outputs;
  for (const int array : of_output_) outputs.push_back(arrays_[array].data());
  return outputs;
}

std::string RegionMemory::DifferenceFrom(const RegionMemory& other, const Region& region) const {
  for (size_t output = 0; output < of_output_.size(); ++output) {
    const RegionOperand& operand = region.outputs[output].memory;
    const std::int64_t bytes = DTypeBytes(operand.dtype);
    for (std::int64_t i = 0; i < operand.size; ++i) {
      ExprScalar values[2] = {{.dtype = operand.dtype}, {.dtype = operand.dtype}};
      const RegionMemory* const memories[] = {this, &other};
      for (int k = 0; k < 2; ++k) {
        const auto* array = reinterpret_cast<const char*>(memories[k]->arrays_[of_output_[output]].data());
        std::memcpy(&values[k].bits, array + i * bytes, static_cast<size_t>(bytes));
      }
      if (SameScalar(values[0], values[1])) continue;
      return StrCat("output ", output, ", element ", i, " is ", ScalarText(values[0]), " and ", ScalarText(values[1]));
    }
  }
  return "";
}

std::string DifferenceFromDefinition(const Region& region, unsigned seed) {
  const auto fault_text = [](const std::optional<RegionFault>& fault) {
    return fault ? StrCat(fault->element, ": ", fault->message) : "none";
  };
  const auto memory = [&] {
    std::mt19937 random(seed);
    return RegionMemory(region, random);
  };
  const RegionProgram program(region);
  RegionMemory want = memory();
  const std::string want_fault = fault_text(EvaluateRegion(region, want.Inputs(), want.Outputs()));
  const auto difference = [&](const RegionMemory& got, const std::optional<RegionFault>& fault, size_t parts) {
    std::string what = got.DifferenceFrom(want, region);
    if (what.empty() && fault_text(fault) != want_fault)
      what = StrCat("fault ", fault_text(fault), ", not ", want_fault);
    if (what.empty()) return what;
    return StrCat("seed ", seed, " in ", parts, " parts: ", what, "\n", RegionText(region), program.Text());
  };
  RegionMemory got = memory();
  const std::optional<RegionFault> fault = program.Run(got.Inputs(), got.Outputs());
  if (const std::string found = difference(got, fault, 1); !found.empty()) return found;

  std::mt19937 random(seed);
  const int parts = 2 + static_cast<int>(random() % 6);
  std::vector<int> order(static_cast<size_t>(std::min(parts, program.max_parts())));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::shuffle(order, random);
  RegionMemory in_parts = memory();
  std::optional<RegionFault> first;
  for (const int part : order) {
    const auto of_part = program.Run(in_parts.Inputs(), in_parts.Outputs(), part, static_cast<int>(order.size()));
    if (of_part && (!first || of_part->element < first->element)) first = of_part;
  }
  return difference(in_parts, first, order.size());
}

std::string RegionText(const Region& region) {
  TextStream out;
  out << "sizes [" << Join(region.sizes, ", ") << "]\n";
  const auto operand = [&](const char* what, size_t i, const RegionOperand& of) {
    out << what << " " << i << ": " << of.dtype << ", offset " << of.offset << ", strides [" << Join(of.strides, ", ")
        << "]";
  };
  for (size_t i = 0; i < region.inputs.size(); ++i) operand("input", i, region.inputs[i]), out << "\n";
  for (size_t i = 0; i < region.outputs.size(); ++i) {
    operand("output", i, region.outputs[i].memory);
    out << ", kind " << static_cast<int>(region.outputs[i].kind) << (region.outputs[i].adds ? " adds" : "") << "\n";
  }
  for (const auto& [input, output] : region.in_place) out << "output " << output << " in place of " << input << "\n";
  const std::vector<Expr> roots = region.Roots();
  out << PrintExprs(roots);
  return std::move(out).str();
}

}  // namespace stepnet
