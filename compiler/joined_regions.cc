#include "stepnet/compiler/joined_regions.h"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <utility>

#include "stepnet/compiler/region_node_kernel.h"
#include "stepnet/core/regions/region_groups.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

// How many there are to compute, about: of whole rows, each takes as long as if it had some hundred elements.
std::int64_t ElementsOfGroup(const Region& region, std::int64_t groups, const Target& target) {
  if (!NeedsWholeRows(region)) return region.NumElements() / groups;
  return region.NumRows() / groups * std::max(region.sizes[3], target.min_elements_of_row);
}

bool IsOneMemory(const StepGraph& graph, int a, int b) {
  const int one = graph.values[a].home, other = graph.values[b].home;
  return one == other || ShareBytes(graph.homes[one], graph.homes[other]);
}

// Whether values that share bytes begin at the same one: so what shares bytes with one of them does with all.
bool BeginAlike(const StepGraph& graph, const std::vector<int>& values) {
  for (const int a : values) {
    for (const int b : values) {
      if (!IsOneMemory(graph, a, b)) continue;
      const Slot &one = graph.homes[graph.values[a].home].slot, &other = graph.homes[graph.values[b].home].slot;
      if (one.BeginInBase() != other.BeginInBase() || one.row_bytes != other.row_bytes) return false;
    }
  }
  return true;
}

// The memory of one of the values, by a number that those have which share bytes. REQUIRES: BeginAlike.
int MemoryOf(const StepGraph& graph, int value, const std::vector<int>& values) {
  return *std::ranges::find_if(values, [&](int other) { return IsOneMemory(graph, value, other); });
}

}  // namespace

// Made when it first runs: plans need no device.
class JoinedRegions::OnDevice {
 public:
  explicit OnDevice(JoinedRegions joined) : joined_(std::move(joined)) {}

  const RunRegionFn& Get() {
    std::call_once(once_, [&] { run_ = GetDeviceSpec(joined_.device_).make_region(joined_.ForDevice()); });
    return run_;
  }

 private:
  const JoinedRegions joined_;
  std::once_flag once_;
  RunRegionFn run_;
};

std::optional<JoinedRegions> JoinedRegions::Of(const StepGraph& graph, std::span<const StepNode> regions) {
  JoinedRegions joined;
  joined.device_ = graph.target->device;
  joined.device_index_ = regions[0].calls()[0].call->options().device_index;
  std::vector<int> values;
  for (const StepNode& node : regions) {
    std::shared_ptr<const ComposedProgram> program = RegionNodeKernel::FindProgram(SpecOf(graph, node), joined.device_);
    if (program == nullptr) return {};
    One& one = joined.regions_.emplace_back(One{.program = std::move(program), .inputs = {}, .outputs = {}});
    for (const int operand : one.program->inputs()) one.inputs.push_back(node.ValueOf(operand));
    for (const int operand : one.program->outputs()) one.outputs.push_back(node.ValueOf(operand));
    values.insert(values.end(), one.inputs.begin(), one.inputs.end());
    values.insert(values.end(), one.outputs.begin(), one.outputs.end());
  }
  if (!BeginAlike(graph, values)) return {};
  std::vector<RegionOfMemory> of_memory;
  for (const One& one : joined.regions_) {
    RegionOfMemory& of = of_memory.emplace_back(RegionOfMemory{.region = &one.program->region()});
    for (const int value : one.inputs) of.inputs.push_back(MemoryOf(graph, value, values));
    for (const int value : one.outputs) of.outputs.push_back(MemoryOf(graph, value, values));
  }
  joined.groups_ = GroupsApart(of_memory);
  const auto is_small = [&](const One& one) {
    return ElementsOfGroup(one.program->region(), joined.groups_, *graph.target) <= graph.target->max_group_elements;
  };
  if (joined.groups_ == 0 || !std::ranges::all_of(joined.regions_, is_small)) return {};
  return joined;
}

DeviceRegion JoinedRegions::ForDevice() const {
  DeviceRegion region{.groups = groups_, .name = StrCat("Regions_", regions_.size()), .device_index = device_index_};
  for (const One& one : regions_) region.regions.push_back(&one.program->region());
  return region;
}

RunFn JoinedRegions::MakeRun(const StepNode& node) const {
  std::vector<int> inputs, outputs;  // operands of the node: its inputs, then its outputs
  const auto operand_of = [&](int value) {
    const auto input = std::ranges::find(node.inputs, value) - node.inputs.begin();
    const bool is_input = input < std::ssize(node.inputs);
    return static_cast<int>(is_input ? input : input + (std::ranges::find(node.outputs, value) - node.outputs.begin()));
  };
  for (const One& one : regions_) {
    std::ranges::transform(one.inputs, std::back_inserter(inputs), operand_of);
    std::ranges::transform(one.outputs, std::back_inserter(outputs), operand_of);
  }
  const auto on_device = std::make_shared<OnDevice>(*this);
  return [on_device, inputs, outputs](const OpRun& run) {
    const auto data_of = [&](int operand) {
      return operand < run.num_inputs() ? run.In(operand).data : run.Out(operand - run.num_inputs()).data;
    };
    auto** const data = static_cast<void**>(
        run.context().scratch.Get(static_cast<std::int64_t>((inputs.size() + outputs.size()) * sizeof(void*))));
    std::ranges::transform(inputs, data, data_of);
    std::ranges::transform(outputs, data + inputs.size(), data_of);
    on_device->Get()(run, {data, inputs.size()}, {data + inputs.size(), outputs.size()});
  };
}

}  // namespace stepnet
