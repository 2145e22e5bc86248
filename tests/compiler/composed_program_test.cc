#include "stepnet/compiler/composed_program.h"

#include "stepnet/tests/executor/recurrent_case.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

// Tensor 2 = Tanh(tensor 0 + tensor 1), of these shapes; names do not matter.
std::variant<std::shared_ptr<const ComposedProgram>, CompositionObstacle> Compose(const std::string& prefix,
                                                                                  const Shape& shape) {
  const OperatorCall add(ParseOp(prefix + "s = Add(" + prefix + "a, " + prefix + "b)"));
  const OperatorCall tanh(ParseOp(prefix + "t = Tanh(" + prefix + "s)"));
  const std::vector<TensorInfo> infos(2, {.dtype = DType::kFloat, .shape = shape});
  const OperatorToCompose operators[] = {
      {.parts = FindParts(ShapeQuery(add, infos)), .tensors = {0, 1, 2}},
      {.parts = FindParts(ShapeQuery(tanh, std::span(infos).first(1))), .tensors = {2, 3}}};
  return FindComposed(operators, {.wanted = {3}});
}

TEST(ComposedProgram, IsSharedByOperatorsThatAreAlike) {
  const auto first = std::get<0>(Compose("x", {3, 4})), second = std::get<0>(Compose("y", {3, 4}));
  EXPECT_EQ(first, second);
  EXPECT_EQ(first->inputs(), (std::vector{0, 1}));
  EXPECT_EQ(first->outputs(), (std::vector{3}));
  EXPECT_NE(std::get<0>(Compose("x", {5, 4})), first);
}

TEST(ComposedProgram, ObstaclesNameTheOperator) {
  const OperatorCall tanh(ParseOp("t = Tanh(x)")), other(ParseOp("u = Tanh(y)"));
  const std::vector<TensorInfo> of_tanh = {{.dtype = DType::kFloat, .shape = {6}}};
  const std::vector<TensorInfo> of_other = {{.dtype = DType::kFloat, .shape = {7}}};
  const OperatorToCompose operators[] = {{.parts = FindParts(ShapeQuery(tanh, of_tanh)), .tensors = {0, 1}},
                                         {.parts = FindParts(ShapeQuery(other, of_other)), .tensors = {2, 3}}};
  const auto result = FindComposed(operators, {.wanted = {1, 3}});
  EXPECT_EQ(std::get<CompositionObstacle>(result).part, 1);
}

}  // namespace
}  // namespace stepnet
