// Where the time of runs goes: by net and step net, by instruction, by thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "stepnet/compiler/step_plan.h"
#include "stepnet/tools/rnn_runner/per_thread.h"
#include "stepnet/tools/rnn_runner/run_recorder.h"

namespace stepnet::runner {

// An operator of a net, or an instruction of a step net.
struct InstructionStats {
  std::string text;
  std::string type;
  int op_index = -1;        // -1: a move
  std::int64_t calls = 0;   // one a step or, over time, one a run, also of what several threads do in parts
  std::int64_t starts = 0;  // one a part
  double seconds = 0;       // of all threads, or of the device that did it; step nets within included
};

// A thread in the loops of a step net. busy + idle + overhead is the time that the loops took.
struct ThreadStats {
  std::string name;
  std::int64_t starts = 0;  // of instructions
  double busy = 0;          // seconds within instructions
  double idle = 0;          // seconds without anything to do, or before it came and after it left
  double overhead = 0;      // the rest: seconds in the executor
};

struct NetStats {
  std::string net;
  std::string of;  // of a step net: the operator that runs it, "op 3 of lstm"
  bool backward = false;
  std::shared_ptr<const StepPlan> plan;  // null: a net, no step net
  std::string device;                    // "cuda:0" where the steps ran on one; times are its own then
  std::int64_t runs = 0;
  std::int64_t steps = 0;      // of all runs
  std::int64_t max_steps = 0;  // of one run
  double seconds = 0;          // from start to end, of all runs
  double host_seconds = 0;     // with a device: in which the host gave it the work
  // What the operator of a step net on the host took beside the loops, to make the plan and take memory; how much of it
  // in the first run that was looked at.
  double preparation = 0;
  double first_preparation = 0;
  std::vector<InstructionStats> instructions;  // in program order
  std::vector<ThreadStats> threads;            // of step nets on the host: those that took part

  double busy() const;  // seconds of all threads
  // The part of `seconds` that an instruction took. Where threads overlap, the time is shared out by how long each was
  // busy, so that all instructions together take no more than the whole.
  double SecondsOf(const InstructionStats& instruction) const;
  double overhead() const;  // seconds of all threads
  std::int64_t starts() const;
};

// How many threads are busy on average, and how many could be.
struct Parallelism {
  double achieved = 0;    // busy / elapsed
  double achievable = 0;  // in a simulation of the schedule on its threads, with the measured times and no overhead
  double unlimited = 0;   // the same with threads without number
};
// REQUIRES a step net that ran at least one step.
Parallelism ParallelismOf(const NetStats& stats);

// Observer of one or more runs. Its threads write into memory of their own. To be made by the thread that runs the net.
class RunStats : public RunRecorder {
 public:
  // Nets and step nets in the order in which they first started. Not while a net runs. Throws what kept it from
  // recording everything.
  std::vector<NetStats> Nets() const;

  // What looking at an instruction adds to the overhead, in seconds, measured now.
  static double SecondsOfLooking();

 private:
  void Started(const RunEvent& event) override;
  void Stopped(const RunEvent& event) override;

  // What one thread knows of a net or plan.
  struct Share {
    int order = 0;
    NetStats stats;      // without threads
    double inside = 0;   // seconds in loops
    double waiting = 0;  // seconds of them
  };
  using Mark = std::shared_ptr<const double>;  // of Queue::MarkTime
  // What a device was given, whose time is known when it is done.
  struct Late {
    Queue* queue = nullptr;
    Share* share = nullptr;
    int instruction = -1;   // -1: the whole
    Mark begin = nullptr;   // null: a net, which begins on the host
    double host_begin = 0;  // then
    double host_end = 0;    // likewise
    Mark end = nullptr;
  };
  struct Thread {
    struct Open {
      double start = 0;
      const std::string* net = nullptr;
      int op_index = -1;
      Mark begin = nullptr;
      Share* loop = nullptr;  // that it ran within
      double in_loop = 0;     // seconds
    };
    std::vector<Open> open;                                // innermost last
    std::unordered_map<const std::string*, Share> shares;  // by RunEvent::net
    std::vector<Late> late;
    Queue* last_queue = nullptr;  // of the net that runs: where it put in something last
    Mark last_end = nullptr;
  };
  // Waits for what the thread has put in, and adds the times.
  static void AddLate(Thread* thread);

  Share& ShareOf(const RunEvent& event, Thread* thread);

  std::atomic<int> next_order_ = 0;
  PerThread<Thread> threads_;
};

}  // namespace stepnet::runner
