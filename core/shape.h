// Shape: the sizes of a tensor, outermost first. A value without heap memory.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

namespace stepnet {

class Shape {
 public:
  static constexpr int kMaxRank = 8;

  Shape() = default;  // rank 0: a scalar, one element
  // Throw kShapeMismatch when a size is negative, the rank exceeds kMaxRank or the number of elements exceeds int64.
  Shape(std::initializer_list<std::int64_t> dims);
  explicit Shape(std::span<const std::int64_t> dims);
  explicit Shape(const std::vector<std::int64_t>& dims) : Shape(std::span<const std::int64_t>(dims)) {}

  int rank() const { return rank_; }
  // Negative i counts from the end. Throws kShapeMismatch unless -rank() <= i < rank(): libraries ask for what their
  // operators' inputs may not have.
  std::int64_t operator[](int i) const {
    const int at = i < 0 ? i + rank_ : i;
    if (static_cast<unsigned>(at) >= static_cast<unsigned>(rank_)) ThrowNoDimension(i);
    return dims_[at];
  }
  std::int64_t size() const { return size_; }  // number of elements

  // Products of sizes before and from dimension i; REQUIRES 0 <= i <= rank().
  std::int64_t SizeTo(int i) const;
  std::int64_t SizeFrom(int i) const;

  // `axis` with negative values counted from the end. Throws kInvalidArgument, naming `what`, when it lies outside
  // [-rank, rank).
  int CanonicalAxis(std::int64_t axis, const char* what = "axis") const;

  // Copies with one size replaced, inserted or removed; with the first size removed.
  Shape With(int i, std::int64_t dim) const;
  Shape Inserted(int i, std::int64_t dim) const;
  Shape Without(int i) const;
  Shape Tail() const { return Without(0); }

  std::span<const std::int64_t> dims() const { return {dims_.data(), static_cast<size_t>(rank_)}; }
  std::vector<std::int64_t> ToVector() const { return {dims_.begin(), dims_.begin() + rank_}; }
  std::string ToString() const;  // "[32, 64]"

  // The rank and, behind it, each size in an equal share of 60 bits: no other shape has the same. Kernels compare the
  // shapes of all their inputs each time they run: one number each, where it tells all.
  std::uint64_t key() const { return key_; }
  static constexpr std::uint64_t kNoKey = ~std::uint64_t{0};  // a size needs more bits
  friend bool operator==(const Shape& a, const Shape& b) {
    return a.key_ == b.key_ && (a.key_ != kNoKey || (a.rank_ == b.rank_ && a.dims_ == b.dims_));
  }
  friend std::ostream& operator<<(std::ostream& out, const Shape& shape);

 private:
  [[noreturn, gnu::cold]] void ThrowNoDimension(int i) const;
  void Assign(std::span<const std::int64_t> dims);

  std::array<std::int64_t, kMaxRank> dims_ = {};  // zero beyond rank_
  int rank_ = 0;
  std::int64_t size_ = 1;
  std::uint64_t key_ = 0;
};

// [1, B, H] and [B, H] hold the same values; Caffe2's cells use both for a row of a state.
bool EqualButForOnes(const Shape& a, const Shape& b);

}  // namespace stepnet
