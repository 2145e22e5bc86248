#include "stepnet/core/shape.h"

#include <ostream>

#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"

namespace stepnet {

Shape::Shape(std::initializer_list<std::int64_t> dims) { Assign({dims.begin(), dims.size()}); }
Shape::Shape(std::span<const std::int64_t> dims) { Assign(dims); }

void Shape::Assign(std::span<const std::int64_t> dims) {
  if (dims.size() > static_cast<size_t>(kMaxRank)) {
    throw Error(ErrorCode::kShapeMismatch,
                StrCat("a tensor of ", dims.size(), " dimensions; at most ", kMaxRank, " are supported"));
  }
  rank_ = static_cast<int>(dims.size());
  constexpr int kBits[kMaxRank + 1] = {0, 60, 30, 20, 15, 12, 10, 8, 7};  // of a size in the key, for each rank
  bool overflow = false;
  bool empty = false;
  bool has_key = true;
  key_ = static_cast<std::uint64_t>(rank_);
  for (int i = 0; i < rank_; ++i) {
    const std::int64_t dim = dims[i];
    if (dim < 0) {
      throw Error(ErrorCode::kShapeMismatch, StrCat("dimension ", i, " of [", Join(dims, ", "), "] is negative"));
    }
    dims_[i] = dim;
    has_key &= dim >> kBits[rank_] == 0;
    key_ = key_ << kBits[rank_] | static_cast<std::uint64_t>(dim);
    if (dim == 0) empty = true;
    if (dim != 0 && __builtin_mul_overflow(size_, dim, &size_)) overflow = true;
  }
  if (!has_key) key_ = kNoKey;
  if (empty) size_ = 0;
  if (overflow) {  // also where another size is 0, so that slices and products stay safe
    throw Error(ErrorCode::kShapeMismatch, StrCat("the sizes of [", Join(dims, ", "), "] multiply to more than 2^63"));
  }
}

std::int64_t Shape::SizeTo(int i) const {
  std::int64_t size = 1;
  for (int k = 0; k < i; ++k) size *= dims_[k];
  return size;
}

std::int64_t Shape::SizeFrom(int i) const {
  std::int64_t size = 1;
  for (int k = i; k < rank_; ++k) size *= dims_[k];
  return size;
}

void Shape::ThrowNoDimension(int i) const {
  throw Error(ErrorCode::kShapeMismatch,
              StrCat("dimension ", i, " of ", *this, ", which has ", rank_, rank_ == 1 ? " dimension" : " dimensions"));
}

int Shape::CanonicalAxis(std::int64_t axis, const char* what) const {
  if (axis < -rank_ || axis >= rank_) {
    throw Error(ErrorCode::kInvalidArgument, StrCat(what, " is ", axis, ", but the tensor is ", *this, " and has ",
                                                    rank_, rank_ == 1 ? " dimension" : " dimensions"));
  }
  return static_cast<int>(axis < 0 ? axis + rank_ : axis);
}

Shape Shape::With(int i, std::int64_t dim) const {
  std::array<std::int64_t, kMaxRank> changed = dims_;
  changed[CanonicalAxis(i)] = dim;
  return Shape(std::span(changed.data(), static_cast<size_t>(rank_)));
}

Shape Shape::Inserted(int i, std::int64_t dim) const {
  std::vector<std::int64_t> dims = ToVector();
  dims.insert(dims.begin() + (i == rank_ ? i : CanonicalAxis(i)), dim);
  return Shape(dims);
}

Shape Shape::Without(int i) const {
  std::vector<std::int64_t> dims = ToVector();
  dims.erase(dims.begin() + CanonicalAxis(i));
  return Shape(dims);
}

std::string Shape::ToString() const { return StrCat("[", Join(dims(), ", "), "]"); }

std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << shape.ToString(); }

bool EqualButForOnes(const Shape& a, const Shape& b) {
  int i = 0, j = 0;
  while (true) {
    while (i < a.rank() && a[i] == 1) ++i;
    while (j < b.rank() && b[j] == 1) ++j;
    if (i == a.rank() || j == b.rank()) return i == a.rank() && j == b.rank();
    if (a[i++] != b[j++]) return false;
  }
}

}  // namespace stepnet
