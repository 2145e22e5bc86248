// Regions of several operators: made of nodes that each run some.
#pragma once

#include <span>
#include <vector>

#include "stepnet/compiler/step_graph.h"
#include "stepnet/compiler/uses.h"

namespace stepnet {

// The region of these nodes, which run operators, in their order. Values that they give in local homes, and those of
// `own`, which are in ascending order, become its locals, others its outputs; what they do not give themselves its
// inputs, each once.
StepNode RegionOf(const StepGraph& graph, std::span<const StepNode* const> nodes, std::span<const int> own = {});

// Values that these nodes give, read and need nowhere else: what lives outside or is kept, unless they overwrite it,
// and what is read by others is not among them. In ascending order.
std::vector<int> OwnValues(const StepGraph& graph, const Uses& uses, std::span<const StepNode* const> nodes);

// The same node, of several regions (RegionBody::begins), and the regions that such a node is made of, each as a node.
StepNode JoinedNodeOf(StepNode region, std::vector<int> begins);
std::vector<StepNode> RegionsOf(const StepGraph& graph, const StepNode& node);

// Whether the node adds up, within rows, what a region gives for it alone: that region gives the sums, too
// (fuse_regions), and what they sum up is in no memory. Devices other than the CPU add up what is in a row alone.
bool SumsWhatRegionGives(const StepGraph& graph, const Uses& uses, const StepNode& node);

// Nodes [begin, end).
struct NodeRange {
  int begin = 0;
  int end = 0;
};
// Makes each of the ranges, which are of regions and stand in their order, one region. What only they use goes into no
// memory any more. REQUIRES: those of a range are of one stage.
void FormRegions(std::span<const NodeRange> ranges, StepGraph* graph);

}  // namespace stepnet
