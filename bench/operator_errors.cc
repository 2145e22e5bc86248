// Errors of operators against the same sums and functions in long double, on random inputs, for float and double: one
// line for each output, and one ("was") for what the operator computed before, where CHANGELOG.md says that it changed.
//
//   build/release/bench/stepnet_operator_errors [OPERATOR...]
#include "operator_errors.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <limits>
#include <numbers>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "stepnet/core/operator.h"
#include "stepnet/core/random.h"
#include "stepnet/core/run_context.h"
#include "stepnet/core/strings.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

// Calls fn(first, last) for the elements of each row.
template <typename Fn>
void ForRows(std::size_t size, std::int64_t columns, const Fn& fn) {
  const auto width = static_cast<std::size_t>(columns);
  for (std::size_t begin = 0; begin < size; begin += width) fn(begin, begin + width);
}

Numbers Softmax(const Numbers& x, std::int64_t columns, bool log) {
  Numbers y(x.size());
  ForRows(x.size(), columns, [&](std::size_t begin, std::size_t end) {
    const Exact max =
        *std::max_element(x.begin() + static_cast<std::ptrdiff_t>(begin), x.begin() + static_cast<std::ptrdiff_t>(end));
    const Exact sum = SumOf(begin, end, [&](std::size_t i) { return std::exp(x[i] - max); });
    for (std::size_t i = begin; i < end; ++i) y[i] = log ? x[i] - max - std::log(sum) : std::exp(x[i] - max) / sum;
  });
  return y;
}

Numbers SoftmaxGradient(const Numbers& y, const Numbers& dy, std::int64_t columns, bool log) {
  Numbers dx(y.size());
  ForRows(y.size(), columns, [&](std::size_t begin, std::size_t end) {
    const Exact sum = SumOf(begin, end, [&](std::size_t i) { return log ? dy[i] : y[i] * dy[i]; });
    for (std::size_t i = begin; i < end; ++i) dx[i] = log ? dy[i] - std::exp(y[i]) * sum : y[i] * (dy[i] - sum);
  });
  return dx;
}

std::vector<Numbers> LayerNorm(const Numbers& x, std::int64_t columns) {
  const Exact epsilon = 1e-5F;  // the argument is a float
  Numbers y(x.size()), means, stds;
  ForRows(x.size(), columns, [&](std::size_t begin, std::size_t end) {
    const Exact mean = SumOf(begin, end, [&](std::size_t i) { return x[i]; }) / columns;
    const Exact squares = SumOf(begin, end, [&](std::size_t i) { return (x[i] - mean) * (x[i] - mean); });
    means.push_back(mean);
    stds.push_back(std::sqrt(squares / columns + epsilon));
    for (std::size_t i = begin; i < end; ++i) y[i] = (x[i] - mean) / stds.back();
  });
  return {y, means, stds};
}

Numbers LayerNormGradient(const Numbers& dy, const Numbers& y, const Numbers& stds, std::int64_t columns) {
  Numbers dx(y.size());
  ForRows(y.size(), columns, [&](std::size_t begin, std::size_t end) {
    const Exact std = stds[begin / static_cast<std::size_t>(columns)];
    const Exact sum = SumOf(begin, end, [&](std::size_t i) { return dy[i]; });
    const Exact products = SumOf(begin, end, [&](std::size_t i) { return dy[i] * y[i]; });
    for (std::size_t i = begin; i < end; ++i) dx[i] = (dy[i] - sum / columns - y[i] * products / columns) / std;
  });
  return dx;
}

// The gradients of a quotient by b: element i / every % b.size() of b divided element i.
std::vector<Numbers> DivGradient(const Numbers& b, const Numbers& c, const Numbers& dc, std::size_t every) {
  Numbers da, db(b.size());
  for (std::size_t i = 0; i < c.size(); ++i) {
    const std::size_t divisor = i / every % b.size();
    da.push_back(dc[i] / b[divisor]);
    db[divisor] -= dc[i] * c[i] / b[divisor];
  }
  return {da, db};
}

// One number a row.
template <typename Term>
Numbers RowSums(std::size_t size, std::int64_t columns, const Term& term) {
  Numbers sums;
  ForRows(size, columns, [&](std::size_t begin, std::size_t end) { sums.push_back(SumOf(begin, end, term)); });
  return sums;
}

