// Language models around a cell: which character comes next?
//
//   tokens [T, B] → Gather(embedding [V, E]) → the cell → FC → softmax over V characters
#pragma once

#include <string>
#include <vector>

#include "stepnet/cells/cell_expand.h"

namespace stepnet::runner {

struct LanguageModelSpec {
  CellSource cell;              // with one input of one dimension, and a first output of one dimension
  CellSizes sizes;              // of the cell, but that of its input
  std::int64_t embedding = 0;   // E
  std::int64_t vocabulary = 0;  // V
};

struct LanguageModel {
  NetDef init_net;  // fills the parameters
  NetDef net;
  std::vector<std::string> parameters;  // what training changes
  std::vector<CarriedState> states;     // initial values are inputs of the net
};

// Inputs: tokens, int32 [T, B], the initial states, and:
// - kTraining, kValidation: targets, int32 [T, B]; output: loss, [], the mean of minus the logarithm of the
//   probabilities of the targets. Only for training, dropout drops.
// - kPrediction: output: probabilities, [T, B, V].
enum class ModelUse { kTraining, kValidation, kPrediction };

// All uses have the same parameters. Throws what ExpandCell throws; kInvalidArgument for a cell that has another input
// or output than said above, or needs inputs of other kinds.
LanguageModel MakeLanguageModel(const LanguageModelSpec& spec, ModelUse use);

}  // namespace stepnet::runner
