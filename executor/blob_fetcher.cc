// RecurrentNetworkBlobFetcher: copies the step net's blobs of every step into the workspace.
#include "stepnet/executor/recurrent_record.h"

namespace stepnet {
namespace {

void Fetch(const OpRun& run, const std::string& prefix) {
  const Blob& input = run.host().Input(0);
  const std::shared_ptr<const RecurrentRecord> record = input.GetObject<RecurrentRecord>();
  if (record == nullptr) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("\"", input.name(), "\" holds ", input.Description(),
                       "; it must be the last output of a RecurrentNetwork, which must have run before"));
  }
  if (!record->plan->keeps_all) {
    throw Error(ErrorCode::kInvalidArgument, StrCat("the run behind \"", input.name(),
                                                    "\" did not keep the step net's blobs: RecurrentNetworkBlobFetcher "
                                                    "must be in the same net as its RecurrentNetwork, after it"));
  }
  const std::string& timestep = record->forward->spec->timestep;
  std::vector<std::string> names;
  const auto publish = [&](const std::string& blob, std::int64_t t, Tensor value) {
    names.push_back(StrCat(prefix, "_", blob, t));
    run.host().workspace().CreateBlob(names.back()).SetTensor(std::move(value));
  };
  for (std::int64_t t = 0; t < record->num_steps; ++t) {
    for (const auto& [blob, final] : record->plan->steps->finals) {
      const StepPlan& plan = *record->plan->steps;
      const Slot& slot = plan.slots[final.slot];
      // Captured tensors are in the workspace already; what is computed of them once is not.
      const bool is_captured =
          slot.storage_class == StorageClass::kShared && slot.base < plan.num_bases - std::ssize(plan.arena);
      if (is_captured || blob == timestep) continue;
      const Tensor value = record->steps->Final(blob, t);
      if (value.defined()) publish(blob, t, value.Clone());  // others are objects of nested operators
    }
    publish(timestep, t, Tensor::Of<std::int32_t>({1}, {static_cast<std::int32_t>(t)}));
  }
  run.host().Output(0).SetTensor(Tensor::Of<std::string>(Shape({static_cast<std::int64_t>(names.size())}), names));
}

const Registration blob_fetcher = Operator("RecurrentNetworkBlobFetcher")
                                      .Doc(
                                          "Copies every tensor of the step net, for every step t, to the blob "
                                          "\"<prefix>_<blob><t>\" of the workspace. "
                                          "The arguments step_output_src and step_output_dst of RecurrentNetwork give "
                                          "chosen blobs as [T, …] instead.")
                                      .Input("record", "last output of RecurrentNetwork")
                                      .Output("names", "string [K]: names of the blobs made")
                                      .Arg("prefix", "rnn", "start of the names")
                                      .HasSideEffects()
                                      .StopsGradient()
                                      .OnEveryDevice({.make = [](const OperatorCall& op) -> RunFn {
                                                        const std::string prefix = op.String("prefix");
                                                        return [prefix](const OpRun& run) { Fetch(run, prefix); };
                                                      },
                                                      .takes_blobs = true,
                                                      .host_outputs = {0}});

}  // namespace
}  // namespace stepnet
