#include "stepnet/nets/net_recordings.h"

#include <algorithm>
#include <set>
#include <utility>

#include "stepnet/core/error.h"
#include "stepnet/core/memory_changes.h"
#include "stepnet/core/strings.h"

namespace stepnet {

RunBlobs::RunBlobs(const std::vector<OperatorToRecord>& operators, int count, Workspace& workspace)
    : workspace_(workspace) {
  std::set<Blob*> known;
  const auto add = [&](Known blob) {
    if (known.insert(blob.blob).second) blobs_.push_back(std::move(blob));
  };
  for (int i = 0; i < count; ++i) {
    const OperatorToRecord& entry = operators[i];
    for (Blob* blob : entry.op->inputs()) add({.blob = blob, .is_read_first = true});
    if (entry.is_entry) continue;
    for (Blob* blob : entry.op->outputs()) add({.blob = blob});
  }
  for (int i = 0; i < count; ++i) {
    for (const std::string& name : OtherBlobs(operators[i].op->call())) {
      add({.blob = &workspace.CreateBlob(name), .name = name});
    }
  }
}

Blob* RunBlobs::Find(const Known& known) const {
  return known.name.empty() || workspace_.FindBlob(known.name) == known.blob ? known.blob : nullptr;
}

void RunBlobs::Note() {
  states_.clear();
  for (Known& known : blobs_) {
    if (Find(known) == nullptr) known.blob = &workspace_.CreateBlob(known.name);
    states_.emplace_back(*known.blob);
  }
}

bool RunBlobs::IsAsNoted() const {
  if (states_.size() != blobs_.size()) return false;
  for (size_t b = 0; b < blobs_.size(); ++b) {
    const Blob* const blob = Find(blobs_[b]);
    if (blob == nullptr || !states_[b].IsOf(*blob)) return false;
  }
  return true;
}

void RunBlobs::Restore() {
  for (size_t b = 0; b < blobs_.size(); ++b) {
    Blob* const blob = Find(blobs_[b]);
    if (blob == nullptr || states_[b].Restore(*blob) || !blobs_[b].is_read_first) continue;
    throw Error(ErrorCode::kFailed, StrCat("blob \"", blob->name(),
                                           "\" lost what it held while a run was recorded, and has to be given again"));
  }
}

bool RunBlobs::BringBack() {
  if (states_.size() != blobs_.size()) return false;
  for (size_t b = 0; b < blobs_.size(); ++b) {
    const Blob* const blob = Find(blobs_[b]);
    if (blob == nullptr) return false;
    // The memory of others may be gone. A blob that cannot have it back keeps what it has, to be used again.
    Blob probe("probe");
    if (blobs_[b].is_read_first ? !states_[b].IsOf(*blob) : !states_[b].Restore(probe)) return false;
  }
  for (size_t b = 0; b < blobs_.size(); ++b) {
    if (blobs_[b].is_read_first) continue;
    Blob& blob = *Find(blobs_[b]);
    // It may be the same memory, with another shape.
    const Tensor held = blob.HasTensor() ? blob.GetTensor() : Tensor();
    static_cast<void>(states_[b].Restore(blob));
  }
  return IsAsNoted();
}

NetRecordings::NetRecordings(std::vector<OperatorToRecord> operators, int count, Workspace& workspace, Device device,
                             std::int64_t max_step_operators)
    : operators_(std::move(operators)),
      count_(count),
      workspace_(workspace),
      device_(device),
      max_step_operators_(max_step_operators) {
  if (const std::unique_ptr<Recorder> recorder = RuntimeOf(device).MakeRecorder()) num_lanes_ = recorder->num_lanes();
}

void NetRecordings::Begin(Recording* recording) const {
  auto blobs = std::make_unique<RunBlobs>(operators_, count_, workspace_);
  recording->blobs = blobs.get();
  recording->run = std::make_unique<RecordedRun>(device_, std::move(blobs), RuntimeOf(device_).MakeRecorder());
}

NetRecordings::Recording& NetRecordings::OfNextRun() {
  const auto is_of_now = [](const auto& recording) { return recording->blobs->BringBack(); };
  auto chosen = std::ranges::find_if(recordings_, is_of_now);
  if (chosen == recordings_.end()) {
    if (recordings_.size() < RecordedRun::kMaxOfOneWork) recordings_.push_back(std::make_unique<Recording>());
    chosen = std::prev(recordings_.end());  // of which the temporary memory serves again
    Begin(chosen->get());
  }
  std::rotate(recordings_.begin(), chosen, std::next(chosen));
  return *recordings_.front();
}

// What a run does to the memory of the device, others do not know: what they play may use what was given back, or is
// now somebody else's. Operators keep memory for a few shapes, so that soon no run takes any.
void NetRecordings::Run(Recording& recording, const std::function<void()>& work) {
  const std::int64_t before = NumMemoryChanges();
  const auto forget = [&] {
    if (NumMemoryChanges() != before) ForgetOthers(recording);
  };
  try {
    recording.run->Run(recording.context, work);
  } catch (...) {
    forget();
    throw;
  }
  forget();
  KeepOfRecordings(max_step_operators_, recordings_,
                   [](const Recording& kept) -> const RecordedRun& { return *kept.run; });
}

void NetRecordings::Forget() {
  for (const auto& recording : recordings_) recording->run->Forget();
}

void NetRecordings::ForgetOthers(const Recording& recording) {
  for (const auto& other : recordings_) {
    if (other.get() != &recording) other->run->Forget();
  }
}

}  // namespace stepnet
