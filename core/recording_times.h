// RecordingTimes: what it took to record work on devices, since the process began (core/device.h, Recorder).
#pragma once

#include <cstdint>

namespace stepnet {

struct RecordingTimes {
  std::int64_t recordings = 0;
  std::int64_t graphs = 0;         // pieces of them, of which each is played as one
  std::int64_t nodes = 0;          // kernels, copies and fills in them
  double host_seconds = 0;         // in the code that puts in the work, each of whose calls is captured
  double capture_seconds = 0;      // until all of it is a graph
  double instantiate_seconds = 0;  // of graphs that can be played, and to bring them to the device

  double seconds() const { return host_seconds + capture_seconds + instantiate_seconds; }
};

// Safe to call from any thread. AddRecording is for recorders, one call for what is kept of each recording.
RecordingTimes RecordingsSoFar();
void AddRecording(const RecordingTimes& times);

}  // namespace stepnet
