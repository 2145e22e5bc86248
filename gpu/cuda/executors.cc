// The executors of the GPU. "serial" puts the steps of a plan into the stream, one instruction after the other. "cuda",
// the default, records them as a CUDA graph, and plays that; nets that run on it record whole runs.
#include "stepnet/executor/recording_executor.h"
#include "stepnet/gpu/cuda/stage_streams.h"

namespace stepnet {
namespace {

const ExecutorRegistration on_stream("serial", DeviceKind::kCuda, MakeSerialExecutor);
const ExecutorRegistration by_graphs("cuda", DeviceKind::kCuda,
                                     [] {
                                       return MakeRecordingExecutor([] { return std::make_unique<StageStreams>(); });
                                     },
                                     {.records_runs = true});

}  // namespace
}  // namespace stepnet
