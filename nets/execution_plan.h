// Execution plans (Caffe2's PlanDef): which nets run, how often, and which at the same time. Its execution steps are no
// timesteps.
//
// An execution step runs its nets, or its substeps, one after the other or concurrently, num_iter times or until its
// should_stop_blob (bool, one element) is true. One with create_workspace runs in a workspace of its own, made anew
// each time, whose parent is the one around it. Reporters (report_net, substeps with run_every_ms) run from time to
// time while it runs, and once more at its end.
//
// Nets that run at the same time and touch the same blob, one of them writing, take turns; nets with operators that
// have side effects run alone.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "stepnet/core/operator.h"
#include "stepnet/core/workspace.h"

namespace stepnet {

class PlanDef;

struct ExecutionPlanOptions {
  RunOptions run = {};
  // Asked before each net, from several threads at once; false ends the plan.
  std::function<bool()> should_continue = {};
};

// True when the plan ran to its end, false when should_continue ended it. Throws kInvalidNet with all problems that
// CheckExecutionPlan finds, and what the first failing net throws; then nothing is running any more.
bool RunExecutionPlan(const PlanDef& plan, Workspace& workspace, const ExecutionPlanOptions& options = {});

// What is wrong with the steps of a plan: unknown nets, counts without sense, steps nested more than 100 deep, …
// The nets themselves are not looked into (CheckNet). Each problem starts with its step.
std::vector<std::string> CheckExecutionPlan(const PlanDef& plan);

}  // namespace stepnet
