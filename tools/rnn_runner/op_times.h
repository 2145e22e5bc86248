// Time that each operator takes, gathered while nets run.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "stepnet/core/observer.h"

namespace stepnet::runner {

struct OpTime {
  std::string net;
  int op_index = 0;
  std::string type;
  bool backward = false;  // in a backward step net
  bool in_step_net = false;
  std::int64_t calls = 0;
  double seconds = 0;  // of all calls, step nets within included
};

// Observer of one or more runs. Operators of step nets with the same name are counted together.
class OpTimes : public Observer {
 public:
  void Start(const RunEvent& event) override;
  void Stop(const RunEvent& event) override;

  // The longest first.
  std::vector<OpTime> Sorted() const;

 private:
  using Key = std::tuple<bool, bool, std::string, int>;  // backward, in a step net, net, operator

  std::mutex mutex_;
  std::map<Key, OpTime> times_;
};

}  // namespace stepnet::runner
