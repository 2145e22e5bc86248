// RandomStep: a random step net, as a recurrent operator and, for comparison, with its steps written out one after the
// other in an ordinary net.
//
// It has one to three states with one to three initial rows, sequences with offsets, windows of sequences and of states
// (some end with the row that the step itself gives), links in any order, operators in place, blob names that several
// operators write, states that are handed on to other states, several states that are one blob, and weights that
// several operators share.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "stepnet/core/tensor.h"
#include "stepnet/nets/recurrent_spec.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {

// kKnownShapes: also those that need the number of the step, and those that repeat an input; kAny: also those whose
// shapes are known only when they run.
enum class StepOperators { kPlain, kKnownShapes, kAny };

// How many seeds a test of random steps tries: as the environment variable STEPNET_SEEDS says, or as many as it says
// itself (FewerIfSanitized).
unsigned NumSeeds(unsigned usual);
// How much has to be found at least in NumSeeds(usual_seeds), where more than `usual` is found in usual_seeds: of fewer
// seeds a like part less a quarter, since a part has a like part only about.
int MinOfSeeds(int usual, unsigned usual_seeds);

class RandomStep {
 public:
  // Values of a step are [rows, 2, size].
  explicit RandomStep(unsigned seed, std::int64_t size = 3, StepOperators operators = StepOperators::kPlain);

  // A net of one RecurrentNetwork.
  NetDef Recurrent() const;
  // What it reads, for `steps` steps, in double.
  std::map<std::string, Tensor> Feeds(std::int64_t steps) const;
  // Its outputs [T, …].
  std::vector<std::string> Outputs() const;

  // Recurrent with the gradients of the sum of all outputs by all that it reads.
  NetDef Training() const;

  // The same in plain operators, in single assignment: row r of a sequence or initial state x is the blob x@r.
  struct WrittenOut {
    NetDef net;
    std::map<std::string, Tensor> feeds;
    std::map<std::string, std::vector<std::string>> outputs;  // for each output its blobs, step by step
    std::map<std::string, std::vector<std::string>> rows;     // for each of Feeds the blobs that hold its rows, or it
  };
  WrittenOut WriteOut(std::int64_t steps) const;

 private:
  friend class StepDrawer;
  struct State {
    std::string name, initial;
    std::int64_t num_initial = 1;
    std::string next;  // the blob that becomes its new row
  };

  const std::int64_t size_;
  std::vector<Link> links_;
  std::vector<State> states_;
  std::vector<OperatorDef> ops_;
  std::vector<int> weights_;  // of pairs w<k>, b<k>
  std::vector<std::string> step_outputs_;
};

// A net of one RecurrentNetwork, as Recurrent, where nobody sees its states (private_states), and the outputs that were
// all their rows are the last ones.
NetDef WithLastRows(NetDef net);

}  // namespace stepnet
