// GRUUnit: the part of a GRU cell after its products, with gates in the order reset, update, output:
//   h = sigmoid(update) h_prev + (1 - sigmoid(update)) tanh(output)
// Source: Cho et al., "Learning Phrase Representations using RNN Encoder-Decoder", 2014, eq. 7. The reset gate has done
// its work before, in the products, and is not read here. Rows whose sequence has ended keep their state or become 0;
// nothing of their gates is read, so that whatever stands there does no harm.
#include <algorithm>
#include <cstdint>

#include "stepnet/operators/elementwise.h"
#include "stepnet/operators/gated_unit.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stepnet/operators/gru_unit.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "stepnet/core/partial_vectors-inl.h"
#include "stepnet/core/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stepnet {
namespace HWY_NAMESPACE {

// One row: arrays of `size` values, gates of three times as many.
template <typename T>
HWY_INLINE void GruForward(std::int64_t size, const T* h_prev, const T* gates, T* h) {
  const hn::ScalableTag<T> d;
  ForEachVector(d, size, [&](auto access, std::int64_t at) HWY_ATTR {
    const auto update = SigmoidFn()(d, access.Load(d, gates + size + at));
    const auto output = TanhFn()(d, access.Load(d, gates + 2 * size + at));
    const auto rest = hn::Mul(hn::Sub(hn::Set(d, T{1}), update), output);
    access.Store(d, hn::MulAdd(access.Load(d, h_prev + at), update, rest), h + at);
  });
}

template <typename T>
HWY_INLINE void GruBackward(std::int64_t size, const T* h_prev, const T* gates, const T* dh, T* dh_prev, T* dgates) {
  const hn::ScalableTag<T> d;
  const auto one = hn::Set(d, T{1});
  ForEachVector(d, size, [&](auto access, std::int64_t at) HWY_ATTR {
    const auto update = SigmoidFn()(d, access.Load(d, gates + size + at));
    const auto output = TanhFn()(d, access.Load(d, gates + 2 * size + at));
    const auto slope = access.Load(d, dh + at);
    const auto to_output = hn::Mul(slope, hn::Sub(one, update));
    const auto difference = hn::Sub(access.Load(d, h_prev + at), output);
    access.Store(d, hn::Mul(slope, update), dh_prev + at);
    access.Store(d, hn::Zero(d), dgates + at);
    access.Store(d, hn::Mul(hn::Mul(to_output, update), difference), dgates + size + at);
    access.Store(d, hn::Mul(to_output, hn::NegMulAdd(output, output, one)), dgates + 2 * size + at);
  });
}

void GruForwardFloat(std::int64_t size, const float* h_prev, const float* gates, float* h) {
  GruForward(size, h_prev, gates, h);
}
void GruForwardDouble(std::int64_t size, const double* h_prev, const double* gates, double* h) {
  GruForward(size, h_prev, gates, h);
}
void GruBackwardFloat(std::int64_t size, const float* h_prev, const float* gates, const float* dh, float* dh_prev,
                      float* dgates) {
  GruBackward(size, h_prev, gates, dh, dh_prev, dgates);
}
void GruBackwardDouble(std::int64_t size, const double* h_prev, const double* gates, const double* dh, double* dh_prev,
                       double* dgates) {
  GruBackward(size, h_prev, gates, dh, dh_prev, dgates);
}

}  // namespace HWY_NAMESPACE
}  // namespace stepnet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stepnet {
namespace {

HWY_EXPORT(GruForwardFloat);
HWY_EXPORT(GruForwardDouble);
HWY_EXPORT(GruBackwardFloat);
HWY_EXPORT(GruBackwardDouble);

void Forward(std::int64_t size, const float* h_prev, const float* gates, float* h) {
  HWY_DYNAMIC_DISPATCH(GruForwardFloat)(size, h_prev, gates, h);
}
void Forward(std::int64_t size, const double* h_prev, const double* gates, double* h) {
  HWY_DYNAMIC_DISPATCH(GruForwardDouble)(size, h_prev, gates, h);
}
void Backward(std::int64_t size, const float* h_prev, const float* gates, const float* dh, float* dh_prev,
              float* dgates) {
  HWY_DYNAMIC_DISPATCH(GruBackwardFloat)(size, h_prev, gates, dh, dh_prev, dgates);
}
void Backward(std::int64_t size, const double* h_prev, const double* gates, const double* dh, double* dh_prev,
              double* dgates) {
  HWY_DYNAMIC_DISPATCH(GruBackwardDouble)(size, h_prev, gates, dh, dh_prev, dgates);
}

constexpr int kStates = 1;
constexpr int kGates = 3;
constexpr int kLikeState = 2;  // h, dh

RunFn GruUnitKernel(const OperatorCall& op) {
  return [unit = GatedUnit(op, kStates, kGates), type = op.type()](const OpRun& run) {
    ForFloatType(run.Out(0).dtype, type, [&](auto zero) {
      using T = decltype(zero);
      const std::int64_t n = run.In(0).dim(-2), d = run.In(0).dim(-1);
      const ValidRows valid(run, unit);
      const auto [begin, end] = run.Share(n);
      for (std::int64_t row = begin; row < end; ++row) {
        const T* h_prev = run.In(0).As<T>() + row * d;
        T* h = run.Out(0).As<T>() + row * d;
        if (valid[row]) {
          Forward(d, h_prev, run.In(unit.gates()).As<T>() + row * kGates * d, h);
        } else if (unit.drops_states) {
          std::fill_n(h, d, T{0});
        } else {
          std::copy_n(h_prev, d, h);
        }
      }
    });
  };
}

RunFn GruUnitGradientKernel(const OperatorCall& op) {
  return [unit = GatedUnit(op, kStates, kGates, kLikeState), type = op.type()](const OpRun& run) {
    ForFloatType(run.Out(0).dtype, type, [&](auto zero) {
      using T = decltype(zero);
      const std::int64_t n = run.In(0).dim(-2), d = run.In(0).dim(-1);
      const ValidRows valid(run, unit);
      const auto [begin, end] = run.Share(n);
      for (std::int64_t row = begin; row < end; ++row) {
        const T* dh = run.In(unit.like_state(1)).As<T>() + row * d;
        T* dh_prev = run.Out(0).As<T>() + row * d;
        T* dgates = run.Out(1).As<T>() + row * kGates * d;
        if (valid[row]) {
          Backward(d, run.In(0).As<T>() + row * d, run.In(unit.gates()).As<T>() + row * kGates * d, dh, dh_prev,
                   dgates);
          continue;
        }
        std::fill_n(dgates, kGates * d, T{0});
        if (unit.drops_states) {
          std::fill_n(dh_prev, d, T{0});
        } else {
          std::copy_n(dh, d, dh_prev);
        }
      }
    });
  };
}

Operator& AddInputs(Operator& op) {
  return op.Input("h_prev", "[1, N, D] or [N, D], state before the step")
      .Input("gates", "[1, N, 3 D] or [N, 3 D], before their activations: reset, update, output")
      .Input("seq_lengths", "[N] int32, steps that each sequence has; left out where sequence_lengths = 0")
      .Args(GatedUnitArguments())
      .NumberArg("forget_bias", 0, "must be 0: Caffe2 accepts any value here and ignores it");
}

void CheckGruUnit(const OperatorCall& op, int num_like_state, std::vector<NetProblem>* problems) {
  CheckArity(op, GatedUnit(op, kStates, kGates, num_like_state), problems);
  if (op.Number("forget_bias") == 0) return;
  problems->push_back({.message = StrCat(op.type(), ": forget_bias is ", op.Number("forget_bias"),
                                         "; a GRU has no forget gate, and Caffe2 ignores the value: make it 0")});
}

Operator GruUnit() {
  Operator op("GRUUnit");
  AddInputs(op.Doc("State of a GRU after one step. Rows with timestep >= their length keep their state, or become 0 "
                   "with drop_states."))
      .OptionalInput("timestep", "[1] int32, from 0")
      .Output("h", "the shape of h_prev, state after the step")
      .Check([](const OperatorCall& op, std::vector<NetProblem>* problems) { CheckGruUnit(op, 0, problems); })
      .Shapes([](const ShapeQuery& query) {
        CheckInputs(query, GatedUnit(query.op(), kStates, kGates));
        return std::vector<TensorInfo>{{.dtype = query.In(0).dtype, .shape = query.In(0).shape}};
      })
      .Gradient([](GradientBuilder& builder) {
        std::vector<std::string> inputs = builder.op().inputs();
        inputs.insert(inputs.end(), {builder.O(0), builder.GO(0)});
        builder.Add(
            {.type = "GRUUnitGradient", .inputs = std::move(inputs), .outputs = {builder.GI(0), builder.GI(1)}});
      })
      .Cpu({.make = GruUnitKernel, .max_parts = RowsAsParts});
  return op;
}

Operator GruUnitGradient() {
  Operator op("GRUUnitGradient");
  AddInputs(op.Doc("Gradient of GRUUnit. Computes the gates again; that of the reset gate is 0. Of rows that have "
                   "ended, the gradient of the state before is that of the state after, or 0 with drop_states."))
      .Input("timestep", "[1] int32, from 0")
      .Input("h", "the shape of h_prev")
      .OptionalInput("dh", "the shape of h_prev")
      .Output("dh_prev", "the shape of h_prev")
      .Output("dgates", "the shape of gates")
      .Check([](const OperatorCall& op, std::vector<NetProblem>* problems) { CheckGruUnit(op, kLikeState, problems); })
      .Shapes([](const ShapeQuery& query) {
        const GatedUnit unit(query.op(), kStates, kGates, kLikeState);
        CheckInputs(query, unit);
        const TensorInfo state = {.dtype = query.In(0).dtype, .shape = query.In(0).shape};
        return std::vector<TensorInfo>{state, {.dtype = state.dtype, .shape = query.In(unit.gates()).shape}};
      })
      .Cpu({.make = GruUnitGradientKernel, .max_parts = RowsAsParts});
  return op;
}

const Registration gru_unit = GruUnit();
const Registration gru_unit_gradient = GruUnitGradient();

}  // namespace
}  // namespace stepnet
#endif  // HWY_ONCE
