#include "stepnet/nets/dag_net.h"

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>

#include "stepnet/core/access_order.h"
#include "stepnet/core/cancellation.h"
#include "stepnet/core/first_failure.h"
#include "stepnet/core/thread_pool.h"
#include "stepnet/nets/overwritten_blobs.h"
#include "stepnet/nets/side_effects.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

// Which operators must have finished before which start. Edges that others imply stay, other than in the dependencies
// of a plan: a net has at most one for each use of a blob, to count one down costs less than any operator, and to find
// those that can go takes time by the square of the net.
struct OperatorOrder {
  std::vector<std::vector<int>> successors;
  std::vector<int> num_predecessors;
};

OperatorOrder FindOrder(const NetDef& net) {
  OperatorOrder result;
  result.successors.resize(net.op_size());
  result.num_predecessors.assign(net.op_size(), 0);
  const auto add_edge = [&](int from, int to) {
    std::vector<int>& successors = result.successors[from];
    // Edges are added by ascending `to`: one that exists is the last.
    if (!successors.empty() && successors.back() == to) return;
    successors.push_back(to);
    ++result.num_predecessors[to];
  };
  std::map<std::string, AccessOrder<int>> blobs;
  for (int i = 0; i < net.op_size(); ++i) {
    const OperatorDef& op = net.op(i);
    for (const std::string& input : op.input()) blobs[input].Read(i, add_edge);
    for (const std::string& input : op.control_input()) blobs[input].Read(i, add_edge);
    for (const std::string& output : op.output()) blobs[output].Write(i, add_edge);
  }
  return result;
}

// What lasts beyond the run (a parameter, a counter, a file) waits for every earlier operator that may find a bad
// value, so that a run that fails leaves it as it was. Such operators do not wait for each other. Adds nodes behind
// those of the operators, which stand for all that they wait for.
void HoldBackLastingWrites(const NetDef& net, DeviceKind device, OperatorOrder* order) {
  const std::vector<bool> lasts = ChangesWhatLasts(net);
  if (std::ranges::find(lasts, true) == lasts.end()) return;
  const auto add = [&](int from, int to) {
    order->successors[from].push_back(to);
    ++order->num_predecessors[to];
  };
  int all_before = -1;  // the node that stands for them
  std::vector<int> since;
  for (int i = 0; i < net.op_size(); ++i) {
    if (!lasts[i]) {
      if (MayFindFaults(OperatorCall(net.op(i)), device)) since.push_back(i);
      continue;
    }
    if (!since.empty()) {
      if (all_before >= 0) since.push_back(all_before);
      all_before = static_cast<int>(order->successors.size());
      order->successors.emplace_back();
      order->num_predecessors.push_back(0);
      for (const int before : since) add(before, all_before);
      since.clear();
    }
    if (all_before >= 0) add(all_before, i);
  }
}

// Updates, those from `first` on, wait for all others: a run that is cancelled before them has changed nothing, and one
// that has begun with them is finished. Adds one node, where there are any of both.
void HoldBackUpdates(int first, int num_operators, OperatorOrder* order) {
  if (first == 0 || first == num_operators) return;
  const int all_others = static_cast<int>(order->successors.size());
  order->successors.emplace_back();
  order->num_predecessors.push_back(first);
  for (int i = 0; i < first; ++i) order->successors[i].push_back(all_others);
  for (int i = first; i < num_operators; ++i) {
    order->successors[all_others].push_back(i);
    ++order->num_predecessors[i];
  }
}

// One run of a net: operators start when those that they wait for have ended. Behind one that failed, in program order,
// none starts any more; those before it do, so that the error is that of the first, whatever the threads do. What the
// executor "parallel" does more pays where the same tasks come again in every step: counters for a window of steps that
// are counted down without a lock, the order in which tasks are due, looking out for work before sleeping.
class DagRun : public SharedWork {
 public:
  using RunOperatorFn = std::function<void(int i, int lane)>;
  DagRun(const OperatorOrder& order, int num_operators, RunOperatorFn run_operator)
      : successors_(order.successors),
        num_operators_(num_operators),
        run_operator_(std::move(run_operator)),
        waiting_for_(order.num_predecessors),
        first_failed_(num_operators) {
    ready_.reserve(waiting_for_.size());  // so that nothing fails between operators
    for (int i = 0; i < num_operators; ++i) {
      if (waiting_for_[i] == 0) ready_.push_back(i);
    }
  }

