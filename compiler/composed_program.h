// ComposedProgram: several operators as one program, made once a process for operators that are alike and joined alike.
#pragma once

#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "stepnet/core/formula_cache.h"
#include "stepnet/core/region_composition.h"
#include "stepnet/core/region_program.h"

namespace stepnet {

struct ComposedProgram {
  RegionProgram program;
  std::vector<int> inputs;  // the tensor of each
  std::vector<int> outputs;
  std::vector<std::shared_ptr<const OperatorParts>> made_of;
};

struct OperatorToCompose {
  std::shared_ptr<const OperatorParts> parts;
  std::vector<int> tensors;  // of its inputs, then of its outputs
  int run_values = 0;        // the first of the tensors that hold what it reads of the run (RunValue)
};

// As ComposeRegions of all parts of the operators. The part of an obstacle is the number of the operator.
std::variant<std::shared_ptr<const ComposedProgram>, CompositionObstacle> FindComposed(
    std::span<const OperatorToCompose> operators, const CompositionRequest& request);

}  // namespace stepnet
