#include "stepnet/nets/side_by_side.h"

#include "stepnet/nets/op_builder.h"

namespace stepnet {

OperatorDef JoinOperator(const std::vector<std::string>& inputs, int axis, const std::string& joined,
                         const std::string& sizes) {
  NetDef net;
  AddOp(&net, "Concat", inputs, {joined, sizes}).Int("axis", axis);
  return net.op(0);
}

OperatorDef PartOperator(const std::string& joined, int axis, const std::vector<std::string>& parts,
                         const std::vector<std::int64_t>& sizes) {
  NetDef net;
  AddOp(&net, "Split", {joined}, parts).Int("axis", axis).Ints("split", sizes);
  return net.op(0);
}

OperatorDef ProductOperator(const std::string& left, const std::string& matrix, bool transposed,
                            const std::string& product) {
  NetDef net;
  AddOp(&net, transposed ? "FC" : "FCTransposed", {left, matrix}, {product}).Int("axis", -1);
  return net.op(0);
}

}  // namespace stepnet
