#include "stepnet/compiler/graph_line_operation.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stepnet/compiler/graph_line_items.h"
#include "stepnet/core/index_of.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

ProductFactor ReadFactor(LineReader& line, const UseReader& read_use) {
  ProductFactor factor{.input = read_use(line)};
  factor.shape = ReadShape(line);
  factor.transposed = line.Skip("^T");
  return factor;
}

// Reads products of values, which stand where an operator has inputs.
std::vector<std::optional<Product>> ReadProducts(LineReader& line, const UseReader& read_use) {
  std::vector<std::optional<Product>> products;
  do {
    std::optional<Product>& product = products.emplace_back();
    if (line.StartsWith("_;") || line.StartsWith("_ ")) {
      line.Expect("_");
      continue;
    }
    product.emplace();
    if (line.StartsWith("sum ") && !line.StartsWith("sum [")) {
      line.Expect("sum ");
      product->left = ReadFactor(line, read_use);
      continue;
    }
    product->left = ReadFactor(line, read_use);
    line.Expect(" * ");
    product->right = ReadFactor(line, read_use);
    if (line.Skip(" + ")) product->bias = read_use(line);
  } while (line.Skip("; "));
  line.Expect(" by ");
  return products;
}

// Inputs of the node that products are of, by their numbers.
void FindFactors(const LineReader& line, StepNode* node) {
  const auto find = [&](int* input) {
    *input = IndexOf(node->inputs, *input);
    if (*input < 0) line.Throw("a product is of what the operator does not read");
  };
  for (std::optional<Product>& product : node->products) {
    if (!product) continue;
    find(&product->left.input);
    if (product->right) find(&product->right->input);
    if (product->bias >= 0) find(&product->bias);
  }
}

}  // namespace

StepNode ReadOperation(LineReader& line, const UseReader& read_use) {
  if (LineReader ahead = line; ahead.Skip("packed ") && !ahead.AtEnd()) {
    line = ahead;
    StepNode node{.kind = StepNode::Kind::kPack};
    do {
      node.inputs.push_back(read_use(line));
    } while (line.Skip(", "));
    line.Expect(" for @");
    node.op_index = line.Index();
    return node;
  }
  StepNode node;
  if (LineReader ahead = line; ahead.Skip("region ") && !ahead.AtEnd()) {
    line = ahead;
    node.kind = StepNode::Kind::kRegion;
  } else if (ahead = line; ahead.Skip("product ") && !ahead.AtEnd()) {
    line = ahead;
    node.kind = StepNode::Kind::kProduct;
    node.products = ReadProducts(line, read_use);
  }
  LineReader ahead = line;
  if (ahead.StartsWith("^") || (static_cast<void>(ahead.Word(true)), !ahead.StartsWith("("))) {
    return {.kind = StepNode::Kind::kMove, .inputs = {read_use(line)}};
  }
  const auto def = std::make_shared<OperatorDef>();
  const std::string type = line.Word(true);
  line.Expect("(");
  while (!line.Skip(")")) {
    if (!node.inputs.empty()) line.Expect(", ");
    node.inputs.push_back(read_use(line));
  }
  FindFactors(line, &node);
  if (line.Skip(" with ")) node.packed = read_use(line);
  node.by_blobs = line.Skip(" by blobs");
  line.Expect(" @");
  node.op_index = line.Index();
  if (line.Skip(" of ")) node.net = line.Word();
  ReadArguments(line, def.get());
  def->set_type(type);
  node.def = def;
  return node;
}

}  // namespace stepnet
