// The model of a training run, in the files that `sample` reads: net.pb, init_net.pb, vocabulary.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "stepnet/tools/rnn_runner/corpus.h"
#include "stepnet/tools/rnn_runner/trainer.h"

namespace stepnet::runner {

class TrainedModel {
 public:
  // The model of `trainer` in `folder`, which need not be there so far. `vocabulary` and `trainer` must outlive it.
  TrainedModel(std::string folder, const Vocabulary& vocabulary, const Trainer& trainer);

  // Where Write writes, in the folder.
  static std::vector<std::string> FileNames();
  // Writes all files, with the parameters as they are, and returns the checksum of these. Throws kInputOutput.
  std::uint32_t Write() const;

  // Writes those files that follow from the run and are not as they should be, and returns their names: all but that of
  // the parameters. Throws kInputOutput.
  std::vector<std::string> Mend() const;
  // Why the file of the parameters is none of this model; nothing where it is one. Which values they must have is not
  // known here: `checksum` becomes what Write returned when it wrote them.
  std::optional<std::string> FaultOfParameters(std::uint32_t* checksum) const;

 private:
  std::string Path(const char* name) const { return folder_ + "/" + name; }

  std::string folder_;
  const Vocabulary& vocabulary_;
  const Trainer& trainer_;
};

}  // namespace stepnet::runner
