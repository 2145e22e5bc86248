// The configuration of `rnn_runner train`: text of the message TrainConfig.
#pragma once

#include <string>

#include "stepnet/proto/train.pb.h"
#include "stepnet/tools/rnn_runner/language_model.h"

namespace stepnet::runner {

struct TrainJob {
  TrainConfig config;       // as written, and decay_over where it follows from the iterations
  std::string text;         // file, where it is found from here
  std::string cell;         // so, too
  LanguageModelSpec model;  // the cell with the config's options; the vocabulary is still unknown
};

// Throws kInputOutput for files that cannot be read or parsed; kInvalidArgument, naming the field, for values that make
// no sense or are missing.
TrainJob ReadTrainJob(const std::string& path);

// What differs between two states that should be of one run, as "batch: 50 → 32; …"; "" where nothing does. A run may
// go on to another number of iterations than it was begun with, if they are more than the checkpoint has done.
std::string Differences(const TrainState& checkpoint, const TrainState& now);

}  // namespace stepnet::runner