// dgates, of a state [rows, columns] and the three gates of each of its rows.
std::vector<Numbers> GruUnitGradient(const Numbers& h_prev, const Numbers& gates, const Numbers& dh,
                                     std::int64_t columns) {
  const auto width = static_cast<std::size_t>(columns);
  Numbers dh_prev(h_prev.size()), dgates(gates.size());
  for (std::size_t i = 0; i < h_prev.size(); ++i) {
    const std::size_t gate = i / width * 3 * width + i % width;
    const Exact update = Sigmoid(gates[gate + width]), output = std::tanh(gates[gate + 2 * width]);
    dh_prev[i] = dh[i] * update;
    dgates[gate + width] = dh[i] * (h_prev[i] - output) * update * (1 - update);
    dgates[gate + 2 * width] = dh[i] * (1 - update) * (1 - output * output);
  }
  return {dh_prev, dgates};
}

std::vector<Case> PointwiseCases() {
  constexpr Exact kSqrtHalf = 1 / std::numbers::sqrt2_v<Exact>;
  const auto slope = [](const std::string& type, double reach, Exact (*exact)(Exact x)) {
    const Input x{{1 << 16}, -reach, reach};
    return Case{.type = type,
                .sizes = StrCat("65536 in [-", reach, ", ", reach, ")"),
                .inputs = {x, {{1 << 16}}},
                .outputs = {"dx"},
                .exact = [=](const std::vector<Numbers>& in) -> std::vector<Numbers> {
                  return {EachOf(in[0].size(), [&](std::size_t i) { return in[1][i] * exact(in[0][i]); })};
                }};
  };
  constexpr std::int64_t kCount = 1 << 16;
  const auto gelu = [=](double low, double high) {
    return Case{
        "Gelu", StrCat(kCount, " in [", low, ", ", high, ")"), {{{kCount}, low, high}}, {"y"}, [](const auto& in) {
          return std::vector<Numbers>{
              EachOf(in[0].size(), [&](std::size_t i) { return in[0][i] * std::erfc(-in[0][i] * kSqrtHalf) / 2; })};
        }};
  };
  return {
      gelu(-4, 4),
      gelu(-6, -4),
      gelu(-12, -6),
      slope("GeluGradient", 4,
            [](Exact x) {
              return (1 + std::erf(x * kSqrtHalf)) / 2 +
                     x * std::exp(-x * x / 2) * kSqrtHalf * std::numbers::inv_sqrtpi_v<Exact>;
            }),
      slope("MishGradient", 10,
            [](Exact x) {
              const Exact t = std::tanh(std::log1p(std::exp(x)));
              return t + x * (1 - t * t) * Sigmoid(x);
            }),
      slope("SiluGradient", 10, [](Exact x) { return Sigmoid(x) * (1 + x * (1 - Sigmoid(x))); }),
      Case{.type = "GRUUnitGradient",
           .sizes = "64 rows of 256",
           .inputs =
               {{{64, 256}}, {{64, 3 * 256}, -3, 3}, {.shape = {1}, .is_step_number = true}, {{64, 256}}, {{64, 256}}},
           .outputs = {"dh_prev", "dgates"},
           .exact = [](const std::vector<Numbers>& in) { return GruUnitGradient(in[0], in[1], in[4], 256); },
           .arguments = {{"sequence_lengths", 0}}}};
}

