// Program: a net, with its gradients where they are wanted, that any number of threads may run at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "stepnet/core/error.h"
#include "stepnet/nets/gradient_request.h"
#include "stepnet/nets/net.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet::python {

// What all runs read, as parameters.
struct SharedBlobs {
  Workspace workspace;
  std::mutex mutex;           // of the tensors in `workspace` where no run writes to them, and of `version`
  std::uint64_t version = 1;  // another one whenever WriteShared has set tensors
};

using RunCount = std::atomic<std::uint64_t>;

struct ProgramDef {
  NetDef net = {};
  std::vector<std::string> inputs = {};   // blobs that every run is given
  std::vector<std::string> outputs = {};  // blobs that a run gives
  RunOptions options = {};
  std::shared_ptr<SharedBlobs> shared = {};  // null where runs are given everything
  // How many runs there were, also of other programs that count in the same: each draws other random numbers.
  std::shared_ptr<RunCount> num_runs = std::make_shared<RunCount>(0);

  NetDef backward = {};                            // runs after `net`, in the same workspace; without operators: never
  std::vector<std::string> output_gradients = {};  // what `backward` is given, one an output; "" where it takes none
  std::vector<std::string> gradients = {};         // what it gives, one for each of `differentiated`; "": all zeros
  std::vector<std::string> differentiated = {};    // inputs, or blobs of `shared`
  std::vector<bool> is_added = {};                 // of each of them whether its gradient is for a sum of the caller's
};

// `def` with a net that computes the gradients of outputs that are floating (`is_floating`, one an output) by those of
// `names` that are not requested as `none`. Throws kInvalidNet for what has no gradient, kInvalidArgument for requests
// of other names, and for `add` of what no output depends on.
ProgramDef WithGradients(ProgramDef def, const std::vector<bool>& is_floating, const std::vector<std::string>& names,
                         const GradientRequests& requests);

class Pullback;

// Each run has a workspace and nets of its own, which later runs take again, with the plans in them: as many are made
// as there are runs at a time. Runs of a net that writes to `shared` wait for each other. A run of any other reads the
// tensors that `shared` has when it begins, and so does its pullback.
//
// A run reads its inputs where they are and does not write to them; on a device one that was elsewhere in the run
// before is copied, to where the last copy was. Its outputs are the caller's: no later run writes to their memory,
// which they may share among each other on the host.
//
// A run that is given any input on the device of the net gives all outputs there, too, and does not wait for them: they
// are there when the device's queue has done what it has been given. So are the gradients of such a run. Those of
// others are on the host.
class Program : public std::enable_shared_from_this<Program> {
 public:
  // Throws kInvalidNet with all problems of the net.
  explicit Program(ProgramDef def);
  ~Program();

  // One tensor for each input gives one for each output: undefined for blobs that hold none. Random numbers are those
  // of run number `draw`; where it is not given, of another one each time.
  std::vector<Tensor> Run(const std::vector<Tensor>& inputs, std::optional<std::uint64_t> draw = {});
  // The same, and what computes the gradients of this run. REQUIRES a program with gradients.
  std::pair<std::vector<Tensor>, std::unique_ptr<Pullback>> RunForGradients(const std::vector<Tensor>& inputs,
                                                                            std::optional<std::uint64_t> draw = {});
  bool has_state() const { return has_state_; }  // runs write to `shared`
  // Calls `work` on what a run has given. Where runs write to `shared`, what it throws says that this one has: who runs
  // again does not repeat it.
  template <typename Work>
  auto BehindRun(const Work& work) const {
    try {
      return work();
    } catch (const Error& error) {
      if (!has_state_) throw;
      throw Error(error.code(), error.message() + "; the run itself is done: what the net keeps has changed");
    }
  }

  // Copies of blobs of `shared`, and other elements for them, of the same dtypes and shapes, for runs that begin later:
  // all at once, also for other programs that share them; between runs of a net that writes to it. What no run writes
  // is constant from then on (SetConstant in nets/model.h). The next run draws what it would behind `num_runs`.
  // ReadShared also says how many runs there were then.
  std::map<std::string, Tensor> ReadShared(const std::vector<std::string>& blobs, std::uint64_t* num_runs = nullptr);
  void WriteShared(const std::map<std::string, Tensor>& tensors, std::optional<std::int64_t> num_runs = {});

 private:
  friend class Pullback;
  struct Session;
  class Lease;

  std::unique_ptr<Session> MakeSession() const;
  void TakeShared(Session& session) const;
  void RunForward(Session& session, const std::vector<Tensor>& inputs, std::optional<std::uint64_t> draw);
  std::vector<Tensor> OutputsOf(const Session& session) const;
  void GiveBack(std::unique_ptr<Session> session);

  const ProgramDef def_;
  std::vector<bool> is_overwritten_;  // of each input whether the net writes its blob
  std::vector<bool> is_kept_;         // of each output whether the next run reads what its blob holds
  bool has_state_ = false;
  std::mutex turn_;  // of runs of a net that has a state
  std::mutex mutex_;
  std::vector<std::unique_ptr<Session>> free_;
};

// The gradients of one run. Keeps what the run has left for them; calls from several threads run one by one.
class Pullback {
 public:
  Pullback(std::shared_ptr<Program> program, std::unique_ptr<Program::Session> session);
  ~Pullback();

  // The gradients by ProgramDef::differentiated of the sum of all outputs' elements, each times that of its gradient.
  // One tensor for each output; undefined ones are zeros. Gradients that are to be added are on the host, but those of
  // which `adds_there` says that what they are added to is on the device (none where it is empty); whoever calls adds
  // them.
  std::vector<Tensor> Run(const std::vector<Tensor>& output_gradients, const std::vector<bool>& adds_there = {});

  // What the run was given and what it has given, with texts that name it.
  std::vector<std::pair<std::string, Tensor>> Kept() const;

  const TensorInfo& InfoOfOutput(size_t i) const { return outputs_[i]; }
  // What is differentiated, by index, and whether the gradient is added.
  const TensorInfo& InfoOf(size_t i) const { return differentiated_[i]; }
  bool IsAdded(size_t i) const;

 private:
  Tensor ZerosOf(size_t output);
  Tensor OwnGradient(size_t i, const std::vector<Tensor>& before, bool to_host) const;
  const std::shared_ptr<Program> program_;
  std::unique_ptr<Program::Session> session_;
  std::mutex mutex_;
  std::vector<TensorInfo> outputs_;
  std::vector<TensorInfo> differentiated_;
};

}  // namespace stepnet::python
