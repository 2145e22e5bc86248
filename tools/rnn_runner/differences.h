// Derivatives by differences of values.
#pragma once

#include <functional>

namespace stepnet::runner {

struct Derivative {
  double value = 0;
  double doubt = 0;  // by how much it may be wrong
  // To either side, where there is a kink; otherwise `value`.
  double below = 0, above = 0;
};

// The derivative of f(x) at x = `at`, where f may curve fast or have a kink: differences of ever smaller steps, each
// pair without its error of second order (Richardson), of which those count that agree best. f is right up to
// `rounding`.
Derivative Differentiate(const std::function<double(double)>& f, double at, double rounding);

}  // namespace stepnet::runner
