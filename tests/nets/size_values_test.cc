#include "stepnet/nets/size_values.h"

#include <gtest/gtest.h>

#include "stepnet/proto/net.pb.h"
#include "stepnet/tests/executor/recurrent_case.h"

namespace stepnet {
namespace {

NetDef NetOf(const std::vector<std::string>& ops) {
  NetDef net;
  for (const std::string& op : ops) *net.add_op() = ParseOp(op);
  return net;
}

Tensor Ints(const std::vector<std::int64_t>& values) {
  return Tensor::Of<std::int64_t>({static_cast<std::int64_t>(values.size())}, values);
}

TEST(SizeValues, BlobsOfSizesAreThoseOfWhichShapesAreMade) {
  EXPECT_EQ(BlobsOfSizes(NetOf({"a = Mul(b, c)", "d = Add(x, y)", "e, old = Reshape(d, a)"})),
            (std::set<std::string>{"a", "b", "c"}));
  EXPECT_EQ(BlobsOfSizes(NetOf({"d = Add(x, y)", "e = Tanh(d)"})), std::set<std::string>());
}

// The elements of what it is asked of do not matter.
TEST(SizeValues, ShapeReadsNoElements) {
  EXPECT_EQ(BlobsOfSizes(NetOf({"s = Shape(x)", "e, old = Reshape(y, s)"})), (std::set<std::string>{"s"}));
}

TEST(SizeValues, AreComputedWhereAllInputsAreKnown) {
  const TensorInfo two{.dtype = DType::kInt64, .shape = {2}};
  const std::vector<Tensor> products = ValuesOfOutputs(ParseOp("a = Mul(b, c)"), {Ints({2, 3}), Ints({4, 5})}, {two});
  ASSERT_EQ(products.size(), 1);
  EXPECT_EQ(products[0].data<std::int64_t>()[1], 15);
  EXPECT_TRUE(ValuesOfOutputs(ParseOp("a = Mul(b, c)"), {Ints({2, 3}), Tensor()}, {two}).empty());
}

TEST(SizeValues, AreNotComputedOfLargeTensorsAndByWhatDoesMore) {
  const TensorInfo one{.dtype = DType::kInt64, .shape = {1}};
  const std::vector<std::int64_t> many(kMaxKnownElements + 1, 1);
  const TensorInfo as_many{.dtype = DType::kInt64, .shape = {kMaxKnownElements + 1}};
  EXPECT_TRUE(ValuesOfOutputs(ParseOp("a = Negative(b)"), {Ints(many)}, {as_many}).empty());
  EXPECT_TRUE(ValuesOfOutputs(ParseOp("a = Copy(b)"), {Ints({1})}, {as_many}).empty());
  OperatorDef random = ParseOp("a = UniformIntFill()");
  AddInts(&random, "shape", {1});
  EXPECT_TRUE(ValuesOfOutputs(random, {}, {one}).empty());
}

// The operator says it when it runs.
TEST(SizeValues, AreUnknownWhereTheOperatorFails) {
  const TensorInfo one{.dtype = DType::kInt64, .shape = {1}};
  EXPECT_TRUE(ValuesOfOutputs(ParseOp("a = Gather(b, i)"), {Ints({1, 2}), Ints({7})}, {one}).empty());
}

}  // namespace
}  // namespace stepnet
