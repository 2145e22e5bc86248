#include "stepnet/tools/rnn_runner/differences.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace stepnet::runner {
namespace {

constexpr double kLargestStep = 1e-3, kSmallestStep = 1e-12;  // of numbers about 1
constexpr double kShrink = 4;                                 // from one step to the next

// From differences whose error goes with step^order, those of a step and of the next one, one without that error.
double WithoutError(double larger, double smaller, int order) {
  return smaller + (smaller - larger) / (std::pow(kShrink, order) - 1);
}

// The best of a row of differences, one a step.
class Best {
 public:
  explicit Best(int order) : order_(order) {}

  // `rounding`: by how much rounding may have changed it.
  void Add(double difference, double rounding) {
    if (++count_ > 1) {
      const double value = WithoutError(last_, difference, order_);
      // Two values without the error, of three steps, must agree: two steps may do so by chance.
      const double doubt = std::max(std::abs(value - difference), std::abs(value - last_value_)) + rounding;
      if (count_ > 2 && doubt < doubt_) {
        value_ = value;
        doubt_ = doubt;
      }
      last_value_ = value;
    }
    last_ = difference;
  }
  double value() const { return value_; }
  double doubt() const { return doubt_; }

 private:
  int order_, count_ = 0;
  double last_ = 0, last_value_ = 0, value_ = 0, doubt_ = std::numeric_limits<double>::infinity();
};

}  // namespace

Derivative Differentiate(const std::function<double(double)>& f, double at, double rounding) {
  const double here = f(at), unit = std::max(1.0, std::abs(at));
  Best central(2), below(1), above(1);
  for (double step = kLargestStep * unit; step >= kSmallestStep * unit; step /= kShrink) {
    const double left = f(at - step), right = f(at + step);
    central.Add((right - left) / (2 * step), rounding / step);
    below.Add((here - left) / step, 2 * rounding / step);
    above.Add((right - here) / step, 2 * rounding / step);
  }
  const bool has_kink = std::abs(above.value() - below.value()) > above.doubt() + below.doubt();
  return {.value = central.value(),
          .doubt = central.doubt(),
          .below = has_kink ? below.value() : central.value(),
          .above = has_kink ? above.value() : central.value()};
}

}  // namespace stepnet::runner
