#include "stepnet/nets/overwritten_blobs.h"

#include <algorithm>
#include <unordered_set>

#include "stepnet/core/blob_state.h"
#include "stepnet/nets/recording.h"
#include "stepnet/nets/side_effects.h"

namespace stepnet {
namespace {

// What is constant the next run need not compute (nets/kept_outputs.h).
bool HoldsWhatMayGo(const Blob& blob) {
  return blob.HasObject() || (blob.HasTensor() && blob.GetTensor().ConstantId() == 0);
}

}  // namespace

OverwrittenBlobs::OverwrittenBlobs(Operators operators, Workspace& workspace, const std::set<const Blob*>& of_others)
    : workspace_(workspace) {
  std::unordered_set<const Blob*> known(of_others.begin(), of_others.end());  // and what has been read, or written
  for (const std::unique_ptr<NetOperator>& op : operators) {
    begins_.push_back(entries_.size());
    known.insert(op->inputs().begin(), op->inputs().end());
    const bool is_on_host = op->device().IsHost();
    for (size_t o = 0; o < op->outputs().size(); ++o) {
      Blob* const blob = op->outputs()[o];
      const bool is_first = known.insert(blob).second;
      if (is_first && is_on_host && OnlyWrites(op->call(), static_cast<int>(o))) entries_.push_back({.blob = blob});
    }
    if (!is_on_host) continue;
    for (const std::string& name : OtherBlobs(op->call())) {
      Blob& blob = workspace.CreateBlob(name);
      if (!known.insert(&blob).second) continue;
      named_.push_back({.entry = entries_.size(), .name = name});
      entries_.push_back({.blob = &blob});
    }
  }
  begins_.push_back(entries_.size());
  Offer();
}

void OverwrittenBlobs::SpareAll() {
  if (!named_.empty()) {
    UseAll();
    // Without the lock: who changes a workspace may wait for those who ask all owners for their memory, and these wait
    // here.
    for (const NamedEntry& named : named_) entries_[named.entry].blob = &workspace_.CreateBlob(named.name);
  }
  const std::lock_guard lock(mutex_);
  ++run_;
  is_running_ = true;
}

void OverwrittenBlobs::Use(size_t i) {
  if (begins_[i] == begins_[i + 1]) return;
  const std::lock_guard lock(mutex_);
  for (size_t e = begins_[i]; e < begins_[i + 1]; ++e) entries_[e].used_in = run_;
}

void OverwrittenBlobs::UseAll() {
  const std::lock_guard lock(mutex_);
  is_running_ = false;
}

Blob* OverwrittenBlobs::NextSpare() const {
  const auto is_spare = [&](const Entry& entry) { return entry.used_in != run_ && HoldsWhatMayGo(*entry.blob); };
  if (!is_running_) return nullptr;
  const auto found = std::ranges::find_if(entries_, is_spare);
  return found == entries_.end() ? nullptr : found->blob;
}

double OverwrittenBlobs::Gain() {
  const std::lock_guard lock(mutex_);
  return NextSpare() != nullptr ? kOfNoUse : 0;
}

bool OverwrittenBlobs::FreeNext() {
  const std::lock_guard lock(mutex_);
  Blob* const blob = NextSpare();
  if (blob == nullptr) return false;
  LetGo(BlobState::Take(*blob));
  return true;
}

}  // namespace stepnet
