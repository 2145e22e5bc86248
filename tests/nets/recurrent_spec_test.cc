// Whose the parsed arguments of recurrent operators are.
#include "stepnet/nets/recurrent_spec.h"

#include <gtest/gtest.h>

#include "stepnet/nets/backward_roles.h"
#include "stepnet/nets/forward_operator.h"
#include "stepnet/nets/requested_gradients.h"
#include "stepnet/tests/executor/lstm_case.h"

namespace stepnet {
namespace {

TEST(RecurrentSpec, IsOneObjectForAllCopiesOfACall) {
  const NetDef def = LstmCase(true).Build();
  const OperatorCall call(def.op(0));
  const OperatorCall copy = call;
  const std::shared_ptr<const RecurrentSpec> spec = RecurrentSpecOf(copy);
  EXPECT_EQ(RecurrentSpecOf(call), spec);
  EXPECT_EQ(RecurrentSpecOf(call.ReadBy({{"Copy"}})), spec);
  EXPECT_EQ(ForwardOperator(call).spec, spec) << "no gradient is left out";
  EXPECT_NE(RecurrentSpecOf(OperatorCall(def.op(0))), spec);
}

TEST(RecurrentSpec, IsAnotherWhereGradientsAreLeftOut) {
  NetDef def = LstmCase(true).Build();
  std::vector<std::string> requests(InputsOfGradients(*RecurrentSpecOf(OperatorCall(def.op(0)))).size(), "none");
  AddStrings(def.mutable_op(0), "gradient_requests", requests);
  const OperatorCall call(def.op(0));
  const std::shared_ptr<const RecurrentSpec> spec = RecurrentSpecOf(call);
  const std::shared_ptr<const RecurrentSpec> requested = WithRequestedGradients(call, spec);
  EXPECT_EQ(requested->backward_links.size() + 1, spec->backward_links.size()) << "that of x";
  EXPECT_EQ(RecurrentSpecOf(call), spec) << "others see the arguments as they are";
}

TEST(RecurrentSpec, SaysEachTimeWhatIsWrong) {
  RecurrentCase net = LstmCase(false);
  AddStrings(&net.forward(), "step_output_src", {"gates"});
  const OperatorCall call(net.Build().op(0));
  const std::string message = "step_output_src has 1 entries and step_output_dst 0";
  std::vector<Error> faults;
  for (const size_t times : {1, 2}) {
    ExpectError([&] { RecurrentSpecOf(call); }, "invalid argument: " + message);
    EXPECT_EQ(RecurrentSpecOf(call, &faults)->states.size(), 2u);
    ASSERT_EQ(faults.size(), times);
    EXPECT_EQ(faults.back().message(), message);
  }
}

TEST(RecurrentSpec, IsOfRecurrentOperatorsAlone) {
  const OperatorCall call(ParseOp("y = Relu(x)"));
  for (int times = 0; times < 2; ++times) {
    ExpectError([&] { RecurrentSpecOf(call); },
                "internal error: Relu reads an argument \"step_net\" of type net, and declares none");
  }
}

}  // namespace
}  // namespace stepnet
