// Which operators of a net run beside each other where a run is recorded: loops that need nothing of each other,
// forward and backward; and never one that uses what another has not given yet.
#include "stepnet/nets/operator_lanes.h"

#include <algorithm>
#include <memory>
#include <set>

#include "stepnet/nets/backward.h"
#include "stepnet/nets/backward_step.h"
#include "stepnet/nets/op_arguments.h"
#include "stepnet/nets/op_builder.h"
#include "stepnet/proto/net.pb.h"
#include "stepnet/tests/examples/cell_case.h"
#include "stepnet/tests/executor/recurrent_case.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

// A net as those who record it see it.
class NetToRecord {
 public:
  explicit NetToRecord(const NetDef& def) : def_(def) {
    for (const OperatorDef& op : def_.op()) {
      made_.push_back(std::make_unique<NetOperator>(OperatorCall(op), workspace_));
      operators_.push_back({.op = made_.back().get(), .origin = static_cast<int>(operators_.size())});
    }
  }
  OperatorToRecord& operator[](int i) { return operators_[i]; }

  std::vector<OperatorLane> Lanes(int num_lanes) const {
    return FindLanes(operators_, static_cast<int>(operators_.size()), num_lanes);
  }

  // Whether `later` begins when `earlier` has ended in any case.
  static bool IsBehind(const std::vector<OperatorLane>& lanes, int later, int earlier) {
    std::set<int> behind = {later};
    for (int i = later; i > earlier; --i) {
      if (!behind.contains(i)) continue;
      behind.insert(lanes[i].behind.begin(), lanes[i].behind.end());
      for (int before = i - 1; before >= 0; --before) {
        if (lanes[before].lane != lanes[i].lane) continue;
        behind.insert(before);
        break;
      }
    }
    return behind.contains(earlier);
  }

  std::vector<int> OfType(const std::string& type) const {
    std::vector<int> found;
    for (int i = 0; i < def_.op_size(); ++i) {
      if (def_.op(i).type() == type) found.push_back(i);
    }
    return found;
  }

  // By reads and writes of blobs of the same name.
  void ExpectOrder(const std::vector<OperatorLane>& lanes) const {
    const auto uses = [](const auto& names, const std::string& name) { return std::ranges::count(names, name) > 0; };
    for (int later = 0; later < def_.op_size(); ++later) {
      for (int earlier = 0; earlier < later; ++earlier) {
        const OperatorDef &a = def_.op(earlier), &b = def_.op(later);
        const auto is_written = [&](const std::string& name) {
          return uses(b.input(), name) || uses(b.output(), name);
        };
        const bool waits =
            std::ranges::any_of(a.output(), is_written) ||
            std::ranges::any_of(a.input(), [&](const std::string& name) { return uses(b.output(), name); });
        EXPECT_TRUE(!waits || IsBehind(lanes, later, earlier)) << earlier << " and " << later;
      }
    }
  }

 private:
  const NetDef def_;
  Workspace workspace_;
  std::vector<std::unique_ptr<NetOperator>> made_;
  std::vector<OperatorToRecord> operators_;
};

// `width` cells beside each other, whose outputs are joined, and on them as many again.
NetDef BesideEachOther(int width, int height, bool training) {
  CellSource cell = ReadExampleCell("lstm");
  NetDef net;
  std::vector<std::string> parameters;
  std::string below = "x";
  std::int64_t size = 8;
  for (int level = 0; level < height; ++level) {
    std::vector<std::string> outputs;
    for (int k = 0; k < width; ++k) {
      CellUse use{.scope = StrCat("c", level, k, "/")};
      use.sizes = {{"D", size}, {"H", 6}};
      use.inputs = {{"x", below}};
      const CellNet made = ExpandCell(cell, use);
      net.mutable_op()->MergeFrom(made.net.op());
      parameters.insert(parameters.end(), made.parameters.begin(), made.parameters.end());
      outputs.push_back(made.outputs[0]);
    }
    below = StrCat("joined", level);
    AddOp(&net, "Concat", outputs, {below, below + "_sizes"}).Int("axis", -1);
    size = 6 * width;
  }
  if (!training) return net;
  AddBackwardStepNets(&net);
  return AddGradients(net, {below}, parameters).net;
}

