#include "stepnet/core/regions/region_program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "dense_region.h"
#include "random_region.h"
#include "stepnet/core/error.h"
#include "stepnet/core/stored_float.h"
#include "stepnet/core/strings.h"
#include "stepnet/tests/core/every_stored.h"
#include "stepnet/tests/core/expressions/random_exprs.h"
#include "stepnet/tests/core/for_each_target.h"
#include "stepnet/tests/core/sanitized.h"

namespace stepnet {
namespace {

const Expr x = Expr::Input(0, "x", DType::kFloat);

void ExpectLikeDefinition(const Region& region, unsigned seed) {
  ASSERT_EQ(DifferenceFromDefinition(region, seed), "");
}

TEST(RegionProgram, ComputesWhatIsDefined) {
  for (unsigned seed = 0; seed < FewerIfSanitized(1500); ++seed) {
    std::mt19937 random(seed);
    ExpectLikeDefinition(RandomRegion({}, random), seed);
    if (HasFatalFailure()) return;
  }
}

TEST(RegionProgram, ComputesUsualExpressions) {
  for (unsigned seed = 20000; seed < 20000 + FewerIfSanitized(2000); ++seed) {
    std::mt19937 random(seed);
    ExpectLikeDefinition(RandomRegion({.steps = 8, .only_usual = true}, random), seed);
    if (HasFatalFailure()) return;
  }
}

TEST(RegionProgram, ComputesLargeExpressions) {
  for (unsigned seed = 0; seed < 30; ++seed) {
    std::mt19937 random(seed);
    ExpectLikeDefinition(RandomRegion({.steps = 200}, random), seed);
    if (HasFatalFailure()) return;
  }
}

TEST(RegionProgram, ComputesWhatIsDefinedOnEveryTarget) {
  ForEachTarget([] {
    for (unsigned seed = 5000; seed < 5000 + FewerIfSanitized(200); ++seed) {
      std::mt19937 random(seed);
      ExpectLikeDefinition(RandomRegion({}, random), seed);
      if (HasFatalFailure()) return;
    }
  });
}

void ExpectPrimitivesLikeDefinition(std::int64_t size) {
  for (int k = static_cast<int>(ExprOp::kAdd); k < kNumExprOps; ++k) {
    for (const DType dtype : kOperandTypes) {
      std::vector<Expr> operands;
      for (int i = 0; i < 3; ++i) operands.push_back(Expr::Input(i, StrCat("x", i), dtype));
      for (int count = 1; count <= 3; ++count) {
        for (const DType to : kOperandTypes) {
          const auto op = static_cast<ExprOp>(k);
          if (op != ExprOp::kCast && to != DType::kFloat) continue;
          std::vector<Expr> some(operands.begin(), operands.begin() + count);
          if (op == ExprOp::kWhere) some[0] = Expr::Input(0, "condition", DType::kBool);
          Region region{.sizes = {1, 1, 1, size}};
          try {
            const Expr value = MakeExpr(op, some, {.dtype = to});
            for (const Expr& operand : some) {
              region.inputs.push_back({.dtype = operand.dtype(), .size = size, .strides = {0, 0, 0, 1}});
            }
            region.outputs.push_back(
                {.value = value, .memory = {.dtype = value.dtype(), .size = size, .strides = {0, 0, 0, 1}}});
          } catch (const Error&) {  // not of so many operands, or not of that dtype
            continue;
          }
          ExpectLikeDefinition(region, static_cast<unsigned>(k));
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

// Behind whole vectors are a part of one and, of whatever width they are, a single element.
TEST(RegionProgram, ComputesEveryPrimitive) {
  ForEachTarget([] {
    ExpectPrimitivesLikeDefinition(3 * 256 + 77);
    ExpectPrimitivesLikeDefinition(3 * 256 + 65);
  });
}

// All that 16 bits hold, and what numbers around it become.
TEST(RegionProgram, ConvertsEveryStoredNumberOnEveryTarget) {
  ForEachTarget([] {
    for (const DType stored : kStoredTypes) {
      std::vector<DType> sources(std::begin(kStoredFrom), std::end(kStoredFrom));
      sources.push_back(stored);
      for (const DType from : sources) {
        const bool loads = from == stored;
        const std::vector<std::uint64_t> values = loads ? EveryStored(stored) : NumbersAround(stored, from);
        const Dense dense{.columns = static_cast<std::int64_t>(values.size())};
        const DType to = loads ? DType::kFloat : stored;
        const Region region{.sizes = dense.Sizes(),
                            .inputs = {dense.Elements(from)},
                            .outputs = {{.value = Cast(to, Expr::Input(0, "x", from)), .memory = dense.Elements(to)}}};
        const std::vector<std::byte> in = Packed(values, from);
        std::vector<std::byte> out(4 * values.size());
        const void* inputs[] = {in.data()};
        void* outputs[] = {out.data()};
        RegionProgram(region).Run(inputs, outputs);
        ASSERT_EQ(WrongConversion(region, values, out.data()), "");
      }
    }
  });
}

TEST(RegionProgram, ComputesSoftmaxOfShortAndLongRows) {
  const Expr e = Exp(x - RowMax(x));
  for (const std::int64_t columns : {1, 10, 256, 1000, 3000, 9000}) {
    const Dense dense{.rows = 3, .columns = columns};
    const Region region{.sizes = dense.Sizes(),
                        .inputs = {dense.Elements()},
                        .outputs = {{.value = e / RowSum(e), .memory = dense.Elements()},
                                    {.value = RowSum(e), .memory = dense.Rows(), .kind = RegionOutputKind::kRows}},
                        .in_place = {{.input = 0, .output = 0}}};
    ExpectLikeDefinition(region, 1);
    std::vector<float> values(static_cast<size_t>(3 * columns), 0.5f);
    std::vector<float> sums(3);
    const void* inputs[] = {values.data()};
    void* outputs[] = {values.data(), sums.data()};
    RegionProgram(region).Run(inputs, outputs);
    for (const float value : values) ASSERT_NEAR(value, 1.0f / static_cast<float>(columns), 1e-6f);
    for (const float sum : sums) ASSERT_NEAR(sum, static_cast<float>(columns), 1e-3f);
    // What is read again lies in the output until that is computed, or in an array of its own.
    const std::string text = RegionProgram(region).Text();
    EXPECT_EQ(text.find("kept "), std::string::npos) << text;
    const Region rows{
        .sizes = dense.Sizes(),
        .inputs = {dense.Elements()},
        .outputs = {{.value = RowSum(Tanh(e / RowSum(e))), .memory = dense.Rows(), .kind = RegionOutputKind::kRows}}};
    ExpectLikeDefinition(rows, 1);
    EXPECT_EQ(RegionProgram(rows).Text().find("kept ") != std::string::npos, columns >= 3000) << columns;
  }
}

TEST(RegionProgram, GivesRowsWithoutElementsAndSumsOfNoRow) {
  Dense dense{.rows = 2, .columns = 0};
  const Region rows{.sizes = dense.Sizes(),
                    .inputs = {dense.Elements()},
                    .outputs = {{.value = RowSum(x) + 1, .memory = dense.Rows(), .kind = RegionOutputKind::kRows}}};
  float result[] = {9, 9};
  const void* no_input[] = {nullptr};
  void* outputs[] = {result};
  RegionProgram(rows).Run(no_input, outputs);
  EXPECT_EQ(result[0], 1);
  EXPECT_EQ(result[1], 1);

  dense = {.rows = 0, .columns = 2};
  const Region sums{.sizes = dense.Sizes(),
                    .inputs = {dense.Elements()},
                    .outputs = {{.value = x,
                                 .memory = {.dtype = DType::kFloat, .size = 2, .strides = {0, 0, 0, 1}},
                                 .kind = RegionOutputKind::kSums}}};
  RegionProgram(sums).Run(no_input, outputs);
  EXPECT_EQ(result[0], 0);
  EXPECT_EQ(result[1], 0);
}

// Parts take all rows of the sums that they give; what a run asks for ahead changes nothing.
TEST(RegionProgram, CutsWhereSumsEnd) {
  const std::int64_t groups = 3, rows = 20, columns = 24;
  const RegionOperand elements{
      .dtype = DType::kFloat, .size = groups * rows * columns, .strides = {0, rows * columns, columns, 1}};
  const RegionOperand of_columns{.dtype = DType::kFloat, .size = groups * columns, .strides = {0, columns, 0, 1}};
  const RegionOperand of_group{.dtype = DType::kFloat, .size = groups, .strides = {0, 1, 0, 0}};
  for (const bool has_rows : {false, true}) {
    Region region{.sizes = {1, groups, rows, columns},
                  .inputs = {elements},
                  .outputs = {{.value = x * x, .memory = of_columns, .kind = RegionOutputKind::kSums}}};
    if (has_rows) {
      region.outputs.push_back({.value = RowSum(x), .memory = of_group, .kind = RegionOutputKind::kSums});
    }
    const RegionProgram program(region);
    EXPECT_EQ(program.max_parts(), groups);
    std::vector<float> from(groups * rows * columns);
    for (size_t i = 0; i < from.size(); ++i) from[i] = 0.37f * static_cast<float>(i % 101);
    const auto run = [&](int parts, std::uint64_t moving) {
      std::vector<float> sums(groups * columns, 7), totals(groups, 7);
      const void* inputs[] = {from.data()};
      void* outputs[] = {sums.data(), totals.data()};
      const std::span<void* const> used(outputs, region.outputs.size());
      if (parts == 0) EvaluateRegion(region, inputs, used);
      for (int part = 0; part < parts; ++part) program.Run(inputs, used, part, parts, moving);
      sums.insert(sums.end(), totals.begin(), totals.end());
      return sums;
    };
    const std::vector<float> wanted = run(0, 0);
    for (const int parts : {1, 2, 3}) {
      EXPECT_EQ(run(parts, 0), wanted) << parts;
      EXPECT_EQ(run(parts, 0b111), wanted) << parts;
    }
  }
}

// 16 bits hold every other whole number there: a sum that was rounded at each term would stay what it is. The third
// element of the memory is no sum's.
TEST(RegionProgram, RoundsSumsIn16BitsOnce) {
  for (const auto& [dtype, base] : {std::pair(DType::kFloat16, 2048.0f), std::pair(DType::kBFloat16, 256.0f)}) {
    const Dense dense{.rows = 2, .columns = 2};
    const Region region{.sizes = dense.Sizes(),
                        .inputs = {dense.Elements()},
                        .outputs = {{.value = x,
                                     .memory = {.dtype = dtype, .size = 3, .strides = {0, 0, 0, 1}},
                                     .kind = RegionOutputKind::kSums,
                                     .adds = true}}};
    const float terms[] = {1, 0, 1, 0.25f};
    const void* inputs[] = {terms};
    for (const bool is_definition : {true, false}) {
      std::uint16_t sums[3];
      const float first[] = {base, 0, 7};
      for (int i = 0; i < 3; ++i) sums[i] = static_cast<std::uint16_t>(Stored(dtype, first[i]).bits);
      void* outputs[] = {sums};
      is_definition ? EvaluateRegion(region, inputs, outputs) : RegionProgram(region).Run(inputs, outputs);
      const float wanted[] = {base + 2, 0.25f, 7};
      for (int i = 0; i < 3; ++i) EXPECT_EQ(Loaded({.dtype = dtype, .bits = sums[i]}), wanted[i]) << dtype << " " << i;
    }
  }
}

TEST(RegionProgram, ComputesCommonExpressionsOnce) {
  const Dense dense{.rows = 4, .columns = 300};
  const Region region{.sizes = dense.Sizes(),
                      .inputs = {dense.Elements()},
                      .outputs = {{.value = Tanh(x) * Tanh(x) + 1, .memory = dense.Elements()},
                                  {.value = Tanh(x), .memory = dense.Elements()}}};
  EXPECT_EQ(RegionProgram(region).Text(),
            "sizes [1, 1, 1, 1200], blocks of 1024, 128 bytes\n"
            "memory s0, input 0\n"
            "memory s1, output 0\n"
            "memory s2, output 1\n"
            "constant s3\n"
            "block: s2 = tanh s0\n"
            "block: s1 = * + s2, s2, s3\n");
}

// What nothing else uses goes through no memory: one instruction for tanh(a + b) * c.
TEST(RegionProgram, ComputesChainsInOneInstruction) {
  const Expr y = Expr::Input(1, "y", DType::kFloat);
  const Dense dense{.rows = 1, .columns = 64};
  const auto block_of = [&](const Expr& value) {
    const Region region{.sizes = dense.Sizes(),
                        .inputs = {dense.Elements(), dense.Elements()},
                        .outputs = {{.value = value, .memory = dense.Elements()}}};
    ExpectLikeDefinition(region, 2);
    const std::string text = RegionProgram(region).Text();
    return text.substr(text.find("block: "));
  };
  EXPECT_EQ(block_of(x * Tanh(x + y)), "block: s2 = + tanh * s0, s1, s0\n");
  EXPECT_EQ(block_of(Sigmoid(x) * y), "block: s2 = sigmoid * s0, s0, s1\n");
  EXPECT_EQ(block_of(Tanh(x + y)), "block: s2 = + tanh s0, s1\n");
  EXPECT_EQ(block_of(x - y * x), "block: s2 = * from - s1, s0, s0\n");
  EXPECT_EQ(block_of((x - y) - x), "block: s2 = - - s0, s1, s0\n");
  EXPECT_EQ(block_of((x + y) * (x + y)), "block: s2 = + s0, s1\nblock: s2 = * s2, s2\n");
  EXPECT_EQ(block_of(y * (x - y * x)), "block: s2 = * from - * s1, s0, s0, s1\n");
  EXPECT_EQ(block_of(x * y / y - x), "block: s2 = * / - s0, s1, s1, s0\n");
  EXPECT_EQ(block_of(x / (x * y - y)), "block: s2 = * - s0, s1, s1\nblock: s2 = / s0, s2\n");
  EXPECT_EQ(block_of(x * x - y * x), "block: s2 = (*) - (*) s0, s0, s1, s0\n");
  EXPECT_EQ(block_of((x * y) * (x - y)), "block: s2 = (*) * (-) s0, s1, s0, s1\n");
  EXPECT_EQ(block_of(MulAdd(-x, y, x)), "block: s2 = neg_mul_add s0, s1, s0\n");
  EXPECT_EQ(block_of(x * y * MulAdd(-y, y, x)), "block: s2 = slope s0, s1, s1, s0\n");
  EXPECT_EQ(block_of(x * y * MulAdd(-y, y, y)), "block: s2 = slope own s0, s1, s1\n");
  EXPECT_EQ(block_of(MulAdd(-y, y, 1) * (y * x)), "block: s2 = slope 1 s1, s0, s1\n");
  EXPECT_EQ(block_of(x * (x - y) * MulAdd(-y, y, y)), "block: s2 = slope (-) own s0, s0, s1, s1\n");
  EXPECT_EQ(block_of((x - y) * x * MulAdd(-y, y, 1)), "block: s2 = slope (-) 1 s0, s0, s1, s1\n");
  EXPECT_EQ(block_of(y * (1 - y) * MulAdd(-x, x, 1)), "block: s2 = slope (1 -) 1 s1, s1, s0\n");
  EXPECT_EQ(block_of((1 - x) * y * MulAdd(-x, x, x)), "block: s2 = slope (1 -) own s1, s0, s0\n");
  EXPECT_EQ(block_of(MulAdd(x * y, MulAdd(-x, x, 1), y)), "block: s2 = slope 1 + s0, s1, s0, s1\n");
  EXPECT_EQ(block_of(MulAdd(MulAdd(-x, x, x), y * x, y)), "block: s2 = slope own + s1, s0, s0, s1\n");
  EXPECT_EQ(block_of(MulAdd(x, y, (1 - y) * Tanh(x))), "block: s2 = blend tanh s0, s1, s0\n");
  EXPECT_EQ(block_of(MulAdd(y, x, x * (1 - y))), "block: s2 = blend s0, s1, s0\n");
  EXPECT_EQ(block_of(Tanh(x) * Sigmoid(y)), "block: s2 = (sigmoid) * (tanh) s1, s0\n");
  EXPECT_EQ(block_of(y / Exp(x - y)), "block: s2 = - exp s0, s1\nblock: s2 = / s1, s2\n");
  EXPECT_EQ(block_of(Sqrt(x) + y), "block: s2 = sqrt + s0, s0, s1\n");
  EXPECT_EQ(block_of(MulAdd(Exp(x), y, x)), "block: s2 = exp mul_add s0, s0, s1, s0\n");
  EXPECT_EQ(block_of(MulAdd(y, Exp(x - y), x)), "block: s2 = - s0, s1\nblock: s2 = exp mul_add s2, s2, s1, s0\n");
  EXPECT_EQ(block_of(Where(NotEqual(x, y), x, y)), "block: s2 = where != s0, s1, s0, s1\n");
  EXPECT_EQ(block_of(Where(x <= y, x * y, y)), "block: s2 = * s0, s1\nblock: s2 = where <= s0, s1, s2, s1\n");
}

// Rows of two kinds run the program of their kind.
TEST(RegionProgram, RunsRowsByTheirKind) {
  const Expr row = Expr::Input(1, "row", DType::kFloat);
  const Expr ended = row > 0;
  for (const auto& [rows, columns] : {std::pair(1, 64), {600, 9}, {40, 300}, {0, 16}}) {
    const Dense dense{.rows = rows, .columns = columns};
    const Region region{
        .sizes = dense.Sizes(),
        .inputs = {dense.Elements(), dense.Rows()},
        .outputs = {{.value = Where(ended, x, Tanh(x * row) + x), .memory = dense.Elements()},
                    {.value = Where(ended, row, RowSum(x)), .memory = dense.Rows(), .kind = RegionOutputKind::kRows}},
        .in_place = {{.input = 0, .output = 0}}};
    EXPECT_TRUE(RegionProgram(region).Text().starts_with("rows where:"));
    ExpectLikeDefinition(region, 6);

    // Lengths and a step: nothing but kernels for either kind.
    const Expr length = Expr::Input(1, "length", DType::kInt32), step = Expr::Input(2, "step", DType::kInt32);
    RegionOperand lengths = dense.Rows();
    lengths.dtype = DType::kInt32;
    const Region steps{
        .sizes = dense.Sizes(),
        .inputs = {dense.Elements(), lengths, {.dtype = DType::kInt32, .size = 1}},
        .outputs = {{.value = Where(length <= step, x, Tanh(x) * Sigmoid(x) + x), .memory = dense.Elements()}}};
    EXPECT_TRUE(RegionProgram(steps).Text().starts_with("rows where:\ninput 1 <= input 2\n"));
    ExpectLikeDefinition(steps, 6);

    // A bool for each row.
    RegionOperand bools = dense.Rows();
    bools.dtype = DType::kBool;
    const Expr holds = Expr::Input(1, "holds", DType::kBool), y = Expr::Input(2, "y", DType::kFloat);
    const Region chosen{.sizes = dense.Sizes(),
                        .inputs = {dense.Elements(), bools, dense.Elements()},
                        .outputs = {{.value = Where(holds, x, Tanh(y) * x + y), .memory = dense.Elements()},
                                    {.value = Where(holds, 0, y * 2), .memory = dense.Elements()}},
                        .in_place = {{.input = 0, .output = 0}}};
    EXPECT_TRUE(RegionProgram(chosen).Text().starts_with("rows where:\ninput 1\n"));
    ExpectLikeDefinition(chosen, 6);
  }
}

// Rows of a few elements go through the same instructions as long ones, many at a time.
TEST(RegionProgram, ComputesShortRowsTogether) {
  const Expr row = Expr::Input(1, "row", DType::kFloat);
  const Expr column = Expr::Input(2, "column", DType::kFloat);
  const Expr scaled = (x - RowMax(x)) * row + column + Cast(DType::kFloat, Index(2) + Index(3));
  for (const auto& [rows, columns] : {std::pair(1000, 3), {7, 100}, {300, 1}}) {
    const Dense dense{.rows = rows, .columns = columns};
    const Region region{
        .sizes = dense.Sizes(),
        .inputs = {dense.Elements(), dense.Rows(), {.dtype = DType::kFloat, .size = columns, .strides = {0, 0, 0, 1}}},
        .outputs = {{.value = scaled / RowSum(scaled), .memory = dense.Elements()},
                    {.value = RowSum(scaled) * row, .memory = dense.Rows(), .kind = RegionOutputKind::kRows}}};
    EXPECT_NE(RegionProgram(region).Text().find(" in rows"), std::string::npos) << RegionProgram(region).Text();
    ExpectLikeDefinition(region, 4);
  }
}

// What a value of its row multiplies, one that rows share: several rows are a block, as long as they are short.
TEST(RegionProgram, ComputesRowsOfOuterProductsTogether) {
  const Expr key = Expr::Input(1, "key", DType::kFloat), value = Expr::Input(2, "value", DType::kFloat);
  constexpr std::int64_t kBatch = 5, kKeys = 7;
  for (const std::int64_t columns : {9, 64, 511, 512}) {
    const RegionOperand memory = {.size = kBatch * kKeys * columns, .strides = {0, kKeys * columns, columns, 1}};
    const Region region{.sizes = {1, kBatch, kKeys, columns},
                        .inputs = {memory,
                                   {.size = kBatch * kKeys, .strides = {0, kKeys, 1, 0}},
                                   {.size = kBatch * columns, .strides = {0, columns, 0, 1}}},
                        .outputs = {{.value = x + key * value, .memory = memory}}};
    const std::string text = RegionProgram(region).Text();
    EXPECT_EQ(text.find(" in rows") != std::string::npos, columns < 512) << text;
    ExpectLikeDefinition(region, 3);
  }
}

// Sums in double of floats that lie in the block, and of their products.
TEST(RegionProgram, SumsFloatsInDouble) {
  const Expr y = Expr::Input(1, "y", DType::kFloat);
  const Expr sum = RowSum(Cast(DType::kDouble, x)), product = RowSum(Cast(DType::kDouble, x * y));
  for (const auto& [rows, columns] : {std::pair(50, 3), {9, 100}, {3, 300}, {2, 5000}, {1, 100000}, {2, 0}}) {
    const Dense dense{.rows = rows, .columns = columns};
    const RegionOperand of_rows = {.dtype = DType::kDouble, .size = rows, .strides = {0, 0, 1, 0}};
    const Region region{.sizes = dense.Sizes(),
                        .inputs = {dense.Elements(), dense.Elements()},
                        .outputs = {{.value = sum / 7, .memory = of_rows, .kind = RegionOutputKind::kRows},
                                    {.value = product, .memory = of_rows, .kind = RegionOutputKind::kRows}}};
    ExpectLikeDefinition(region, 5);
    EXPECT_NE(RegionProgram(region).Text().find("row_sum double *"), std::string::npos) << columns;
  }
}

// The sum of squares of what differs from the mean is one pass; the difference is computed again where it is used.
TEST(RegionProgram, SumsSquaresOfDifferences) {
  const Expr mean = RowSum(x) / 7;
  const Expr difference = x - mean;
  for (const auto& [rows, columns] : {std::pair(50, 3), {9, 100}, {3, 1300}, {2, 5000}, {1, 100000}}) {
    const Dense dense{.rows = rows, .columns = columns};
    for (const bool in_double : {false, true}) {
      const Expr square = difference * difference;
      const Expr squares = in_double ? Cast(DType::kFloat, RowSum(Cast(DType::kDouble, square))) : RowSum(square);
      const Region region{.sizes = dense.Sizes(),
                          .inputs = {dense.Elements()},
                          .outputs = {{.value = difference * squares, .memory = dense.Elements()},
                                      {.value = squares, .memory = dense.Rows(), .kind = RegionOutputKind::kRows}}};
      ExpectLikeDefinition(region, 7);
      const std::string text = RegionProgram(region).Text();
      if (columns > 10000) continue;  // whose rows are not kept
      EXPECT_NE(text.find(in_double ? "row_sum double (-)^2" : "row_sum (-)^2"), std::string::npos) << text;
    }
  }
}

TEST(RegionProgram, FlatProgramsRunAnyNumberOfElements) {
  const Dense dense{.rows = 1, .columns = 2};
  const Region region{.sizes = dense.Sizes(),
                      .inputs = {dense.Elements()},
                      .outputs = {{.value = Where(x > 0, x, 2 * Tanh(x) / 3), .memory = dense.Elements()}}};
  const RegionProgram program(region);
  ASSERT_TRUE(program.is_flat());
  for (const std::int64_t n : {0, 1, 255, 256, 10000}) {
    const Dense of_size{.rows = 1, .columns = n};
    Region sized = region;
    sized.sizes = of_size.Sizes();
    sized.inputs[0] = sized.outputs[0].memory = of_size.Elements();
    std::vector<float> values(static_cast<size_t>(n)), expected(values), results(values);
    for (std::int64_t i = 0; i < n; ++i) values[i] = static_cast<float>(i % 37) - 18;
    const void* inputs[] = {values.data()};
    void* outputs[] = {expected.data()};
    EvaluateRegion(sized, inputs, outputs);
    outputs[0] = results.data();
    for (int part = 0; part < 3; ++part) program.RunFlat(inputs, outputs, n, part, 3);
    EXPECT_EQ(results, expected);
  }
}

// Memory that one output fills behind another, as of gates, and where something is between them.
TEST(RegionProgram, FillsWhatFollowsAndNothingElse) {
  constexpr std::int64_t kColumns = 70, kOutputs = 3;
  for (const std::int64_t rows : {1, 3}) {
    for (const std::int64_t gap : {0, 1}) {
      const std::int64_t row = kOutputs * (kColumns + gap);
      Region region{.sizes = {1, 1, rows, kColumns}};
      for (std::int64_t k = 0; k < kOutputs; ++k) {
        region.outputs.push_back({.value = Expr::Constant(DType::kFloat, 7),
                                  .memory = {.dtype = DType::kFloat,
                                             .size = rows * row,
                                             .offset = k * (kColumns + gap),
                                             .strides = {0, 0, row, 1}}});
      }
      std::vector<float> expected(static_cast<size_t>(rows * row), -1), results = expected;
      EvaluateRegion(region, {}, std::vector<void*>(kOutputs, expected.data()));
      EXPECT_FALSE(RegionProgram(region).Run({}, std::vector<void*>(kOutputs, results.data())));
      EXPECT_EQ(results, expected) << rows << " rows, " << gap << " between";
    }
  }
}

// A value that is in place of an input waits until nothing reads the input any more.
TEST(RegionProgram, WritesInPlaceBehindTheLastRead) {
  const Dense dense{.rows = 1, .columns = 700};
  const Region region{
      .sizes = dense.Sizes(),
      .inputs = {dense.Elements()},
      .outputs = {{.value = Tanh(x), .memory = dense.Elements()}, {.value = Tanh(x) + x, .memory = dense.Elements()}},
      .in_place = {{.input = 0, .output = 0}}};
  ExpectLikeDefinition(region, 3);
}

// An input that an output is, and whose memory another output overwrites: elements, strided elements, sums, and where
// rows are of two kinds.
TEST(RegionProgram, StoresAnInputBeforeItIsOverwritten) {
  const Expr row = Expr::Input(1, "row", DType::kFloat);
  const Expr constant = Expr::Constant(DType::kFloat, 7);
  for (const std::int64_t rows : {1, 5}) {
    const Dense dense{.rows = rows, .columns = 300};
    const RegionOperand strided = {.dtype = DType::kFloat, .size = 2 * 300 * rows, .strides = {0, 0, 600, 2}};
    const RegionOperand sum = {.dtype = DType::kFloat, .size = 300, .strides = {0, 0, 0, 1}};
    for (const Expr& first : {constant, Tanh(x) * 2, RowSum(x) + x}) {
      const Region region{.sizes = dense.Sizes(),
                          .inputs = {dense.Elements(), dense.Rows()},
                          .outputs = {{.value = first, .memory = dense.Elements()},
                                      {.value = x, .memory = dense.Elements()},
                                      {.value = x, .memory = strided},
                                      {.value = x, .memory = sum, .kind = RegionOutputKind::kSums}},
                          .in_place = {{.input = 0, .output = 0}}};
      ExpectLikeDefinition(region, 7);
    }
    const Region split{.sizes = dense.Sizes(),
                       .inputs = {dense.Elements(), dense.Rows()},
                       .outputs = {{.value = constant, .memory = dense.Elements()},
                                   {.value = Where(row > 0, Tanh(Exp(x) + row) * 3, x), .memory = dense.Elements()}},
                       .in_place = {{.input = 0, .output = 0}}};
    ASSERT_TRUE(RegionProgram(split).Text().starts_with("rows where:"));
    ExpectLikeDefinition(split, 8);
  }
  const Region empty{.sizes = {5, 0, 17, 63},
                     .inputs = {{.dtype = DType::kFloat, .size = 0, .strides = {1, 1, 1, 1}},
                                {.dtype = DType::kFloat, .size = 0, .strides = {1, 1, 1, 0}}},
                     .outputs = {{.value = Where(row > 0, Tanh(Exp(x) + row) * 3, x),
                                  .memory = {.dtype = DType::kFloat, .size = 0, .strides = {1071, 1071, 63, 1}}}}};
  EXPECT_FALSE(RegionProgram(empty).Run(std::vector<const void*>(2), std::vector<void*>(1)));
}

// Numbers of elements that follow each other are drawn many at once.
TEST(RegionProgram, DrawsWhatIsDefinedOnEveryTarget) {
  const Expr step = Expr::Input(0, "step", DType::kInt64);
  ForEachTarget([&] {
    unsigned seed = 0;
    for (const auto& [rows, columns] : {std::pair(1, 3), {1, 1030}, {3, 700}, {5, 9}}) {
      const Dense dense{.rows = rows, .columns = columns};
      Region region{.sizes = dense.Sizes(), .inputs = {{.dtype = DType::kInt64, .size = 1}}, .outputs = {}};
      for (const DType dtype : {DType::kFloat, DType::kDouble}) {
        for (const Expr& element :
             {Index(3) + 2, Index(2) * columns + Index(3), Index(3) * 3, Index(3) - 5, Index(3) / 2}) {
          region.outputs.push_back({.value = Uniform(dtype, 1, 2, 3, step, element), .memory = dense.Elements(dtype)});
        }
      }
      ExpectLikeDefinition(region, ++seed);
    }
  });
}

}  // namespace
}  // namespace stepnet
