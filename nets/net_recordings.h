// NetRecordings: what a device plays of a net, for each of the last few ways in which runs found the blobs. So batches
// of two sizes, or sequences of two lengths, that take turns are played each.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "stepnet/core/blob_state.h"
#include "stepnet/core/recorded_run.h"
#include "stepnet/nets/recording.h"

namespace stepnet {

// What the first `count` operators of a net find in blobs: all that their work depends on.
class RunBlobs : public HostState {
 public:
  RunBlobs(const std::vector<OperatorToRecord>& operators, int count, Workspace& workspace);
  void Note() override;
  bool IsAsNoted() const override;
  void Restore() override;
  // IsAsNoted, once blobs whose values the operators do not read hold again what was noted: other runs may have come
  // between, which left what they left there. What is read first stays as it is.
  bool BringBack();

 private:
  struct Known {
    Blob* blob = nullptr;
    std::string name = {};       // of one that operators look up in each run, and others may remove; of those bound ""
    bool is_read_first = false;  // what it holds is read before it is written
  };
  // The blob, or null where another one has its name now.
  Blob* Find(const Known& known) const;

  Workspace& workspace_;
  std::vector<Known> blobs_;
  std::vector<BlobState> states_;
};

class NetRecordings {
 public:
  // Records the first `count` operators, which are on one device. What is kept has `max_step_operators` in all, or is
  // one.
  NetRecordings(std::vector<OperatorToRecord> operators, int count, Workspace& workspace, Device device,
                std::int64_t max_step_operators);

  // One of them, with temporary memory that nothing else uses: what is played uses it again.
  struct Recording {
    RunContext context;
    RunBlobs* blobs = nullptr;  // of `run`
    std::unique_ptr<RecordedRun> run;
  };
  // The one for the run that begins.
  Recording& OfNextRun();
  // Does `work` or plays it, as RecordedRun::Run.
  void Run(Recording& recording, const std::function<void()>& work);
  // Runs have been, or will be, done otherwise.
  void Forget();

  // Lanes that the device has.
  int num_lanes() const { return num_lanes_; }

 private:
  // Makes it one of runs of which nothing is known.
  void Begin(Recording* recording) const;
  void ForgetOthers(const Recording& recording);

  const std::vector<OperatorToRecord> operators_;
  const int count_;
  Workspace& workspace_;
  const Device device_;
  const std::int64_t max_step_operators_;
  int num_lanes_ = 1;
  std::vector<std::unique_ptr<Recording>> recordings_;  // the last used first
};

}  // namespace stepnet
