// Makes of a cell the nets that it stands for: one that fills its parameters, and one that runs it over a sequence with
// a RecurrentNetwork operator for each layer and direction.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "stepnet/cells/cell.h"
#include "stepnet/cells/size_expression.h"
#include "stepnet/core/tensor.h"

namespace stepnet {

// How a cell is used.
struct CellUse {
  CellSizes sizes = {};                            // these before those that the cell declares
  std::string scope = {};                          // in front of all names but those of inputs: "encoder/"
  std::map<std::string, std::string> inputs = {};  // input, captured tensor, lengths or mask → blob; default: its name
  std::int64_t batch = 0;                          // that messages about shapes shall name; 0: they say B
  bool training = false;                           // dropout drops, zoneout draws
  bool carry =
      false;  // every state starts from an input and is given at the end, so that a sequence can be run in parts
  bool outer_states = false;  // the same of whole sequences, in any direction
  bool in_double = false;     // what is float is double (nets/double_net.h), and the numbers of the cell are exact
  bool HasOuterStates() const { return carry || outer_states; }
};

// A state from outside of the loop: `initial` is an input, [rows, B, item…], `last` an output of the same shape.
struct CarriedState {
  std::string initial;
  std::string last;
  std::int64_t rows = 1;
  Shape item = {};
  float start = 0;  // what the cell says it is before the first step; 0 for one that is learned or given
};

// A tensor that the net needs from outside.
struct CellNetInput {
  static constexpr std::int64_t kSteps = -1;  // in place of T
  static constexpr std::int64_t kBatch = -2;  // in place of B

  std::string blob;
  DType dtype = DType::kFloat;
  std::vector<std::int64_t> dims;
  bool is_state = false;  // what one starts from, where dims[0] is the number of rows that steps see
};

// The argument of a net of a cell that names what states start from and training changes, where there is such.
inline constexpr const char* kLearnedStates = "learned_initial_states";

struct CellNet {
  NetDef init_net;  // fills parameters, and the constants that states start from
  NetDef net;
  std::vector<CellNetInput> inputs;
  std::vector<CellNetInput> starts;     // initial states that init_net fills, a row for all of the batch
  std::vector<std::string> parameters;  // what training changes
  std::vector<CarriedState> states;     // with HasOuterStates, by layer, then direction, then as the cell lists them
  std::vector<std::string> outputs;     // as the cell lists them, then those of the layers below
  std::vector<Shape> output_items;      // an item of each: [T, B, item…] or, of the last step, [1, B, item…]
  std::vector<DType> output_dtypes;
};

// Names outside of the loop: inputs as they are; parameters, outputs and `<state>_init` behind scope and, of several
// layers and directions, "layer<k>/" and "reverse/" (the last layer's outputs have the scope alone).
// Throws what CheckCell throws; kInvalidArgument for sizes without a value or that the cell does not have;
// kShapeMismatch and what shape rules throw, with the operator and its place in the cell's file.
CellNet ExpandCell(const CellSource& cell, const CellUse& use = {});

}  // namespace stepnet
