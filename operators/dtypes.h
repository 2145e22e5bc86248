// What operators on tensors of any dtype share: choosing C++ code by dtype, moving elements, and dtypes as arguments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/core/tensor.h"

namespace stepnet {

// Calls `fn` with a value of the C++ type of `dtype`, whose value says nothing.
template <typename Fn>
void ForDType(DType dtype, Fn&& fn) {
  switch (dtype) {
    case DType::kFloat: return fn(float{});
    case DType::kDouble: return fn(double{});
    case DType::kFloat16: return fn(Float16{});
    case DType::kBFloat16: return fn(BFloat16{});
    case DType::kInt8: return fn(std::int8_t{});
    case DType::kInt16: return fn(std::int16_t{});
    case DType::kInt32: return fn(std::int32_t{});
    case DType::kInt64: return fn(std::int64_t{});
    case DType::kUInt8: return fn(std::uint8_t{});
    case DType::kUInt16: return fn(std::uint16_t{});
    case DType::kBool: return fn(bool{});
    case DType::kString: return fn(std::string{});
  }
}

// Does what ForDType does, for int32 and int64. Throws kTypeMismatch, naming `what`, for other dtypes.
template <typename Fn>
void ForIndexType(DType dtype, const std::string& what, Fn&& fn) {
  if (dtype == DType::kInt32) {
    fn(std::int32_t{});
  } else if (dtype == DType::kInt64) {
    fn(std::int64_t{});
  } else {
    throw Error(ErrorCode::kTypeMismatch, StrCat(what, " must be int32 or int64, is ", dtype));
  }
}

// The dtype that `code` stands for in files (TensorProto.DataType: 1 float, 2 int32, …), as arguments hold it. Throws
// kInvalidArgument, naming the argument, when it stands for none.
DType DTypeOfCode(std::int64_t code, const std::string& argument);

// The address of element i.
inline std::byte* At(const TensorView& tensor, std::int64_t i) {
  return static_cast<std::byte*>(tensor.data) + i * DTypeBytes(tensor.dtype);
}

// Element i of int32 or int64.
inline std::int64_t IntAt(const TensorView& tensor, std::int64_t i) {
  return tensor.dtype == DType::kInt64 ? tensor.As<std::int64_t>()[i] : tensor.As<std::int32_t>()[i];
}

// Copies `rows` runs of `length` elements. Runs start `from_step` and `to_step` elements after one another.
void CopyRuns(DType dtype, const std::byte* from, std::int64_t from_step, std::byte* to, std::int64_t to_step,
              std::int64_t length, std::int64_t rows);

// A dimension of a box of elements: its size, and how far apart in memory elements lie that are neighbours along it.
struct BoxDim {
  std::int64_t size;
  std::int64_t from_step;
  std::int64_t to_step;
};
// Copies a box whose dimensions, at most Shape::kMaxRank, lie in any way in what it is copied from and to, along which
// elements are repeated where from_step is 0. Runs that are one after the other in both are copied as one.
void CopyBox(DType dtype, std::span<const BoxDim> dims, const std::byte* from, std::byte* to);

// Sets `n` elements to 0, false or "".
void ClearElements(DType dtype, std::byte* to, std::int64_t n);

}  // namespace stepnet
