#include "stepnet/operators/broadcast.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stepnet/operators/broadcast.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/input_checks.h"
#include "stepnet/core/partial_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stepnet {
namespace HWY_NAMESPACE {

template <typename T>
HWY_INLINE void SumColumnsOf(const T* a, std::int64_t rows, std::int64_t n, bool in_order, T* out) {
  const hn::ScalableTag<T> d;
  std::fill_n(out, n, T{0});
  // Four rows at a time: a quarter of the loads and stores of `out`.
  const auto add_four = [&](const auto& sum_of) HWY_ATTR {
    ForEachVector(d, n, [&](auto access, std::int64_t j) HWY_ATTR {
      const auto row = [&](std::int64_t k) HWY_ATTR { return access.Load(d, a + k * n + j); };
      access.Store(d, sum_of(access.Load(d, out + j), row), out + j);
    });
  };
  std::int64_t i = 0;
  for (; i + 4 <= rows; i += 4, a += 4 * n) {
    if (in_order) {
      add_four([](auto sum, const auto& row)
                   HWY_ATTR { return hn::Add(hn::Add(hn::Add(hn::Add(sum, row(0)), row(1)), row(2)), row(3)); });
    } else {
      add_four([](auto sum, const auto& row)
                   HWY_ATTR { return hn::Add(sum, hn::Add(hn::Add(row(0), row(1)), hn::Add(row(2), row(3)))); });
    }
  }
  for (; i < rows; ++i, a += n) {
    ForEachVector(d, n, [&](auto access, std::int64_t j) HWY_ATTR {
      access.Store(d, hn::Add(access.Load(d, out + j), access.Load(d, a + j)), out + j);
    });
  }
}

void SumColumnsFloat(const float* a, std::int64_t rows, std::int64_t n, bool in_order, float* out) {
  SumColumnsOf(a, rows, n, in_order, out);
}
void SumColumnsDouble(const double* a, std::int64_t rows, std::int64_t n, bool in_order, double* out) {
  SumColumnsOf(a, rows, n, in_order, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace stepnet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stepnet {

HWY_EXPORT(SumColumnsFloat);
HWY_EXPORT(SumColumnsDouble);

namespace {

bool RepeatsAsCaffe2(const OperatorCall& op) {
  return op.schema().FindArgument("broadcast") != nullptr && op.Bool("broadcast");
}

// The gradient of input i is the sum of `of` over what each element of the input has met.
void AddSum(GradientBuilder& g, int i, const std::string& of) {
  const bool as_caffe2 = RepeatsAsCaffe2(g.op());
  g.Add({.type = "SumReduceLike", .inputs = {of, g.I(i)}, .outputs = {g.GI(i)}, .copies_arguments = as_caffe2});
}

}  // namespace

void SumColumns(const float* a, std::int64_t rows, std::int64_t n, bool in_order, float* out) {
  HWY_DYNAMIC_DISPATCH(SumColumnsFloat)(a, rows, n, in_order, out);
}
void SumColumns(const double* a, std::int64_t rows, std::int64_t n, bool in_order, double* out) {
  HWY_DYNAMIC_DISPATCH(SumColumnsDouble)(a, rows, n, in_order, out);
}

bool MayBeRepeated(const GradientBuilder& g, int i) {
  const OperatorCall& op = g.op();
  if (RepeatsAsCaffe2(op)) return i > 0;
  return std::ranges::any_of(op.inputs(), [&](const std::string& input) { return input != op.inputs()[0]; });
}

std::string UnreducedGradient(GradientBuilder& g, int i) {
  return MayBeRepeated(g, i) ? g.GI(i) + "_autogen_pre_red" : g.GI(i);
}

void ReduceGradient(GradientBuilder& g, int i) {
  if (MayBeRepeated(g, i)) AddSum(g, i, UnreducedGradient(g, i));
}

void PassGradient(GradientBuilder& g, int i) {
  if (!MayBeRepeated(g, i)) return g.SetDense(i, g.GO(0));
  AddSum(g, i, g.GO(0));
}

Operator BroadcastOperator(const std::string& type, const std::string& doc, const std::vector<DType>& dtypes,
                           std::optional<DType> output, const char* file) {
  Operator op(type, file);
  op.Doc(doc)
      .Input("a", OfTypes(dtypes, "any shape"))
      .Input("b",
             "the type of a; a shape that repeats over that of a, or the other way round; with broadcast=1 a run of "
             "its sizes, or one element")
      .Output("c",
              output ? StrCat(*output, ", the shape that both are repeated to") : "the shape that both are repeated to")
      .Args(BroadcastArguments())
      .Check(CheckBy([](const OperatorCall& op) { ReadBroadcastRule(op); }))
      .Shapes([output](const ShapeQuery& query) {
        ExpectSameType(query, 0, 1);
        return std::vector<TensorInfo>{{.dtype = output.value_or(query.In(0).dtype),
                                        .shape = BroadcastShape(query, ReadBroadcastRule(query.op()))}};
      });
  return op;
}

}  // namespace stepnet
#endif  // HWY_ONCE
