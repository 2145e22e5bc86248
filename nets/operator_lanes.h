// Operators of a net that may run beside each other, where a run is recorded to be played (core/recorded_run.h).
#pragma once

#include <vector>

#include "stepnet/nets/recording.h"

namespace stepnet {

struct OperatorLane {
  int op = 0;
  int lane = 0;
  std::vector<int> behind = {};  // operators of other lanes that it waits for, by their places in the list
};

// Puts each of the first `count` operators that is no entry into one of `num_lanes` lanes (Recorder::InLane), in their
// order. Operators that run steps and need nothing of each other, as the two directions of a layer, get lanes of their
// own; all others, and all of nets with fewer than two of those, are where what they read was written.
std::vector<OperatorLane> FindLanes(const std::vector<OperatorToRecord>& operators, int count, int num_lanes);

}  // namespace stepnet
