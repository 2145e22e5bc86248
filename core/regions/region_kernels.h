// Kernels of the primitives over blocks of elements, on the widest vectors that the machine has.
#pragma once

#include <cstdint>

#include "stepnet/core/expressions/expr.h"

namespace stepnet {

inline constexpr int kRowPartials = kExprPartials;

// out[i] = op(a[i], b[i], c[i], d[i]) for i < n; operands that the op does not have are not read. `out` may be the
// array of an operand whose elements have its size; otherwise it overlaps none. Arrays need no alignment.
using RegionKernel = void (*)(void* out, const void* a, const void* b, const void* c, const void* d, std::int64_t n);

// Whether loops over arrays that fill the first cache ask for the lines that they write some time before, as the target
// says. Not on processors of AMD: a Zen 5 gains nothing by it at any size, and what adds two arrays of 16 KB takes 1.08
// times as long. No Target has it, as those are constants: the processor that runs says who made it.
extern const bool gains_by_asking;

RegionKernel CopyKernelOf(DType dtype);
// All elements are a[0].
RegionKernel FillKernelOf(DType dtype);

// Several primitives as one kernel, without a way through memory between them. Each rounds by itself: the bits are
// those of single kernels.
//
// A chain: out = last(after(f(before(a, b)), c), d), or with kMulAdd, which is `after`, MulAdd(f(before(a, b)), c, d).
enum class ChainStep : std::uint8_t { kNone, kAdd, kSubtract, kSubtractFrom, kMultiply, kDivide, kMulAdd };
struct RegionChain {                    // kSubtractFrom: c - value
  ChainStep before = ChainStep::kNone;  // kNone: of a alone
  ExprOp f = ExprOp::kConstant;         // kConstant: nothing
  ChainStep after = ChainStep::kNone;
  ChainStep last = ChainStep::kNone;
};
// Null where there is no such kernel.
RegionKernel ChainKernelOf(const RegionChain& chain, DType dtype);
// op(left(a, b), right(c, d)) of floats or doubles; null where there is no such kernel.
struct RegionPair {
  ChainStep left = ChainStep::kNone;
  ChainStep op = ChainStep::kNone;
  ChainStep right = ChainStep::kNone;
};
RegionKernel PairKernelOf(const RegionPair& pair, DType dtype);
// c - a * b, rounded once: MulAdd of -a.
RegionKernel NegMulAddKernelOf(DType dtype);
// left * (top - c * c), where the last factor is rounded once: gradients through functions whose derivative is y - y^2
// or 1 - y^2. With `adds`, MulAdd of the two factors and d.
struct RegionSlope {
  enum class Left : std::uint8_t { kProduct, kDifference, kRest };  // a * b, a * (b - d), a * (1 - b)
  enum class Top : std::uint8_t { kAny, kOne, kOwn };               // d, 1, c
  Left left = Left::kProduct;
  Top top = Top::kAny;
  bool adds = false;
};
// Null where there is no such kernel: where d would be two things.
RegionKernel SlopeKernelOf(const RegionSlope& slope, DType dtype);
// MulAdd(a, b, (1 - b) * c), or with tanh(c), or with sigmoid(b) as well.
enum class RegionBlend : std::uint8_t { kPlain, kTanh, kSigmoidTanh };
RegionKernel BlendKernelOf(RegionBlend blend, DType dtype);
// sigmoid(a) * tanh(b).
RegionKernel GateKernelOf(DType dtype);

// Kernels of several results, which have in common what they are computed of. `numbers` has the places in `arrays` of
// kMaxRegionResults results, those that there are, and then of operands. Results may be the arrays of operands, as
// those of other kernels.
inline constexpr int kMaxRegionResults = 3;
using RegionSeveralKernel = void (*)(char* const* arrays, const int* numbers, std::int64_t n);
// Gradients of what gates are made of, u the gradient of the result, s a sigmoid and t a tanh:
//   kGate    of s(a) * t(b):             u * t * (s - s * s) and u * s * (1 - t * t), with `adds` added to c
//   kScale   of s(a) * b:                u * s and u * b * (s - s * s); with `adds` s is that of a + c
//   kBlend   of s(a) * b + (1 - s) t(c): u * s, u * (b - t) * (s - s * s) and u * (1 - s) * (1 - t * t)
// Operands are u, a, b, c.
struct RegionGradient {
  enum class Kind : std::uint8_t { kGate, kScale, kBlend };
  Kind kind = Kind::kGate;
  bool adds = false;
};
RegionSeveralKernel GradientKernelOf(const RegionGradient& gradient, DType dtype);
// c where a compares to b as `comparison` says, d elsewhere; all of one number type.
RegionKernel SelectKernelOf(ExprOp comparison, DType dtype);

// Which operands have one value a row, and which one row for all: bit k, operand k.
struct RepeatedOperands {
  unsigned of_rows = 0;
  unsigned of_columns = 0;
  bool is_far = false;  // the result is beyond the first cache; of a sum: rows read before, beyond those of a core
  bool Has(int k) const { return ((of_rows | of_columns) >> k & 1) != 0; }
  // From one row of operand k to the next, where rows have n elements.
  std::int64_t RowStrideOf(int k, std::int64_t n) const { return (of_columns >> k & 1) != 0 ? 0 : n; }
  bool operator==(const RepeatedOperands&) const = default;
};
// Kernels of `rows` rows of n elements, which are one after the other but in such operands.
using RowOperandKernel = void (*)(void* out, const void* const* arrays, const RepeatedOperands& operands,
                                  std::int64_t rows, std::int64_t n);
// Null where there is no such kernel. A chain of one step alone has kConstant as `f` and no `after`.
RowOperandKernel RowOperandChainOf(const RegionChain& chain, DType dtype);
RowOperandKernel RowOperandMulAddOf(DType dtype);
// MulAdd(a, b, c - d) * e, as gradients of normalizations have it.
RowOperandKernel ScaledRestKernelOf(DType dtype);

// partial[j % kRowPartials] = op(partial[j % kRowPartials], a[j]) for j < n.
using RowKernel = void (*)(void* partial, const void* a, std::int64_t n);
// out[r] = the reduction of the n elements of row r, which are one after the other, as are rows but of such operands.
using RowsKernel = void (*)(void* out, const void* a, const void* b, const RepeatedOperands& operands,
                            std::int64_t rows, std::int64_t n);

// Kernels for the machine as it is now (tests take instruction sets away). `operand` is the dtype of the op's
// operands: of those that Where chooses between, of what Cast starts from.
RegionKernel KernelOf(ExprOp op, DType operand, DType result);
RowKernel RowKernelOf(ExprOp op, DType dtype);
RowsKernel RowsKernelOf(ExprOp op, DType dtype);
// Sums in double of floats.
RowsKernel SumInDoubleKernel();
// Sums of products a * b or of squares (a - b)^2, b one value a row, of `dtype`, which are rounded before they become
// `sum`: float or double.
RowsKernel SumOfProductsKernelOf(DType dtype, DType sum);
RowsKernel SumOfSquaresKernelOf(DType dtype, DType sum);
// Sums in double of the squares in double of floats or doubles.
RowsKernel SumOfWideSquaresKernelOf(DType dtype);
// The sums of a and of products a * b of each row, in one pass over it.
using RowSumsKernel = void (*)(void* sum, void* sum_of_products, const void* a, const void* b,
                               const RepeatedOperands& operands, std::int64_t rows, std::int64_t n);
RowSumsKernel SumsKernelOf(DType dtype);

// out[i] = RandomStream(seed[i], op[i], run[i], step[i]) at element[i], as float or double; bit k of `shared`: operand
// k has one element for all.
inline constexpr int kNumUniformKeys = 4;
void DrawUniform(const std::int64_t* const (&operands)[kMaxExprOperands], unsigned shared, DType dtype, void* out,
                 std::int64_t n);
// What a reduction starts from, and its partial results as one.
void StartRow(ExprOp op, DType dtype, void* partial);
void FinishRow(ExprOp op, DType dtype, const void* partial, void* out);
// to[i * stride] = to[i * stride] + from[i].
void AddStrided(const void* from, void* to, std::int64_t stride, DType dtype, std::int64_t n);
// sums[i] = sums[i] + from[i], then + from[n + i], and so on: rows of n floats or doubles, one after the other.
void AddRows(const void* from, void* sums, DType dtype, std::int64_t rows, std::int64_t n);
// The first i where holds[i] is false, or n.
std::int64_t FirstFalse(const bool* holds, std::int64_t n);

}  // namespace stepnet
