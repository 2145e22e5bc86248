#include "stepnet/operators/lengths.h"

#include <algorithm>

namespace stepnet {

void CheckLengthsInfo(const ShapeQuery& query, int i, std::int64_t count, LengthsType type) {
  const TensorInfo& lengths = query.In(i);
  const bool right_type =
      lengths.dtype == DType::kInt32 || (lengths.dtype == DType::kInt64 && type == LengthsType::kInt32OrInt64);
  const bool right_shape = lengths.shape.rank() == 1 && (count < 0 || lengths.shape[0] == count);
  if (right_type && right_shape) return;
  throw Error(right_type ? ErrorCode::kShapeMismatch : ErrorCode::kTypeMismatch,
              StrCat(query.op().inputs()[i], " is ", lengths.Description(), "; ", query.op().type(), " needs lengths ",
                     type == LengthsType::kInt32 ? "int32" : "int32 or int64", " [",
                     count < 0 ? "number of sequences" : StrCat(count), "]"));
}

Lengths::Lengths(const TensorView& lengths, const std::string& name, std::int64_t limit) : count_(lengths.size()) {
  if (lengths.dtype == DType::kInt64) {
    wide_ = lengths.As<std::int64_t>();
  } else {
    narrow_ = lengths.As<std::int32_t>();
  }
  for (std::int64_t i = 0; i < count_; ++i) {
    const std::int64_t length = (*this)[i];
    if (length < 0 || length > limit) {
      throw Error(ErrorCode::kInvalidArgument,
                  StrCat("element ", i, " of ", name, " is ", length, "; lengths here are from 0 to ", limit));
    }
    max_ = std::max(max_, length);
    if (__builtin_add_overflow(sum_, length, &sum_)) {
      throw Error(ErrorCode::kInvalidArgument, StrCat("the lengths in ", name, " add up to more than 2^63"));
    }
  }
}

}  // namespace stepnet