std::vector<Case> RowCases(std::int64_t rows, std::int64_t columns) {
  const std::string sizes = StrCat(rows, " rows of ", columns);
  const auto matrix = [=](double low, double high) { return Input{{rows, columns}, low, high}; };
  const Input column{{columns}}, stds{{rows, 1}, 0.5, 2};
  using In = const std::vector<Numbers>&;
  using Out = std::vector<Numbers>;
  const auto layer_norm = [=](const std::string& kind, double mean) {
    // The deviation is that of numbers drawn evenly: 1 / sqrt(3).
    return Case{"LayerNorm", sizes + kind, {matrix(mean - 1, mean + 1)}, {"y", "mean", "std"}, [=](In in) {
                  return LayerNorm(in[0], columns);
                }};
  };
  const auto div_gradient = [=](const std::string& by, const std::vector<std::int64_t>& shape, std::int64_t every) {
    return Case{"DivGradient", sizes + by, {{shape, 0.5, 2}, matrix(-1, 1), matrix(-1, 1)}, {"da", "db"}, [=](In in) {
                  return DivGradient(in[0], in[1], in[2], static_cast<std::size_t>(every));
                }};
  };
  return {
      div_gradient(" by elements", {rows, columns}, 1),
      div_gradient(" by columns", {columns}, 1),
      div_gradient(" by rows", {rows, 1}, columns),
      div_gradient(" by one", {1}, rows * columns),
      {"Softmax", sizes, {matrix(-4, 4)}, {"y"}, [=](In in) -> Out { return {Softmax(in[0], columns, false)}; }},
      {"SoftmaxGradient",
       sizes,
       {matrix(0, 2.0 / static_cast<double>(columns)), matrix(-1, 1)},
       {"dx"},
       [=](In in) -> Out { return {SoftmaxGradient(in[0], in[1], columns, false)}; }},
      {"LogSoftmax", sizes, {matrix(-4, 4)}, {"y"}, [=](In in) -> Out { return {Softmax(in[0], columns, true)}; }},
      {"LogSoftmaxGradient",
       sizes,
       {matrix(-8, -2), matrix(-1, 1)},
       {"dx"},
       [=](In in) -> Out { return {SoftmaxGradient(in[0], in[1], columns, true)}; }},
      layer_norm("", 0),
      layer_norm(", mean 10 deviations", 10 / std::numbers::sqrt3),
      {"LayerNormGradient",
       sizes,
       {matrix(-1, 1), matrix(-1.7, 1.7), stds, stds, matrix(-1, 1)},
       {"dx"},
       [=](In in) -> Out { return {LayerNormGradient(in[0], in[1], in[3], columns)}; }},
      {"ElementwiseLinearGradient",
       sizes,
       {matrix(-1, 1), matrix(-1, 1), column},
       {"dx", "dw", "db"},
       [=](In in) -> Out {
         Out out(3);
         out[0] = EachOf(in[0].size(), [&](std::size_t i) { return in[0][i] * in[2][i % in[2].size()]; });
         out[1].resize(in[2].size());
         out[2].resize(in[2].size());
         for (std::size_t i = 0; i < in[0].size(); ++i) {
           out[1][i % in[2].size()] += in[0][i] * in[1][i];
           out[2][i % in[2].size()] += in[0][i];
         }
         return out;
       }},
      {.type = "ReduceSum",
       .sizes = sizes,
       .inputs = {matrix(-1, 1)},
       .outputs = {"y"},
       .exact = [=](In in) -> Out { return {RowSums(in[0].size(), columns, [&](std::size_t i) { return in[0][i]; })}; },
       .is_of_rows = true},
      {.type = "ReduceMean",
       .sizes = sizes,
       .inputs = {matrix(0, 1)},
       .outputs = {"y"},
       .exact = [=](In in) -> Out {
         return {RowSums(in[0].size(), columns, [&](std::size_t i) { return in[0][i] / columns; })};
       },
       .is_of_rows = true},
      {"SumReduceLike",
       sizes,
       {matrix(-1, 1), {{rows, 1}}},
       {"c"},
       [=](In in) -> Out { return {RowSums(in[0].size(), columns, [&](std::size_t i) { return in[0][i]; })}; }},
      {.type = "TileGradient",
       .sizes = sizes,
       .inputs = {matrix(-1, 1)},
       .outputs = {"dx"},
       .exact = [=](In in) -> Out {
         Numbers dx(static_cast<std::size_t>(columns));
         for (std::size_t i = 0; i < in[0].size(); ++i) dx[i % dx.size()] += in[0][i];
         return {dx};
       },
       .arguments = {{"tiles", rows}}},
      {"SquaredL2Distance",
       sizes,
       {matrix(-1, 1), matrix(-1, 1)},
       {"d"},
       [=](In in) -> Out {
         return {RowSums(in[0].size(), columns,
                         [&](std::size_t i) { return (in[0][i] - in[1][i]) * (in[0][i] - in[1][i]) / 2; })};
       }},
      {"CrossEntropy",
       sizes,
       {matrix(0.001, 1), matrix(0, 1)},
       {"y"},
       [=](In in) -> Out {
         return {RowSums(in[0].size(), columns, [&](std::size_t i) { return -in[1][i] * std::log(in[0][i]); })};
       }},
  };
}

template <typename T>
Tensor Draw(const Input& operand, const Numbers& first, std::mt19937_64& random, Numbers* numbers) {
  const Shape shape(operand.shape);
  if (operand.is_step_number) {
    Tensor step(DType::kInt32, shape);
    step.data<std::int32_t>()[0] = 0;
    return step;
  }
  Tensor tensor(DTypeOfT<T>::value, shape);
  if (operand.of_first != nullptr) {
    for (const Exact x : first) numbers->push_back(static_cast<T>(operand.of_first(x)));
    std::ranges::copy(*numbers, tensor.data<T>());
    return tensor;
  }
  for (std::int64_t i = 0; i < shape.size(); ++i) {
    const double unit = std::ldexp(static_cast<double>(random() >> 11), -53);
    const auto value = static_cast<T>(operand.low + (operand.high - operand.low) * unit);
    tensor.data<T>()[i] = value;
    numbers->push_back(value);
  }
  return tensor;
}

