#include "stepnet/nets/execution_plan.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

#include "stepnet/core/error.h"
#include "stepnet/core/first_failure.h"
#include "stepnet/core/signal_block.h"
#include "stepnet/core/strings.h"
#include "stepnet/nets/net.h"
#include "stepnet/nets/turns.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

using Continue = std::function<bool()>;

// Multiples of it, modulo 2^64, lie as far apart as can be (2^64 divided by the golden ratio).
constexpr std::uint64_t kFarApart = 0x9e3779b97f4a7c15u;

// What all steps of a run share.
struct PlanRun {
  std::map<std::string, const NetDef*> nets;
  RunOptions options;
  Turns turns;
};

struct PlanNet {
  std::unique_ptr<Net> net;
  Touches touches;

  void Run(PlanRun& run) {
    const Turns::Turn turn(run.turns, touches);
    net->Run();
  }
};

// The nets that steps have created in one workspace. Steps that name the same net share it.
class NetScope {
 public:
  // `execution` tells the scopes of one step apart; their nets count runs from numbers that are far apart.
  NetScope(PlanRun& run, Workspace& workspace, std::uint64_t execution)
      : run_(run), workspace_(workspace), first_run_(execution * kFarApart) {}

  PlanRun& run() const { return run_; }
  Workspace& workspace() const { return workspace_; }

  PlanNet& Get(const std::string& name) {
    std::unique_ptr<PlanNet>& made = nets_[name];
    if (made == nullptr) {
      auto net = std::make_unique<PlanNet>();
      net->net = Net::Create(*run_.nets.at(name), workspace_, run_.options);
      net->net->SetRunCounter(first_run_);
      net->touches = TouchesOf(*net->net, workspace_);
      made = std::move(net);
    }
    return *made;
  }

 private:
  PlanRun& run_;
  Workspace& workspace_;
  std::uint64_t first_run_;
  std::map<std::string, std::unique_ptr<PlanNet>> nets_;
};

// Whether the iterations of the step run no net at all: they would only take time.
bool DoesNothing(const ExecutionStep& def) {
  if (def.network_size() > 0) return false;
  for (const ExecutionStep& substep : def.substep()) {
    if (substep.has_run_every_ms()) continue;
    if (substep.has_report_net() || !DoesNothing(substep)) return false;
  }
  return true;
}

class Step;

// A step that is bound to its workspace now, or, with create_workspace, each time that it runs.
class StepInPlace {
 public:
  StepInPlace(const ExecutionStep& def, NetScope& scope);
  // False when go_on ended it. `execution` tells the times apart, so that random numbers differ.
  bool Run(const Continue& go_on, std::uint64_t execution) const;
  const ExecutionStep& def() const { return def_; }

 private:
  const ExecutionStep& def_;
  NetScope& scope_;
  std::shared_ptr<const Step> bound_;
};

// The system may refuse a thread: its stack is memory, and processes have so many threads.
template <typename Run>
std::jthread StartThread(Run run) {
  try {
    const SignalBlock block;
    return std::jthread(std::move(run));
  } catch (const std::system_error& error) {
    throw Error(ErrorCode::kOutOfMemory,
                StrCat("a thread of the plan cannot be started: ", error.what(),
                       "; run fewer substeps, instances and reporters at the same time, or allow the process more "
                       "memory and threads"));
  }
}

// Runs `report` every `interval` on a thread of its own, and once more at the end.
class Reporter {
 public:
  Reporter(std::chrono::milliseconds interval, std::function<void()> report, FirstFailure& failure)
      : thread_(StartThread([this, interval = std::min<std::chrono::milliseconds>(interval, kLongest),
                             report = std::move(report), &failure,
                             cancellation = CurrentCancellation()](const std::stop_token& stop) {
          const CancellationScope cancelled(cancellation);
          try {
            std::unique_lock lock(mutex_);
            bool last = false;
            while (!last) {
              changed_.wait_for(lock, stop, interval, [this] { return finish_; });
              if (stop.stop_requested()) return;
              last = finish_;
              lock.unlock();
              report();
              lock.lock();
            }
          } catch (...) {
            failure.Note();
          }
        })) {}

