// Trainer: a language model and its optimizer, iteration by iteration. What an iteration gives is a function of the
// job, the text and the number of the iteration alone, bit for bit.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "stepnet/core/workspace.h"
#include "stepnet/io/tensor_io.h"
#include "stepnet/nets/net.h"
#include "stepnet/nets/training_net.h"
#include "stepnet/tools/rnn_runner/checkpoint.h"
#include "stepnet/tools/rnn_runner/corpus.h"
#include "stepnet/tools/rnn_runner/metrics.h"
#include "stepnet/tools/rnn_runner/train_config.h"

namespace stepnet::runner {

class Trainer {
 public:
  // Fills the parameters. `job`, with the vocabulary's size, and `corpus` must outlive it. Throws kInputOutput for a
  // text that is shorter than a batch, and what MakeLanguageModel throws.
  Trainer(const TrainJob& job, const Corpus& corpus, RunOptions options);

  std::int64_t iteration() const { return iteration_; }  // those that are done
  std::int64_t iterations_per_epoch() const { return iterations_per_epoch_; }
  std::int64_t num_parameters() const;  // elements

  // What an iteration runs, for observers.
  Net& net() { return *net_; }

  // It is then as it was made: no iteration is done, parameters and the optimizer are filled anew.
  void StartAnew();

  // Does one more. States go on from the iteration before, from zero at the start of an epoch.
  IterationMetrics Iterate();

  // Bits per character of the validation text.
  double Validate();

  // Parameters, the optimizer's tensors, and the states: what Restore goes on from.
  NamedTensors Tensors() const;
  // Goes on from a checkpoint. Throws kInputOutput, with everything that is wrong, for tensors that are not those of
  // this trainer; it is then as it was.
  void Restore(const SavedCheckpoint& checkpoint);

  // The model with its parameters as they are, for one text at a time (B = 1), from zero states on. Without values it
  // has their names and shapes alone.
  NetDef ModelInitNet(bool with_values = true) const;
  NetDef ModelNet() const;

 private:
  void ResetStates(Workspace& workspace, std::int64_t batch) const;
  std::vector<std::string> TensorNames() const;
  std::vector<std::string> Constants() const;
  static void FillText(const Streams& text, std::int64_t begin, std::int64_t steps, Workspace& workspace);
  double ValidateSteps(std::int64_t begin, std::int64_t steps);

  const TrainJob& job_;
  RunOptions options_;
  LanguageModel model_;
  TrainingNet training_;
  Streams text_;
  Streams validation_text_;
  std::int64_t iterations_per_epoch_;
  std::int64_t iteration_ = 0;
  Workspace workspace_;
  std::unique_ptr<Net> net_;
  Workspace validation_workspace_;
  std::unique_ptr<Net> validation_net_;
};

}  // namespace stepnet::runner
