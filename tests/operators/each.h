// References for operators that compute each element from one of the input.
#pragma once

#include <vector>

namespace stepnet {

// What OpTest::Follows asks for, of a function in double.
template <double (*kFunction)(double)>
std::vector<double> Each(const std::vector<std::vector<double>>& inputs) {
  std::vector<double> y;
  for (const double x : inputs[0]) y.push_back(kFunction(x));
  return y;
}

}  // namespace stepnet
