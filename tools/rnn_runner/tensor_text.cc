#include "stepnet/tools/rnn_runner/tensor_text.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/error.h"
#include "stepnet/core/memory_for.h"
#include "stepnet/core/number_text.h"
#include "stepnet/core/stored_float.h"
#include "stepnet/core/strings.h"
#include "stepnet/report/text.h"

namespace stepnet::runner {
namespace {

constexpr std::int64_t kWorkOfNumber = 10;  // nanoseconds in a caller's hands: a division of doubles, a function call

// Calls fn with the first element, typed.
template <typename Fn>
void WithElements(const Tensor& tensor, Fn&& fn) {
  switch (tensor.dtype()) {
    case DType::kFloat: return fn(tensor.data<float>());
    case DType::kDouble: return fn(tensor.data<double>());
    case DType::kFloat16: return fn(tensor.data<Float16>());
    case DType::kBFloat16: return fn(tensor.data<BFloat16>());
    case DType::kInt8: return fn(tensor.data<std::int8_t>());
    case DType::kInt16: return fn(tensor.data<std::int16_t>());
    case DType::kInt32: return fn(tensor.data<std::int32_t>());
    case DType::kInt64: return fn(tensor.data<std::int64_t>());
    case DType::kUInt8: return fn(tensor.data<std::uint8_t>());
    case DType::kUInt16: return fn(tensor.data<std::uint16_t>());
    case DType::kBool: return fn(tensor.data<bool>());
    case DType::kString: break;
  }
  throw Error(ErrorCode::kTypeMismatch, StrCat("a tensor of ", tensor.dtype(), " holds no numbers"));
}

template <typename T>
double AsDouble(T value) {
  if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
    return ToFloat(value);
  } else {
    return static_cast<double>(value);
  }
}

template <typename T>
T FromDouble(double value) {
  if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
    return StoredAs<T>(value);
  } else if constexpr (std::is_same_v<T, bool>) {
    return value != 0;
  } else if constexpr (std::is_integral_v<T>) {
    // The largest int64 has no double; the comparison below is with the next one above it.
    const double low = static_cast<double>(std::numeric_limits<T>::min());
    const double high = static_cast<double>(std::numeric_limits<T>::max());
    if (!(value > low)) return std::numeric_limits<T>::min();
    return value >= high ? std::numeric_limits<T>::max() : static_cast<T>(value);
  } else {
    return static_cast<T>(value);
  }
}

}  // namespace

const std::vector<std::string> kSummaryHeader = {"blob", "dtype", "shape", "min", "max", "mean", "std", "NaN", "Inf"};

void ForEachNumber(const Tensor& tensor, const std::function<void(std::int64_t, double)>& fn) {
  WithElements(tensor.To({}), [&](const auto* elements) {
    InBlocks(tensor.size(), kWorkOfNumber, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) fn(i, AsDouble(elements[i]));
    });
  });
}

void FillFromNumbers(const Tensor& tensor, const std::function<double(std::int64_t)>& number) {
  WithElements(tensor, [&](auto* elements) {
    using T = std::remove_pointer_t<decltype(elements)>;
    InBlocks(tensor.size(), kWorkOfNumber, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) elements[i] = FromDouble<T>(number(i));
    });
  });
}

Summary Summarize(const Tensor& tensor) {
  Summary summary;
  double squares = 0;  // sum of squared differences from the mean so far (Welford)
  ForEachNumber(tensor, [&](std::int64_t, double value) {
    if (std::isnan(value)) {
      ++summary.nans;
    } else if (std::isinf(value)) {
      ++summary.infinities;
    } else {
      summary.min = summary.finite == 0 ? value : std::min(summary.min, value);
      summary.max = summary.finite == 0 ? value : std::max(summary.max, value);
      const double difference = value - summary.mean;
      summary.mean += difference / static_cast<double>(++summary.finite);
      squares += difference * (value - summary.mean);
    }
  });
  if (summary.finite > 0) summary.deviation = std::sqrt(squares / static_cast<double>(summary.finite));
  return summary;
}

std::vector<std::string> SummaryRow(const std::string& name, const Tensor& tensor) {
  std::vector<std::string> row = {NameText(name), DTypeName(tensor.dtype()), tensor.shape().ToString()};
  if (tensor.dtype() == DType::kString) return row;
  const Summary summary =
      WithMemoryFor("a copy of the blob", name, [&] { return Summarize(tensor.To({})); });  // where it is on a device
  const bool any = summary.finite > 0;
  for (const double value : {summary.min, summary.max}) {
    row.push_back(!any ? "" : IsFloating(tensor.dtype()) ? Number(value) : NumberText(value));
  }
  for (const double value : {summary.mean, summary.deviation}) row.push_back(any ? Number(value) : "");
  row.push_back(StrCat(summary.nans));
  row.push_back(StrCat(summary.infinities));
  return row;
}

Tensor Converted(const Tensor& tensor, DType from, DType to) {
  if (tensor.dtype() != from) return tensor;
  Tensor result(to, tensor.shape());
  std::vector<double> numbers;
  ForEachNumber(tensor, [&](std::int64_t, double value) { numbers.push_back(value); });
  FillFromNumbers(result, [&](std::int64_t i) { return numbers[i]; });
  return result;
}

TensorMap DoubleTensors(const Workspace& workspace) {
  TensorMap tensors;
  for (const std::string& name : workspace.LocalBlobs()) {
    const Blob& blob = *workspace.FindBlob(name);
    if (!blob.HasTensor()) continue;
    tensors[name] = WithMemoryFor("a copy in double of the blob", name,
                                  [&] { return Converted(blob.GetTensor().To({}), DType::kFloat, DType::kDouble); });
  }
  return tensors;
}

void FeedCopies(const TensorMap& tensors, Workspace& workspace) {
  for (const auto& [name, tensor] : tensors) {
    workspace.SetTensor(name,
                        WithMemoryFor("a copy of the blob", name, [&, &given = tensor] { return given.Clone(); }));
  }
}

}  // namespace stepnet::runner
