#include "stepnet/core/expansion.h"

#include <algorithm>
#include <utility>

#include "stepnet/core/expressions/expr_table.h"
#include "stepnet/core/regions/joined_dimensions.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

// The size of a dimension of the batch, where both factors are repeated over each other; -1: they do not fit. Counted
// from the last one, 0.
std::int64_t BatchSize(const Product& product, int from_last) {
  std::int64_t size = 1;
  for (const ProductFactor* factor : {&product.left, &*product.right}) {
    const int dimension = factor->shape.rank() - 3 - from_last;
    if (dimension < 0 || factor->shape[dimension] == 1) continue;
    if (size != 1 && size != factor->shape[dimension]) return -1;
    size = factor->shape[dimension];
  }
  return size;
}

int BatchRank(const Product& product) { return std::max(product.left.shape.rank(), product.right->shape.rank()) - 2; }

}  // namespace

std::int64_t Product::NumElements() const {
  if (!right) return left.columns();
  std::int64_t elements = left.rows() * right->columns();
  for (int k = 0; k < BatchRank(*this); ++k) elements *= BatchSize(*this, k);
  return elements;
}

Expansion::Expansion(const ShapeQuery& query, std::span<const TensorInfo> outputs) : query_(query), outputs_(outputs) {
  if (query.op().schema().expansion) query.op().schema().expansion(*this);
}

void Expansion::Product(int output, stepnet::Product product) {
  products_.resize(query_.op().num_outputs());
  if (output < query_.op().num_outputs()) products_[output] = std::move(product);
}

void Expansion::Sum(int output, DimSum sum) {
  sums_.resize(query_.op().num_outputs());
  if (output < query_.op().num_outputs()) sums_[output] = std::move(sum);
}

// Its lists are filled one by one: where memory ends in the middle of a nested initializer, GCC 12 destroys what it has
// not made.
RegionPart& Expansion::AddPart(const RegionIndex& sizes, int output) {
  RegionPart& part = parts_.emplace_back();
  part.region.sizes = sizes;
  part.outputs.push_back(output);
  return part;
}

void Expansion::Copy(std::int64_t rows, std::int64_t columns, const ColumnsOf& from, const ColumnsOf& to) {
  const DType dtype = In(from.operand).dtype;
  has_expr_types_ &= IsOperandType(dtype);
  if (!has_expr_types_) return;
  const auto operand = [&](const ColumnsOf& of) {
    return RegionOperand{
        .dtype = dtype, .size = rows * of.row_length, .offset = of.first, .strides = {0, 0, of.row_length, 1}};
  };
  RegionPart& part = AddPart({1, 1, rows, columns}, num_inputs() + to.operand);
  part.region.inputs.push_back(operand(from));
  part.inputs.push_back(from.operand);
  part.region.outputs.push_back({.value = Expr::Input(0, "x", dtype), .memory = operand(to)});
}

void ExpandCopy(Expansion& e) {
  const std::int64_t size = e.In(0).shape.size();
  e.Copy(1, size, {.operand = 0, .row_length = size}, {.operand = 0, .row_length = size});
}

void Expansion::Permute(std::span<const StridedDim> dims, std::int64_t first, double factor) {
  const DType dtype = In(0).dtype;
  has_expr_types_ &= IsOperandType(dtype);
  if (!has_expr_types_) return;
  std::vector<std::int64_t> all_sizes;
  for (const StridedDim& dim : dims) all_sizes.push_back(dim.size);
  const auto joined = JoinDimensions(all_sizes, {}, [&](int outer, int inner, std::int64_t size) {
    return dims[outer].stride == dims[inner].stride * size;
  });
  if (joined.size() > kRegionDims) return;
  RegionIndex sizes = {1, 1, 1, 1}, strides = {}, in_order = {};
  for (size_t i = 0; i < joined.size(); ++i) {
    sizes[kRegionDims - 1 - i] = joined[i].size;
    strides[kRegionDims - 1 - i] = dims[joined[i].inner].stride;
  }
  std::int64_t size = 1;
  for (int d = kRegionDims - 1; d >= 0; --d) {
    in_order[d] = size;
    size *= sizes[d];
  }
  const RegionOperand from{.dtype = dtype, .size = In(0).shape.size(), .offset = first, .strides = strides};
  const RegionOperand to{.dtype = dtype, .size = size, .strides = in_order};
  const Expr x = Expr::Input(0, "x", dtype);
  const Expr value = factor == 1 ? x : x * factor;
  RegionPart& part = AddPart(sizes, num_inputs());
  part.region.inputs.push_back(from);
  part.inputs.push_back(0);
  part.region.outputs.push_back({.value = value, .memory = to});
}

