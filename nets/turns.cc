#include "stepnet/nets/turns.h"

#include <algorithm>
#include <map>

#include "stepnet/core/operator.h"
#include "stepnet/nets/net.h"
#include "stepnet/nets/side_effects.h"

namespace stepnet {

bool Touches::ConflictsWith(const Touches& other) const {
  if (everything || other.everything) return true;
  auto a = blobs.begin();
  auto b = other.blobs.begin();
  while (a != blobs.end() && b != other.blobs.end()) {
    if (a->first == b->first && (a->second || b->second)) return true;
    if (a->first < b->first) {
      ++a;
    } else {
      ++b;
    }
  }
  return false;
}

Touches TouchesOf(const Net& net, const Workspace& workspace) {
  std::map<const Blob*, bool> blobs;
  Touches touches;
  const auto add = [&](const std::string& name, bool written) {
    if (const Blob* blob = workspace.FindBlob(name)) blobs[blob] |= written;
  };
  for (const auto& op : net.operators()) {
    const OperatorCall& call = op->call();
    touches.everything = touches.everything || HasSideEffects(call);
    for (const std::string& input : call.inputs()) add(input, false);
    for (const std::string& output : call.outputs()) add(output, true);
    // Blobs that only arguments name, as the states of a recurrent network.
    for (const auto& [name, value] : call.arguments()) {
      const ArgumentSpec* spec = call.schema().FindArgument(name);
      if (spec == nullptr || !spec->names_blobs) continue;
      for (const std::string& blob : value.strings) add(blob, true);
      if (value.s) add(*value.s, true);
    }
  }
  touches.blobs.assign(blobs.begin(), blobs.end());
  return touches;
}

Turns::Turn::Turn(Turns& turns, const Touches& touches) : turns_(turns) {
  std::unique_lock lock(turns_.mutex_);
  place_ = turns_.queue_.insert(turns_.queue_.end(), &touches);
  turns_.changed_.wait(lock, [&] {
    return std::none_of(turns_.queue_.begin(), place_,
                        [&](const Touches* earlier) { return earlier->ConflictsWith(touches); });
  });
}

Turns::Turn::~Turn() {
  const std::lock_guard lock(turns_.mutex_);
  turns_.queue_.erase(place_);
  turns_.changed_.notify_all();
}

}  // namespace stepnet
