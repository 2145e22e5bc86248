// What operators that run steps write beside their outputs.
#include <gtest/gtest.h>

#include <algorithm>

#include "stepnet/nets/recording.h"
#include "stepnet/nets/recurrent_spec.h"
#include "stepnet/tests/executor/lstm_case.h"

namespace stepnet {
namespace {

TEST(OtherBlobs, AreStatesAliasesAndStepOutputs) {
  const NetDef def = LstmCase(true).Build();
  const OperatorCall forward(def.op(0));
  const RecurrentSpec spec = *RecurrentSpecOf(forward);
  std::vector<std::string> named;
  for (const RecurrentState& state : spec.states) named.push_back(state.name);
  for (const OffsetAlias& alias : spec.aliases) named.push_back(alias.destination);
  for (const StepOutput& output : spec.step_outputs) named.push_back(output.destination);
  EXPECT_EQ(OtherBlobs(forward), named);
  ASSERT_GT(named.size(), spec.states.size());
}

TEST(OtherBlobs, OfAGradientAreGradientsOfStatesByTheirNewNames) {
  RecurrentCase net = LstmCase(true);
  AddString(&net.gradient(), "h_grad.rename", "__m0");
  const NetDef def = net.Build();
  const OperatorCall gradient(def.op(1));
  const RecurrentSpec spec = *RecurrentSpecOf(gradient);
  std::vector<std::string> named;
  for (const RecurrentState& state : spec.states) named.push_back(spec.Renamed(state.name + "_grad"));
  EXPECT_EQ(OtherBlobs(gradient), named);
  EXPECT_EQ(std::ranges::count(named, "__m0"), 1);
}

}  // namespace
}  // namespace stepnet
