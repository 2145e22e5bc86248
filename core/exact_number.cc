#include "stepnet/core/exact_number.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>

#include "stepnet/core/strings.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {

double AsWritten(float value) {
  if (!std::isfinite(value)) return value;
  const double number = NumberOfDecimal(ShortestText(value)).value_or(value);
  return static_cast<float>(number) == value ? number : value;  // which rounding twice might change
}

void SetDouble(double value, Argument* argument) {
  argument->clear_f();
  argument->clear_t();
  const auto rounded = static_cast<float>(value);
  if (rounded == value || std::isnan(value)) return argument->set_f(rounded);
  argument->mutable_t()->set_data_type(TensorProto::DOUBLE);
  argument->mutable_t()->add_double_data(value);
}

void SetWritten(double value, Argument* argument) {
  const auto rounded = static_cast<float>(value);
  SetDouble(AsWritten(rounded) == value ? rounded : value, argument);
}

std::optional<double> DoubleOf(const Argument& argument) {
  const TensorProto& tensor = argument.t();
  const bool is_number = argument.has_t() && tensor.data_type() == TensorProto::DOUBLE && tensor.dims_size() == 0 &&
                         tensor.double_data_size() == 1;
  return is_number ? std::optional(tensor.double_data(0)) : std::nullopt;
}

void SetDoubles(const std::vector<double>& values, Argument* argument) {
  argument->clear_floats();
  argument->clear_t();
  const auto is_float = [](double value) { return static_cast<float>(value) == value || std::isnan(value); };
  if (std::ranges::all_of(values, is_float)) return argument->mutable_floats()->Assign(values.begin(), values.end());
  TensorProto& tensor = *argument->mutable_t();
  tensor.set_data_type(TensorProto::DOUBLE);
  tensor.add_dims(static_cast<std::int64_t>(values.size()));
  tensor.mutable_double_data()->Assign(values.begin(), values.end());
}

void SetWritten(const std::vector<double>& values, Argument* argument) {
  const auto is_written = [](double value) { return AsWritten(static_cast<float>(value)) == value; };
  if (!std::ranges::all_of(values, is_written)) return SetDoubles(values, argument);
  argument->clear_t();
  argument->mutable_floats()->Assign(values.begin(), values.end());
}

std::vector<double> DoublesOf(const Argument& argument) {
  const TensorProto& tensor = argument.t();
  const bool is_list = argument.has_t() && tensor.data_type() == TensorProto::DOUBLE && tensor.dims_size() == 1 &&
                       tensor.dims(0) == tensor.double_data_size();
  if (!is_list) return {};
  return {tensor.double_data().begin(), tensor.double_data().end()};
}

std::optional<double> NumberOfDecimal(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

}  // namespace stepnet
