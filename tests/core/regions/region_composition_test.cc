#include "stepnet/core/regions/region_composition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <random>

#include "random_region.h"
#include "stepnet/core/error.h"
#include "stepnet/core/regions/region_program.h"
#include "stepnet/core/strings.h"
#include "stepnet/tests/core/expressions/random_exprs.h"
#include "stepnet/tests/core/formulas/formula_operators.h"

namespace stepnet {
namespace {

TensorInfo Floats(const Shape& shape) { return {.dtype = DType::kFloat, .shape = shape}; }

// Steps on tensors, of which the first ones are given.
struct Chain {
  std::vector<TensorInfo> tensors;
  std::vector<FormulaStep> steps;

  // Returns the first output.
  int Add(const std::string& type, const std::vector<int>& inputs, int num_outputs = 1) {
    steps.push_back(AddFormulaStep(type, inputs, num_outputs, &tensors));
    return steps.back().outputs[0];
  }

  std::vector<RegionPart> Parts() const {
    std::vector<RegionPart> parts;
    for (const FormulaStep& step : steps) {
      RegionPart& part = parts.emplace_back(RegionPart{.region = step.formula.region, .inputs = {}, .outputs = {}});
      part.region.in_place.clear();
      for (const int input : step.formula.inputs) part.inputs.push_back(step.inputs[input]);
      for (const int output : step.formula.outputs) part.outputs.push_back(step.outputs[output]);
    }
    return parts;
  }

