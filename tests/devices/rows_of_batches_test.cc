// What is the same for a whole batch: copied to each of its rows, and the sum over them.
#include "stepnet/core/accumulate.h"
#include "stepnet/core/error.h"
#include "stepnet/tests/operators/op_test.h"
#include "tested_devices.h"

namespace stepnet {
namespace {

class RowsOfBatches : public OnEveryDevice {};
INSTANTIATE_ON_EVERY_DEVICE(RowsOfBatches);

TEST_P(RowsOfBatches, AreCopiesOfOne) {
  const Tensor to = Tensor::Zeros(DType::kFloat, Shape({4, 3}), GetParam());
  CopyToEach(Tensor::Of<float>({3}, {1, 2, 3}).To(GetParam()), to);
  ExpectNearTensor(to, Tensor::Of<float>({4, 3}, {1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3}), {}, "float");
  // Bytes that are no words, at an address that is none.
  const Tensor bytes = Tensor::Of<std::int8_t>({6}, {9, 9, 9, 5, 6, 7}).To(GetParam());
  const Tensor to_bytes = Tensor::Zeros(DType::kInt8, Shape({5, 3}), GetParam());
  CopyToEach(bytes.Slice(3, 6), to_bytes);
  const Tensor of_host = to_bytes.To({});
  for (std::int64_t i = 0; i < of_host.size(); ++i) EXPECT_EQ(of_host.data<std::int8_t>()[i], 5 + i % 3) << i;
  CopyToEach(bytes, Tensor::Zeros(DType::kInt8, Shape({0, 6}), GetParam()));
}

// In the order of the rows: each sum of floats is rounded.
TEST_P(RowsOfBatches, AreAddedInTheirOrder) {
  const Tensor sum = Tensor::Of<float>({2}, {1, 0.5f}).To(GetParam());
  AddEach(Tensor::Of<float>({3, 2}, {1e8f, 1, -1e8f, 2, 3, 3}).To(GetParam()), sum);
  const Tensor of_host = sum.To({});
  EXPECT_EQ(of_host.data<float>()[0], 3);  // 1 is lost beside 1e8
  EXPECT_EQ(of_host.data<float>()[1], 6.5f);
  const Tensor doubles = Tensor::Of<double>({1}, {0.5}).To(GetParam());
  AddEach(Tensor::Of<double>({4}, {1, 2, 3, 4}).To(GetParam()), doubles);
  EXPECT_EQ(doubles.To({}).data<double>()[0], 10.5);
  AddEach(Tensor::Zeros(DType::kFloat, Shape({0, 2}), GetParam()), sum);
  EXPECT_EQ(sum.To({}).data<float>()[1], 6.5f);
}

}  // namespace
}  // namespace stepnet
