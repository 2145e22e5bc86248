// Runs that must be equal, bit for bit: rules R1 and R5 of docs/caffe2_compatibility.md.
#include "lstm_case.h"

namespace stepnet {
namespace {

TEST(Determinism, R5RunsAreEqualBitForBit) {
  RecurrentCase first = LstmCase(true), second = LstmCase(true);
  for (RecurrentCase* net : {&first, &second}) {
    FeedLstm(*net, 6, 3, 16);
    net->Run();
  }
  second.Run();
  for (const char* blob : {"h_all", "x_grad", "w_grad", "b_grad", "h0_grad"}) {
    ExpectSame(first.Get(blob), second.Get(blob), blob);
  }
}

// y[t] = dropout(x[t]); the mask shows as zeros.
RecurrentCase DropoutCase(bool same_each_step) {
  RecurrentCase net;
  OperatorDef dropout = ParseOp("y_t, mask = Dropout(x_t)");
  Argument* ratio = dropout.add_arg();
  ratio->set_name("ratio");
  ratio->set_f(0.5f);
  dropout.mutable_device_option()->set_random_seed(5);
  if (same_each_step) AddInt(&dropout, "same_mask_each_step", 1);
  net.Sequence("x", "x_t").State("y", "y0", "", "y_t").Step(dropout).Output("y_all", "y", 1);
  net.Feed("x", Tensor::Of<double>({4, 1, 64}, std::vector<double>(256, 1.0)))
      .Feed("y0", Tensor::Zeros(DType::kDouble, {1, 64}));
  return net;
}

std::vector<std::vector<double>> MasksOfSteps(const Tensor& y_all) {
  std::vector<std::vector<double>> masks;
  for (std::int64_t t = 0; t < y_all.dim(0); ++t) masks.push_back(Values(y_all.Slice(t, t + 1)));
  return masks;
}

TEST(Determinism, R1MasksDifferBetweenStepsAndRunsAndRepeatWithTheCounter) {
  RecurrentCase net = DropoutCase(false);
  net.net().SetRunCounter(3);
  const auto masks = MasksOfSteps(net.Run().Get("y_all").Clone());
  for (int t = 1; t < 4; ++t) EXPECT_NE(masks[t], masks[t - 1]);
  EXPECT_NE(MasksOfSteps(net.Run().Get("y_all")), masks);
  net.net().SetRunCounter(3);
  EXPECT_EQ(MasksOfSteps(net.Run().Get("y_all")), masks);
}

TEST(Determinism, R1AMaskCanBeTheSameInAllSteps) {
  RecurrentCase net = DropoutCase(true);
  const auto masks = MasksOfSteps(net.Run().Get("y_all").Clone());
  for (int t = 1; t < 4; ++t) EXPECT_EQ(masks[t], masks[0]);
}

}  // namespace
}  // namespace stepnet
