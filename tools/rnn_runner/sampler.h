// Sampler: writes text with a language model, character by character, its states carried on.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "stepnet/core/workspace.h"
#include "stepnet/nets/model.h"
#include "stepnet/nets/net.h"
#include "stepnet/tools/rnn_runner/corpus.h"

namespace stepnet::runner {

struct SamplingOptions {
  double temperature = 1;  // probabilities to the power of 1 / temperature; 0: always the most probable
  std::int64_t top_k = 0;  // only among the k most probable; 0: among all
};

// An index into `probabilities`: the one that `uniform`, in [0, 1), falls on. The first of equal ones count as the most
// probable.
std::int64_t Draw(std::span<const float> probabilities, const SamplingOptions& options, double uniform);

class Sampler {
 public:
  // `folder` holds what `rnn_runner train` writes: net.pb with the input tokens, int32 [T, B], the output
  // probabilities, [T, B, V], and RecurrentNetwork operators whose initial states are inputs; init_net.pb, which fills
  // parameters and initial states of B = 1; vocabulary.json. `prepare` may change the workspace before the net is made,
  // which then holds what init_net gives. Throws kInputOutput, and kInvalidNet for another net.
  using Prepare = std::function<void(const Model& model, Workspace& workspace)>;
  Sampler(const std::string& folder, const RunOptions& options, const Prepare& prepare = {});

  const Vocabulary& vocabulary() const { return vocabulary_; }

  // Reads characters, at least one, and gives the probabilities of the next; valid until the next call. Throws
  // kInvalidArgument where they are not finite.
  std::span<const float> Read(const std::vector<std::int32_t>& characters);

 private:
  std::string folder_;
  std::int64_t num_read_ = 0;  // characters
  Vocabulary vocabulary_;
  Workspace workspace_;
  std::vector<std::pair<std::string, std::string>> states_;  // initial, last
  std::unique_ptr<Net> net_;
};

}  // namespace stepnet::runner
