// RecurrentNetworkBlobFetcher: copies the step net's blobs of every step into the workspace.
#include <set>

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
  std::vector<std::string> names;
  for (const auto& [blob, final] : record->plan->steps->finals) {
    const StorageClass storage_class = record->plan->steps->slots[final.slot].storage_class;
    if (storage_class == StorageClass::kShared) continue;  // captured: the workspace has it
    for (std::int64_t t = 0; t < record->num_steps; ++t) {
      const Tensor value = record->steps->Final(blob, t);
      if (!value.defined()) continue;  // an object of a nested operator
      names.push_back(StrCat(prefix, "_", blob, t));
      run.host().workspace().CreateBlob(names.back()).SetTensor(value.Clone());
    }
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
                                      .ManagesOutputs()
                                      .HasSideEffects()
                                      .StopsGradient()
                                      .Cpu([](const OpInit& op) -> RunFn {
                                        const std::string prefix = op.String("prefix");
                                        return [prefix](const OpRun& run) { Fetch(run, prefix); };
                                      });

}  // namespace
}  // namespace stepnet
