#include "stepnet/core/exact_number.h"

#include <charconv>
#include <cmath>
#include <string>

#include "stepnet/core/strings.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {

double AsWritten(float value) {
  if (!std::isfinite(value)) return value;
  const std::string text = ShortestText(value);
  double number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
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

}  // namespace stepnet
