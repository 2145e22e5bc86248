// Rows of a region: values that are one a row or one row for all, and what is computed of whole rows.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "dense_region.h"
#include "random_region.h"
#include "stepnet/core/regions/region_program.h"
#include "stepnet/tests/core/for_each_target.h"
#include "stepnet/tests/core/sanitized.h"

namespace stepnet {
namespace {

const Expr x = Expr::Input(0, "x", DType::kFloat);

void ExpectLikeDefinition(const Region& region, unsigned seed) {
  ASSERT_EQ(DifferenceFromDefinition(region, seed), "");
}

// Values of rows are read as they are by the usual steps, and spread for others.
TEST(RegionRows, ReadsValuesOfRows) {
  using Step = Expr (*)(const Expr&, const Expr&);
  const std::vector<Step> steps = {[](const Expr& a, const Expr& b) { return a + b; },
                                   [](const Expr& a, const Expr& b) { return a - b; },
                                   [](const Expr& a, const Expr& b) { return a * b; },
                                   [](const Expr& a, const Expr& b) { return a / b; },
                                   [](const Expr& a, const Expr& b) { return Exp(a - b); },
                                   [](const Expr& a, const Expr& b) { return MulAdd(a, b, a); },
                                   [](const Expr& a, const Expr& b) { return MulAdd(b, b, a); },
                                   [](const Expr& a, const Expr& b) { return Max(a, b); }};
  for (const DType dtype : {DType::kFloat, DType::kDouble}) {
    const Expr a = Expr::Input(0, "a", dtype), row = Expr::Input(1, "row", dtype), b = Expr::Input(2, "b", dtype);
    for (const auto& [rows, columns] : {std::pair(5, 40), {4, 20}, {2, 1100}}) {
      const Dense dense{.rows = rows, .columns = columns};
      RegionOperand of_rows = dense.Rows();
      of_rows.dtype = dtype;
      for (const Step& first : steps) {
        for (const Step& second : steps) {
          for (const Expr& value : {second(first(a, row), b), second(row, first(b, a)), second(first(row, a), row)}) {
            const Region region{.sizes = dense.Sizes(),
                                .inputs = {dense.Elements(dtype), of_rows, dense.Elements(dtype)},
                                .outputs = {{.value = value, .memory = dense.Elements(dtype)}}};
            ExpectLikeDefinition(region, 8);
          }
        }
      }
    }
  }
  const Dense dense{.rows = 2, .columns = 40};
  const Expr row = Expr::Input(1, "row", DType::kFloat);
  const auto text_of = [&](const Expr& value) {
    return RegionProgram(Region{.sizes = dense.Sizes(),
                                .inputs = {dense.Elements(), dense.Rows()},
                                .outputs = {{.value = value, .memory = dense.Elements()}}})
        .Text();
  };
  EXPECT_EQ(text_of(x / row).find("spread"), std::string::npos);
  EXPECT_NE(text_of(Max(x, row)).find("spread"), std::string::npos);
}

// Rows that are one after the other but for values of rows and one row for all: a block holds several, as many as fill
// a vector where something is computed of their values.
TEST(RegionRows, JoinsRowsOfOuterProducts) {
  const Expr of_row = Expr::Input(1, "of_row", DType::kFloat), of_column = Expr::Input(2, "of_column", DType::kFloat);
  const Expr product = Exp(-of_row * x) + Tanh(of_row) * of_column;
  for (const std::int64_t matrices : {1, 3}) {
    for (const std::int64_t columns : {3, 4, 7, 16, 31, 64, 130, 600}) {
      constexpr std::int64_t kRows = 37;
      const std::int64_t all = matrices * kRows;
      const auto elements =
          RegionOperand{.dtype = DType::kFloat, .size = all * columns, .strides = {0, kRows * columns, columns, 1}};
      const Region region{
          .sizes = {1, matrices, kRows, columns},
          .inputs = {elements,
                     {.dtype = DType::kFloat, .size = all, .strides = {0, kRows, 1, 0}},
                     {.dtype = DType::kFloat, .size = matrices * columns, .strides = {0, columns, 0, 1}}},
          .outputs = {{.value = product, .memory = elements}}};
      SCOPED_TRACE(testing::Message() << matrices << " matrices of " << columns << " columns");
      ExpectLikeDefinition(region, 5);
      const std::string text = RegionProgram(region).Text();
      EXPECT_EQ(text.find(" in rows") != std::string::npos, columns < 512) << text;
      if (columns == 64) {
        const char* const blocks = matrices == 1 ? "blocks of 1024 in rows" : "blocks of 832 in rows";  // 13 of 37 rows
        EXPECT_NE(text.find(blocks), std::string::npos) << text;
      }
    }
  }
}

// An input that is one row for all is read as it is by the usual steps, and repeated for others.
TEST(RegionRows, ReadsValuesOfColumnsOnEveryTarget) {
  using Step = Expr (*)(const Expr&, const Expr&);
  const std::vector<Step> steps = {[](const Expr& a, const Expr& b) { return a + b; },
                                   [](const Expr& a, const Expr& b) { return a / b; },
                                   [](const Expr& a, const Expr& b) { return MulAdd(a, b, a); },
                                   [](const Expr& a, const Expr& b) { return Max(a, b); },
                                   [](const Expr& a, const Expr& b) { return a * RowSum(b); }};
  const RegionOperand column = {.dtype = DType::kFloat, .size = 40, .strides = {0, 0, 0, 1}};
  const Dense dense{.rows = 5, .columns = 40};
  const Expr of_columns = Expr::Input(1, "column", DType::kFloat), row = Expr::Input(2, "row", DType::kFloat);
  const auto region_of = [&](const Expr& value) {
    return Region{.sizes = dense.Sizes(),
                  .inputs = {dense.Elements(), column, dense.Rows()},
                  .outputs = {{.value = value, .memory = dense.Elements()}}};
  };
  ForEachTarget([&] {
    for (const Step& first : steps) {
      for (const Step& second : steps) {
        for (const Expr& value : {second(first(x, of_columns), of_columns), second(of_columns, first(of_columns, x)),
                                  second(first(x, row), of_columns)}) {
          ExpectLikeDefinition(region_of(value), 9);
        }
      }
    }
  });
  const auto text_of = [&](const Expr& value) { return RegionProgram(region_of(value)).Text(); };
  EXPECT_EQ(text_of(x + of_columns).find("load rows"), std::string::npos);
  EXPECT_EQ(text_of(x * of_columns + of_columns).find("load rows"), std::string::npos);
  EXPECT_NE(text_of(Max(x, of_columns)).find("load rows"), std::string::npos);

  // Some read the row and others need it repeated; an output is it; sums are like it.
  Region both = region_of(x + of_columns);
  both.outputs.push_back({.value = Max(x, of_columns), .memory = dense.Elements()});
  both.outputs.push_back({.value = of_columns, .memory = dense.Elements()});
  ExpectLikeDefinition(both, 9);
  Region sums = region_of(x + of_columns);
  sums.outputs.push_back({.value = x * of_columns, .memory = column, .kind = RegionOutputKind::kSums});
  ExpectLikeDefinition(sums, 9);
}

// What is the same for all rows of a matrix is read where it lies, and blocks end with their matrix.
TEST(RegionRows, ReadsRowsOfMatricesOnEveryTarget) {
  ForEachTarget([] {
    for (unsigned seed = 40000; seed < 40000 + FewerIfSanitized(400); ++seed) {
      std::mt19937 random(seed);
      ExpectLikeDefinition(RandomRegion({.steps = 6, .only_usual = true, .matrices = true}, random), seed);
      if (HasFatalFailure()) return;
    }
  });
  const auto region_of = [](std::int64_t rows, std::int64_t columns, const Expr& value) {
    constexpr std::int64_t kMatrices = 3;
    const std::int64_t all = kMatrices * rows;
    const RegionOperand elements{
        .dtype = DType::kFloat, .size = all * columns, .strides = {0, rows * columns, columns, 1}};
    return Region{.sizes = {1, kMatrices, rows, columns},
                  .inputs = {elements,
                             {.dtype = DType::kFloat, .size = all, .strides = {0, rows, 1, 0}},
                             {.dtype = DType::kFloat, .size = kMatrices * columns, .strides = {0, columns, 0, 1}}},
                  .outputs = {{.value = value, .memory = elements}}};
  };
  const auto text_of = [&](std::int64_t rows, const Expr& value) {
    return RegionProgram(region_of(rows, 32, value)).Text();
  };
  const auto copies_rows = [&](std::int64_t rows, const Expr& value) {
    return text_of(rows, value).find("block: load") != std::string::npos;
  };
  const Expr of_row = Expr::Input(1, "of_row", DType::kFloat), of_column = Expr::Input(2, "of_column", DType::kFloat);
  EXPECT_FALSE(copies_rows(48, of_row * of_column + x));
  EXPECT_FALSE(copies_rows(48, x * RowSum(x * of_column)));
  const Expr sums = x * (RowSum(x * of_column) + RowSum(x)), others = x * (RowSum(of_column * x) + RowSum(of_column));
  EXPECT_NE(text_of(48, sums).find(" = row_sum, "), std::string::npos);
  for (const std::int64_t columns : {32, 100}) {
    ExpectLikeDefinition(region_of(48, columns, sums), 6);
    ExpectLikeDefinition(region_of(48, columns, others), 6);
    ExpectLikeDefinition(region_of(48, columns, x * RowMax(of_column)), 6);
  }
  EXPECT_TRUE(copies_rows(48, Max(x, of_column)));
  EXPECT_TRUE(copies_rows(4, of_row * of_column + x));  // a block has several matrices of so few elements
  EXPECT_NE(text_of(48, Exp(-of_row * x) + of_row * of_column).find("blocks of 768 in rows"), std::string::npos);
}

// As gradients of normalizations have it: one pass over the elements behind the sums.
TEST(RegionRows, ComputesScaledRestsOnEveryTarget) {
  ForEachTarget([] {
    for (const DType dtype : {DType::kFloat, DType::kDouble}) {
      const Expr dy = Expr::Input(0, "dy", dtype), y = Expr::Input(1, "y", dtype);
      const Expr mean = Expr::Input(2, "mean", dtype), row = Expr::Input(3, "row", dtype);
      const Expr rest = dy - mean;
      for (const auto& [rows, columns] : {std::pair(5, 40), {3, 300}, {2, 1100}, {4, 9}}) {
        const Dense dense{.rows = rows, .columns = columns};
        RegionOperand of_rows = dense.Rows();
        of_rows.dtype = dtype;
        for (const Expr& value : {MulAdd(y, -RowSum(dy * y), dy - RowSum(dy)) * (1 / row), MulAdd(y, row, rest) * mean,
                                  row * MulAdd(mean, y, rest), MulAdd(y, dy, rest) * row, MulAdd(y, row, rest) * y,
                                  MulAdd(row, row, rest) * row, MulAdd(y, row, rest) * row + rest}) {
          const Region region{.sizes = dense.Sizes(),
                              .inputs = {dense.Elements(dtype), dense.Elements(dtype), of_rows, of_rows},
                              .outputs = {{.value = value, .memory = dense.Elements(dtype)}}};
          ExpectLikeDefinition(region, 10);
        }
      }
    }
  });
  const Expr y = Expr::Input(1, "y", DType::kFloat), row = Expr::Input(2, "row", DType::kFloat);
  const Dense dense{.rows = 3, .columns = 300};
  const Region region{.sizes = dense.Sizes(),
                      .inputs = {dense.Elements(), dense.Elements(), dense.Rows()},
                      .outputs = {{.value = MulAdd(y, row, x - RowSum(x)) * row, .memory = dense.Elements()}}};
  EXPECT_NE(RegionProgram(region).Text().find(" = - mul_add * "), std::string::npos) << RegionProgram(region).Text();
}

// The last of equal numbers, as zeros of two signs, and a NaN wherever it is.
// Sums of a factor and of products are one pass over the rows, which is what else computes them one by one.
TEST(RegionRows, SumsAFactorWithTheProducts) {
  std::int64_t trial = 0;
  ForEachTarget([&] {
    for (const DType dtype : {DType::kFloat, DType::kDouble}) {
      const Expr a = Expr::Input(0, "a", dtype), b = Expr::Input(1, "b", dtype);
      for (const auto& [rows, columns] : {std::pair(5, 9), {33, 100}, {3, 300}, {2, 1100}, {2, 5000}, {1, 100000}}) {
        const Dense dense{.rows = rows, .columns = columns};
        RegionOperand of_rows = dense.Rows();
        of_rows.dtype = dtype;
        for (const auto& [sum, products] : {std::pair(RowSum(a), RowSum(a * b)),
                                            {RowSum(b), RowSum(a * b)},
                                            {RowSum(a), RowSum(a * a)},
                                            {RowSum(a), RowSum(a * b) + RowSum(b * b)},
                                            {RowSum(a - RowSum(b)), RowSum(a * b)}}) {
          if (!IsTried(trial++)) continue;
          const Region region{.sizes = dense.Sizes(),
                              .inputs = {dense.Elements(dtype), dense.Elements(dtype)},
                              .outputs = {{.value = a - sum * b + products, .memory = dense.Elements(dtype)},
                                          {.value = sum, .memory = of_rows, .kind = RegionOutputKind::kRows},
                                          {.value = products, .memory = of_rows, .kind = RegionOutputKind::kRows}}};
          ExpectLikeDefinition(region, 16);
        }
      }
    }
  });
  const Expr y = Expr::Input(1, "y", DType::kFloat);
  const Dense dense{.rows = 3, .columns = 300};
  const auto text_of = [&](const Expr& value) {
    return RegionProgram({.sizes = dense.Sizes(),
                          .inputs = {dense.Elements(), dense.Elements()},
                          .outputs = {{.value = value, .memory = dense.Elements()}}})
        .Text();
  };
  EXPECT_NE(text_of(RowSum(x) + RowSum(x * y) * y).find(" = row_sum, "), std::string::npos);
  EXPECT_NE(text_of(RowSum(y) + RowSum(x * y) * y).find(" = row_sum, "), std::string::npos);
  EXPECT_EQ(text_of(RowSum(x * x) + RowSum(x) * y).find(" = row_sum, "), std::string::npos);
  EXPECT_EQ(text_of(RowSum(x * Exp(y - RowSum(x))) * y).find(" = row_sum, "), std::string::npos);
}

TEST(RegionRows, FindsTheLargestOfLongRowsOnEveryTarget) {
  ForEachTarget([] {
    for (const DType dtype : {DType::kFloat, DType::kDouble}) {
      for (const std::int64_t columns : {512, 523, 1500}) {
        const Dense dense{.rows = 4, .columns = columns};
        RegionOperand of_rows = dense.Rows();
        of_rows.dtype = dtype;
        const Expr a = Expr::Input(0, "a", dtype);
        const Expr zeros = Where(a < 1, Expr::Constant(dtype, -0.0), Expr::Constant(dtype, 0));
        for (const Expr& value : {RowMax(a), RowMax(Where(Equal(a, a), a, -1)), RowMax(zeros)}) {
          const Region region{.sizes = dense.Sizes(),
                              .inputs = {dense.Elements(dtype)},
                              .outputs = {{.value = value, .memory = of_rows, .kind = RegionOutputKind::kRows}}};
          for (unsigned seed = 11; seed < 15; ++seed) ExpectLikeDefinition(region, seed);
        }
      }
    }
  });
}

// Arrays that fill the first cache have loops of their own.
TEST(RegionRows, ComputesLongArraysOnEveryTarget) {
  const Expr y = Expr::Input(1, "y", DType::kFloat), row = Expr::Input(2, "row", DType::kFloat);
  ForEachTarget([&] {
    for (const auto& [rows, columns] : {std::pair(1, 12001), {30, 701}, {3, 4003}}) {
      const Dense dense{.rows = rows, .columns = columns};
      for (const Expr& value : {x + y, MulAdd(x, y, y), MulAdd(-x, y, x), (x + y) * y, (x + y) * (x - y), x + row,
                                (x - row) * y, MulAdd(x, row, y), Where(x < y, y, x)}) {
        const Region region{.sizes = dense.Sizes(),
                            .inputs = {dense.Elements(), dense.Elements(), dense.Rows()},
                            .outputs = {{.value = value, .memory = dense.Elements()}}};
        ExpectLikeDefinition(region, 13);
      }
    }
  });
}

}  // namespace
}  // namespace stepnet
