// Observer: is told when nets and operators start and stop. Start and Stop calls are balanced, also on failure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace stepnet {

// What starts or stops: an operator of a net (op_index >= 0), or the whole net (-1).
struct RunEvent {
  const std::string* net = nullptr;
  int op_index = -1;
  const std::string* op_type = nullptr;  // null for a net
  const std::string* op_text = nullptr;  // "y = FC(x, w, b)"; null for a net
  std::int64_t step = -1;                // timestep in a step net; -1 outside
  bool backward = false;                 // in a backward step net
};

// Called from the thread that runs the operator, from several threads at once when an executor uses several. Must not
// throw.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void Start(const RunEvent& event) = 0;
  virtual void Stop(const RunEvent& event) = 0;
};

using ObserverList = std::vector<Observer*>;

// Start now, Stop when the scope ends.
class ObservedScope {
 public:
  ObservedScope(const ObserverList& observers, const RunEvent& event) : observers_(observers), event_(event) {
    for (Observer* observer : observers_) observer->Start(event_);
  }
  ~ObservedScope() {
    for (Observer* observer : observers_) observer->Stop(event_);
  }
  ObservedScope(const ObservedScope&) = delete;
  ObservedScope& operator=(const ObservedScope&) = delete;

 private:
  const ObserverList& observers_;
  RunEvent event_;
};

}  // namespace stepnet
