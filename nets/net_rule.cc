#include "stepnet/nets/net_rule.h"

#include <mutex>

namespace stepnet {
namespace {

struct Rules {
  std::mutex mutex;
  std::vector<NetRule> list;
};

Rules& TheRules() {
  static Rules rules;
  return rules;
}

}  // namespace

NetRuleRegistration::NetRuleRegistration(NetRule rule) {
  Rules& rules = TheRules();
  const std::lock_guard lock(rules.mutex);
  rules.list.push_back(std::move(rule));
}

void ApplyNetRules(const CheckedNet& checked, std::vector<NetProblem>* problems) {
  Rules& rules = TheRules();
  std::vector<NetRule> list;  // a rule may check nets within the net
  {
    const std::lock_guard lock(rules.mutex);
    list = rules.list;
  }
  for (const NetRule& rule : list) rule(checked, problems);
}

}  // namespace stepnet
