// Net rules: what operators have to agree on with others, which the check of one operator cannot know. Whoever knows
// such a rule registers it; CheckNet applies all.
#pragma once

#include <functional>
#include <set>
#include <vector>

#include "stepnet/nets/net_check.h"

namespace stepnet {

struct CheckedNet {
  const NetDef& net;
  const NetCheckOptions& options;
  const std::set<int>& faulty;  // operators that are wrong by themselves: what they agree with cannot be said
  const CheckedCalls& calls;
};

// Appends what is wrong, with net and operator.
using NetRule = std::function<void(const CheckedNet& checked, std::vector<NetProblem>* problems)>;

class NetRuleRegistration {
 public:
  explicit NetRuleRegistration(NetRule rule);
};

// All rules, in the order of their registration.
void ApplyNetRules(const CheckedNet& checked, std::vector<NetProblem>* problems);

}  // namespace stepnet