  std::variant<ComposedRegion, CompositionObstacle> Compose(const CompositionRequest& request) const {
    return ComposeRegions(Parts(), request);
  }
};

using Memory = std::vector<std::vector<std::uint64_t>>;  // of tensors

// Numbers in what the steps are given, and a pattern in the rest.
Memory MemoryOf(const Chain& chain, size_t num_given, unsigned seed) {
  std::mt19937 random(seed);
  Memory memory;
  for (size_t t = 0; t < chain.tensors.size(); ++t) {
    const TensorInfo& info = chain.tensors[t];
    memory.emplace_back(static_cast<size_t>(info.size_bytes() / 8 + 1), 0x7f7f7f7f7f7f7f7fu);
    for (std::int64_t i = 0; t < num_given && i < info.shape.size(); ++i) {
      const ExprScalar value = RandomScalar(info.dtype, random);
      const std::int64_t bytes = DTypeBytes(info.dtype);
      std::memcpy(reinterpret_cast<char*>(memory[t].data()) + i * bytes, &value.bits, static_cast<size_t>(bytes));
    }
  }
  return memory;
}

std::optional<RegionFault> RunPart(const Region& region, const std::vector<int>& inputs,
                                   const std::vector<int>& outputs, Memory* memory, int parts = 1) {
  std::vector<const void*> in;
  std::vector<void*> out;
  for (const int input : inputs) in.push_back((*memory)[input].data());
  for (const int output : outputs) out.push_back((*memory)[output].data());
  const RegionProgram program(region);
  std::optional<RegionFault> first;
  parts = std::min(parts, program.max_parts());
  for (int part = 0; part < parts; ++part) {
    std::optional<RegionFault> fault = program.Run(in, out, part, parts);
    if (fault && (!first || fault->element < first->element)) first = std::move(fault);
  }
  return first;
}

std::string Difference(const Chain& chain, const std::vector<int>& wanted, const Memory& a, const Memory& b) {
  for (const int tensor : wanted) {
    const TensorInfo& info = chain.tensors[tensor];
    const std::int64_t bytes = DTypeBytes(info.dtype);
    for (std::int64_t i = 0; i < info.shape.size(); ++i) {
      ExprScalar values[2] = {{.dtype = info.dtype}, {.dtype = info.dtype}};
      const Memory* const memories[] = {&a, &b};
      for (int k = 0; k < 2; ++k) {
        const auto* array = reinterpret_cast<const char*>((*memories[k])[tensor].data());
        std::memcpy(&values[k].bits, array + i * bytes, static_cast<size_t>(bytes));
      }
      if (SameScalar(values[0], values[1])) continue;
      return StrCat("tensor ", tensor, ", element ", i, ": ", static_cast<double>(values[0].As<float>()), " and ",
                    static_cast<double>(values[1].As<float>()));
    }
  }
  return "";
}

std::string TextOf(const Chain& chain) {
  std::string text;
  for (size_t t = 0; t < chain.tensors.size(); ++t) text += StrCat("t", t, " ", chain.tensors[t].Description(), "\n");
  for (const FormulaStep& step : chain.steps) {
    text += StrCat("t", Join(step.outputs, ", t"), " = ", step.type, "(t", Join(step.inputs, ", t"), ")\n");
  }
  return text;
}

// Runs the steps one after the other and as one region, in one part and in three. False where they cannot be one.
bool ExpectSameBits(const Chain& chain, size_t num_given, const std::vector<int>& wanted, unsigned seed) {
  const auto composed = chain.Compose({.wanted = wanted});
  if (!std::holds_alternative<ComposedRegion>(composed)) return false;
  Memory one_by_one = MemoryOf(chain, num_given, seed);
  for (const RegionPart& part : chain.Parts()) RunPart(part.region, part.inputs, part.outputs, &one_by_one);
  const auto& [region, inputs, outputs] = std::get<ComposedRegion>(composed);
  for (const int input : inputs) EXPECT_LT(input, static_cast<int>(num_given)) << TextOf(chain);
  for (const int parts : {1, 3}) {
    Memory as_one = MemoryOf(chain, num_given, seed);
    RunPart(region, inputs, outputs, &as_one, parts);
    EXPECT_EQ(Difference(chain, wanted, one_by_one, as_one), "") << TextOf(chain) << RegionText(region);
  }
  return true;
}

CompositionObstacle ObstacleOf(const Chain& chain, const std::vector<int>& wanted) {
  const auto composed = chain.Compose({.wanted = wanted});
  const auto* obstacle = std::get_if<CompositionObstacle>(&composed);
  return obstacle != nullptr ? *obstacle : CompositionObstacle{.part = -1, .what = "none"};
}

using Kind = CompositionObstacle::Kind;

TEST(RegionComposition, WhatLiesBetweenIsInNoMemory) {
  Chain chain{.tensors = {Floats({5, 70}), Floats({5, 70})}, .steps = {}};
  const int sum = chain.Add("test.Add", {0, 1});
  const int y = chain.Add("Gelu", {chain.Add("Floor", {sum})});
  const auto composed = std::get<ComposedRegion>(chain.Compose({.wanted = {y}, .names = {"a", "b"}}));
  EXPECT_EQ(composed.inputs, std::vector<int>({0, 1}));
  EXPECT_EQ(composed.outputs, std::vector<int>({y}));
  EXPECT_EQ(composed.region.sizes, RegionIndex({1, 1, 1, 350}));
  const Expr a = Expr::Input(0, "a", DType::kFloat), b = Expr::Input(1, "b", DType::kFloat), x = Floor(a + b);
  EXPECT_TRUE(composed.region.outputs[0].value.Is(x * (0.5 * Erfc(-std::sqrt(0.5) * x))));
  EXPECT_TRUE(ExpectSameBits(chain, 2, {y}, 1));
  EXPECT_TRUE(ExpectSameBits(chain, 2, {sum, y}, 2));
}

TEST(RegionComposition, WhatIsComputedTwiceIsOneExpression) {
  Chain chain{.tensors = {Floats({300})}, .steps = {}};
  const int a = chain.Add("Erf", {0}), b = chain.Add("Erf", {0});
  const int y = chain.Add("test.Add", {a, b});
  const auto composed = std::get<ComposedRegion>(chain.Compose({.wanted = {y}, .names = {"x"}}));
  const Expr erf = Erf(Expr::Input(0, "x", DType::kFloat));
  EXPECT_TRUE(composed.region.outputs[0].value.Is(erf + erf));
}

TEST(RegionComposition, BlocksAreReadWhereTheyAreComputed) {
  Chain chain{.tensors = {Floats({6, 40}), Floats({40}), Floats({6, 10})}, .steps = {}};
  const int gates = chain.Add("test.Add", {chain.Add("test.Add", {0, 0}), 1});
  const int c = chain.Add("test.Gates", {gates, 2}, 2);
  const auto composed = std::get<ComposedRegion>(chain.Compose({.wanted = {c, c + 1}}));
  EXPECT_EQ(composed.region.sizes, RegionIndex({1, 1, 6, 10}));
  EXPECT_EQ(composed.region.inputs.size(), 9);  // four blocks of each, and c
  EXPECT_TRUE(ExpectSameBits(chain, 3, {c, c + 1}, 1));
}

TEST(RegionComposition, WhatIsSideBySideIsReadInBlocks) {
  Chain chain{.tensors = {Floats({6, 10}), Floats({6, 10})}, .steps = {}};
  const int joined = chain.Add("test.Join", {chain.Add("Gelu", {0}), chain.Add("Silu", {1})});
  const int a = chain.Add("test.Split", {joined}, 2);
  const int y = chain.Add("test.Add", {a, a + 1});
  EXPECT_TRUE(ExpectSameBits(chain, 2, {y}, 1));
  EXPECT_EQ(std::get<ComposedRegion>(chain.Compose({.wanted = {y}})).region.sizes, RegionIndex({1, 1, 1, 60}));
  EXPECT_TRUE(ExpectSameBits(chain, 2, {joined, y}, 1));
  const int over_border = chain.Add("Gelu", {joined});
  EXPECT_EQ(ObstacleOf(chain, {over_border}).kind, Kind::kAccess);
}

TEST(RegionComposition, RowsAreReducedInside) {
  for (const Shape& shape : {Shape({7, 33}), Shape({3, 600}), Shape({2, 3, 16}), Shape({1, 5}), Shape({5, 1})}) {
    Chain chain{.tensors = {Floats(shape), Floats(shape)}, .steps = {}};
    const int sum = chain.Add("test.Add", {0, 1});
    const int soft = chain.Add("test.Softmax", {sum});
    const int sums = chain.Add("test.RowSum", {chain.Add("Silu", {soft})});
    const int scale = chain.Add("Erf", {sums});
    const int y = chain.Add("test.ScaleRows", {chain.Add("Gelu", {soft}), scale});
    EXPECT_TRUE(ExpectSameBits(chain, 2, {y}, 1)) << shape;
    EXPECT_TRUE(ExpectSameBits(chain, 2, {y, scale, soft}, 2)) << shape;
    EXPECT_TRUE(ExpectSameBits(chain, 2, {scale}, 3)) << shape;
  }
}

TEST(RegionComposition, SumsOverRowsAreOutputs) {
  Chain chain{.tensors = {Floats({7, 33})}, .steps = {}};
  const int gelu = chain.Add("Gelu", {0});
  const int sums = chain.Add("test.SumOverRows", {gelu});
  EXPECT_TRUE(ExpectSameBits(chain, 1, {sums}, 1));
  EXPECT_TRUE(ExpectSameBits(chain, 1, {gelu, sums}, 1));
  const int erf = chain.Add("Erf", {sums});
  const CompositionObstacle obstacle = ObstacleOf(chain, {erf});
  EXPECT_EQ(obstacle.kind, Kind::kSum);
  EXPECT_EQ(obstacle.part, 2);
}

TEST(RegionComposition, PositionsAreThoseOfTheParts) {
  Chain chain{.tensors = {Floats({6, 10}), Floats({6, 20})}, .steps = {}};
  const int y = chain.Add("Gelu", {chain.Add("test.Position", {0})});
  EXPECT_TRUE(ExpectSameBits(chain, 2, {y}, 1));
  const int halves = chain.Add("test.Split", {chain.Add("test.Position", {1})}, 2);
  EXPECT_TRUE(ExpectSameBits(chain, 2, {y, halves, halves + 1}, 1));
}

TEST(RegionComposition, WhatIsRequiredStaysRequired) {
  Chain chain{.tensors = {Floats({2, 3})}, .steps = {}};
  const int y = chain.Add("Floor", {chain.Add("test.Positive", {0})});
  const auto [region, inputs, outputs] = std::get<ComposedRegion>(chain.Compose({.wanted = {y}}));
  Memory memory = MemoryOf(chain, 1, 1);
  const float values[] = {0, 1, 2, 3, -4, -5};
  std::memcpy(memory[0].data(), values, sizeof(values));
  const std::optional<RegionFault> fault = RunPart(region, inputs, outputs, &memory);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->element, 4);
  EXPECT_EQ(fault->message, "x is -4, must be at least 0");
}

TEST(RegionComposition, MemoryIsSharedWhereEachElementStays) {
  Chain chain{.tensors = {Floats({6, 10}), Floats({10})}, .steps = {}};
  const int y = chain.Add("Gelu", {chain.Add("test.Add", {0, 1})});
  const auto composed = chain.Compose({.wanted = {y}, .in_place = {{0, y}}});
  EXPECT_EQ(std::get<ComposedRegion>(composed).region.in_place.size(), 1);
  const int joined = chain.Add("test.Join", {0, y});
  const int first = chain.Add("test.Split", {chain.Add("test.Add", {joined, joined})}, 2);
  EXPECT_TRUE(std::holds_alternative<ComposedRegion>(chain.Compose({.wanted = {first}, .in_place = {{0, first}}})));
  Chain blocks{.tensors = {Floats({6, 20})}, .steps = {}};
  const int half = blocks.Add("test.Split", {0}, 2);
  const int both = blocks.Add("test.Join", {half + 1, half});
  const auto refused = blocks.Compose({.wanted = {both}, .in_place = {{0, both}}});
  EXPECT_EQ(std::get<CompositionObstacle>(refused).kind, Kind::kInPlace);
}

// What has the columns of both halves, beside what has those of one.
TEST(RegionComposition, PartsOfSeveralTimesAsManyColumnsAreComputedInBlocks) {
  Chain chain{.tensors = {Floats({6, 5}), Floats({6, 5}), Floats({10}), Floats({6, 10})}, .steps = {}};
  const int half = chain.Add("Gelu", {0}), other = chain.Add("test.Add", {1, half});
  const int both = chain.Add("test.Join", {half, other}), with_row = chain.Add("test.Add", {both, 2});
  const int sum = chain.Add("test.Add", {with_row, 3}), first = chain.Add("test.Split", {sum}, 2);
  const int last = chain.Add("Gelu", {first + 1});
  EXPECT_TRUE(ExpectSameBits(chain, 4, {half, with_row, sum, last}, 1));
  EXPECT_TRUE(ExpectSameBits(chain, 4, {with_row, last}, 2));  // the larger one first
  const auto composed = chain.Compose({.wanted = {half, sum}, .in_place = {{3, sum}}});
  const Region& region = std::get<ComposedRegion>(composed).region;
  EXPECT_EQ(region.NumElements(), 30);
  EXPECT_EQ(region.outputs.size(), 3);
  EXPECT_EQ(region.in_place.size(), 2);
  const std::vector<int> unlike = {half, chain.Add("Gelu", {chain.Add("test.Join", {with_row, with_row})})};
  EXPECT_TRUE(ExpectSameBits(chain, 4, unlike, 3));  // four blocks
  Chain many{.tensors = {Floats({6, 5}), Floats({6, 45})}, .steps = {}};
  EXPECT_EQ(ObstacleOf(many, {many.Add("Gelu", {0}), many.Add("Gelu", {1})}).kind, Kind::kSizes);
}

TEST(RegionComposition, WhatDoesNotFitIsRefused) {
  Chain sizes{.tensors = {Floats({6, 10}), Floats({7})}, .steps = {}};
  const int large = sizes.Add("Gelu", {0}), small = sizes.Add("Gelu", {1});
  EXPECT_EQ(ObstacleOf(sizes, {large, small}).kind, Kind::kSizes);
  ASSERT_THROW(static_cast<void>(sizes.Compose({.wanted = {0}})), Error);

  Chain rows{.tensors = {Floats({6, 10}), Floats({2, 6, 5}), Floats({6, 4})}, .steps = {}};
  const int soft = rows.Add("test.Softmax", {0}), longer = rows.Add("test.Softmax", {1});
  EXPECT_EQ(ObstacleOf(rows, {soft, longer}).kind, Kind::kRows);
  const int half = rows.Add("test.Split", {soft}, 2);
  EXPECT_EQ(ObstacleOf(rows, {half}).kind, Kind::kSizes);
  const int over_others = rows.Add("test.ScaleRows", {2, rows.Add("test.RowSum", {0})});
  EXPECT_EQ(ObstacleOf(rows, {over_others}).kind, Kind::kSizes);

  Chain dims{.tensors = {Floats({3, 1, 3, 1, 3}), Floats({1, 3, 1, 3, 1}), Floats({3, 1, 1, 1, 3})}, .steps = {}};
  const int y = dims.Add("test.Add", {0, 0});
  EXPECT_TRUE(ExpectSameBits(dims, 3, {dims.Add("test.Add", {y, 2})}, 1));
}

TEST(RegionComposition, PartsWithoutElementsAreARegionWithoutElements) {
  Region empty{.sizes = {1, 1, 1, 0}};
  const RegionOperand memory{.dtype = DType::kFloat, .size = 0, .strides = {0, 0, 0, 1}};
  empty.inputs = {memory};
  empty.outputs = {{.value = Tanh(Expr::Input(0, "x", DType::kFloat)), .memory = memory}};
  const RegionPart parts[] = {{.region = empty, .inputs = {0}, .outputs = {1}},
                              {.region = empty, .inputs = {1}, .outputs = {2}}};
  const auto result = ComposeRegions(parts, {.wanted = {1, 2}});
  const auto& composed = std::get<ComposedRegion>(result);
  CheckRegion(composed.region);
  EXPECT_EQ(composed.outputs, (std::vector<int>{1, 2}));
  Memory nothing(3);
  EXPECT_FALSE(RunPart(composed.region, composed.inputs, composed.outputs, &nothing));
}

// What is computed of rows has as many elements as what is computed of elements: none.
TEST(RegionComposition, RowsOfAnEmptyBatchAreRows) {
  Chain chain{.tensors = {Floats({0, 4})}, .steps = {}};
  const int norm = chain.Add("test.RowNorm", {0}, 2), of_rows = norm + 1;
  const int twice = chain.Add("test.Add", {of_rows, of_rows});
  const int elements = chain.Add("test.Add", {0, norm});
  EXPECT_TRUE(ExpectSameBits(chain, 1, {norm, of_rows, twice, elements}, 1));
  const int sums = chain.Add("test.SumOverRows", {0});
  EXPECT_TRUE(ExpectSameBits(chain, 1, {twice, sums}, 1));
}

TEST(RegionComposition, WhatWouldBeComputedTooOftenIsRefused) {
  Chain columns{.tensors = {Floats({6, 10}), Floats({10})}, .steps = {}};
  const int y = columns.Add("test.AddColumn", {0, columns.Add("test.Tanh", {1})});
  constexpr double kRepeated = 8 * (60 - 10);
  const auto composed = [&](double max) {
    return columns.Compose({.wanted = {y}, .max_repeated_operations = max, .operations_of_function = 8});
  };
  EXPECT_TRUE(std::holds_alternative<ComposedRegion>(composed(kRepeated)));
  const auto refused = composed(kRepeated - 1);
  const auto& obstacle = std::get<CompositionObstacle>(refused);
  EXPECT_EQ(obstacle.kind, Kind::kRepeats);
  EXPECT_EQ(obstacle.part, 0);
  EXPECT_EQ(obstacle.what, "has 10 elements, of which 60 would be computed in a region over [6, 10]");
}

TEST(RegionComposition, RowsAndBlocksAreComputedOnce) {
  Chain chain{.tensors = {Floats({6, 10}), Floats({6}), Floats({6, 20})}, .steps = {}};
  const int half = chain.Add("test.Split", {chain.Add("test.Tanh", {2})}, 2);
  const int sum = chain.Add("test.Add", {half, half + 1});
  const int y = chain.Add("test.ScaleRows", {sum, chain.Add("test.Tanh", {1})});
  EXPECT_TRUE(std::holds_alternative<ComposedRegion>(chain.Compose({.wanted = {y}, .max_repeated_operations = 0})));
}

// The operators between the products of examples/cells/peephole_lstm.cell.
TEST(RegionComposition, PeepholesAreOneRegion) {
  const Shape state({6, 10}), peephole({10});
  Chain chain{.tensors = {Floats({6, 40}), Floats({6, 40}), Floats(state), Floats(peephole), Floats(peephole),
                          Floats(peephole)},
              .steps = {}};
  const int gates = chain.Add("test.Split4", {chain.Add("test.Add", {0, 1})}, 4);
  const auto gate = [&](int which, int weights, int of) {
    return chain.Add("test.Sigmoid", {chain.Add("test.Add", {which, chain.Add("test.Mul", {weights, of})})});
  };
  const int forgotten = chain.Add("test.Mul", {gate(gates + 1, 4, 2), 2});
  const int input = gate(gates, 3, 2);
  const int c = chain.Add("test.Add", {forgotten, chain.Add("test.Mul", {input, chain.Add("test.Tanh", {gates + 3})})});
  const int output = gate(gates + 2, 5, c);
  const int h = chain.Add("test.Mul", {output, chain.Add("test.Tanh", {c})});
  ASSERT_EQ(chain.steps.size(), 17);
  EXPECT_TRUE(ExpectSameBits(chain, 6, {h, c}, 1));

  const std::vector<std::string> names = {"x", "u", "c", "pi", "pf", "po"};
  const auto composed = std::get<ComposedRegion>(chain.Compose({.wanted = {h, c}, .names = names}));
  EXPECT_EQ(composed.region.sizes, RegionIndex({1, 1, 6, 10}));
  EXPECT_EQ(composed.inputs.size(), 12);
  const auto in = [&](int tensor, std::int64_t offset = 0) {
    size_t i = 0;
    while (composed.inputs.at(i) != tensor || composed.region.inputs[i].offset != offset) ++i;
    return Expr::Input(static_cast<int>(i), names[tensor], DType::kFloat);
  };
  const auto before_gate = [&](int which) { return in(0, 10 * which) + in(1, 10 * which); };
  const Expr c_prev = in(2);
  const Expr c_next = Sigmoid(before_gate(1) + in(4) * c_prev) * c_prev +
                      Sigmoid(before_gate(0) + in(3) * c_prev) * Tanh(before_gate(3));
  EXPECT_TRUE(composed.region.outputs[1].value.Is(c_next));
  EXPECT_TRUE(composed.region.outputs[0].value.Is(Sigmoid(before_gate(2) + in(5) * c_next) * Tanh(c_next)));
}

// Steps of any kind on tensors of a few shapes; what a step refuses is left out.
Chain RandomChain(std::mt19937& random, size_t* num_given) {
  const auto below = [&](size_t limit) { return static_cast<int>(random() % limit); };
  constexpr std::int64_t kSizes[] = {1, 2, 3, 8, 33, 300};
  const std::int64_t r = kSizes[below(5)], c = kSizes[below(6)] * (below(3) == 0 ? 4 : 1);
  Chain chain{.tensors = {Floats({r, c}), Floats({c}), Floats({r}), Floats({r, 4 * c}), Floats({r, 1}), Floats({1}),
                          Floats({2, r, c}), Floats({r, c})},
              .steps = {}};
  if (below(10) == 0) std::ranges::for_each(chain.tensors, [](TensorInfo& info) { info.dtype = DType::kDouble; });
  *num_given = chain.tensors.size();
  struct Type {
    const char* name;
    int inputs, outputs;
  };
  constexpr Type kTypes[] = {
      {"Gelu", 1, 1},           {"Silu", 1, 1},           {"Mish", 1, 1},        {"Erf", 1, 1},
      {"Floor", 1, 1},          {"Round", 1, 1},          {"test.Add", 2, 1},    {"test.Add", 2, 1},
      {"test.Add", 2, 1},       {"test.MulAdd", 3, 1},    {"test.Gates", 2, 2},  {"test.Split", 1, 2},
      {"test.Join", 2, 1},      {"test.Softmax", 1, 1},   {"test.RowSum", 1, 1}, {"test.RowNorm", 1, 2},
      {"test.ScaleRows", 2, 1}, {"test.AddColumn", 2, 1}, {"test.Scale", 2, 1},  {"test.SumOverRows", 1, 1},
      {"test.Position", 1, 1}};
  const int num_steps = 2 + below(8);
  for (int tries = 0; tries < 200 && static_cast<int>(chain.steps.size()) < num_steps; ++tries) {
    const Type& type = kTypes[below(std::size(kTypes))];
    std::vector<int> inputs;
    const size_t before = chain.tensors.size();
    for (int i = 0; i < type.inputs; ++i) {
      const size_t made = std::min<size_t>(before - *num_given, 3);
      const bool is_made = made > 0 && (i == 0 || below(2) == 0);
      inputs.push_back(is_made ? static_cast<int>(before) - 1 - below(made) : below(before));
    }
    try {
      chain.Add(type.name, inputs, type.outputs);
    } catch (const Error&) {
    }
    if (chain.tensors.size() > before && chain.tensors.back().shape.size() > 4'000) {
      chain.steps.pop_back();
      chain.tensors.resize(before);
    }
  }
  return chain;
}

TEST(RegionComposition, RandomChainsGiveTheBitsOfTheirSteps) {
  int composed = 0, refused = 0;
  std::map<int, int> kinds;
  for (unsigned seed = 0; seed < 600; ++seed) {
    std::mt19937 random(seed);
    size_t num_given = 0;
    const Chain chain = RandomChain(random, &num_given);
    if (chain.steps.empty()) continue;
    std::vector<int> wanted = {static_cast<int>(chain.tensors.size()) - 1};
    if (random() % 2 == 0) {
      const int other = static_cast<int>(num_given + random() % (chain.tensors.size() - num_given));
      if (other != wanted[0]) wanted.push_back(other);
    }
    if (ExpectSameBits(chain, num_given, wanted, seed)) {
      ++composed;
    } else {
      ++kinds[static_cast<int>(ObstacleOf(chain, wanted).kind)];
      ++refused;
    }
    if (testing::Test::HasFailure()) {
      FAIL() << "seed " << seed;
    }
  }
  std::string text;
  for (const auto& [kind, count] : kinds) text += StrCat(" ", kind, ": ", count);
  EXPECT_GT(composed, refused / 2) << composed << " composed; refused by kind" << text;
}

}  // namespace
}  // namespace stepnet
