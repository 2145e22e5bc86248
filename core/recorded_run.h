// RecordedRun: work on a device that is done again and again, recorded and played where it does the same each time.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "stepnet/core/run_context.h"

namespace stepnet {

// What on the host decides what the work puts into the queue: as it was when the work was recorded, playing that does
// what the work would do.
class HostState {
 public:
  virtual ~HostState() = default;
  // Keeps it as it is now.
  virtual void Note() = 0;
  virtual bool IsAsNoted() const = 0;
  // Makes it what was noted, where work that ended early has changed it. Throws kFailed where it cannot.
  virtual void Restore() = 0;
};

// Work is recorded behind two runs that found the same on the host. The second is watched: where the thread did nothing
// with the device but to put in work, and left what it had found, it will do so again. So the third can be recorded,
// which does not run it, and then played, as soon as the recorder is ready. From then on it is played, until something
// is not what it was.
class RecordedRun {
 public:
  // Recordings of one work that are worth keeping: memory that it finds may be one of a few, as may its shapes.
  static constexpr size_t kMaxOfOneWork = 4;

  RecordedRun(Device device, std::unique_ptr<HostState> state, std::unique_ptr<Recorder> recorder);

  // Does `work`, or plays it. Work runs with `context`, whose RunContext::recording says when it is watched or
  // recorded. Throws what it throws; a recording that fails is no error, and the work is done then. Throws kCancelled
  // also between pieces of what is played (Recorder::Cut); it is played again the next time.
  void Run(RunContext& context, const std::function<void()>& work);
  // The work has been, or will be, done otherwise.
  void Forget() { knowledge_ = Knowledge::kUnknown; }

  HostState& state() const { return *state_; }
  Recorder* recorder() const { return recorder_.get(); }  // null where the device has none
  // It could not be recorded so often that it is not tried any more.
  bool has_given_up() const;
  // Why it was not recorded when that was last tried, or empty.
  const std::string& refusal() const { return refusal_; }
  // How many are kept, for which the device has memory.
  std::int64_t num_step_operators() const;

 private:
  enum class Knowledge {
    kUnknown,   // of what the last run left
    kNoted,     // the state is as the last run left it
    kProven,    // and the work leaves it so
    kRecorded,  // what it does is kept
  };
  bool Watch(RunContext& context, const std::function<void()>& work);
  bool Record(RunContext& context, const std::function<void()>& work);
  // Does the work that is recorded: plays it, where the recorder has made its pieces. One that makes them on a thread
  // of its own has none until then, and throws where it cannot make them: false.
  bool PlayOrDo(RunContext& context, const std::function<void()>& work);
  void Play(const RunContext& context);
  bool Refused(std::string_view why);

  const Device device_;
  const std::unique_ptr<HostState> state_;
  const std::unique_ptr<Recorder> recorder_;
  Knowledge knowledge_ = Knowledge::kUnknown;
  int num_refused_ = 0;
  bool is_kept_ = false;  // by the recorder: what the notes tell of
  std::string refusal_;
  RecordingNotes notes_;
  const std::uint64_t* run_ = nullptr;  // where the run that was watched found its number
  bool checks_values_ = false;          // and notes faults in the record of the context
};

// Takes recordings from the end of a list, in which the last used come first, until all have `max` step operators at
// most, or one is left: each of them is memory.
template <typename List, typename RunOf>
void KeepOfRecordings(std::int64_t max, List& recordings, const RunOf& run_of) {
  size_t kept = 0;
  for (std::int64_t count = 0; kept < recordings.size(); ++kept) {
    count += run_of(*recordings[kept]).num_step_operators();
    if (kept > 0 && count > max) break;
  }
  recordings.resize(kept);
}

}  // namespace stepnet
