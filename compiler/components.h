// Strongly connected components: which nodes of a graph reach each other.
#pragma once

#include <vector>

namespace stepnet {

// Finds them among nodes 0, 1, …, of which node n has an edge to each of edges[n]. A component comes before those that
// it reaches; its nodes are in their order. (Kosaraju, in Aho, Hopcroft and Ullman, Data Structures and Algorithms,
// 1983, section 6.7.)
std::vector<std::vector<int>> StronglyConnectedComponents(const std::vector<std::vector<int>>& edges);

}  // namespace stepnet
