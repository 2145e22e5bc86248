#include "stepnet/operators/training.h"

#include "stepnet/core/input_checks.h"

namespace stepnet {
namespace {

// Never inlined: a run without a fault needs no memory for it.
[[gnu::noinline]] void NoteNegativeIteration(const OpRun& run, int input, const std::string& name, std::int64_t value) {
  run.Fault(input, 0, [&](std::int64_t) {
    return Error(ErrorCode::kInvalidArgument, StrCat("the iteration number ", name, " is ", value, ", below 0"));
  });
}

}  // namespace

void ExpectRate(const ShapeQuery& query, int i) {
  ExpectFloat(query, i);
  ExpectOneElement(query, i, "a learning rate");
}

double RateOf(const TensorView& rate) {
  return rate.dtype == DType::kFloat ? double{*rate.As<float>()} : *rate.As<double>();
}

void ExpectIteration(const ShapeQuery& query, int i) {
  if (query.In(i).dtype != DType::kInt64) {
    throw WrongInputs(query, {i}, "counts iterations in int64", ErrorCode::kTypeMismatch);
  }
  ExpectOneElement(query, i, "an iteration number");
}

std::int64_t IterationOf(const OpRun& run, int input, const std::string& name) {
  const std::int64_t value = *run.In(input).As<std::int64_t>();
  if (value < 0) NoteNegativeIteration(run, input, name, value);
  return value;
}

}  // namespace stepnet
