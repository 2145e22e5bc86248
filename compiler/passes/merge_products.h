// What the pass merge_products says of products that it leaves alone.
#pragma once

#include <string>
#include <vector>

#include "stepnet/compiler/step_graph.h"

namespace stepnet {

// A product that merge_products leaves alone beside others of the same value.
struct ProductApart {
  int op_index = -1;  // of its node
  std::string value;  // blob
  std::string why;    // "one has a bias, and one has none"
};
// Finds those of a graph as merge_products meets it.
std::vector<ProductApart> FindProductsApart(StepGraph graph);

}  // namespace stepnet
