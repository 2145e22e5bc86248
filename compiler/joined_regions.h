// JoinedRegions: several regions that a device runs as one kernel, one after the other (passes/join_regions.cc).
//
// They keep groups apart, as rows of the batch are (core/regions/region_groups.h), and each group goes through all
// regions: where one ends, nothing waits for the others.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "stepnet/compiler/composed_program.h"
#include "stepnet/compiler/step_graph.h"

namespace stepnet {

class JoinedRegions {
 public:
  // Regions that run in this order. Nothing where they are not to run by groups: one of them is no single program,
  // reads what belongs to a run and is no operand, adds up over rows, or has too many elements in a group
  // (Target::max_group_elements).
  static std::optional<JoinedRegions> Of(const StepGraph& graph, std::span<const StepNode> regions);

  // Returns what the device is given; it refers to what this holds.
  DeviceRegion ForDevice() const;
  // Runs what a node of them is, whose operands are these values.
  RunFn MakeRun(const StepNode& node) const;

 private:
  class OnDevice;
  struct One {
    std::shared_ptr<const ComposedProgram> program;
    std::vector<int> inputs, outputs;  // values
  };
  std::vector<One> regions_;
  std::int64_t groups_ = 1;
  DeviceKind device_ = DeviceKind::kCpu;
  int device_index_ = 0;
};

}  // namespace stepnet
