// StageStreams: the steps of a run, put into streams of a GPU.
//
// Where they are recorded, stages that take chunks of the steps (compiler/find_stages.h) have a stream each, joined
// where one reads what another wrote: while a layer is at a chunk, the one behind it is at the chunk before. In the
// graph the joins are edges, and nobody waits for them on the host. Where a graph ends and the next begins all streams
// meet.
#pragma once

#include <memory>
#include <vector>

#include "stepnet/executor/recording_executor.h"
#include "stepnet/gpu/cuda/cuda_runtime.h"

namespace stepnet {

// Has temporary memory of each stream.
class StageStreams : public StepRunner {
 public:
  StageStreams();
  ~StageStreams() override;
  // Puts all into the context's queue, or, while that is recorded, into streams that join it. Memory that temporaries
  // grow out of is free in the order of the queue, so the same has run once before it is recorded.
  void Run(RunState& state, RunContext& context) override;

 private:
  class Joins;
  void Prepare(const RunState& state, const RunContext& lender);
  // While it is recorded, with what is to be known of that; or null.
  void RunChunks(RunState& state, RecordingNotes* notes);

  std::unique_ptr<Joins> joins_;      // of the last run: streams are not to end while they are recorded
  std::vector<RunContext> contexts_;  // of each stream
};

}  // namespace stepnet
