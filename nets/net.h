// Net: the operators of a NetDef, bound to the blobs of a workspace and ready to run.
//
// Types: "" and "simple" run in program order; "dag" runs operators in parallel, each after those whose blobs it reads
// or overwrites, and gives the same values. Caffe2's other types are mapped to these two (docs/net_types.md).
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/operator.h"
#include "stepnet/nets/decomposition.h"
#include "stepnet/nets/kept_outputs.h"
#include "stepnet/nets/net_operator.h"
#include "stepnet/nets/recording.h"

namespace stepnet {

class Net {
 public:
  // Checks the whole net (CheckNet) and makes its kernels. Blobs that operators write and that do not exist are created
  // in `workspace`, which must outlive the net. Throws kInvalidNet with all problems.
  static std::unique_ptr<Net> Create(const NetDef& def, Workspace& workspace, const RunOptions& options = {});
  virtual ~Net() = default;

  // Runs every operator once, less those on the host that would give what they gave before: all that they read is
  // constant (Tensor::SetConstant), so that what they gave is, too. Throws what the first failing operator threw, with
  // its place; later operators have then not run, nothing is running any more, and the net can be run again. Calls from
  // several threads run one by one. Throws kCancelled when `cancellation` asks for it, which without it is what the
  // calling thread works under.
  // What runs on another device than the CPU may not be done when it returns; what reads its outputs waits. It waits
  // for the device itself where kernels there have checked values.
  void Run(const Cancellation* cancellation = CurrentCancellation());
  // Returns when the devices have done all that they were given. Throws what went wrong there.
  void Wait();

  const std::string& name() const { return name_; }
  const std::vector<std::unique_ptr<NetOperator>>& operators() const { return operators_; }

  // What of a run is recorded and played, as far as that is known before it has been tried. Nothing is on the CPU, nor
  // where an executor was chosen that does not record.
  RecordableOperators Recordable() const { return recordable_ ? *recordable_ : FindRecordableOperators(); }

  // Observers are told of the net and of every operator, those within step nets included. Not while Run runs.
  void AttachObserver(Observer* observer) { observers_.push_back(observer); }
  void DetachObserver(Observer* observer) { std::erase(observers_, observer); }

  // The number that the next run uses for random numbers; runs count up from 0.
  void SetRunCounter(std::uint64_t run) { run_ = run; }

 protected:
  Net() = default;
  virtual void RunOperators() = 0;
  // One operator after the other, on one thread.
  virtual bool RunsInTurn() const { return false; }
  // What the net lends to the operators of each run.
  void Lend(RunContext* context) const;
  // Runs operator i and adds its place to what it throws, or throws what one before it has found.
  void RunOperator(int i, RunContext& context);
  // From this operator on all work in place on what the run has found, as a training net's updates of parameters and
  // its count of iterations do: they are done all or none, so a run that has begun with them cannot be cancelled. Their
  // number where there is none.
  int FirstUpdate() const;
  // Where the operators that are on other devices are all on one: its record for a net that runs them in turn.
  std::unique_ptr<LateFaults> MakeLateFaults() const;
  // Throws the first fault of the run; forgets all. Waits for the device, if there may be one.
  void ThrowLateFaults(LateFaults* late_faults);

  std::vector<OperatorToRecord> OperatorsToRecord() const;
  Workspace& workspace() const { return *workspace_; }

  std::string name_;
  std::vector<std::unique_ptr<NetOperator>> operators_;
  std::vector<int> origins_;  // of each operator its index in the NetDef; what is added has that of its cause
  std::map<int, WholeOperator> wholes_;           // by that index
  std::vector<std::optional<KeptOutputs>> kept_;  // of each operator on the host that may keep its outputs
  std::vector<bool> outlives_;                    // of each operator (ChangesWhatLasts)
  ObserverList observers_;
  std::vector<int> entries_;  // operators that bring inputs to the device

 private:
  bool IsUpdate(int i) const;
  Error ErrorAt(int i, Error error) const;
  // Operator i as the net is written; `part`, its own text, where it is no part of another.
  std::string TextOf(int i, const std::string& part) const;
  RecordableOperators FindRecordableOperators() const;

  std::mutex mutex_;
  std::uint64_t run_ = 0;  // of the run that is under way, or the next one
  Workspace* workspace_ = nullptr;

 protected:
  std::optional<RecordableOperators> recordable_;  // what was found, or what is left of it
};

// Creates a net, runs it once.
void RunNetOnce(const NetDef& def, Workspace& workspace, const RunOptions& options = {});

}  // namespace stepnet
