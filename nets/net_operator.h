// NetOperator: one operator that runs on blobs. Infers shapes when the inputs' shapes change, provides outputs, runs
// the kernel: in parts on several threads where the type can be split, the executor uses threads and there is enough to
// do. Not thread-safe: it remembers the shapes of its last run.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "stepnet/core/cost.h"
#include "stepnet/core/operator.h"

namespace stepnet {

class NetOperator {
 public:
  // Blobs are given to each run. Throws what the kernel factory throws.
  explicit NetOperator(OperatorCall call);
  // Bound to the blobs of its names; creates outputs that do not exist.
  NetOperator(OperatorCall call, Workspace& workspace);

  // Runs on the blobs that it is bound to. Throws kTypeMismatch when an input holds no tensor, what the shape rule
  // throws, and what the kernel throws.
  void Run(RunContext& context) { RunOn(inputs_, outputs_, *workspace_, context, /*step=*/0); }
  // Runs on these blobs, in the order of the operator's inputs and outputs.
  void RunOn(std::span<Blob* const> inputs, std::span<Blob* const> outputs, Workspace& workspace, RunContext& context,
             std::int64_t step);

  const OperatorCall& call() const { return call_; }
  const std::string& text() const { return text_; }      // "y = FC(x, w, b)"
  bool checks_values() const { return checks_values_; }  // it may, depending on what it is given
  bool stops_after_faults() const { return stops_after_faults_; }
  // Whether a run that stops after a fault would leave outputs as they are: in place, or in memory that is theirs alone
  // and has room for what the last run gave. Otherwise a run gives their blobs other memory.
  bool WritesWhereOutputsAre() const;
  Device device() const { return device_; }
  // The blobs that it is bound to.
  std::span<Blob* const> inputs() const { return inputs_; }
  std::span<Blob* const> outputs() const { return outputs_; }
  // Estimate for the shapes of the last run; zero where the type declares no cost.
  Cost LastCost() const;
  std::string InputsText() const;  // "x float [32, 64], w float [256, 128]", for messages

 private:
  // Shows the kernel copies on the host of what it reads there.
  void CopyHostInputs(std::span<Blob* const> inputs);
  std::vector<TensorInfo> InferShapes(std::span<Blob* const> inputs, RunContext& context);
  void PrepareOutputs(std::span<Blob* const> inputs, std::span<Blob* const> outputs, RunContext& context);
  bool InputsChanged(std::span<Blob* const> inputs);
  const Target& target() const { return *call_.options().target; }
  int NumParts() const;
  void RunParts(RunContext& context, std::int64_t step);

  OperatorCall call_;
  std::string text_;
  RunFn kernel_;
  bool checks_values_ = false;
  bool stops_after_faults_ = false;
  bool takes_blobs_ = false;
  const Device device_;
  std::vector<int> host_inputs_;     // of the kernel
  std::vector<Tensor> host_copies_;  // of a run, by input
  bool uses_threads_ = false;
  bool shapes_read_values_ = false;  // of outputs, for inputs such as the last ones: they follow in each run anew
  Workspace* workspace_ = nullptr;
  std::vector<Blob*> inputs_;
  std::vector<Blob*> outputs_;
  std::vector<int> in_place_of_;  // for each output the input that is the same blob, or -1
  std::vector<TensorInfo> input_infos_;
  std::vector<TensorInfo> output_infos_;
  std::vector<TensorView> input_views_;
  std::vector<TensorView> output_views_;
  int parts_ = 1;  // of a run on such inputs
};

}  // namespace stepnet