TEST(OperatorLanes, LoopsRunBesideEachOtherForwardAndBackward) {
  for (const int layers : {1, 2}) {
    const NetToRecord net(BesideEachOther(2, layers, /*training=*/true));
    const std::vector<OperatorLane> lanes = net.Lanes(4);
    net.ExpectOrder(lanes);
    for (const char* type : {"RecurrentNetwork", "RecurrentNetworkGradient"}) {
      const std::vector<int> steps = net.OfType(type);
      ASSERT_EQ(steps.size(), 2U * static_cast<size_t>(layers));
      for (int layer = 0; layer < layers; ++layer) {
        const int first = steps[2 * layer], second = steps[2 * layer + 1];
        EXPECT_NE(lanes[first].lane, lanes[second].lane) << type;
        EXPECT_FALSE(NetToRecord::IsBehind(lanes, second, first)) << type << " of layer " << layer;
        if (layer > 0) {
          EXPECT_TRUE(NetToRecord::IsBehind(lanes, first, steps[2 * layer - 1]));
          EXPECT_TRUE(NetToRecord::IsBehind(lanes, second, steps[2 * layer - 2]));
        }
      }
    }
  }
}

TEST(OperatorLanes, ThereIsOneWhereOneIsAskedForOrOneOperatorRunsSteps) {
  const auto expect_one = [](const std::vector<OperatorLane>& lanes) {
    for (const OperatorLane& at : lanes) {
      EXPECT_EQ(at.lane, 0);
      EXPECT_TRUE(at.behind.empty());
    }
  };
  expect_one(NetToRecord(BesideEachOther(2, 2, /*training=*/true)).Lanes(1));
  expect_one(NetToRecord(BesideEachOther(1, 1, /*training=*/false)).Lanes(4));
}

TEST(OperatorLanes, WhatLastsWaitsForAllThatMayFindFaults) {
  NetDef def = BesideEachOther(2, 1, /*training=*/false);
  const std::vector<int> steps = NetToRecord(def).OfType("RecurrentNetwork");
  const int last = steps[1] + 1;
  def.mutable_op()->DeleteSubrange(last, def.op_size() - last);
  *def.add_op() = ParseOp("counter = Copy(x)");
  NetToRecord net(def);
  const auto waits_for_all = [&] {
    const std::vector<OperatorLane> lanes = net.Lanes(4);
    return NetToRecord::IsBehind(lanes, last, steps[0]) && NetToRecord::IsBehind(lanes, last, steps[1]);
  };
  EXPECT_FALSE(waits_for_all());
  net[last].outlives = true;
  EXPECT_TRUE(waits_for_all());
}

// The states of a run are no outputs of its operator, and are in the memory of one.
TEST(OperatorLanes, WhatGivesBlobsOfOneMemoryIsNotBesideWhoReadsThem) {
  NetDef def = BesideEachOther(2, 1, /*training=*/false);
  const NetToRecord before(def);
  const int steps = before.OfType("RecurrentNetwork")[0];
  NewArgument(def.mutable_op(steps), "private_states")->set_i(0);
  const std::string state = FindArgument(def.op(steps), "recurrent_states")->strings(0);
  const int reader = def.op_size();
  OperatorDef copy = ParseOp("seen = Copy(a)");
  copy.set_input(0, state);
  *def.add_op() = copy;
  const int writer = def.op_size();
  OperatorDef in_place = ParseOp("a = Relu(a)");
  in_place.set_input(0, def.op(steps).output(0));
  in_place.set_output(0, def.op(steps).output(0));
  *def.add_op() = in_place;
  const NetToRecord net(def);
  const std::vector<OperatorLane> lanes = net.Lanes(4);
  EXPECT_TRUE(NetToRecord::IsBehind(lanes, reader, steps));
  EXPECT_TRUE(NetToRecord::IsBehind(lanes, writer, reader));
}

}  // namespace
}  // namespace stepnet
