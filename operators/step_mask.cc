// StepMask: which steps of a padded batch belong to a sequence, as a condition for Where.
//
// The formula checks a length for each step; the kernel is written by hand because it checks each once.
#include <cstdint>
#include <limits>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/formulas/formula.h"
#include "stepnet/core/input_checks.h"
#include "stepnet/operators/lengths.h"

namespace stepnet {
namespace {

// Numbers of steps are compared as T: many at once where they are 32 bits wide.
template <typename T>
void Mark(const Lengths& lengths, const OpRun& run) {
  const auto num_steps = static_cast<T>(run.Out(0).dim(0));
  const std::int64_t count = lengths.count();
  T* const each = run.ScratchOf<T>(count);
  for (std::int64_t b = 0; b < count; ++b) each[b] = static_cast<T>(lengths[b]);
  bool* mask = run.Out(0).As<bool>();
  for (T t = 0; t < num_steps; ++t, mask += count) {
    CountWork(count);
    for (std::int64_t b = 0; b < count; ++b) mask[b] = t < each[b];
  }
}

const Registration step_mask =
    Operator("StepMask")
        .Doc(
            "Marks the steps of sequences in a padded batch: mask[t, b] is true where t < lengths[b]. With it, Where "
            "and broadcast_on_rows choose between what a step computed and what stands for padding.")
        .Input("x", "[T, B, …], any dtype; its elements are not read")
        .Input("lengths", "int32 or int64 [B], from 0 to T")
        .Output("mask", "bool [T, B]")
        .ReadsShapes({0})
        .CheckShapes([](const ShapeQuery& query) {
          const Shape& x = query.In(0).shape;
          if (x.rank() < 2) {
            throw WrongInputs(query, {0}, "needs x [T, B, …]");
          }
          CheckLengthsInfo(query, 1, x[1], LengthsType::kInt32OrInt64);
        })
        .StopsGradient()
        .Formula(
            [](Formula& f) {
              const Shape& x = f.ShapeOf("x");
              f.Over(Shape({x[0], x[1]}));
              const Expr length = Cast(DType::kInt64, f.Along("lengths", {1}));
              CheckLength(f, 1, length, Index(3), x[0]);
              f.Out({Index(2) < length});
            },
            {.checks_values = true})
        .Cpu({.make = [](const OperatorCall& op) -> RunFn {
                return [name = op.inputs()[1]](const OpRun& run) {
                  const std::int64_t num_steps = run.Out(0).dim(0);
                  if (num_steps == 0) return;  // what the formula checks it checks for steps
                  const Lengths lengths(run, 1, name, num_steps);
                  const bool is_small = num_steps <= std::numeric_limits<std::int32_t>::max();
                  is_small ? Mark<std::int32_t>(lengths, run) : Mark<std::int64_t>(lengths, run);
                };
              },
              .checks_values = true});

}  // namespace
}  // namespace stepnet
