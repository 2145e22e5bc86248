#include "stepnet/tools/rnn_runner/tensor_text.h"

#include "stepnet/core/cancellation.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet::runner {
namespace {

TEST(TensorText, LooksForTheTimeLimitBetweenNumbers) {
  const Tensor tensor = Tensor::Zeros(DType::kFloat, {1 << 20});
  EXPECT_EQ(Summarize(tensor).finite, tensor.size());
  Cancellation cancelled;
  cancelled.Cancel();
  const CancellationScope scope(&cancelled);
  ExpectError([&] { Summarize(tensor); }, "cancelled: the run was cancelled");
  ExpectError([&] { FillFromNumbers(tensor, [](std::int64_t) { return 1.0; }); }, "cancelled: the run was cancelled");
}

TEST(SummaryRow, ShowsWholeNumbersWithAllTheirDigits) {
  const auto row = [](const Tensor& tensor) {
    const std::vector<std::string> cells = SummaryRow("x", tensor);
    return cells[3] + " " + cells[4] + " " + cells[5];
  };
  EXPECT_EQ(row(Tensor::Of<std::int64_t>({2}, {-1234567, 4294967295})), "-1234567 4294967295 2.147e+09");
  EXPECT_EQ(row(Tensor::Of<float>({2}, {-1234567, 2})), "-1.235e+06 2 -6.173e+05");
  EXPECT_EQ(row(Tensor::Zeros(DType::kInt32, {0})), "  ");
}

}  // namespace
}  // namespace stepnet::runner
