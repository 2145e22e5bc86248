#include "stepnet/nets/placement.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "stepnet/io/npy.h"
#include "stepnet/io/tensor_io.h"
#include "stepnet/nets/net.h"
#include "stepnet/proto/net.pb.h"
#include "stepnet/tests/executor/recurrent_case.h"
#include "stepnet/tests/poison_device/poison_device.h"

namespace stepnet {
namespace {

NetDef Parse(const std::string& text) {
  NetDef net;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &net));
  return net;
}

RunOptions OnPoison() { return OnDevice({}, kPoisonDevice); }
const std::string kOnCpu = " device_option { device_type: 0 } }";
const std::string kAnywhere = " }";

std::string Op(const std::string& type, const std::string& x, const std::string& y, const std::string& where) {
  return StrCat("op { type: '", type, "' input: '", x, "' output: '", y, "'", where);
}

// "x = Type(y)" of each operator, "cpu" before those that are placed there.
std::vector<std::string> PlacedOperators(const std::string& text) {
  const PlacedNet placed = Place(std::make_shared<NetDef>(Parse(text)), OnPoison());
  std::vector<std::string> operators;
  for (int i = 0; i < placed.net->op_size(); ++i) {
    const OperatorDef& op = placed.net->op(i);
    operators.push_back(StrCat(placed.devices[i].IsHost() ? "cpu " : "", op.output(0), " = ", op.type(), "(",
                               op.input(0), ") of ", placed.origins[i]));
  }
  return operators;
}

using Operators = std::vector<std::string>;

TEST(Placement, WhatIsThereGoesWhereItIsReadFirst) {
  EXPECT_EQ(PlacedOperators(Op("Relu", "x", "y", kAnywhere) + Op("Tanh", "x", "z", kOnCpu)),
            (Operators{"x = CopyFromCPUInput(x) of 0", "y = Relu(x) of 0", "x_cpu = EnsureCPUOutput(x) of 1",
                       "cpu z = Tanh(x_cpu) of 1"}));
  EXPECT_EQ(PlacedOperators(Op("Tanh", "x", "z", kOnCpu) + Op("Relu", "x", "y", kAnywhere)),
            (Operators{"x = EnsureCPUOutput(x) of 0", "cpu z = Tanh(x) of 0", "x = CopyFromCPUInput(x) of 1",
                       "y = Relu(x) of 1"}));
}

TEST(Placement, OneCopyServesAllReadersOfAValue) {
  EXPECT_EQ(
      PlacedOperators(Op("Relu", "x", "y", kAnywhere) + Op("Tanh", "y", "a", kOnCpu) + Op("Relu", "y", "b", kOnCpu) +
                      Op("Relu", "x", "y", kAnywhere) + Op("Tanh", "y", "c", kOnCpu)),
      (Operators{"x = CopyFromCPUInput(x) of 0", "y = Relu(x) of 0", "y_cpu = EnsureCPUOutput(y) of 1",
                 "cpu a = Tanh(y_cpu) of 1", "cpu b = Relu(y_cpu) of 2", "y = Relu(x) of 3",
                 "y_cpu_ = EnsureCPUOutput(y) of 4", "cpu c = Tanh(y_cpu_) of 4"}));
}

TEST(Placement, WhatWorksInPlaceOfACopyGivesItBack) {
  EXPECT_EQ(PlacedOperators(Op("Relu", "x", "x", kAnywhere) + Op("Tanh", "x", "x", kOnCpu)),
            (Operators{"x = CopyFromCPUInput(x) of 0", "x = Relu(x) of 0", "x_cpu = EnsureCPUOutput(x) of 1",
                       "cpu x_cpu = Tanh(x_cpu) of 1", "x = CopyFromCPUInput(x_cpu) of 1"}));
}

TEST(Placement, NetsOfOneDeviceStayAsTheyAre) {
  EXPECT_EQ(PlacedOperators(Op("Relu", "x", "y", kOnCpu)), Operators{"cpu y = Relu(x) of 0"});
  EXPECT_THROW(PlacedOperators(Op("Relu", "x", "y", " device_option { device_type: 3 } }")), Error);
}

// Whatever lies where before it, twice.
TEST(Placement, MixedNetsGiveWhatTheCpuGives) {
  const NetDef net =
      Parse(Op("Relu", "x", "x", kOnCpu) + Op("Tanh", "x", "y", kAnywhere) + Op("Sigmoid", "y", "z", kOnCpu) +
            Op("Tanh", "z", "z", kAnywhere) + Op("Relu", "z", "u", kOnCpu));
  const Tensor x = Random({3, 4}, 1, DType::kFloat);
  for (const bool starts_on_device : {false, true}) {
    Workspace expected, found;
    expected.SetTensor("x", x.Clone());
    found.SetTensor("x", starts_on_device ? x.To(kPoisonDevice) : x.Clone());
    const auto reference = Net::Create(net, expected);
    const auto placed = Net::Create(net, found, OnPoison());
    for (int run = 0; run < 2; ++run) {
      reference->Run();
      placed->Run();
      for (const std::string name : {"x", "y", "z", "u"}) {
        ExpectSame(expected.GetTensor(name), found.GetTensor(name).To({}), name);
      }
    }
    EXPECT_EQ(found.GetTensor("y").device(), kPoisonDevice);
  }
}

TEST(Placement, TheHostDoesNotReadMemoryOfADevice) {
  const Tensor x = Tensor::Zeros(DType::kFloat, {2}, kPoisonDevice);
  EXPECT_THROW(x.data<float>(), Error);
  EXPECT_EQ(x.Description(), "float [2] on private:0");
  EXPECT_EQ(x.To({}).data<float>()[1], 0);
}

TEST(Placement, FilesHoldTensorsOfAnyDevice) {
  const std::string path = testing::TempDir() + "placement_x.minidb", npy = testing::TempDir() + "placement_x.npy";
  const Tensor x = Random({3, 4}, 1, DType::kFloat);
  WriteMiniDb({{"x", x.To(kPoisonDevice)}}, path);
  const Tensor place = Tensor::Zeros(DType::kFloat, {3, 4}, kPoisonDevice);
  ReadTensorsInto(path, {{"x", place}});
  ExpectSame(place.To({}), x, "read");
  WriteNpy(place, npy);
  ExpectSame(ReadNpy(npy), x, "npy");
  std::remove(path.c_str());
  std::remove(npy.c_str());
}

TEST(Placement, RunsWithoutValuesToCheckDoNotWait) {
  Workspace workspace;
  workspace.SetTensor("x", Random({3, 4}, 1, DType::kFloat));
  const auto net =
      Net::Create(Parse(Op("Relu", "x", "y", kAnywhere) + Op("Tanh", "y", "z", kAnywhere)), workspace, OnPoison());
  const std::int64_t before = CountsOfPoisonDevice().host_waits;
  net->Run();
  net->Run();
  EXPECT_EQ(CountsOfPoisonDevice().host_waits, before);
  net->Wait();
  EXPECT_EQ(CountsOfPoisonDevice().host_waits, before + 1);
}

}  // namespace
}  // namespace stepnet
