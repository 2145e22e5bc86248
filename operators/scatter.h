// What ScatterElements is on every device: where an update goes, and what the element there becomes.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include "stepnet/core/host_device.h"
#include "stepnet/core/shape.h"

namespace stepnet {

// The elements of data `[…, A, …]` that updates name, by an index along one dimension, A, which may count from its end.
struct ScatterPlaces {
  ScatterPlaces(const Shape& data, const Shape& updates, std::int64_t axis_argument)
      : rank(data.rank()), axis(data.CanonicalAxis(axis_argument)), axis_size(data[axis]) {
    for (int d = 0; d < rank; ++d) {
      sizes[d] = updates[d];
      strides[d] = data.SizeFrom(d + 1);
    }
  }

  static constexpr std::int64_t kNone = -1;  // for an index that is none of the dimension

  // The element of data that update `i` is for.
  STEPNET_HOST_DEVICE std::int64_t At(std::int64_t i, std::int64_t index) const {
    if (index < -axis_size || index >= axis_size) return kNone;
    std::int64_t at = (index < 0 ? index + axis_size : index) * strides[axis];
    for (int d = rank - 1; d >= 0; --d) {
      if (d != axis) at += i % sizes[d] * strides[d];
      i /= sizes[d];
    }
    return at;
  }

  int rank, axis;
  std::int64_t axis_size;
  std::int64_t sizes[Shape::kMaxRank] = {};    // of updates
  std::int64_t strides[Shape::kMaxRank] = {};  // of data
};

// Reductions: what an element a becomes by an update u, and which part of the gradient g of that is the gradient of a
// and of u. Where the two are equal, each of them has all of it, as in Max and Min.

struct ReplaceBy {
  template <typename T>
  STEPNET_HOST_DEVICE static T Result(const T&, const T& u) {
    return u;
  }
  template <typename T>
  STEPNET_HOST_DEVICE static T OfElement(T, T, T) {
    return 0;
  }
  template <typename T>
  STEPNET_HOST_DEVICE static T OfUpdate(T, T, T g) {
    return g;
  }
};

// Whole numbers wrap around.
template <typename T, bool = std::is_integral_v<T>>
struct WrappingOf {
  using Type = T;
};
template <typename T>
struct WrappingOf<T, true> {
  using Type = std::make_unsigned_t<T>;
};

struct AddTo {
  template <typename T>
  STEPNET_HOST_DEVICE static T Result(T a, T u) {
    using W = typename WrappingOf<T>::Type;
    return static_cast<T>(static_cast<W>(a) + static_cast<W>(u));
  }
  template <typename T>
  STEPNET_HOST_DEVICE static T OfElement(T, T, T g) {
    return g;
  }
  template <typename T>
  STEPNET_HOST_DEVICE static T OfUpdate(T, T, T g) {
    return g;
  }
};

struct MultiplyBy {
  template <typename T>
  STEPNET_HOST_DEVICE static T Result(T a, T u) {
    using W = typename WrappingOf<T>::Type;
    return static_cast<T>(static_cast<W>(a) * static_cast<W>(u));
  }
  template <typename T>
  STEPNET_HOST_DEVICE static T OfElement(T, T u, T g) {
    return g * u;
  }
  template <typename T>
  STEPNET_HOST_DEVICE static T OfUpdate(T a, T, T g) {
    return g * a;
  }
};

// `kSign` 1: the greater one; -1: the less. NaN stays.
template <int kSign>
struct ExtremeWith {
  template <typename T>
  STEPNET_HOST_DEVICE static T Result(T a, T u) {
    return Wins(a, u) ? a : u;
  }
  template <typename T>
  STEPNET_HOST_DEVICE static T OfElement(T a, T u, T g) {
    return Wins(a, u) ? g : T{0};
  }
  template <typename T>
  STEPNET_HOST_DEVICE static T OfUpdate(T a, T u, T g) {
    return Wins(u, a) ? g : T{0};
  }

 private:
  template <typename T>
  STEPNET_HOST_DEVICE static bool Wins(T a, T b) {
    return (kSign > 0 ? a >= b : a <= b) || a != a;
  }
};

inline constexpr const char* kReductionNames[] = {"none", "add", "mul", "max", "min"};

// Calls `fn` with the reduction of this name, one of kReductionNames.
template <typename Fn>
void ForReduction(const std::string& name, const Fn& fn) {
  if (name == "add") return fn(AddTo{});
  if (name == "mul") return fn(MultiplyBy{});
  if (name == "max") return fn(ExtremeWith<1>{});
  if (name == "min") return fn(ExtremeWith<-1>{});
  fn(ReplaceBy{});
}

}  // namespace stepnet
