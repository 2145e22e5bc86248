// How the learning rate changes from one iteration to the next: what the kernels of all devices compute.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "stepnet/core/host_device.h"
#include "stepnet/core/operator.h"

namespace stepnet {

class LearningRatePolicy {
 public:
  explicit LearningRatePolicy(const OperatorCall& op);

  STEPNET_HOST_DEVICE double RateAt(double iteration) const {
    if (iteration < warmup_) return base_ * (start_ + (1 - start_) * iteration / warmup_);
    return base_ * FactorAt(iteration - warmup_);
  }

 private:
  enum class Kind { kFixed, kStep, kExp, kInv, kPoly, kCosine };

  // What the learning rate is multiplied with after so many iterations: 1 at iteration 0, except for cosine.
  STEPNET_HOST_DEVICE double FactorAt(double iteration) const {
    switch (kind_) {
      case Kind::kFixed: return 1;
      case Kind::kStep: return std::pow(gamma_, std::floor(iteration / period_));
      case Kind::kExp: return std::pow(gamma_, iteration);
      case Kind::kInv: return std::pow(1 + gamma_ * iteration, -power_);
      case Kind::kPoly: return iteration < period_ ? std::pow(1 - iteration / period_, power_) : 0;
      case Kind::kCosine: return CosineAt(iteration);
    }
    return 1;
  }
  // Loshchilov, Hutter, "SGDR: Stochastic Gradient Descent with Warm Restarts", ICLR 2017, equation 5.
  STEPNET_HOST_DEVICE double CosineAt(double iteration) const {
    constexpr double kPi = 3.141592653589793;
    double period = period_, restarts = 0;
    if (t_mult_ == 1) {
      restarts = std::floor(iteration / period);
      iteration -= restarts * period;
    }
    for (; iteration >= period; ++restarts, period *= t_mult_) iteration -= period;
    const double middle = 0.5 * (1 + std::cos(kPi * iteration / period));
    return std::pow(shrink_, restarts) * (low_ + (high_ - low_) * middle);
  }

  Kind kind_ = Kind::kFixed;
  double base_ = 0;
  // A line from `start_` to 1 over the first iterations, before the policy begins.
  double warmup_ = 0, start_ = 0;
  double gamma_ = 0, power_ = 0;
  double period_ = 1;  // also the iterations of a step, and the last one of poly
  double low_ = 0, high_ = 0, t_mult_ = 1, shrink_ = 1;
};

}  // namespace stepnet
