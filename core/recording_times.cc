#include "stepnet/core/recording_times.h"

#include <mutex>

namespace stepnet {
namespace {

struct Shared {
  std::mutex mutex;
  RecordingTimes times;
};

Shared& TheShared() {
  static Shared shared;
  return shared;
}

}  // namespace

RecordingTimes RecordingsSoFar() {
  Shared& shared = TheShared();
  const std::lock_guard lock(shared.mutex);
  return shared.times;
}

void AddRecordingTimes(const RecordingTimes& times) {
  Shared& shared = TheShared();
  const std::lock_guard lock(shared.mutex);
  shared.times.recordings += times.recordings;
  shared.times.graphs += times.graphs;
  shared.times.nodes += times.nodes;
  shared.times.host_seconds += times.host_seconds;
  shared.times.capture_seconds += times.capture_seconds;
  shared.times.instantiate_seconds += times.instantiate_seconds;
}

}  // namespace stepnet
