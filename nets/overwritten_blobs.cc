#include "stepnet/nets/overwritten_blobs.h"

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
    : workspace_(workspace), entries_(operators.size()) {
  std::set<const Blob*> known = of_others;  // and what has been read, or written
  for (size_t i = 0; i < operators.size(); ++i) {
    const NetOperator& op = *operators[i];
    known.insert(op.inputs().begin(), op.inputs().end());
    for (size_t o = 0; o < op.outputs().size(); ++o) {
      if (!op.device().IsHost() || !OnlyWrites(op.call(), static_cast<int>(o))) known.insert(op.outputs()[o]);
    }
    const auto add = [&](Blob& blob, const std::string& name) {
      if (known.insert(&blob).second) entries_[i].push_back({.blob = &blob, .name = name});
    };
    for (Blob* const blob : op.outputs()) add(*blob, "");
    if (!op.device().IsHost()) continue;
    for (const std::string& name : OtherBlobs(op.call())) add(workspace.CreateBlob(name), name);
  }
  Offer();
}

void OverwrittenBlobs::SpareAll() {
  UseAll();
  // Without the lock: who changes a workspace may wait for those who ask all owners for their memory, and these wait
  // here.
  for (std::vector<Entry>& of_operator : entries_) {
    for (Entry& entry : of_operator) {
      if (!entry.name.empty()) entry.blob = &workspace_.CreateBlob(entry.name);
    }
  }
  const std::lock_guard lock(mutex_);
  for (std::vector<Entry>& of_operator : entries_) {
    for (Entry& entry : of_operator) entry.is_spare = true;
  }
}

void OverwrittenBlobs::Use(size_t i) {
  if (entries_[i].empty()) return;
  const std::lock_guard lock(mutex_);
  for (Entry& entry : entries_[i]) entry.is_spare = false;
}

void OverwrittenBlobs::UseAll() {
  const std::lock_guard lock(mutex_);
  for (std::vector<Entry>& of_operator : entries_) {
    for (Entry& entry : of_operator) entry.is_spare = false;
  }
}

Blob* OverwrittenBlobs::NextSpare() const {
  for (const std::vector<Entry>& of_operator : entries_) {
    for (const Entry& entry : of_operator) {
      if (entry.is_spare && HoldsWhatMayGo(*entry.blob)) return entry.blob;
    }
  }
  return nullptr;
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
