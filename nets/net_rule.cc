#include "stepnet/nets/net_rule.h"

#include "stepnet/core/registered_list.h"

namespace stepnet {
namespace {

RegisteredList<NetRule>& Rules() {
  static RegisteredList<NetRule> rules;
  return rules;
}

}  // namespace

NetRuleRegistration::NetRuleRegistration(NetRule rule) { Rules().Add(std::move(rule)); }

void ApplyNetRules(const CheckedNet& checked, std::vector<NetProblem>* problems) {
  for (const NetRule& rule : Rules().Items()) rule(checked, problems);
}

}  // namespace stepnet
