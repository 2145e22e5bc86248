// NetOperator: one operator of a net, bound to blobs. Infers shapes when the inputs' shapes change, provides outputs,
// runs the kernel.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "stepnet/core/operator.h"

namespace stepnet {

class NetOperator {
 public:
  // Throws as OpInit and the kernel factory do.
  NetOperator(OpInit init, Workspace& workspace);

  // Throws kTypeMismatch when an input holds no tensor, what the shape rule throws, and what the kernel throws.
  void Run(RunContext& context);

  const OpInit& init() const { return init_; }
  // Estimate for the shapes of the last run; zero where the type declares no cost.
  Cost LastCost() const;
  std::string InputsText() const;  // "x float [32, 64], w float [256, 128]", for messages

 private:
  class Host;
  void PrepareOutputs();
  bool InputsChanged();

  OpInit init_;
  Workspace& workspace_;
  RunFn kernel_;
  std::vector<Blob*> inputs_;
  std::vector<Blob*> outputs_;
  std::vector<int> in_place_of_;  // for each output the input that is the same blob, or -1
  std::vector<TensorInfo> input_infos_;
  std::vector<TensorInfo> output_infos_;
  std::vector<TensorView> input_views_;
  std::vector<TensorView> output_views_;
};

}  // namespace stepnet
