// --trace and --stats: what a command shows of the runs of a net.
#pragma once

#include <gflags/gflags.h>

#include <optional>

#include "stepnet/nets/net.h"
#include "stepnet/tools/rnn_runner/command.h"
#include "stepnet/tools/rnn_runner/run_stats.h"
#include "stepnet/tools/rnn_runner/trace.h"

DECLARE_bool(stats);

namespace stepnet::runner {

FlagUse TraceFlag();
FlagUse StatsFlag();

// Throws UsageError when --trace or --stats is given for `file`, which holds no net that they could look at.
void RefuseToWatch(const std::string& file);

// Records what --trace asks for. A run that ends by an exception leaves its trace too.
class TraceOfRuns {
 public:
  // Throws kInputOutput when the file cannot be made. `net` must outlive this.
  explicit TraceOfRuns(Net& net);
  ~TraceOfRuns();
  TraceOfRuns(const TraceOfRuns&) = delete;
  TraceOfRuns& operator=(const TraceOfRuns&) = delete;

  // Whether there is a trace that shows of a device what it does in runs that are played.
  bool LetsPlay() const { return trace_ && trace_->LetsPlay(); }
  // Stops recording and writes the file, unless that is done already. Throws kInputOutput.
  void Write();

 private:
  Net& net_;
  std::optional<Trace> trace_;
};

// Gathers and prints what --stats asks for.
class StatsOfRuns {
 public:
  explicit StatsOfRuns(Net& net);
  ~StatsOfRuns();
  StatsOfRuns(const StatsOfRuns&) = delete;
  StatsOfRuns& operator=(const StatsOfRuns&) = delete;

  // On standard output, behind an empty line.
  void Print() const;

 private:
  Net& net_;
  std::optional<RunStats> stats_;
};

}  // namespace stepnet::runner
