// rnn_runner expand: the plain net that a cell stands for.
#include <iostream>

#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/tools/rnn_runner/cell_file.h"
#include "stepnet/tools/rnn_runner/common_flags.h"

DEFINE_string(prefix, "", "what stands before all names but those of inputs, as encoder/");
DEFINE_bool(init, false, "print the net that fills the parameters instead");
DECLARE_bool(training);
DEFINE_bool(carry, false, "every state starts from an input and is an output at the end");

namespace stepnet::runner {
namespace {

int Expand(const std::vector<std::string>& operands) {
  const std::string& path = operands.front();
  if (FLAGS_init && FLAGS_training)
    throw UsageError("--training is of the net, and --init prints that of the parameters");
  const std::optional<CellNet> cell = ExpandCellFile(path, {.scope = FLAGS_prefix, .carry = FLAGS_carry});
  if (!cell) throw Error(ErrorCode::kInputOutput, StrCat(path, " holds no cell"));
  std::cout << PrintMessageText(FLAGS_init ? cell->init_net : cell->net);
  return kOk;
}

}  // namespace

const Command kExpand = {
    .name = "expand",
    .operands = "CELL",
    .doc = "prints the net that a cell stands for",
    .details =
        "CELL is a cell in the short form or as text of a CellDef (docs/authoring.md). The net has a RecurrentNetwork\n"
        "operator for each layer and direction; every program that reads Caffe2's nets reads it. Other commands take\n"
        "cells as they are and need no such step. Cells that shall be parts of one net need a --prefix each, or they "
        "have\n"
        "their parameters in common.",
    .example =
        "rnn_runner expand examples/cells/lstm.cell --size=D=65,H=128 > net.prototxt\n"
        "rnn_runner expand examples/cells/lstm.cell --size=D=65,H=128 --init > init_net.prototxt",
    .flags = WithCommonFlags({CellSizeFlag(),
                              CellOptionFlag(),
                              {.name = "prefix", .value = "TEXT"},
                              {.name = "init"},
                              CellTrainingFlag(),
                              CellDTypeFlag(),
                              {.name = "carry"}}),
    .min_operands = 1,
    .max_operands = 1,
    .unknown_flag = AdviceOnOptions,
    .run = Expand,
};

}  // namespace stepnet::runner
