// Every cell of examples/cells against its equations: what it computes, and its gradients.
#include <gtest/gtest.h>

#include "cell_case.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

CellCase Example(const std::string& name, std::int64_t num_steps, std::int64_t batch) {
  CellCase test{.cell = ReadExampleCell(name)};
  test.use.sizes = SmallSizes(test.cell.def);
  test.num_steps = num_steps;
  test.batch = batch;
  test.seed = static_cast<unsigned>(17 * num_steps + batch);
  return test;
}

TEST(ExampleCellFiles, HaveEquationsToBeComparedWith) {
  EXPECT_EQ(ExampleCells().size(), 17u);
  for (const std::string& name : ExampleCells()) {
    EXPECT_NE(StepOfExample(name), nullptr) << name;
    EXPECT_EQ(ReadExampleCell(name).def.name(), name);
  }
}

TEST(ExampleCellFiles, FollowTheirEquations) {
  for (const std::string& name : ExampleCells()) {
    for (const std::int64_t num_steps : {0, 1, 2, 5}) {
      for (const std::int64_t batch : {0, 1, 3}) {
        SCOPED_TRACE(StrCat(name, ", ", num_steps, " steps, batch of ", batch));
        ExpectFollowsReference(Example(name, num_steps, batch), StepOfExample(name));
      }
    }
  }
}

TEST(ExampleCellFiles, HaveTheGradientsOfTheirEquations) {
  for (const std::string& name : ExampleCells()) {
    SCOPED_TRACE(name);
    ExpectGradientsOfReference(Example(name, 3, 2), StepOfExample(name));
  }
}

TEST(ExampleCellFiles, ComeWithSizes) {
  for (const std::string& name : ExampleCells()) {
    SCOPED_TRACE(name);
    EXPECT_GT(ExpandCell(ReadExampleCell(name)).parameters.size(), 0u);
  }
}

// Exponents of some hundreds overflow without the stabiliser, in double as in float.
TEST(ExampleCellFiles, SlstmIsStable) {
  CellCase test = Example("slstm", 4, 1);
  const CellNet net = test.Expand();
  Tensors given = test.RandomValues(net);
  double* bias = given.at("b").data<double>();
  for (int k = 0; k < 3; ++k) bias[k] = 900;
  for (const auto& [name, tensor] : RunCell(net, given)) {
    for (std::int64_t i = 0; i < tensor.size(); ++i) {
      EXPECT_LE(std::abs(tensor.data<double>()[i]), 1) << name << ", element " << i;
    }
  }
}

}  // namespace
}  // namespace stepnet