  void Finish() {
    {
      const std::lock_guard lock(mutex_);
      finish_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

 private:
  static constexpr std::chrono::hours kLongest{1'000'000};  // a clock counts nanoseconds in 64 bits

  std::mutex mutex_;
  std::condition_variable_any changed_;
  bool finish_ = false;
  std::jthread thread_;  // last: it uses the others, and its destructor stops it without a last report
};

class Step {
 public:
  Step(const ExecutionStep& def, NetScope& scope) : def_(def), run_(scope.run()), does_nothing_(DoesNothing(def)) {
    for (const std::string& name : def.network()) nets_.push_back(&scope.Get(name));
    if (def.has_report_net()) report_net_ = &scope.Get(def.report_net());
    for (const ExecutionStep& substep : def.substep()) {
      (substep.has_run_every_ms() ? reporters_ : substeps_).emplace_back(substep, scope);
    }
    // The nets may create it.
    if (def.has_should_stop_blob()) {
      should_stop_ = &scope.workspace().GetBlob(def.should_stop_blob());
      stop_touches_.blobs = {{should_stop_, false}};
    }
  }

  bool Run(const Continue& go_on, std::uint64_t execution) const {
    if (report_net_ == nullptr && reporters_.empty()) return RunIterations(go_on, execution);
    FirstFailure failure;
    const Continue unless_failed = [&] { return !failure.failed() && go_on(); };
    std::vector<std::unique_ptr<Reporter>> reporters;
    bool done = false;
    try {
      StartReporters(unless_failed, failure, &reporters);
      done = RunIterations(unless_failed, execution);
    } catch (...) {
      failure.Note();  // reporters ask for it
    }
    if (!failure.failed()) {
      for (const auto& reporter : reporters) reporter->Finish();
    }
    reporters.clear();
    failure.Rethrow();
    return done;
  }

 private:
  void StartReporters(const Continue& unless_failed, FirstFailure& failure,
                      std::vector<std::unique_ptr<Reporter>>* reporters) const {
    if (report_net_ != nullptr) {
      reporters->push_back(std::make_unique<Reporter>(
          std::chrono::seconds(def_.report_interval()), [this] { report_net_->Run(run_); }, failure));
    }
    for (const StepInPlace& reporter : reporters_) {
      reporters->push_back(std::make_unique<Reporter>(
          std::chrono::milliseconds(reporter.def().run_every_ms()),
          [&, times = std::uint64_t{0}]() mutable { reporter.Run(unless_failed, times++); }, failure));
    }
  }

  bool RunIterations(const Continue& go_on, std::uint64_t execution) const {
    if (does_nothing_) return true;
    for (std::int64_t i = 0; !IsOver(i); ++i) {
      CheckCancelled();
      if (!go_on()) return false;
      if (!RunNets(go_on)) return false;
      const bool concurrent = IsConcurrent();
      if (concurrent && !RunConcurrently(go_on, Execution(execution, i))) return false;
      if (!concurrent && !RunInOrder(go_on, Execution(execution, i))) return false;
      if (ShouldStop()) break;
    }
    return true;
  }

  bool IsOver(std::int64_t i) const {
    if (!def_.has_should_stop_blob()) return i >= (def_.has_num_iter() ? def_.num_iter() : 1);
    return def_.only_once() && i > 0;
  }

  bool IsConcurrent() const {
    return (def_.concurrent_substeps() && substeps_.size() > 1) || def_.num_concurrent_instances() > 1;
  }

  bool RunNets(const Continue& go_on) const {
    for (PlanNet* net : nets_) {
      if (!go_on()) return false;
      net->Run(run_);
      if (ShouldStop()) return true;
    }
    return true;
  }

  bool RunInOrder(const Continue& go_on, std::uint64_t execution) const {
    for (const StepInPlace& substep : substeps_) {
      if (!substep.Run(go_on, execution)) return false;
      if (ShouldStop()) return true;
    }
    return true;
  }

  bool RunConcurrently(const Continue& go_on, std::uint64_t execution) const {
    const int instances = std::max(def_.num_concurrent_instances(), 1);
    FirstFailure failure;
    std::atomic<bool> all_done{true};
    const Continue unless_failed = [&] { return !failure.failed() && go_on(); };
    const auto work = [&, cancellation = CurrentCancellation()](const StepInPlace& substep, int instance) {
      const CancellationScope cancelled(cancellation);
      try {
        if (!substep.Run(unless_failed, Execution(execution, instance))) all_done = false;
      } catch (...) {
        failure.Note();
      }
    };
    {
      std::vector<std::jthread> threads;  // joined at the end of the scope, also when one cannot be started
      try {
        for (const StepInPlace& substep : substeps_) {
          for (int k = 0; k < instances; ++k) threads.push_back(StartThread([&, k] { work(substep, k); }));
        }
      } catch (...) {
        failure.Note();
      }
    }
    failure.Rethrow();
    return all_done;
  }

  bool ShouldStop() const {
    if (should_stop_ == nullptr) return false;
    const Turns::Turn turn(run_.turns, stop_touches_);  // a net of another thread may be about to set it
    if (!should_stop_->HasTensor()) return false;
    const Tensor& tensor = should_stop_->GetTensor();
    if (tensor.dtype() != DType::kBool || tensor.size() != 1) {
      throw Error(ErrorCode::kTypeMismatch,
                  StrCat("should_stop_blob \"", should_stop_->name(), "\" of step \"", def_.name(), "\" is ",
                         tensor.Description(), ", must be bool with one element"));
    }
    return *tensor.data<bool>();
  }

  // 0 for the first of the first, so that a plan that runs a net once gives what the net alone gives.
  static std::uint64_t Execution(std::uint64_t outer, std::int64_t i) {
    return outer * kFarApart + static_cast<std::uint64_t>(i);
  }

  const ExecutionStep& def_;
  PlanRun& run_;
  const bool does_nothing_;
  std::vector<PlanNet*> nets_;
  PlanNet* report_net_ = nullptr;
  std::vector<StepInPlace> substeps_;
  std::vector<StepInPlace> reporters_;
  const Blob* should_stop_ = nullptr;
  Touches stop_touches_;
};

StepInPlace::StepInPlace(const ExecutionStep& def, NetScope& scope) : def_(def), scope_(scope) {
  if (!def.create_workspace()) bound_ = std::make_shared<const Step>(def, scope);
}

bool StepInPlace::Run(const Continue& go_on, std::uint64_t execution) const {
  if (bound_ != nullptr) return bound_->Run(go_on, execution);
  Workspace workspace(&scope_.workspace());
  NetScope scope(scope_.run(), workspace, execution);
  return Step(def_, scope).Run(go_on, execution);
}

void ThrowIfProblems(std::vector<std::string> problems) {
  if (problems.empty()) return;
  if (problems.size() == 1) throw Error(ErrorCode::kInvalidNet, problems.front());
  constexpr size_t kShown = 20;
  const size_t count = problems.size();
  problems.resize(std::min(count, kShown));
  throw Error(ErrorCode::kInvalidNet, StrCat(count, " problems\n  ", Join(problems, "\n  "),
                                             count > kShown ? StrCat("\n  … and ", count - kShown, " more") : ""));
}

}  // namespace

bool RunExecutionPlan(const PlanDef& plan, Workspace& workspace, const ExecutionPlanOptions& options) {
  ThrowIfProblems(CheckExecutionPlan(plan));
  PlanRun run{.options = options.run};
  for (const NetDef& net : plan.network()) run.nets[net.name()] = &net;
  NetScope scope(run, workspace, /*execution=*/0);
  const Continue go_on = options.should_continue ? options.should_continue : [] { return true; };
  // One after the other is bound and run: a step may rely on what an earlier one left in the workspace.
  for (const ExecutionStep& step : plan.execution_step()) {
    if (!StepInPlace(step, scope).Run(go_on, /*execution=*/0)) return false;
  }
  return true;
}

}  // namespace stepnet
