// Bad values that kernels find in a net: which operator's becomes the error, and what is left as it was.
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "stepnet/core/strings.h"
#include "stepnet/nets/net.h"
#include "stepnet/nets/op_builder.h"
#include "stepnet/proto/net.pb.h"
#include "stepnet/tests/core/error_of.h"
#include "stepnet/tests/operators/op_test.h"
#include "stepnet/tests/poison_device/poison_device.h"

namespace stepnet {
namespace {

// y = x, later than others.
const Registration late = Operator("test.Late")
                              .Input("x", "any shape")
                              .Output("y", "the shape of x")
                              .Shapes(SameAsInput(0))
                              .Cpu([](const OperatorCall&) -> RunFn {
                                return [](const OpRun& run) {
                                  std::this_thread::sleep_for(std::chrono::milliseconds(2));
                                  CopyElements(run.In(0), run.Out(0));
                                };
                              });

NetDef DagOf(int num_workers) {
  NetDef net;
  net.set_name("n");
  net.set_type("dag");
  net.set_num_workers(num_workers);
  return net;
}

TEST(NetFaults, TheFirstOperatorInProgramOrderIsNamedWhateverTheThreadsDo) {
  for (const char* type : {"simple", "dag"}) {
    NetDef def = DagOf(4);
    def.set_type(type);
    AddOp(&def, "test.Late", {"indices"}, {"late"});
    AddOp(&def, "Gather", {"data", "late"}, {"a"});     // finds its fault last
    AddOp(&def, "Gather", {"data", "indices"}, {"b"});  // at once
    Workspace workspace;
    workspace.SetTensor("data", Tensor::Of<float>({3}, {1, 2, 3}));
    workspace.SetTensor("indices", Tensor::Of<std::int32_t>({3}, {2, 7, -1}));
    const std::unique_ptr<Net> net = Net::Create(def, workspace);
    for (int run = 0; run < 20; ++run) {
      EXPECT_EQ(ErrorOf([&] { net->Run(); }),
                "invalid argument: Gather: element 1 of the indices is 7; the data have 3 rows\n"
                "  at op 1 `a = Gather(data, late)` with data float [3], late int32 [3]\n  in net \"n\"");
    }
    workspace.SetTensor("indices", Tensor::Of<std::int32_t>({3}, {2, 0, 1}));
    net->Run();
    EXPECT_EQ(workspace.GetTensor("a").data<float>()[0], 3);
  }
}

// What comes behind a fault has been put in already: on the device it finds out, and leaves alone what the next run
// reads.
TEST(NetFaults, OfADeviceLeaveWhatOutlivesTheRunAsItWas) {
  NetDef def;
  def.set_name("n");
  AddOp(&def, "Add", {"before", "step"}, {"before"});
  AddOp(&def, "Gather", {"data", "indices"}, {"rows"});
  AddOp(&def, "Gather", {"data", "others"}, {"more"});
  AddOp(&def, "Add", {"param", "step"}, {"param"});
  AddOp(&def, "Copy", {"rows"}, {"carried"});
  AddOp(&def, "Copy", {"carried"}, {"data"});
  Workspace workspace;
  const Tensor two = Tensor::Of<float>({2}, {1, 2});
  for (const char* name : {"before", "param", "step", "data"}) workspace.SetTensor(name, two.Clone());
  const auto feed = [&](int index, int other) {
    workspace.SetTensor("indices", Tensor::Of<std::int32_t>({2}, {1, index}));
    workspace.SetTensor("others", Tensor::Of<std::int32_t>({2}, {0, other}));
  };
  const auto first = [&](const char* name) { return workspace.GetTensor(name).To({}).data<float>()[0]; };
  feed(0, 0);
  const auto net = Net::Create(def, workspace, OnDevice({}, kPoisonDevice));
  net->Run();
  EXPECT_EQ(first("param"), 2);
  EXPECT_EQ(first("data"), 2);
  for (int run = 0; run < 2; ++run) {
    feed(7, 9);
    const std::string error = ErrorOf([&] { net->Run(); });
    EXPECT_TRUE(
        error.starts_with("invalid argument: Gather: element 1 of the indices is 7; the data have 2 rows\n"
                          "  at op 1 `rows = Gather(data, indices)`"))
        << error;
    EXPECT_EQ(first("before"), 3 + run) << "stands before the fault";
    EXPECT_EQ(first("param"), 2);
    EXPECT_EQ(first("data"), 2);
  }
  feed(0, 9);
  EXPECT_TRUE(ErrorOf([&] { net->Run(); }).find("at op 2 `more = Gather(data, others)`") != std::string::npos);
  feed(0, 0);
  net->Run();
  EXPECT_EQ(first("param"), 3);
}

// The CPU behind a device: it is asked before what the host does is seen.
TEST(NetFaults, OfADeviceAreThrownBeforeTheHostGoesOn) {
  NetDef def;
  def.set_name("n");
  AddOp(&def, "Gather", {"data", "indices"}, {"rows"});
  AddOp(&def, "Add", {"count", "count"}, {"count"});
  def.mutable_op(1)->mutable_device_option()->set_device_type(0);
  Workspace workspace;
  workspace.SetTensor("data", Tensor::Of<float>({2}, {1, 2}));
  workspace.SetTensor("count", Tensor::Of<float>({1}, {1}));
  workspace.SetTensor("indices", Tensor::Of<std::int32_t>({1}, {7}));
  const auto net = Net::Create(def, workspace, OnDevice({}, kPoisonDevice));
  EXPECT_NE(ErrorOf([&] { net->Run(); }), "");
  EXPECT_EQ(workspace.GetTensor("count").data<float>()[0], 1);
}

const Registration late_failure = Operator("test.FailLate")
                                      .Input("x", "any shape")
                                      .Output("y", "the shape of x")
                                      .Shapes(SameAsInput(0))
                                      .Cpu([](const OperatorCall&) -> RunFn {
                                        return [](const OpRun&) {
                                          std::this_thread::sleep_for(std::chrono::milliseconds(5));
                                          throw Error(ErrorCode::kInvalidArgument, "late");
                                        };
                                      });

TEST(NetFaults, WhatFailsLaterButStandsBehindIsNotNamed) {
  NetDef def = DagOf(2);
  AddOp(&def, "test.Late", {"indices"}, {"late"});
  AddOp(&def, "Gather", {"data", "late"}, {"a"});
  AddOp(&def, "test.FailLate", {"data"}, {"b"});
  Workspace workspace;
  workspace.SetTensor("data", Tensor::Of<float>({3}, {1, 2, 3}));
  workspace.SetTensor("indices", Tensor::Of<std::int32_t>({1}, {7}));
  const std::unique_ptr<Net> net = Net::Create(def, workspace);
  for (int run = 0; run < 10; ++run) {
    EXPECT_TRUE(ErrorOf([&] { net->Run(); }).starts_with("invalid argument: Gather: element 0 of the indices is 7"));
  }
}

// An iteration of training whose loss reads a bad label late, and whose parameters could be updated before that.
struct Iteration {
  Iteration() : def(DagOf(4)) {
    AddOp(&def, "test.Late", {"x"}, {"late"});
    AddOp(&def, "SoftmaxWithLoss", {"late", "labels"}, {"p", "loss"});
    AddOp(&def, "Copy", {"g"}, {"g_early"});
    AddOp(&def, "LearningRate", {"iter"}, {"rate"}).String("policy", "fixed").Float("base_lr", -0.5f);
    AddOp(&def, "WeightedSum", {"w", "one", "g_early", "rate"}, {"w"});
    AddOp(&def, "MomentumSGDUpdate", {"g_early", "v", "rate", "u"}, {"step", "v", "u"});
    AddOp(&def, "Adam", {"q", "m1", "m2", "g", "rate", "iter"}, {"q", "m1", "m2"});
    AddOp(&def, "Iter", {"iter"}, {"iter"});
    for (const char* blob : {"g", "w", "u", "v", "q", "m1", "m2"}) {
      workspace.SetTensor(blob, Tensor::Of<float>({2}, {1.5f, -2.5f}));
    }
    workspace.SetTensor("m2", Tensor::Of<float>({2}, {1.5f, 2.5f}));
    workspace.SetTensor("one", Tensor::Of<float>({1}, {1}));
    workspace.SetTensor("iter", Tensor::Of<std::int64_t>({1}, {3}));
    workspace.SetTensor("x", Tensor::Of<float>({2, 2}, {1, 2, 3, 4}));
    workspace.SetTensor("labels", Tensor::Of<std::int32_t>({2}, {1, 0}));
  }

