// Training nets: a net whose one run is one iteration of training, made from a net that computes a loss.
//
//   const TrainingNet training = MakeTrainingNet(net, "loss", {"w", "b"}, optimizer);
//   RunNetOnce(training.init_net, workspace);  // after the parameters are there
//   Net::Create(training.net, workspace)->Run();
#pragma once

#include <map>
#include <string>
#include <vector>

#include "stepnet/proto/net.pb.h"
#include "stepnet/proto/train.pb.h"

namespace stepnet {

struct TrainingNet {
  NetDef init_net;  // reads the parameters; fills `state`
  NetDef net;       // the forward net, gradients, then what changes parameters and state

  // What the optimizer hands on from one iteration to the next: moments or momentum, of the shape and dtype of their
  // parameters, and the number of iterations done, int64 [1].
  std::vector<std::string> state;
  std::string iteration;      // which of them is that number
  std::string learning_rate;  // blob, [1]: that of the last iteration, as the operators of the method take it
  std::string gradient_norm;  // blob, [1], before clipping; "" without clip_norm
};

// Numbers of an optimizer that its floats do not hold, as 1 / 3: by the names of their fields in OptimizerDef.
using ExactNumbers = std::map<std::string, double>;

// The iteration that lowers the scalar `loss` by `parameters`, which are inputs of `net`. RecurrentNetwork operators
// without a backward step net get one. All blobs of the optimizer are called optimizer/…. `in_double`: the parameters
// are double, and so are the optimizer's numbers: `exact` or, of fields that are not in it, as they were written
// (InDouble).
// Throws kInvalidArgument for values of `optimizer` that make no sense, naming the field; kInvalidNet for parameters
// that the loss does not depend on, for blobs of the net that are called optimizer/…, and for what AddGradients and
// AddBackwardStepNets refuse.
TrainingNet MakeTrainingNet(const NetDef& net, const std::string& loss, const std::vector<std::string>& parameters,
                            const OptimizerDef& optimizer, bool in_double = false, const ExactNumbers& exact = {});

// What a checkpoint of training holds beside tensors of the training net: the state of the run, a string, and the
// checksum of all before.
inline constexpr const char* kTrainStateBlob = "train_state";
inline constexpr const char* kTrainChecksumBlob = "crc32c";
// Whether a blob of a checkpoint serves its training alone: one of these, or of the optimizer.
bool IsOfTrainingAlone(const std::string& blob);

// Throws kInvalidArgument, naming the field, for values that make no sense.
void CheckOptimizer(const OptimizerDef& optimizer);

}  // namespace stepnet
