// LSTMUnit: the part of an LSTM cell after its products, with gates in the order i, f, o, g:
//   c = sigmoid(f + forget_bias) c_prev + sigmoid(i) tanh(g)
//   h = sigmoid(o) tanh(c)
// Source: Hochreiter, Schmidhuber, "Long Short-Term Memory", 1997, with the forget gate of Gers, Schmidhuber, Cummins,
// "Learning to Forget", 2000. Rows whose sequence has ended keep their state or become 0; nothing of their gates is
// read, so that whatever stands there does no harm.
#include <algorithm>
#include <cstdint>

#include "stepnet/operators/elementwise.h"
#include "stepnet/operators/gated_unit.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stepnet/operators/lstm_unit.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "stepnet/core/partial_vectors-inl.h"
#include "stepnet/core/vector_math-inl.h"

#ifndef STEPNET_OPERATORS_LSTM_UNIT_ROWS_
#define STEPNET_OPERATORS_LSTM_UNIT_ROWS_
namespace stepnet {

// One row of a unit: arrays of D values, gates of 4 D.
template <typename T>
struct LstmRow {
  std::int64_t d;
  T forget_bias;
  const T* c_prev;
  const T* gates;
};
template <typename T>
struct LstmGradientRow {
  LstmRow<T> forward;
  const T* c;
  const T* dh;
  const T* dc;
};

}  // namespace stepnet
#endif

HWY_BEFORE_NAMESPACE();
namespace stepnet {
namespace HWY_NAMESPACE {

template <class D>
struct LstmGates {
  hn::Vec<D> i, f, o, g;

