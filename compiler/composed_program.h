// ComposedProgram: several operators as one region, made once a process for operators that are alike and joined alike.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "stepnet/core/formulas/column_programs.h"
#include "stepnet/core/formulas/formula_cache.h"
#include "stepnet/core/regions/region_composition.h"
#include "stepnet/core/regions/region_program.h"

namespace stepnet {

// Immutable; any number of threads may use it at once.
class ComposedProgram {
 public:
  ComposedProgram(ComposedRegion composed, std::vector<std::shared_ptr<const OperatorParts>> made_of)
      : composed_(std::move(composed)), made_of_(std::move(made_of)) {}

  const Region& region() const { return composed_.region; }
  const std::vector<int>& inputs() const { return composed_.inputs; }  // the tensor of each
  const std::vector<int>& outputs() const { return composed_.outputs; }
  // It runs on the CPU, and is made when it is first asked for: passes and devices do without.
  const RegionProgram& program() const;
  // The same for parts of the columns.
  ColumnPrograms& column_programs() const { return column_programs_; }

 private:
  const ComposedRegion composed_;
  const std::vector<std::shared_ptr<const OperatorParts>> made_of_;  // held: their addresses are those of a key
  mutable std::once_flag once_;
  mutable std::optional<RegionProgram> program_;
  mutable ColumnPrograms column_programs_;
};

struct OperatorToCompose {
  std::shared_ptr<const OperatorParts> parts;
  std::vector<int> tensors;  // of its inputs, then of its outputs
  int run_values = 0;        // the first of the tensors that hold what it reads of the run (RunValue)
};

// Does what ComposeRegions does, of all parts of the operators. The part of an obstacle is the number of the operator.
std::variant<std::shared_ptr<const ComposedProgram>, CompositionObstacle> FindComposed(
    std::span<const OperatorToCompose> operators, const CompositionRequest& request);

}  // namespace stepnet
