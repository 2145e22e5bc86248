#include "stepnet/core/dag_net.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>

#include "stepnet/core/thread_pool.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

// Which operators must have finished before which start: whoever reads waits for the last writer, whoever writes waits
// for the last writer and for all who read since.
struct Dependencies {
  std::vector<std::vector<int>> successors;
  std::vector<int> num_predecessors;
};

Dependencies FindDependencies(const NetDef& net) {
  Dependencies result;
  result.successors.resize(net.op_size());
  result.num_predecessors.assign(net.op_size(), 0);
  struct Uses {
    int writer = -1;
    std::vector<int> readers;
  };
  std::map<std::string, Uses> blobs;
  const auto add = [&](int from, int to) {
    std::vector<int>& successors = result.successors[from];
    // Edges are added by ascending `to`: one that exists is the last.
    if (from == to || (!successors.empty() && successors.back() == to)) return;
    successors.push_back(to);
    ++result.num_predecessors[to];
  };
  for (int i = 0; i < net.op_size(); ++i) {
    const OperatorDef& op = net.op(i);
    const auto reads = [&](const std::string& blob) {
      Uses& uses = blobs[blob];
      if (uses.writer >= 0) add(uses.writer, i);
      uses.readers.push_back(i);
    };
    std::ranges::for_each(op.input(), reads);
    std::ranges::for_each(op.control_input(), reads);
    for (const std::string& output : op.output()) {
      Uses& uses = blobs[output];
      if (uses.writer >= 0) add(uses.writer, i);
      for (const int reader : uses.readers) add(reader, i);
      uses = {.writer = i, .readers = {}};
    }
  }
  return result;
}

class DagNet : public Net, private SharedWork {
 public:
  explicit DagNet(const NetDef& def)
      : dependencies_(FindDependencies(def)), contexts_(std::clamp(def.num_workers(), 1, kMaxWorkers)) {}

 protected:
  void RunOperators(std::uint64_t run) override {
    ready_.clear();
    ready_.reserve(operators_.size());
    next_ = 0;
    waiting_for_ = dependencies_.num_predecessors;
    remaining_ = static_cast<int>(operators_.size());
    failure_ = nullptr;
    for (size_t i = 0; i < operators_.size(); ++i) {
      if (waiting_for_[i] == 0) ready_.push_back(static_cast<int>(i));
    }
    for (RunContext& context : contexts_) {
      Lend(run, &context);
    }
    ThreadPool::Process().Run(*this, static_cast<int>(contexts_.size()) - 1);
    if (failure_ != nullptr) std::rethrow_exception(failure_);
  }

 private:
  static constexpr int kMaxWorkers = 256;

  // The caller waits for operators to become ready; helpers leave and are called back.
  void Join(int lane) override {
    const bool is_caller = lane == 0;
    std::unique_lock lock(mutex_);
    for (;;) {
      if (is_caller) changed_.wait(lock, [this] { return NumReady() > 0 || Over(); });
      if (Over() || NumReady() == 0) return;
      const int i = ready_[next_++];
      lock.unlock();
      std::exception_ptr failure;
      try {
        RunOperator(i, contexts_[lane]);
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      --remaining_;
      if (failure != nullptr && failure_ == nullptr) failure_ = failure;
      for (const int successor : dependencies_.successors[i]) {
        if (--waiting_for_[successor] == 0) ready_.push_back(successor);
      }
      const int for_others = NumReady() - 1;
      if (for_others > 0) ThreadPool::Process().Invite(*this, for_others);
      if (for_others > 0 || Over()) changed_.notify_one();
    }
  }
  bool Over() const { return remaining_ == 0 || failure_ != nullptr; }
  int NumReady() const { return static_cast<int>(ready_.size() - next_); }

  const Dependencies dependencies_;
  std::vector<RunContext> contexts_;  // one a thread
  std::mutex mutex_;
  std::condition_variable changed_;  // for the caller
  std::vector<int> ready_;           // in the order in which they became so
  size_t next_ = 0;                  // of them, to be run
  std::vector<int> waiting_for_;
  int remaining_ = 0;
  std::exception_ptr failure_;
};

}  // namespace

std::unique_ptr<Net> MakeDagNet(const NetDef& def) { return std::make_unique<DagNet>(def); }

}  // namespace stepnet
