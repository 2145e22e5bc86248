// Observer: is told when nets and operators start and stop, and in step nets also moves, loops and waiting. Start
// and Stop calls are balanced, also on failure; on each thread, what started last stops first.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace stepnet {

class Queue;
struct StepPlan;

// What starts or stops. Observers pass over the kinds that they are not after.
enum class RunEventKind {
  kNet,       // a net: all its operators
  kOperator,  // an operator, of a net or in one step of a step net
  kMove,      // what a plan moves: between a blob of a step net and what it stands for outside, or rows around the loop
  kLoop,      // a step net for all its steps: on the thread that asks for it, and on each that helps
  kWait,      // within a loop: the thread has nothing to do
};

struct RunEvent {
  RunEventKind kind = RunEventKind::kNet;
  const std::string* net = nullptr;      // its name, at one address as long as the net or plan lives
  int op_index = -1;                     // of an operator; otherwise -1
  const std::string* op_type = nullptr;  // of a move "copy", "add", "zero", …; null for nets, loops and waiting
  const std::string* op_text = nullptr;  // "y = FC(x, w, b)", "dw += w_grad"; null where op_type is
  std::int64_t step = -1;                // of operators and moves in step nets; -1: outside, or for many steps
  bool backward = false;                 // in a backward step net
  Queue* queue = nullptr;                // of the device that does the work; null: the host, or a whole net

  // What follows is set in step nets alone.
  const std::shared_ptr<const StepPlan>* plan = nullptr;  // compiler/step_plan.h; to keep it, copy what this points to
  std::int64_t num_steps = 0;                             // of the loop
  int instruction = -1;                                   // number among the plan's: instructions, before, after
  int part = 0;  // of `parts`: an instruction that is cut up starts and stops once for each, maybe on several threads
  int parts = 1;
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
