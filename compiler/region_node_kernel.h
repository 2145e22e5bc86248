// RegionNodeKernel: runs a region of several operators, as one program where they can be one
// (core/regions/region_composition.h), and otherwise one after the other.
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

// What there is to run, for operands that are numbered as those of RegionCall.
struct RegionNodeKernelSpec {
  std::vector<RegionCall> calls;  // of operands: inputs, outputs, locals
  int num_inputs = 0;
  int num_outputs = 0;
  int num_locals = 0;
  std::vector<std::string> names = {};             // of operands, for people
  std::vector<std::pair<int, int>> in_place = {};  // operands that are one memory: input, output
  int sharing_call = -1;                           // a call for which memory is shared in some other way; -1: for none
  std::vector<TensorInfo> inputs = {};             // of one step
  std::vector<Tensor> values = {};                 // of operands, where elements are known (TensorInfo::value)
  bool backward = false;
  std::uint64_t moving = 0;       // bit k: each step has much memory of its own for operand k
  std::int64_t moving_bytes = 0;  // of all of these, in a step
  const Target* target = &kCpuTarget;
};

// What there is to run for a node, or for what may become one. REQUIRES: a region of several operators.
RegionNodeKernelSpec SpecOf(const StepGraph& graph, const StepNode& node);

// Why operators are no single program.
struct RegionObstacle {
  int call = 0;  // that it is about
  std::string what = {};
  bool repeats = false;  // the call would be computed too often, because others have more elements than it has
  std::int64_t region_elements = 0;  // the call has others than the region, which has so many; 0: something else is why
};

class RegionNodeKernel {
 public:
  // Throws what factories of kernels throw, with the operator.
  RegionNodeKernel(RegionNodeKernelSpec spec, DeviceKind device);

  // Nothing where the operators are one program for inputs of these descriptions, on this device.
  static std::optional<RegionObstacle> FindObstacle(const RegionNodeKernelSpec& spec,
                                                    std::span<const TensorInfo> inputs, DeviceKind device);
  // That program; null where there is an obstacle, or where it reads what belongs to a run and is no operand.
  static std::shared_ptr<const ComposedProgram> FindProgram(const RegionNodeKernelSpec& spec, DeviceKind device);

  void Run(const OpRun& run) const;

  // The inputs have these descriptions, in place of those of one step.
  int MaxParts(std::span<const TensorInfo> inputs) const;
  Cost EstimatedCost(std::span<const TensorInfo> inputs) const;
  // The program that the operators are; null where they are no single one.
  std::shared_ptr<const ComposedProgram> Composed(std::span<const TensorInfo> inputs) const;
  // That program as a device is given it (DeviceSpec::make_region); nothing where there is none. It refers to what
  // Composed(inputs) gives.
  std::optional<DeviceRegion> ForDevice(std::span<const TensorInfo> inputs) const;
  // Why the region is no single program for these; empty where it is one.
  std::string Obstacle(std::span<const TensorInfo> inputs) const;

 private:
  struct ForShapes;

  template <typename Use>
  auto With(std::span<const TensorInfo> inputs, const Use& use) const;
  void RunFor(const ForShapes& shapes, const OpRun& run) const;
  void RunAsOne(const ForShapes& shapes, const OpRun& run) const;
  std::uint64_t MovingOf(const ForShapes& shapes, const OpRun& run) const;
  DeviceRegion RegionOf(const ForShapes& shapes) const;
  void RunOneByOne(const ForShapes& shapes, const OpRun& run, bool keeps_outputs) const;
  void RunOperator(size_t number, std::span<const TensorView> operands, const OpRun& run) const;
  RunRange RangeOf(const RegionCall& call, std::span<const TensorView> operands, const OpRun& run) const;

  const RegionNodeKernelSpec spec_;
  const DeviceKind device_;
  std::vector<RunFn> kernels_;  // of `calls`
  mutable ProgramsByShapes<ForShapes> programs_;
};

// Which operands of a region's operators have rows, as RowOperands says; `inputs` says it of the inputs. Nothing where
// steps cannot be taken at once.
std::optional<std::vector<bool>> OperandsWithRows(std::span<const RegionCall> calls,
                                                  std::span<const TensorInfo> operands, std::vector<bool> inputs);

}  // namespace stepnet
