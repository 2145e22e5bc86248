#include "stepnet/tools/rnn_runner/placed_plans.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "stepnet/compiler/backward_plan.h"
#include "stepnet/compiler/forward_plan.h"
#include "stepnet/executor/recurrent_record.h"
#include "stepnet/nets/completion.h"
#include "stepnet/nets/decomposition.h"
#include "stepnet/nets/gradient_check.h"
#include "stepnet/nets/net_check.h"
#include "stepnet/nets/net_operator.h"
#include "stepnet/nets/placement.h"
#include "stepnet/nets/requested_gradients.h"

namespace stepnet::runner {

void MakePlacedPlans(const Workspace& workspace, const NetDef& net, const RunOptions& options) {
  struct Forward {
    std::shared_ptr<const ForwardOperator> op;
    std::shared_ptr<const ForwardPlan> plan;
    std::shared_ptr<const RecurrentRecord> record;
  };
  std::map<std::string, Forward> forward_of;  // by the blob of the record
  const std::shared_ptr<const NetDef> completed = Completed(net);
  const PlacedNet placed = Place(Decomposed(completed, NetUse::kInference).net, options);
  const std::vector<OperatorCall::Readers> readers = ReadersOfOutputs(*placed.net);
  SharedOptions shared(options);
  for (int i = 0; i < placed.net->op_size(); ++i) {
    const OperatorCall op(placed.net->op(i), shared.On(placed.devices[i]), readers[i]);
    if (op.type() == "RecurrentNetwork") {
      const Blob& blob = workspace.GetBlob(op.outputs().back());
      Forward forward{.record = blob.GetObject<RecurrentRecord>()};
      if (forward.record == nullptr) continue;  // another operator has written there
      forward.op = std::make_shared<const ForwardOperator>(op);
      forward.plan = MakeForwardPlan(*forward.op, forward.record->inputs);
      forward_of[blob.name()] = forward;
    } else if (op.type() == "RecurrentNetworkGradient" && forward_of.contains(op.inputs().back())) {
      const Forward& forward = forward_of.at(op.inputs().back());
      const std::shared_ptr<const RecurrentSpec> spec = WithRequestedGradients(op, RecurrentSpecOf(op));
      const GradientInputs layout{.num_output_gradients = static_cast<int>(spec->outputs_with_grads.size()),
                                  .num_inputs = forward.op->op.num_inputs()};
      std::vector<NetProblem> problems;  // there are none: the gradient has run
      const BackwardRoles roles = CheckGradient(op, *spec, forward.op.get(), &problems);
      MakeBackwardPlan(op, *spec, roles, layout, {forward.op, forward.plan, forward.record->inputs});
    }
  }
}

}  // namespace stepnet::runner
