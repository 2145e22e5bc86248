// rnn_runner check: what can be known to be wrong with a net without running it.
#include <iostream>

#include "stepnet/core/net_check.h"
#include "stepnet/core/plan.h"
#include "stepnet/tools/rnn_runner/cell_file.h"
#include "stepnet/tools/rnn_runner/common_flags.h"
#include "stepnet/tools/rnn_runner/model_file.h"
#include "stepnet/tools/rnn_runner/text.h"

namespace stepnet::runner {
namespace {

int Check(const std::vector<std::string>& operands) {
  const std::string& path = operands.front();
  const AnyMessage file = ReadNetFile(path);
  std::int64_t problems = 0;
  int operators = 0;
  int step_nets = 0;
  if (file.kind == MessageKind::kPlanDef) {
    const auto& plan = static_cast<const PlanDef&>(*file.message);
    for (const std::string& problem : CheckPlan(plan)) {
      std::cout << Printable(StrCat("plan \"", plan.name(), "\", ", problem)) << "\n";
      ++problems;
    }
  }
  for (const NamedNet& named : NetsOf(file, path)) {
    const std::string where = named.name.empty() || named.name == named.net->name() ? "" : named.name + ", ";
    const std::vector<NetProblem> found = CheckNet(*named.net);
    for (const NetProblem& problem : found) std::cout << Printable(where + problem.Text()) << "\n";
    problems += static_cast<std::int64_t>(found.size());
    operators += named.net->op_size();
    if (found.empty()) step_nets += CountStepNets(*named.net);
  }
  if (problems > 0) {
    std::cout << Count(problems, "problem") << "\n";
    return kFault;
  }
  std::cout << "no problems: " << Count(operators, "operator") << ", " << Count(step_nets, "step net") << "\n";
  return kOk;
}

}  // namespace

const Command kCheck = {
    .name = "check",
    .operands = "F",
    .doc = "lists everything that is wrong with a net and its step nets",
    .details =
        "F is a NetDef, a MetaNetDef, a PlanDef or a minidb model, binary or text, or a cell. Nothing is run: unknown\n"
        "operators and arguments, wrong numbers of inputs, blobs that nothing writes, links that do not fit. Each "
        "problem is\n"
        "printed with its net, operator and blob; the exit status is 1 when there are any.",
    .example = "rnn_runner check net.pbtxt",
    .flags = WithCommonFlags({CellSizeFlag()}),
    .min_operands = 1,
    .max_operands = 1,
    .run = Check,
};

}  // namespace stepnet::runner
