#include "stepnet/nets/dag_net.h"

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>

#include "stepnet/core/access_order.h"
#include "stepnet/core/first_failure.h"
#include "stepnet/core/thread_pool.h"
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

// One run of a net: operators start when those that they wait for have ended. What the executor "parallel" does more
// pays where the same tasks come again in every step: counters for a window of steps that are counted down without a
// lock, the order in which tasks are due, looking out for work before sleeping.
class DagRun : public SharedWork {
 public:
  using RunOperatorFn = std::function<void(int i, int lane)>;
  DagRun(const OperatorOrder& order, RunOperatorFn run_operator)
      : successors_(order.successors),
        run_operator_(std::move(run_operator)),
        waiting_for_(order.num_predecessors),
        remaining_(static_cast<int>(waiting_for_.size())) {
    ready_.reserve(waiting_for_.size());  // so that nothing fails between operators
    for (int i = 0; i < remaining_; ++i) {
      if (waiting_for_[i] == 0) ready_.push_back(i);
    }
  }

  // The caller waits for operators to become ready, and for those that run; helpers leave and are called back.
  void Join(int lane) override {
    const bool is_caller = lane == 0;
    std::unique_lock lock(mutex_);
    for (;;) {
      if (is_caller) changed_.wait(lock, [this] { return (NumReady() > 0 && !Over()) || running_ == 0; });
      if (Over() || NumReady() == 0) return;
      const int i = ready_[next_++];
      ++running_;
      lock.unlock();
      try {
        run_operator_(i, lane);
      } catch (...) {
        failure_.Note();
      }
      lock.lock();
      Finish(i);
    }
  }

  // Throws what the first failing operator threw.
  void Check() { failure_.Rethrow(); }

 private:
  // REQUIRES mutex_.
  void Finish(int i) {
    --running_;
    --remaining_;
    if (!Over()) {
      for (const int successor : successors_[i]) {
        if (--waiting_for_[successor] == 0) ready_.push_back(successor);
      }
    }
    const int for_others = NumReady() - 1;
    if (for_others > 0 && !Over()) ThreadPool::Process().Invite(*this, for_others);
    if (for_others > 0 || running_ == 0) changed_.notify_one();
  }
  bool Over() const { return remaining_ == 0 || failure_.failed(); }
  int NumReady() const { return static_cast<int>(ready_.size() - next_); }

  // The net's, which is there as long as an operator may run.
  const std::vector<std::vector<int>>& successors_;
  const RunOperatorFn run_operator_;
  std::mutex mutex_;
  std::condition_variable changed_;  // for the caller
  std::vector<int> ready_;           // in the order in which they became so
  size_t next_ = 0;                  // of them, to be run
  std::vector<int> waiting_for_;
  int remaining_ = 0;
  int running_ = 0;
  FirstFailure failure_;
};

class DagNet : public Net {
 public:
  explicit DagNet(const NetDef& def)
      : order_(FindOrder(def)), num_lanes_(std::clamp(def.num_workers(), 1, kMaxWorkers)) {}

 protected:
  void RunOperators(std::uint64_t run) override {
    Lend(run, &context_);
    context_.PrepareLanes(num_lanes_);
    const auto work =
        std::make_shared<DagRun>(order_, [this](int i, int lane) { RunOperator(i, context_.lanes[lane]); });
    ThreadPool::Process().Run(work, num_lanes_ - 1);
    work->Check();
  }

 private:
  static constexpr int kMaxWorkers = 256;

  const OperatorOrder order_;
  const int num_lanes_;  // of threads
  RunContext context_;
};

}  // namespace

std::unique_ptr<Net> MakeDagNet(const NetDef& def) { return std::make_unique<DagNet>(def); }

}  // namespace stepnet
