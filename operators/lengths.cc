#include "stepnet/operators/lengths.h"

#include <algorithm>
#include <limits>

#include "stepnet/core/input_checks.h"

namespace stepnet {
namespace {

std::string WrongLength(const std::string& element, const std::string& name, const std::string& length,
                        std::int64_t limit) {
  return StrCat("element ", element, " of ", name, " is ", length, "; lengths here are from 0 to ", limit);
}

}  // namespace

void CheckLengthsInfo(const ShapeQuery& query, int i, std::int64_t count, LengthsType type) {
  const TensorInfo& lengths = query.In(i);
  const bool right_type =
      lengths.dtype == DType::kInt32 || (lengths.dtype == DType::kInt64 && type == LengthsType::kInt32OrInt64);
  const bool right_shape = lengths.shape.rank() == 1 && (count < 0 || lengths.shape[0] == count);
  if (right_type && right_shape) return;
  throw WrongInputs(query, {i},
                    StrCat("needs lengths ", type == LengthsType::kInt32 ? "int32" : "int32 or int64", " [",
                           count < 0 ? "number of sequences" : StrCat(count), "]"),
                    right_type ? ErrorCode::kShapeMismatch : ErrorCode::kTypeMismatch);
}

void CheckLength(Formula& f, int input, const Expr& length, const Expr& element, std::int64_t limit) {
  f.Check(And(length >= 0, length <= limit), WrongLength("{}", f.op().inputs()[input], "{}", limit), element, length);
}

Lengths::Lengths(const TensorView& lengths, const std::string& name, std::int64_t limit)
    : lengths_(lengths), limit_(limit) {
  AddUp(name, [](std::int64_t element, const auto& make_error) { throw make_error(element); });
}

Lengths::Lengths(const OpRun& run, int input, const std::string& name, std::int64_t limit)
    : lengths_(run.In(input)), limit_(limit) {
  AddUp(name, [&](std::int64_t element, const auto& make_error) { run.Fault(input, element, make_error); });
}

Lengths::Lengths(const OpRun& run, int input, const std::string& name, std::int64_t limit, std::int64_t rows)
    : Lengths(run, input, name, limit) {
  if (sum_ == rows) return;
  run.Fault(input, count(), [&](std::int64_t) {
    return Error(ErrorCode::kInvalidArgument,
                 StrCat("the lengths in ", name, " add up to ", sum_, ", the data have ", rows, " rows"));
  });
}

template <typename FaultFn>
void Lengths::AddUp(const std::string& name, const FaultFn& fault) {
  for (std::int64_t i = 0; i < count(); ++i) {
    if (Given(i) != (*this)[i]) {
      fault(i, [&](std::int64_t element) {
        return Error(ErrorCode::kInvalidArgument, WrongLength(StrCat(element), name, StrCat(Given(i)), limit_));
      });
    }
    max_ = std::max(max_, (*this)[i]);
    if (__builtin_add_overflow(sum_, (*this)[i], &sum_)) {
      fault(i, [&](std::int64_t) {
        return Error(ErrorCode::kInvalidArgument, StrCat("the lengths in ", name, " add up to more than 2^63"));
      });
      sum_ = std::numeric_limits<std::int64_t>::max();
    }
  }
}

}  // namespace stepnet
