// Gradients that nobody has recorded: a net gets gradient operators, and what they give is compared with how the loss
// changes along one random direction of each input, in double.
#pragma once

#include <string>
#include <vector>

#include "stepnet/nets/net.h"

namespace stepnet::runner {

struct Direction {
  std::string input;
  double gradient = 0;    // along the direction, by the operators
  double difference = 0;  // by central differences
  double allowed = 0;     // between them
};

// Gives those of the inputs of `net` on which its losses depend; gradient operators that it has are left out. The loss
// is the sum of the blobs that the net starts its gradients from or else, of those that no operator reads. `start`
// holds what the net reads.
std::vector<Direction> CompareDirections(const NetDef& net, const Workspace& start, const RunOptions& options);

}  // namespace stepnet::runner