  template <class Access, typename T>
  HWY_INLINE LstmGates(D d, Access access, const LstmRow<T>& row, std::int64_t at) {
    const T* gates = row.gates + at;
    i = SigmoidFn()(d, access.Load(d, gates));
    f = SigmoidFn()(d, hn::Add(access.Load(d, gates + row.d), hn::Set(d, row.forget_bias)));
    o = SigmoidFn()(d, access.Load(d, gates + 2 * row.d));
    g = TanhFn()(d, access.Load(d, gates + 3 * row.d));
  }
};

template <typename T>
HWY_INLINE void LstmForward(const LstmRow<T>& row, T* h, T* c) {
  const hn::ScalableTag<T> d;
  ForEachVector(d, row.d, [&](auto access, std::int64_t at) HWY_ATTR {
    const LstmGates gates(d, access, row, at);
    const auto cell = hn::MulAdd(gates.f, access.Load(d, row.c_prev + at), hn::Mul(gates.i, gates.g));
    access.Store(d, cell, c + at);
    access.Store(d, hn::Mul(gates.o, TanhFn()(d, cell)), h + at);
  });
}

// x (1 - x) and 1 - x^2: the derivatives of sigmoid and tanh by their values.
template <class V>
HWY_INLINE V SigmoidSlope(V y) {
  return hn::NegMulAdd(y, y, y);
}
template <class D, class V>
HWY_INLINE V TanhSlope(D d, V y) {
  return hn::NegMulAdd(y, y, hn::Set(d, hn::TFromD<D>{1}));
}

template <typename T>
HWY_INLINE void LstmBackward(const LstmGradientRow<T>& row, T* dc_prev, T* dgates) {
  const hn::ScalableTag<T> d;
  const std::int64_t size = row.forward.d;
  ForEachVector(d, size, [&](auto access, std::int64_t at) HWY_ATTR {
    const LstmGates gates(d, access, row.forward, at);
    const auto tanh_c = TanhFn()(d, access.Load(d, row.c + at));
    const auto dh = access.Load(d, row.dh + at);
    const auto dc = hn::MulAdd(hn::Mul(dh, gates.o), TanhSlope(d, tanh_c), access.Load(d, row.dc + at));
    const auto c_prev = access.Load(d, row.forward.c_prev + at);
    access.Store(d, hn::Mul(dc, gates.f), dc_prev + at);
    T* out = dgates + at;
    access.Store(d, hn::Mul(hn::Mul(dc, gates.g), SigmoidSlope(gates.i)), out);
    access.Store(d, hn::Mul(hn::Mul(dc, c_prev), SigmoidSlope(gates.f)), out + size);
    access.Store(d, hn::Mul(hn::Mul(dh, tanh_c), SigmoidSlope(gates.o)), out + 2 * size);
    access.Store(d, hn::Mul(hn::Mul(dc, gates.i), TanhSlope(d, gates.g)), out + 3 * size);
  });
}

void LstmForwardFloat(const LstmRow<float>& row, float* h, float* c) { LstmForward(row, h, c); }
void LstmForwardDouble(const LstmRow<double>& row, double* h, double* c) { LstmForward(row, h, c); }
void LstmBackwardFloat(const LstmGradientRow<float>& row, float* dc_prev, float* dgates) {
  LstmBackward(row, dc_prev, dgates);
}
void LstmBackwardDouble(const LstmGradientRow<double>& row, double* dc_prev, double* dgates) {
  LstmBackward(row, dc_prev, dgates);
}

}  // namespace HWY_NAMESPACE
}  // namespace stepnet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stepnet {
namespace {

HWY_EXPORT(LstmForwardFloat);
HWY_EXPORT(LstmForwardDouble);
HWY_EXPORT(LstmBackwardFloat);
HWY_EXPORT(LstmBackwardDouble);

void Forward(const LstmRow<float>& row, float* h, float* c) { HWY_DYNAMIC_DISPATCH(LstmForwardFloat)(row, h, c); }
void Forward(const LstmRow<double>& row, double* h, double* c) { HWY_DYNAMIC_DISPATCH(LstmForwardDouble)(row, h, c); }
void Backward(const LstmGradientRow<float>& row, float* dc_prev, float* dgates) {
  HWY_DYNAMIC_DISPATCH(LstmBackwardFloat)(row, dc_prev, dgates);
}
void Backward(const LstmGradientRow<double>& row, double* dc_prev, double* dgates) {
  HWY_DYNAMIC_DISPATCH(LstmBackwardDouble)(row, dc_prev, dgates);
}

constexpr int kStates = 2;
constexpr int kGates = 4;
constexpr int kLikeState = 4;  // h, c, dh, dc

RunFn LstmUnitKernel(const OperatorCall& op) {
  const GatedUnit unit(op, kStates, kGates);
  return [unit, forget_bias = op.Number("forget_bias"), type = op.type()](const OpRun& run) {
    ForFloatType(run.Out(0).dtype, type, [&](auto zero) {
      using T = decltype(zero);
      const std::int64_t n = run.In(0).dim(-2), d = run.In(0).dim(-1);
      const ValidRows valid(run, unit);
      const auto [begin, end] = run.Share(n);
      for (std::int64_t row = begin; row < end; ++row) {
        const T* h_prev = run.In(0).As<T>() + row * d;
        const T* c_prev = run.In(1).As<T>() + row * d;
        const T* gates = run.In(unit.gates()).As<T>() + row * kGates * d;
        T* h = run.Out(0).As<T>() + row * d;
        T* c = run.Out(1).As<T>() + row * d;
        if (valid[row]) {
          Forward({.d = d, .forget_bias = static_cast<T>(forget_bias), .c_prev = c_prev, .gates = gates}, h, c);
        } else if (unit.drops_states) {
          std::fill_n(h, d, T{0});
          std::fill_n(c, d, T{0});
        } else {
          std::copy_n(h_prev, d, h);
          std::copy_n(c_prev, d, c);
        }
      }
    });
  };
}

RunFn LstmUnitGradientKernel(const OperatorCall& op) {
  const GatedUnit unit(op, kStates, kGates, kLikeState);
  return [unit, forget_bias = op.Number("forget_bias"), type = op.type()](const OpRun& run) {
    ForFloatType(run.Out(0).dtype, type, [&](auto zero) {
      using T = decltype(zero);
      const std::int64_t n = run.In(0).dim(-2), d = run.In(0).dim(-1);
      const ValidRows valid(run, unit);
      const auto [begin, end] = run.Share(n);
      const auto row_of = [&](int input, std::int64_t row) { return run.In(input).As<T>() + row * d; };
      for (std::int64_t row = begin; row < end; ++row) {
        T* dh_prev = run.Out(0).As<T>() + row * d;
        T* dc_prev = run.Out(1).As<T>() + row * d;
        T* dgates = run.Out(2).As<T>() + row * kGates * d;
        const T* dh = row_of(unit.like_state(2), row);
        const T* dc = row_of(unit.like_state(3), row);
        if (valid[row]) {
          const LstmRow<T> forward = {.d = d,
                                      .forget_bias = static_cast<T>(forget_bias),
                                      .c_prev = row_of(1, row),
                                      .gates = run.In(unit.gates()).As<T>() + row * kGates * d};
          std::fill_n(dh_prev, d, T{0});  // h_prev is read by rows that have ended alone
          Backward({.forward = forward, .c = row_of(unit.like_state(1), row), .dh = dh, .dc = dc}, dc_prev, dgates);
          continue;
        }
        std::fill_n(dgates, kGates * d, T{0});
        if (unit.drops_states) {
          std::fill_n(dh_prev, d, T{0});
          std::fill_n(dc_prev, d, T{0});
        } else {
          std::copy_n(dh, d, dh_prev);
          std::copy_n(dc, d, dc_prev);
        }
      }
    });
  };
}

Operator& AddInputs(Operator& op) {
  return op.Input("h_prev", "[1, N, D] or [N, D], hidden state before the step")
      .Input("c_prev", "the shape of h_prev, cell state before the step")
      .Input("gates", "[1, N, 4 D] or [N, 4 D], before their activations: i, f, o, g")
      .Input("seq_lengths", "[N] int32, steps that each sequence has; left out where sequence_lengths = 0")
      .Args(GatedUnitArguments())
      .NumberArg("forget_bias", 0, "added to the forget gate");
}

Operator LstmUnit() {
  Operator op("LSTMUnit");
  AddInputs(op.Doc("Gates, cell and hidden state of one step of an LSTM. Rows with timestep >= their length keep their "
                   "state, or become 0 with drop_states."))
      .OptionalInput("timestep", "[1] int32, from 0")
      .Output("h", "the shape of h_prev, hidden state after the step")
      .Output("c", "the shape of h_prev, cell state after the step")
      .Check([](const OperatorCall& op, std::vector<NetProblem>* problems) {
        CheckArity(op, GatedUnit(op, kStates, kGates), problems);
      })
      .Shapes([](const ShapeQuery& query) {
        CheckInputs(query, GatedUnit(query.op(), kStates, kGates));
        return std::vector<TensorInfo>(kStates, {.dtype = query.In(0).dtype, .shape = query.In(0).shape});
      })
      .Gradient([](GradientBuilder& builder) {
        std::vector<std::string> inputs = builder.op().inputs();
        inputs.insert(inputs.end(), {builder.O(0), builder.O(1), builder.GO(0), builder.GO(1)});
        builder.Add({.type = "LSTMUnitGradient",
                     .inputs = std::move(inputs),
                     .outputs = {builder.GI(0), builder.GI(1), builder.GI(2)}});
      })
      .Cpu({.make = LstmUnitKernel, .max_parts = RowsAsParts});
  return op;
}

Operator LstmUnitGradient() {
  Operator op("LSTMUnitGradient");
  AddInputs(op.Doc("Gradient of LSTMUnit. Computes the gates again. Of rows that have ended, the gradient of the state "
                   "before is that of the state after, or 0 with drop_states."))
      .Input("timestep", "[1] int32, from 0")
      .Input("h", "the shape of h_prev")
      .Input("c", "the shape of h_prev")
      .Input("dh", "the shape of h_prev")
      .OptionalInput("dc", "the shape of h_prev")
      .Output("dh_prev", "the shape of h_prev")
      .Output("dc_prev", "the shape of h_prev")
      .Output("dgates", "the shape of gates")
      .Check([](const OperatorCall& op, std::vector<NetProblem>* problems) {
        CheckArity(op, GatedUnit(op, kStates, kGates, kLikeState), problems);
      })
      .Shapes([](const ShapeQuery& query) {
        const GatedUnit unit(query.op(), kStates, kGates, kLikeState);
        CheckInputs(query, unit);
        const TensorInfo state = {.dtype = query.In(0).dtype, .shape = query.In(0).shape};
        return std::vector<TensorInfo>{state, state, {.dtype = state.dtype, .shape = query.In(unit.gates()).shape}};
      })
      .Cpu({.make = LstmUnitGradientKernel, .max_parts = RowsAsParts});
  return op;
}

const Registration lstm_unit = LstmUnit();
const Registration lstm_unit_gradient = LstmUnitGradient();

}  // namespace
}  // namespace stepnet
#endif  // HWY_ONCE
