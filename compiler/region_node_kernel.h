// RegionNodeKernel: runs a region of several operators, as one program where they can be one
// (core/region_composition.h), and otherwise one after the other.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "stepnet/compiler/composed_program.h"
#include "stepnet/compiler/step_graph.h"
#include "stepnet/core/programs_by_shapes.h"

namespace stepnet {

struct RegionNodeKernelSpec {
  std::vector<RegionCall> calls;  // of operands: inputs, outputs, locals
  int num_inputs = 0;
  int num_outputs = 0;
  int num_locals = 0;
  std::vector<std::string> names = {};             // of operands, for people
  std::vector<std::pair<int, int>> in_place = {};  // operands that are one memory: input, output
  bool one_by_one = false;                         // memory is shared in some other way
  std::vector<TensorInfo> inputs = {};             // of one step
  bool backward = false;
};

class RegionNodeKernel {
 public:
  // Throws what factories of kernels throw, with the operator.
  RegionNodeKernel(RegionNodeKernelSpec spec, DeviceKind device);

  void Run(const OpRun& run) const;

  // For inputs of these descriptions, in place of those of one step.
  int MaxParts(std::span<const TensorInfo> inputs) const;
  Cost EstimatedCost(std::span<const TensorInfo> inputs) const;
  // Why the region is no single program for these; empty where it is one.
  std::string Obstacle(std::span<const TensorInfo> inputs) const;

 private:
  // What there is to run for some shapes.
  struct ForShapes {
    int num_inputs = 0;
    std::vector<TensorInfo> operands = {};
    std::shared_ptr<const ComposedProgram> composed = {};  // null: there is an obstacle
    std::string obstacle = {};

    bool IsFor(const OpRun& run) const;
    bool IsFor(std::span<const TensorInfo> inputs) const;
  };

  template <typename Use>
  auto With(std::span<const TensorInfo> inputs, const Use& use) const;
  std::shared_ptr<const ForShapes> Make(std::span<const TensorInfo> inputs) const;
  std::shared_ptr<const OperatorParts> PartsOf(const RegionCall& call, ForShapes* made) const;
  void RunFor(const ForShapes& shapes, const OpRun& run) const;
  void RunOneByOne(const ForShapes& shapes, const OpRun& run, bool keeps_outputs) const;
  void RunOperator(size_t number, std::span<const TensorView> operands, const OpRun& run) const;
  RunRange RangeOf(const RegionCall& call, std::span<const TensorView> operands, const OpRun& run) const;

  const RegionNodeKernelSpec spec_;
  std::vector<RunFn> kernels_;  // of `calls`
  mutable ProgramsByShapes<ForShapes> programs_;
};

// Which operands of a region's operators have rows, as RowOperands says; `inputs` says it of the inputs. Nothing where
// steps cannot be taken at once.
std::optional<std::vector<bool>> OperandsWithRows(std::span<const RegionCall> calls,
                                                  std::span<const TensorInfo> operands, std::vector<bool> inputs);

}  // namespace stepnet
