#include "stepnet/executor/recording_executor.h"

#include <algorithm>
#include <vector>

#include "stepnet/core/playing_observer.h"
#include "stepnet/core/recorded_run.h"

namespace stepnet {
namespace {

class SerialStepRunner : public StepRunner {
 public:
  void Run(RunState& state, RunContext& context) override {
    own_.ServeRunOf(context);
    own_.UseDevice(state.device());
    RunSerially(state, own_);
    own_.ResetScratch();
  }

 private:
  RunContext own_;
};

// All memory that steps use. They change nothing on the host.
class Addresses : public HostState {
 public:
  explicit Addresses(const std::vector<const void*>& now) : now_(now) {}
  void Note() override { noted_ = now_; }
  bool IsAsNoted() const override { return noted_ == now_; }
  void Restore() override {}

 private:
  const std::vector<const void*>& now_;
  std::vector<const void*> noted_;
};

// The steps of a run on memory at some addresses.
struct Recording {
  Recording(Device device, const std::vector<const void*>& now, std::unique_ptr<StepRunner> steps)
      : runner(std::move(steps)), run(device, std::make_unique<Addresses>(now), RuntimeOf(device).MakeRecorder()) {}
  std::unique_ptr<StepRunner> runner;
  RecordedRun run;
};

// Holds those of one RunState, the last used first. Memory that inputs come in may be one of a few.
struct Recordings {
  std::vector<const void*> now;  // addresses of the run that is under way
  std::vector<std::unique_ptr<Recording>> of_steps;
  std::unique_ptr<StepRunner> of_whole;  // for a net that is recorded as a whole
};

class RecordingExecutor : public Executor {
 public:
  explicit RecordingExecutor(StepRunnerFactory make_runner) : make_runner_(std::move(make_runner)) {}

 protected:
  // Observers may want to see each instruction.
  void RunSteps(RunState& state, RunContext& context) const override {
    if (!WhyNotRecorded(state).empty() || !AllLetPlay(context.observers)) return RunSerially(state, context);
    auto recordings = std::static_pointer_cast<Recordings>(state.executor_data());
    if (recordings == nullptr) state.executor_data() = recordings = std::make_shared<Recordings>();
    if (context.recording != nullptr) {
      if (recordings->of_whole == nullptr) recordings->of_whole = make_runner_();
      return recordings->of_whole->Run(state, context);
    }
    recordings->now = state.Addresses();
    recordings->now.push_back(context.late_faults);
    Recording& recording = Find(*recordings, state.device());
    recording.run.Run(context, [&] { recording.runner->Run(state, context); });
    KeepOfRecordings(state.plan().target->max_recorded_operators, recordings->of_steps,
                     [](const Recording& kept) -> const RecordedRun& { return kept.run; });
  }

 private:
  Recording& Find(Recordings& recordings, Device device) const {
    auto& list = recordings.of_steps;
    const auto found = std::ranges::find_if(list, [](const auto& it) { return it->run.state().IsAsNoted(); });
    if (found != list.end()) {
      std::rotate(list.begin(), found, found + 1);
    } else {
      if (list.size() == RecordedRun::kMaxOfOneWork) list.pop_back();
      list.insert(list.begin(), std::make_unique<Recording>(device, recordings.now, make_runner_()));
    }
    return *list.front();
  }

  const StepRunnerFactory make_runner_;
};

}  // namespace

std::unique_ptr<StepRunner> MakeSerialStepRunner() { return std::make_unique<SerialStepRunner>(); }

std::shared_ptr<const Executor> MakeRecordingExecutor(StepRunnerFactory make_runner) {
  return std::make_shared<RecordingExecutor>(std::move(make_runner));
}

}  // namespace stepnet
