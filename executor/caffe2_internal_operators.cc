// rnn_internal_apply_link and rnn_internal_accumulate_gradient_input: what Caffe2 adds to step nets when it runs them.
// Plans do this without operators; these serve nets that were saved with them.
#include "stepnet/core/accumulate.h"
#include "stepnet/core/operator.h"

namespace stepnet {
namespace {

std::int64_t Timestep(const OpRun& run) {
  const Blob& blob = run.host().Input(0);
  if (!blob.HasTensor() || blob.GetTensor().dtype() != DType::kInt32 || blob.GetTensor().size() != 1) {
    throw Error(ErrorCode::kTypeMismatch,
                StrCat("the timestep \"", blob.name(), "\" is ", blob.Description(), "; it must be int32 [1]"));
  }
  return *blob.GetTensor().To({}).data<std::int32_t>();
}

// internal = external[t + offset : t + offset + window], sharing memory.
void ApplyLink(const OpRun& run, std::int64_t offset, std::int64_t window) {
  const std::int64_t begin = Timestep(run) + offset;
  const Tensor external = run.host().Input(1).GetTensor();
  run.host().Output(0).SetTensor(external.Slice(begin, begin + window));
  run.host().Output(1).SetTensor(external);
}

// gradient[t + offset] += output_gradient[t].
void AccumulateGradient(const OpRun& run, std::int64_t offset) {
  const std::int64_t t = Timestep(run);
  const Tensor from = run.host().Input(1).GetTensor().Slice(t, t + 1);
  const Tensor gradient = run.host().Input(2).GetTensor();
  const Tensor to = gradient.Slice(t + offset, t + offset + 1);
  if (from.dtype() != to.dtype() || from.size() != to.size()) {
    throw Error(ErrorCode::kShapeMismatch, StrCat("a step of the output's gradient is ", from.Description(),
                                                  ", of the state's ", to.Description()));
  }
  AddTensor(from, to);
  run.host().Output(0).SetTensor(gradient);
}

const Registration apply_link =
    Operator("rnn_internal_apply_link")
        .Doc("Makes `internal` a view of rows [t + offset, t + offset + window) of `external`.")
        .Input("timestep", "int32 [1]: t")
        .Input("external", "[T, …]")
        .Output("internal", "[window, …]")
        .Output("external", "input 1")
        .Arg("offset", 0, "row that step 0 sees first", AtLeast(0))
        .Arg("window", 1, "number of rows", AtLeast(0))
        .EnforceInPlace({{1, 1}})
        .Private()
        .StopsGradient()
        .OnEveryDevice({.make = [](const OperatorCall& op) -> RunFn {
                          const std::int64_t offset = op.Int("offset");
                          const std::int64_t window = op.Int("window");
                          return [offset, window](const OpRun& run) { ApplyLink(run, offset, window); };
                        },
                        .takes_blobs = true});

const Registration accumulate_gradient =
    Operator("rnn_internal_accumulate_gradient_input")
        .Doc("Adds step t of an output's gradient to row t + offset of a state's gradient.")
        .Input("timestep", "int32 [1]: t")
        .Input("output_gradient", "[T, …]")
        .Input("gradient", "[T + L, …]")
        .Output("gradient", "input 2")
        .OptionalOutputs("others", "ignored")
        .Arg("offset", 0, "rows between the two", AtLeast(0))
        .EnforceInPlace({{2, 0}})
        .Private()
        .StopsGradient()
        .OnEveryDevice({.make = [](const OperatorCall& op) -> RunFn {
                          const std::int64_t offset = op.Int("offset");
                          return [offset](const OpRun& run) { AccumulateGradient(run, offset); };
                        },
                        .takes_blobs = true});

}  // namespace
}  // namespace stepnet
