// The operators whose errors are measured, and their exact results.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace stepnet {

using Exact = long double;
using Numbers = std::vector<Exact>;

// An input: numbers drawn evenly from [low, high), a function of those of input 0, rounded, or one int32 that is 0.
struct Input {
  std::vector<std::int64_t> shape;
  double low = -1;
  double high = 1;
  bool is_step_number = false;
  Exact (*of_first)(Exact x) = nullptr;
};

// What an operator gave as output 0 of these inputs.
struct Before {
  template <typename T>
  using Function = std::function<std::vector<T>(const std::vector<std::vector<T>>& inputs)>;

  Before() = default;
  template <typename Fn>
  Before(Fn fn) : of_float(fn), of_double(fn) {}  // NOLINT: it is the function
  template <typename T>
  const Function<T>& Of() const {
    if constexpr (sizeof(T) == sizeof(float))
      return of_float;
    else
      return of_double;
  }

  Function<float> of_float;
  Function<double> of_double;
};

struct Case {
  std::string type;
  std::string sizes;  // for people
  std::vector<Input> inputs;
  std::vector<std::string> outputs;
  // What the outputs are, of what the inputs are; an output that is left empty is not compared.
  std::function<std::vector<Numbers>(const std::vector<Numbers>& inputs)> exact;
  std::vector<std::pair<std::string, std::int64_t>> arguments = {};
  std::vector<std::pair<std::string, float>> floats = {};  // further arguments
  bool is_of_rows = false;                                 // axes = [-1]
  std::int64_t num_random = 0;  // it has no input: `inputs` of the functions are the random words of so many elements
  Before before = {};
};

inline Exact Sigmoid(Exact x) { return 1 / (1 + std::exp(-x)); }

template <typename Term>
Exact SumOf(std::size_t begin, std::size_t end, const Term& term) {
  Exact sum = 0;
  for (std::size_t i = begin; i < end; ++i) sum += term(i);
  return sum;
}

template <typename Fn>
Numbers EachOf(std::size_t size, const Fn& fn) {
  Numbers y(size);
  for (std::size_t i = 0; i < size; ++i) y[i] = fn(i);
  return y;
}

// Operators of which CHANGELOG.md says that results changed, with what they gave before.
std::vector<Case> ChangedCases();

}  // namespace stepnet
