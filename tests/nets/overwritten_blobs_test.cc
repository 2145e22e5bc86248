// What a run of a net has of memory that holds what the last one gave.
#include "stepnet/nets/overwritten_blobs.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "stepnet/io/proto_io.h"
#include "stepnet/nets/net.h"
#include "stepnet/proto/net.pb.h"
#include "stepnet/tests/core/limited_memory.h"

namespace stepnet {
namespace {

// Frees all spare memory when it runs, as one does that finds little.
const Registration free_spare = Operator("test.FreeSpare")
                                    .Input("x", "")
                                    .Output("y", "as x")
                                    .Shapes(SameAsInput(0))
                                    .InPlace({{0, 0}})
                                    .Cpu([](const OperatorCall&) -> RunFn {
                                      return [](const OpRun& run) {
                                        while (FreeSpareMemory()) {
                                        }
                                        CopyElements(run.In(0), run.Out(0));
                                      };
                                    });

NetDef NetOf(const std::string& operators) {
  NetDef net;
  ParseMessageText(operators, "test", &net);
  return net;
}

class OverwrittenBlobsTest : public testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<Net> MakeNet(const std::string& operators) {
    NetDef def = NetOf(operators);
    def.set_type(GetParam());
    def.set_num_workers(2);
    return Net::Create(def, workspace_);
  }
  float First(const std::string& blob) const { return *workspace_.GetTensor(blob).data<float>(); }

  Workspace workspace_;
};
INSTANTIATE_TEST_SUITE_P(, OverwrittenBlobsTest, testing::Values("simple", "dag"));

Tensor Floats(std::int64_t count, float value) {
  const Tensor tensor(DType::kFloat, Shape({count}));
  std::fill_n(tensor.data<float>(), count, value);
  return tensor;
}

// One blob after the other becomes larger: beside the new one there is no memory for both old ones.
TEST_P(OverwrittenBlobsTest, ARunHasTheMemoryOfWhatItWillWrite) {
  const auto net = MakeNet(R"(op { type: "Tanh" input: "x" output: "y" } op { type: "Tanh" input: "y" output: "z" })");
  workspace_.SetTensor("x", Floats(1000, 1));
  net->Run();
  const float expected = First("z");
  workspace_.SetTensor("x", Floats(1500, 1));
  const LimitedMemory limited(TensorMemory().current - 8000 + 12000);
  net->Run();
  EXPECT_EQ(First("z"), expected);
  EXPECT_EQ(workspace_.GetTensor("z").size(), 1500);
  EXPECT_FALSE(FreeSpareMemory()) << "whoever likes may read what it gave";
}

TEST_P(OverwrittenBlobsTest, WhatARunReadsStays) {
  const auto net = MakeNet(R"(
      op { type: "test.FreeSpare" input: "x" output: "y" }
      op { type: "Add" input: "sum" input: "y" output: "sum" }
      op { type: "Add" input: "before" input: "y" output: "now" }
      op { type: "Copy" input: "now" output: "before" })");
  workspace_.SetTensor("x", Floats(1, 1));
  workspace_.SetTensor("sum", Floats(1, 0));
  workspace_.SetTensor("before", Floats(1, 5));
  for (int run = 1; run <= 3; ++run) {
    net->Run();
    EXPECT_EQ(First("sum"), static_cast<float>(run));
    EXPECT_EQ(First("now"), static_cast<float>(5 + run));
  }
}

TEST_P(OverwrittenBlobsTest, WhatFollowsOfConstantsStays) {
  const auto net = MakeNet(R"(
      op { type: "test.FreeSpare" input: "x" output: "y" }
      op { type: "Tanh" input: "w" output: "v" }
      op { type: "Add" input: "v" input: "y" output: "z" })");
  workspace_.SetTensor("x", Floats(1, 1));
  workspace_.SetTensor("w", Floats(1, 2));
  workspace_.GetTensor("w").SetConstant();
  net->Run();
  const void* const v = workspace_.GetTensor("v").raw();
  net->Run();
  EXPECT_EQ(workspace_.GetTensor("v").raw(), v);
}

// Objects as well, which are destroyed when no owner is asked any more: they may be owners.
TEST(OverwrittenBlobs, ObjectsThatOwnSpareMemoryGo) {
  class Owner final : public SpareMemory {
   public:
    Owner() { Offer(); }
    ~Owner() { Withdraw(); }
    double Gain() override { return 0; }
    bool FreeNext() override { return false; }
  };
  Workspace workspace;
  workspace.SetTensor("x", Floats(1, 1));
  std::vector<std::unique_ptr<NetOperator>> operators;
  const NetDef net = NetOf(R"(op { type: "Tanh" input: "x" output: "y" })");
  operators.push_back(std::make_unique<NetOperator>(OperatorCall(net.op(0)), workspace));
  OverwrittenBlobs blobs(operators, workspace);
  workspace.GetBlob("y").SetObject<Owner>(std::make_shared<const Owner>());
  EXPECT_FALSE(FreeSpareMemory());
  blobs.SpareAll();
  blobs.Use(0);
  EXPECT_FALSE(FreeSpareMemory());
  blobs.SpareAll();
  EXPECT_TRUE(FreeSpareMemory());
  EXPECT_FALSE(workspace.GetBlob("y").HasObject());
  EXPECT_FALSE(FreeSpareMemory());
}

}  // namespace
}  // namespace stepnet
