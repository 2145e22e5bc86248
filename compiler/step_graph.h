// StepGraph: a step net in single assignment.
//
// Every write of a blob makes a new value, so that no reader of this graph meets a name that changes its meaning; the
// blob's name stays with the value, for messages and for readers outside (links, gradients, fetched blobs).
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "stepnet/core/operator.h"

namespace stepnet {

struct StepValue {
  std::string blob;
  int version = 0;       // 0: defined before the first operator; then 1, 2, … in program order
  TensorInfo info;       // meaningless when dynamic
  bool dynamic = false;  // its dtype and shape, or even that it is a tensor, is known only when it has been computed
  int producer = -1;     // index of the node that writes it; -1 for version 0
};

struct StepNode {
  OperatorCall init;
  int op_index = 0;          // in the NetDef
  std::vector<int> inputs;   // values
  std::vector<int> outputs;  // values
  bool dynamic = false;      // runs with blobs: manages its outputs, or shapes are known only at each step
};

struct StepGraph {
  std::string name;
  std::vector<StepValue> values;
  std::vector<StepNode> nodes;          // in program order
  std::map<std::string, int> first;     // blob → its first value
  std::map<std::string, int> last;      // blob → its value after the last operator
  std::set<std::string> dynamic_blobs;  // that have a dynamic value

  // net cell(x, w, b) {
  //   a.1 = FC(x, w, b)      float [1, 32, 64]
  // }
  std::string ToString() const;
  std::string NameOf(int value) const;  // "a.1", version 0 as "a"
};

// A blob that has a value before the first operator of the step net runs.
struct StepInput {
  TensorInfo info;
  bool dynamic = false;
};

// Resolves names and infers dtypes and shapes, starting from `inputs` (by blob). What no shape rule tells is known of
// the blobs in `linked`, whose memory is given. Throws what shape rules throw, with the operator as place, and
// kInvalidNet for a blob that is read before anything writes it.
StepGraph ImportStepNet(const NetDef& net, const std::map<std::string, StepInput>& inputs, const RunOptions& options,
                        const std::map<std::string, TensorInfo>& linked = {});

}  // namespace stepnet