  // The caller waits for operators to become ready, and for those that run; helpers leave and are called back.
  void Join(int lane) override {
    const bool is_caller = lane == 0;
    std::unique_lock lock(mutex_);
    for (;;) {
      if (is_caller) changed_.wait(lock, [this] { return NumReady() > 0 || running_ == 0; });
      if (NumReady() == 0) return;
      const int i = ready_[next_++];
      if (i < num_operators_ && i >= first_failed_) continue;
      ++running_;
      lock.unlock();
      std::exception_ptr failure;
      try {
        if (i < num_operators_) run_operator_(i, lane);
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      Finish(i, std::move(failure));
    }
  }

  // Throws what the first failing operator in program order threw, once.
  void Rethrow() { failure_.Rethrow(); }

 private:
  // REQUIRES mutex_.
  void Finish(int i, std::exception_ptr failure) {
    --running_;
    if (failure != nullptr) {
      if (i < first_failed_) failure_.Replace(std::move(failure));
      first_failed_ = std::min(first_failed_, i);
    } else {
      for (const int successor : successors_[i]) {
        if (--waiting_for_[successor] == 0) ready_.push_back(successor);
      }
    }
    const int for_others = NumReady() - 1;
    if (for_others > 0) ThreadPool::Process().Invite(*this, for_others);
    if (for_others > 0 || running_ == 0) changed_.notify_one();
  }
  int NumReady() const { return static_cast<int>(ready_.size() - next_); }

  // The net's, which is there as long as an operator may run.
  const std::vector<std::vector<int>>& successors_;
  const int num_operators_;  // nodes behind them are no operators
  const RunOperatorFn run_operator_;
  std::mutex mutex_;
  std::condition_variable changed_;  // for the caller
  std::vector<int> ready_;           // in the order in which they became so
  size_t next_ = 0;                  // of them, to be run
  std::vector<int> waiting_for_;
  int running_ = 0;
  int first_failed_;
  FirstFailure failure_;  // what it threw
};

class DagNet : public Net {
 public:
  DagNet(const NetDef& def, DeviceKind device)
      : order_(FindOrder(def)), num_lanes_(std::clamp(def.num_workers(), 1, kMaxWorkers)) {
    HoldBackLastingWrites(def, device, &order_);
  }

 protected:
  void RunOperators() override {
    const int num_operators = static_cast<int>(operators_.size());
    if (first_update_ < 0) {
      first_update_ = FirstUpdate();
      HoldBackUpdates(first_update_, num_operators, &order_);
    }
    has_begun_updates_ = false;
    Lend(&context_);
    context_.PrepareLanes(num_lanes_);
    if (!overwritten_) overwritten_.emplace(operators_, workspace());
    const OverwritingRun overwriting(*overwritten_);
    const auto work = std::make_shared<DagRun>(order_, num_operators, [this](int i, int lane) { RunInLane(i, lane); });
    ThreadPool::Process().Run(work, num_lanes_ - 1);
    work->Rethrow();
  }

 private:
  static constexpr int kMaxWorkers = 256;

  void RunInLane(int i, int lane) {
    overwritten_->Use(static_cast<size_t>(i));
    if (i < first_update_) return RunOperator(i, context_.lanes[lane]);
    BeginUpdates();
    const CancellationScope cannot_be_cancelled(nullptr);
    RunOperator(i, context_.lanes[lane]);
  }

  // Whichever update is the first looks once more whether the run shall stop.
  void BeginUpdates() {
    const std::lock_guard lock(updates_mutex_);
    if (has_begun_updates_) return;
    CheckCancelled();
    has_begun_updates_ = true;
  }

  OperatorOrder order_;
  const int num_lanes_;  // of threads
  std::optional<OverwrittenBlobs> overwritten_;
  RunContext context_;
  int first_update_ = -1;  // below 0: not known yet
  std::mutex updates_mutex_;
  bool has_begun_updates_ = false;  // in this run; REQUIRES updates_mutex_ while operators run
};

}  // namespace

std::unique_ptr<Net> MakeDagNet(const NetDef& def, DeviceKind device) { return std::make_unique<DagNet>(def, device); }

}  // namespace stepnet