bool Expansion::AddBox(std::optional<int> input, DType dtype, std::span<const PlacedDim> box) {
  std::vector<std::int64_t> box_sizes, box_strides(box.size());
  std::int64_t whole = 1, first = 0;
  for (size_t d = box.size(); d-- > 0;) {
    box_strides[d] = whole;
    first += box[d].begin * whole;
    whole *= box[d].whole;
  }
  for (const PlacedDim& dim : box) box_sizes.push_back(dim.size);
  const auto joined = JoinDimensions(box_sizes, {}, [&](int outer, int inner, std::int64_t size) {
    return box_strides[outer] == box_strides[inner] * size;
  });
  if (joined.size() > kRegionDims) return false;
  RegionIndex sizes = {1, 1, 1, 1}, strides = {}, in_order = {};
  std::int64_t elements = 1;
  for (size_t i = 0; i < joined.size(); ++i) {
    const size_t d = kRegionDims - 1 - i;
    sizes[d] = joined[i].size;
    strides[d] = box_strides[joined[i].inner];
    in_order[d] = elements;
    elements *= joined[i].size;
  }
  RegionPart& part = AddPart(sizes, num_inputs());
  Expr value = Expr::Constant(dtype, 0);
  if (input) {
    value = Expr::Input(0, "x", dtype);
    part.region.inputs.push_back({.dtype = dtype, .size = elements, .strides = in_order});
    part.inputs.push_back(*input);
  }
  part.region.outputs.push_back(
      {.value = value, .memory = {.dtype = dtype, .size = whole, .offset = first, .strides = strides}});
  return true;
}

void Expansion::Place(int input, std::span<const PlacedDim> dims) {
  const DType dtype = In(input).dtype;
  has_expr_types_ &= IsOperandType(dtype);
  if (!has_expr_types_) return;
  std::vector<PlacedDim> around(dims.begin(), dims.end());  // within the box in the dimensions before d, whole behind
  for (PlacedDim& dim : around) dim = {.whole = dim.whole, .begin = 0, .size = dim.whole};
  bool is_said = true;
  const auto add = [&](std::optional<int> of) {
    const bool has_elements = std::ranges::all_of(around, [](const PlacedDim& dim) { return dim.size > 0; });
    if (has_elements) is_said = is_said && AddBox(of, dtype, around);
  };
  for (size_t d = 0; d < dims.size(); ++d) {
    const std::int64_t end = dims[d].begin + dims[d].size;
    around[d] = {.whole = dims[d].whole, .begin = 0, .size = dims[d].begin};
    add({});
    around[d] = {.whole = dims[d].whole, .begin = end, .size = dims[d].whole - end};
    add({});
    around[d] = dims[d];
  }
  add(input);
  if (!is_said) parts_.clear();
}

void Expansion::Constants(int output, DType dtype, const std::vector<std::int64_t>& values) {
  RegionPart part;
  for (size_t i = 0; i < values.size(); ++i) {
    const RegionOperand memory{
        .dtype = dtype, .size = static_cast<std::int64_t>(values.size()), .offset = static_cast<std::int64_t>(i)};
    part.region.outputs.push_back({.value = Cast(dtype, Expr(values[i])), .memory = memory});
    part.outputs.push_back(num_inputs() + output);
  }
  if (!values.empty()) parts_.push_back(std::move(part));
}

void Expansion::Fill(int output, DType dtype, std::int64_t count, double value) {
  has_expr_types_ &= IsOperandType(dtype);
  if (!has_expr_types_) return;
  const RegionOperand memory{.dtype = dtype, .size = count, .strides = {0, 0, 0, 1}};
  RegionPart& part = AddPart({1, 1, 1, count}, num_inputs() + output);
  part.region.outputs.push_back({.value = Expr::Constant(dtype, value), .memory = memory});
}

