#include "stepnet/tools/rnn_runner/tensor_text.h"

#include "../operators/op_test.h"
#include "stepnet/core/cancellation.h"

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

}  // namespace
}  // namespace stepnet::runner