template <typename T>
void PrintErrors(const Case& of, const std::string& output, const T* got, const Numbers& want, const char* was = "") {
  Exact errors = 0, size = 0, largest = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const Exact error = std::fabs(got[i] - want[i]);
    errors += error * error;
    size += want[i] * want[i];
    largest = std::max(largest, error);
  }
  const Exact relative = std::ldexp(std::sqrt(errors / size), std::numeric_limits<T>::digits);
  std::printf("%-26s %-38s %-7s %-8s %9.3Lg %11.3Lg %s\n", of.type.c_str(), of.sizes.c_str(),
              DTypeName(DTypeOfT<T>::value), output.c_str(), relative, largest, was);
}

template <typename T>
void Measure(const Case& one) {
  OperatorDef def;
  def.set_type(one.type);
  std::mt19937_64 random(1);
  std::vector<Tensor> inputs, outputs;
  std::vector<TensorInfo> infos;
  std::vector<Numbers> numbers(one.inputs.size());
  for (std::size_t i = 0; i < one.inputs.size(); ++i) {
    def.add_input(StrCat("x", i));
    inputs.push_back(Draw<T>(one.inputs[i], numbers[0], random, &numbers[i]));
    infos.push_back({.dtype = inputs.back().dtype(), .shape = inputs.back().shape()});
  }
  for (const std::string& output : one.outputs) def.add_output(output);
  for (const auto& [name, value] : one.arguments) {
    Argument& argument = *def.add_arg();
    argument.set_name(name);
    argument.set_i(value);
  }
  for (const auto& [name, value] : one.floats) {
    Argument& argument = *def.add_arg();
    argument.set_name(name);
    argument.set_f(value);
  }
  if (one.is_of_rows) {
    Argument& axes = *def.add_arg();
    axes.set_name("axes");
    axes.add_ints(-1);
  }
  if (one.num_random > 0) {
    Argument &shape = *def.add_arg(), &dtype = *def.add_arg();
    shape.set_name("shape");
    shape.add_ints(one.num_random);
    dtype.set_name("dtype");
    dtype.set_i(sizeof(T) == sizeof(float) ? 1 : 13);  // as in files
  }
  const OperatorCall call(def);
  for (const TensorInfo& info : call.schema().shapes(ShapeQuery(call, infos))) {
    outputs.emplace_back(info.dtype, info.shape);
  }
  std::vector<TensorView> in, out;
  for (Tensor& tensor : inputs) in.push_back(tensor.View());
  for (Tensor& tensor : outputs) out.push_back(tensor.View());
  RunContext context;
  call.schema().FindKernel(DeviceKind::kCpu)->make(call)(OpRun(in, out, context));
  if (one.num_random > 0) {
    const RandomStream stream(call.seed(), call.random_id(), /*run=*/0, /*step=*/0);
    numbers = {EachOf(static_cast<std::size_t>(one.num_random), [&](std::size_t i) { return stream.Word(i); })};
  }
  const std::vector<Numbers> exact = one.exact(numbers);
  for (std::size_t o = 0; o < exact.size(); ++o) {
    if (exact[o].empty()) continue;
    PrintErrors<T>(one, one.outputs[o], outputs[o].data<T>(), exact[o]);
    if (!one.before.template Of<T>()) continue;
    std::vector<std::vector<T>> rounded;
    for (const Numbers& input : numbers) rounded.emplace_back(input.begin(), input.end());
    PrintErrors<T>(one, one.outputs[o], one.before.template Of<T>()(rounded).data(), exact[o], "was");
  }
}

int Main(const std::vector<std::string>& types) {
  std::vector<Case> cases = PointwiseCases();
  for (Case& one : ChangedCases()) cases.push_back(std::move(one));
  for (const auto& [rows, columns] : {std::pair(400, 256), {64, 4096}}) {
    for (Case& one : RowCases(rows, columns)) cases.push_back(std::move(one));
  }
  for (const std::string& type : types) {
    const auto is_it = [&](const Case& one) { return one.type == type; };
    if (std::ranges::any_of(cases, is_it)) continue;
    std::fprintf(stderr, "no errors are measured of \"%s\"\n", type.c_str());
    return 2;
  }
  std::printf("error: root mean square, in 2^-24 (float) or 2^-53 (double) of that of the exact values\n");
  std::printf("%-26s %-38s %-7s %-8s %9s %11s\n", "operator", "inputs", "dtype", "output", "error", "largest");
  for (const Case& one : cases) {
    if (!types.empty() && std::ranges::find(types, one.type) == types.end()) continue;
    Measure<float>(one);
    Measure<double>(one);
  }
  return 0;
}

}  // namespace
}  // namespace stepnet

int main(int argc, char** argv) {
  try {
    return stepnet::Main(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const stepnet::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