std::span<const RegionPart> Expansion::parts() const {
  return has_expr_types_ ? std::span<const RegionPart>(parts_) : std::span<const RegionPart>();
}

namespace {

// The region of a sum over so many elements; nothing where none says it. Tensors are `input` and `output`.
std::optional<RegionPart> PartOfSum(const DimSum& sum, DType dtype, int output) {
  RegionPart part{.region = {}, .inputs = {sum.input}, .outputs = {output}};
  RegionOperand from{.dtype = dtype, .size = 1}, to{.dtype = dtype, .size = 1};
  int d = kRegionDims;
  bool is_kept_first = false, sums_rows = false, sums_before = false, goes_on = false;
  for (size_t k = sum.sizes.size(); k-- > 0;) {
    const std::int64_t size = sum.sizes[k];
    if (size == 1) continue;
    if (--d < 0 || size == 0) return {};
    part.region.sizes[d] = size;
    from.strides[d] = from.size;
    from.size *= size;
    const bool is_row = d == kRegionDims - 1;
    if (sum.summed[k] && !is_row && sums_before && !goes_on) return {};  // others lie between
    if (!sum.summed[k]) {
      to.strides[d] = to.size;
      to.size *= size;
    }
    goes_on = sum.summed[k] && !is_row;
    (is_row ? sums_rows : sums_before) |= sum.summed[k];
    is_kept_first = !sum.summed[k];
  }
  if (!is_kept_first || !(sums_rows || sums_before)) return {};
  const Expr x = Expr::Input(0, "x", dtype);
  Expr value = sums_rows ? RowSum(x) : x;
  if (sum.factor != 1) {
    if (sums_before) return {};  // the whole sum is what is multiplied
    value = value * sum.factor;
  }
  const RegionOutputKind kind = sums_before ? RegionOutputKind::kSums : RegionOutputKind::kRows;
  part.region.inputs = {from};
  part.region.outputs = {{.value = value, .memory = to, .kind = kind}};
  return part;
}

}  // namespace

std::vector<RegionPart> Expansion::sum_parts() const {
  std::vector<RegionPart> parts;
  for (size_t o = 0; o < sums_.size(); ++o) {
    const DType dtype = sums_[o] ? In(sums_[o]->input).dtype : DType::kFloat;
    std::optional<RegionPart> part;
    if (sums_[o] && IsOperandType(dtype)) part = PartOfSum(*sums_[o], dtype, num_inputs() + static_cast<int>(o));
    if (!part) return {};
    parts.push_back(*std::move(part));
  }
  return parts;
}

std::string ProductProblem(const Product& product, std::span<const TensorInfo> inputs, const TensorInfo& output) {
  const auto is_input = [&](int input) { return input >= 0 && input < static_cast<int>(inputs.size()); };
  const auto is_of = [&](const ProductFactor& factor, bool may_be_bfloat16) {
    if (!is_input(factor.input)) return false;
    const TensorInfo& info = inputs[factor.input];
    const DType dtype = may_be_bfloat16 && info.dtype == DType::kBFloat16 ? DType::kFloat : info.dtype;
    return factor.shape.rank() >= 2 && factor.shape.size() == info.shape.size() && dtype == output.dtype;
  };
  if (!is_of(product.left, false) || (product.right && !is_of(*product.right, true))) {
    return "a factor is no matrices that an input holds";
  }
  if (product.right) {
    if (product.left.columns() != product.right->rows()) {
      return StrCat("factors have ", product.left.columns(), " columns and ", product.right->rows(), " rows");
    }
    for (int k = 0; k < BatchRank(product); ++k) {
      if (BatchSize(product, k) < 0) return "factors have other batches";
    }
  } else if (product.left.shape.rank() != 2) {
    return "rows of a batch are summed";
  }
  if (product.NumElements() != output.shape.size()) {
    return StrCat("it has ", product.NumElements(), " elements, its output ", output.shape.size());
  }
  if (product.bias < 0) return "";
  const bool has_bias = product.right && is_input(product.bias) && inputs[product.bias].dtype == output.dtype &&
                        inputs[product.bias].shape.size() == product.right->columns();
  return has_bias ? "" : "its bias is not one element a column";
}

}  // namespace stepnet
