#include "stepnet/core/recorded_run.h"

#include <utility>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/error.h"
#include "stepnet/core/scoped_value.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

// What stands against a recording once, as memory that grows for the last time, is gone the next time.
constexpr int kMaxRefused = 3;

std::int64_t NumChecks(const RunContext& context) {
  return context.late_faults == nullptr ? 0 : context.late_faults->num_kernels();
}

}  // namespace

RecordedRun::RecordedRun(Device device, std::unique_ptr<HostState> state, std::unique_ptr<Recorder> recorder)
    : device_(device), state_(std::move(state)), recorder_(std::move(recorder)) {}

std::int64_t RecordedRun::num_step_operators() const { return is_kept_ ? notes_.num_step_operators : 0; }

bool RecordedRun::has_given_up() const { return num_refused_ == kMaxRefused; }

void RecordedRun::Run(RunContext& context, const std::function<void()>& work) {
  if (has_given_up() || recorder_ == nullptr) return work();
  // Where something is thrown, nothing is known.
  Knowledge knowledge = std::exchange(knowledge_, Knowledge::kUnknown);
  if (knowledge != Knowledge::kUnknown && !state_->IsAsNoted()) {  // somebody else has changed it
    knowledge = Knowledge::kUnknown;
    num_refused_ = 0;
  }
  if (knowledge == Knowledge::kRecorded || (knowledge == Knowledge::kProven && Record(context, work))) {
    if (PlayOrDo(context, work)) return;
    knowledge = Knowledge::kUnknown;
  }
  if (knowledge != Knowledge::kNoted) {
    work();
  } else if (Watch(context, work)) {
    knowledge_ = Knowledge::kProven;
    return;
  }
  state_->Note();
  knowledge_ = Knowledge::kNoted;
}

bool RecordedRun::Refused(std::string_view why) {
  refusal_ = why;
  ++num_refused_;
  return false;
}

bool RecordedRun::Watch(RunContext& context, const std::function<void()>& work) {
  RecordingNotes notes;
  {
    const ScopedValue<RecordingNotes*> noted(context.recording, &notes);
    recorder_->Watch(work, &notes.refusal);
  }
  if (!notes.refusal.empty()) return Refused(notes.refusal);
  if (!state_->IsAsNoted()) return Refused("a run leaves blobs other than it found them");
  notes_ = std::move(notes);
  run_ = context.run;
  return true;
}

// Whatever ends it early, nothing has been done, and blobs are what they were.
bool RecordedRun::Record(RunContext& context, const std::function<void()>& work) {
  const std::int64_t num_checks = NumChecks(context);
  is_kept_ = false;
  notes_.SetNumbers(run_, context.run, RuntimeOf(device_).queue());
  RecordingNotes notes = {.recorder = recorder_.get()};
  try {
    const ScopedValue<RecordingNotes*> noted(context.recording, &notes);
    const auto record = [&] {
      const ScopedValue<Queue*> lent(context.queue, &RuntimeOf(device_).queue());
      work();
    };
    recorder_->Record(record, &notes.refusal);
    if (!state_->IsAsNoted()) notes.Refuse("a run leaves blobs other than it found them");
  } catch (...) {
    if (const Error error = CurrentError(); error.code() == ErrorCode::kCancelled) {
      state_->Restore();
      throw error;
    }
    notes.Refuse("an operator failed while it was recorded");
  }
  if (!notes.refusal.empty()) {
    state_->Restore();
    return Refused(notes.refusal);
  }
  notes.recorder = nullptr;
  notes_ = std::move(notes);
  run_ = context.run;
  checks_values_ = NumChecks(context) > num_checks;
  is_kept_ = true;
  return true;
}

bool RecordedRun::PlayOrDo(RunContext& context, const std::function<void()>& work) {
  bool is_ready = false;
  try {
    is_ready = recorder_->num_pieces() > 0;
  } catch (const Error& error) {
    is_kept_ = false;
    return Refused(StrCat("what was recorded cannot be played: ", error.message()));
  }
  if (!is_ready) {
    RecordingNotes notes;  // so that nobody within records a part of it
    const ScopedValue<RecordingNotes*> noted(context.recording, &notes);
    work();
  }
  knowledge_ = Knowledge::kRecorded;
  if (!is_ready) return true;
  num_refused_ = 0;
  refusal_.clear();
  Play(context);
  return true;
}

void RecordedRun::Play(const RunContext& context) {
  CheckCancelled();
  notes_.SetNumbers(run_, context.run, RuntimeOf(device_).queue());
  // First: a run that ends between pieces may leave a fault, which is not to be one of the next run.
  if (checks_values_) context.late_faults->SetPending();
  for (int piece = 0; piece < recorder_->num_pieces(); ++piece) {
    CheckCancelled();
    recorder_->Play(piece);
  }
}

}  // namespace stepnet