  // The bytes of all that lasts.
  std::string State() {
    std::string bytes;
    for (const char* blob : {"w", "u", "v", "q", "m1", "m2", "iter"}) {
      const Tensor& tensor = workspace.GetTensor(blob);
      bytes.append(static_cast<const char*>(tensor.raw()), static_cast<size_t>(tensor.size_bytes()));
    }
    return bytes;
  }

  NetDef def;
  Workspace workspace;
};

TEST(NetFaults, AnIterationWithABadLabelLeavesWhatItTrainsAsItWas) {
  Iteration iteration;
  const std::unique_ptr<Net> net = Net::Create(iteration.def, iteration.workspace);
  for (int run = 0; run < 50; ++run) {
    iteration.workspace.GetTensor("labels").data<std::int32_t>()[1] = 2;
    const std::string before = iteration.State();
    EXPECT_TRUE(ErrorOf([&] {
                  net->Run();
                }).starts_with("invalid argument: label 1 is 2; there are classes 0 to 1\n  at op 1 "));
    ASSERT_EQ(iteration.State(), before) << "run " << run;
    iteration.workspace.GetTensor("labels").data<std::int32_t>()[1] = 1;
    net->Run();
    ASSERT_NE(iteration.State(), before);
  }
}

TEST(NetFaults, ANegativeIterationLeavesWhatItTrainsAsItWas) {
  Iteration iteration;
  const std::unique_ptr<Net> net = Net::Create(iteration.def, iteration.workspace);
  iteration.workspace.SetTensor("iter", Tensor::Of<std::int64_t>({1}, {-1}));
  const std::string before = iteration.State();
  for (int run = 0; run < 20; ++run) {
    EXPECT_TRUE(ErrorOf([&] {
                  net->Run();
                }).starts_with("invalid argument: the iteration number iter is -1, below 0\n  at op 3 "));
    ASSERT_EQ(iteration.State(), before);
  }
}

std::atomic<int> here = 0;
std::atomic<bool> met = false;

// Waits for another to run at the same time.
const Registration meet = Operator("test.MeetTwo")
                              .Input("x", "any shape")
                              .Output("y", "the same blob")
                              .EnforceInPlace({{0, 0}})
                              .Shapes(SameAsInput(0))
                              .Cpu({.make = [](const OperatorCall&) -> RunFn {
                                      return [](const OpRun&) {
                                        if (++here == 2) met = true;
                                        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
                                        while (!met && std::chrono::steady_clock::now() < end) {
                                          std::this_thread::yield();
                                        }
                                        --here;
                                      };
                                    },
                                    .checks_values = true});

TEST(NetFaults, UpdatesDoNotWaitForEachOther) {
  NetDef def = DagOf(2);
  for (const char* name : {"a", "b"}) AddOp(&def, "test.MeetTwo", {name}, {name});
  Workspace workspace;
  for (const char* name : {"a", "b"}) workspace.SetTensor(name, Tensor::Of<float>({1}, {1}));
  RunNetOnce(def, workspace);
  EXPECT_TRUE(met);
}

TEST(NetFaults, ARunThatFailedCountsForRandomNumbers) {
  for (const char* type : {"simple", "dag"}) {
    NetDef def = DagOf(2);
    def.set_type(type);
    AddOp(&def, "UniformFill", {}, {"y"}).Ints("shape", {4});
    AddOp(&def, "Gather", {"y", "indices"}, {"z"});
    Workspace workspace;
    workspace.SetTensor("indices", Tensor::Of<std::int32_t>({4}, {0, 1, 2, 4}));
    const std::unique_ptr<Net> net = Net::Create(def, workspace);
    EXPECT_THROW(net->Run(), Error);
    workspace.GetTensor("indices").data<std::int32_t>()[3] = 3;
    net->Run();
    const Tensor second = workspace.GetTensor("z").Clone();
    net->SetRunCounter(1);
    net->Run();
    EXPECT_EQ(std::memcmp(workspace.GetTensor("z").raw(), second.raw(), static_cast<size_t>(second.size_bytes())), 0);
    net->Run();
    EXPECT_NE(std::memcmp(workspace.GetTensor("z").raw(), second.raw(), static_cast<size_t>(second.size_bytes())), 0);
  }
}

}  // namespace
}  // namespace stepnet
