// Expansion: what an operator that has no formula is made of, said once, next to its schema: products of matrices, sums
// over dimensions, or copies and constants.
//
//   .Expands([](Expansion& e) {  // y = x w^T + b
//     e.Product(0, {.left = {.input = 0, .shape = {m, k}},
//                   .right = ProductFactor{.input = 1, .shape = {n, k}, .transposed = true},
//                   .bias = 2});
//   })
//
// Passes read it; what a run computes is said by the kernel alone. An operator for which it says nothing, of such
// shapes or arguments, stays what it is.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "stepnet/core/operator.h"
#include "stepnet/core/regions/region_composition.h"

namespace stepnet {

// Matrices that lie in an input one after the other, each by rows.
struct ProductFactor {
  int input = 0;            // of the operator
  Shape shape = {};         // sizes of the batch, then rows and columns in memory
  bool transposed = false;  // the product is with the transposes

  std::int64_t rows() const { return shape[transposed ? -1 : -2]; }
  std::int64_t columns() const { return shape[transposed ? -2 : -1]; }
  bool operator==(const ProductFactor&) const = default;
};

// What an output holds: for each index of the batch left · right, [M, N], with the bias [N] in each row. Sizes of the
// batch are repeated as NumPy does it. Without `right` it is the sum over the rows of `left`, [N]. `right` may be
// bfloat16 where the others are float, and stands for the floats that it holds.
struct Product {
  ProductFactor left = {};
  std::optional<ProductFactor> right = {};
  int bias = -1;  // an input; -1: none

  std::int64_t NumElements() const;
  bool operator==(const Product&) const = default;
};

// What an output holds: `factor` times sums over dimensions of an input, which has these sizes; those that are summed
// are left out, the others stay in their order. Those of the last dimension are rows: where neighbours of it are
// summed, too, each row is summed first (RowSum), then what rows give, one after the other.
struct DimSum {
  int input = 0;
  std::vector<std::int64_t> sizes = {};
  std::vector<bool> summed = {};
  double factor = 1;
};

// Columns of a matrix that an operand holds by rows.
struct ColumnsOf {
  int operand = 0;              // an input or an output
  std::int64_t row_length = 0;  // elements from one row to the next
  std::int64_t first = 0;
};

// A dimension of an output, and how far apart in the input the elements lie that become neighbours along it.
struct StridedDim {
  std::int64_t size = 0;
  std::int64_t stride = 0;
};

// A dimension of an output that holds an input in a box: `size` of its `whole` elements, from `begin` on.
struct PlacedDim {
  std::int64_t whole = 0;
  std::int64_t begin = 0;
  std::int64_t size = 0;
};

// What the function of Operator::Expands is given.
class Expansion {
 public:
  // Calls the rule of the operator's schema, if there is one. `outputs`, of a run that is about to be made, where
  // shapes follow from values.
  explicit Expansion(const ShapeQuery& query, std::span<const TensorInfo> outputs = {});

  const ShapeQuery& query() const { return query_; }
  const OperatorCall& op() const { return query_.op(); }
  int num_inputs() const { return query_.num_inputs(); }
  const TensorInfo& In(int i) const { return query_.In(i); }
  // Empty where nobody knows them but the shape rule.
  std::span<const TensorInfo> outputs() const { return outputs_; }

  // Says what output `output` is. An operator that gives products gives nothing else.
  void Product(int output, stepnet::Product product);
  // Says the same of an output that sums over dimensions. An operator that gives such sums gives nothing else.
  void Sum(int output, DimSum sum);
  // Columns of an output are columns of an input.
  void Copy(std::int64_t rows, std::int64_t columns, const ColumnsOf& from, const ColumnsOf& to);
  // Output 0 is elements of input 0 in another order: the one at an index of these dimensions, the last one fastest, is
  // that at `first` and the sum of index[d] * dims[d].stride, times `factor`. Says nothing where they are more than a
  // region has, those that move as one being one.
  void Permute(std::span<const StridedDim> dims, std::int64_t first = 0, double factor = 1);
  // Output 0 holds the elements of an input in their order in the box of these dimensions, and 0 around it. Says
  // nothing where that takes more dimensions than a region has, those that move as one being one.
  void Place(int input, std::span<const PlacedDim> dims);
  // All elements of an output, one after the other; or so many equal ones.
  void Constants(int output, DType dtype, const std::vector<std::int64_t>& values);
  void Fill(int output, DType dtype, std::int64_t count, double value);

  // There is one for each output; nothing where it is not said. Empty: the operator gives no products.
  const std::vector<std::optional<stepnet::Product>>& products() const { return products_; }
  // There is one for each output, likewise. The operator stays a call; it may become part of a region (sum_parts).
  const std::vector<std::optional<DimSum>>& sums() const { return sums_; }
  // The sums as regions, where each of them can be one: over the last dimension, over neighbours before it, or over
  // both; what the first dimension has apart stays apart. Rows are those of the last dimension. Empty: one of them
  // cannot.
  std::vector<RegionPart> sum_parts() const;
  // The work of an operator that only copies, scales and fills; tensors are the inputs, then the outputs. Empty: it
  // does more.
  std::span<const RegionPart> parts() const;

 private:
  // A part that gives this tensor, of which the caller says the rest.
  RegionPart& AddPart(const RegionIndex& sizes, int output);
  // A part that gives elements of output 0: those of an input in their order; of none, zeros. Returns whether there is
  // a region of so many dimensions.
  bool AddBox(std::optional<int> input, DType dtype, std::span<const PlacedDim> box);

  const ShapeQuery& query_;
  const std::span<const TensorInfo> outputs_;
  std::vector<std::optional<stepnet::Product>> products_;
  std::vector<std::optional<DimSum>> sums_;
  std::vector<RegionPart> parts_;
  bool has_expr_types_ = true;  // what is copied has dtypes that expressions have
};

// A rule for Operator::Expands: the elements of output 0 are those of input 0, in their order.
void ExpandCopy(Expansion& e);

// What is wrong with it for inputs and an output of these descriptions; empty: nothing.
std::string ProductProblem(const Product& product, std::span<const TensorInfo> inputs, const TensorInfo& output);

}  // namespace stepnet
