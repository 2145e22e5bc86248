#include "stepnet/nets/double_net.h"

#include <gtest/gtest.h>

#include <cmath>

#include "stepnet/io/proto_io.h"
#include "stepnet/nets/net.h"
#include "stepnet/nets/op_arguments.h"
#include "stepnet/nets/op_builder.h"

namespace stepnet {
namespace {

double ValueAt(const NetDef& net, double x) {
  Workspace workspace;
  workspace.SetTensor("x", Tensor::Of<double>({1, 1}, {x}));
  RunNetOnce(InDouble(net), workspace);
  return workspace.GetTensor("y").data<double>()[0];
}

TEST(InDouble, NumbersAreThoseThatWereWritten) {
  NetDef net;
  AddOp(&net, "Scale", {"x"}, {"y"}).Float("scale", 0.1f);
  EXPECT_EQ(ValueAt(net, 3), 0.1 * 3);
  net.Clear();
  AddOp(&net, "ConstantFill", {"x"}, {"tenth"}).Float("value", 0.1f);
  AddOp(&net, "Add", {"x", "tenth"}, {"y"});
  EXPECT_EQ(ValueAt(net, 3), 3 + 0.1);
  net.Clear();
  AddOp(&net, "Pow", {"x"}, {"y"}).Float("exponent", 0.3f);
  EXPECT_NEAR(ValueAt(net, 3), std::pow(3, 0.3), 1e-15);
}

TEST(InDouble, SoAreThoseThatOperatorsHaveByDefault) {
  NetDef net;
  AddOp(&net, "LeakyRelu", {"x"}, {"y"});
  EXPECT_EQ(ValueAt(net, -3), 0.01 * -3);
  net.Clear();
  AddOp(&net, "Selu", {"x"}, {"y"});
  EXPECT_NEAR(ValueAt(net, 1), 1.0507009873554804934, 1e-15);
  EXPECT_NEAR(ValueAt(net, -30), -1.0507009873554804934 * 1.6732632423543772848, 1e-12);
  EXPECT_EQ(InDouble(net).op(0).arg_size(), 2);
  net.Clear();
  AddOp(&net, "Elu", {"x"}, {"y"});  // by 1
  EXPECT_EQ(InDouble(net).op(0).arg_size(), 0);
}

TEST(InDouble, ValuesOfListsAreThoseThatWereWritten) {
  NetDef net;
  AddOp(&net, "GivenTensorFill", {}, {"tenths"}).Ints("shape", {1, 2});
  const std::vector<float> values = {0.1f, 0.3f};
  NewArgument(net.mutable_op(0), "values")->mutable_floats()->Assign(values.begin(), values.end());
  AddOp(&net, "Mul", {"tenths", "x"}, {"y"});
  Workspace workspace;
  workspace.SetTensor("x", Tensor::Of<double>({1, 1}, {3}));
  RunNetOnce(InDouble(net), workspace);
  EXPECT_EQ(workspace.GetTensor("y").data<double>()[0], 0.1 * 3);
  EXPECT_EQ(workspace.GetTensor("y").data<double>()[1], 0.3 * 3);
}

}  // namespace
}  // namespace stepnet
