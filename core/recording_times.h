// RecordingTimes: what it took to record work on devices, since the process began (core/device.h, Recorder).
#pragma once

#include <cstdint>

namespace stepnet {

struct RecordingTimes {
  std::int64_t recordings = 0;
  std::int64_t graphs = 0;     // pieces of them, of which each is played as one
  std::int64_t nodes = 0;      // kernels, copies and fills in them
  double host_seconds = 0;     // in the code that puts in the work, each of whose calls is captured
  double capture_seconds = 0;  // until all of it is a graph
  // To make graphs that can be played, and to bring them to the device; of a recording that is one graph on a thread of
  // its own.
  double instantiate_seconds = 0;

  double seconds() const { return host_seconds + capture_seconds + instantiate_seconds; }
};

// Safe to call from any thread. AddRecordingTimes is for recorders, of what is kept.
RecordingTimes RecordingsSoFar();
void AddRecordingTimes(const RecordingTimes& times);

}  // namespace stepnet
