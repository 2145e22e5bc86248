// How work of a poison device is recorded and played.
#include <span>

#include "poison_runtime.h"
#include "stepnet/core/recording_times.h"
#include "stepnet/core/scoped_value.h"

namespace stepnet {
namespace {

class PoisonRecorder : public Recorder {
 public:
  explicit PoisonRecorder(PoisonRuntime& runtime) : runtime_(runtime) {}
  void Watch(const std::function<void()>& work, std::string* refusal) override {
    const ScopedValue<PoisonWatch> scope(poison_watch, {.refusal = refusal});
    work();
  }
  void Record(const std::function<void()>& work, std::string* refusal) override {
    pieces_.clear();
    kept_ = {std::make_shared<PoisonRecording>(1)};
    num_calls_ = 0;
    {
      const ScopedValue<PoisonWatch> scope(poison_watch, {.refusal = refusal, .kept = kept_.back().get()});
      work();
    }
    if (!refusal->empty()) return;
    RecordingTimes times = {.recordings = 1, .graphs = std::ssize(kept_)};
    for (const auto& piece : kept_) {
      for (const auto& call : *piece) times.nodes += std::ssize(call.works);
    }
    AddRecordingTimes(times);
    pieces_ = {kept_.begin(), kept_.end()};
    kept_.clear();
  }
  // The call that is under way goes on in the next piece. What calls are behind and is not there has been done.
  void Cut() override {
    if (poison_watch.kept == nullptr) return;
    const RecordedCall& call = poison_watch.kept->back();
    kept_.push_back(std::make_shared<PoisonRecording>(1, RecordedCall{.lane = call.lane, .number = call.number}));
    poison_watch.kept = kept_.back().get();
  }
  int num_pieces() const override { return static_cast<int>(pieces_.size()); }
  void Play(int piece) override {
    runtime_.PutRecorded(pieces_[piece], /*waits=*/piece > 0 && piece + 1 < num_pieces());
  }
  int num_lanes() const override { return 3; }
  void InLane(int lane, std::span<const int> behind, const std::function<void()>& work) override {
    if (poison_watch.kept == nullptr) return work();
    poison_watch.kept->push_back({.lane = lane, .behind = {behind.begin(), behind.end()}, .number = num_calls_++});
    work();
    poison_watch.kept->emplace_back();  // what follows is in no call
  }

 private:
  PoisonRuntime& runtime_;
  int num_calls_ = 0;                                   // of what is kept
  std::vector<std::shared_ptr<PoisonRecording>> kept_;  // while it records
  std::vector<std::shared_ptr<const PoisonRecording>> pieces_;
};

}  // namespace

std::unique_ptr<Recorder> MakePoisonRecorder(PoisonRuntime& runtime) {
  return std::make_unique<PoisonRecorder>(runtime);
}

}  // namespace stepnet
