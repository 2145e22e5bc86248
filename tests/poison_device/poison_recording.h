// What a thread records for the poison device, or watches.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "stepnet/core/error.h"

namespace stepnet {

using Works = std::vector<std::function<void()>>;

// What is kept of work, in calls of Recorder::InLane and what is put in between them.
struct RecordedCall {
  int lane = 0;
  std::vector<int> behind = {};  // numbers of calls; what is no call has none
  int number = -1;
  Works works = {};
};
using PoisonRecording = std::deque<RecordedCall>;

// In an order that a device may take which does the work of several lanes at the same time.
void DoInSomeOrder(const PoisonRecording& recording, unsigned seed);

// What a thread watches, or records.
struct PoisonWatch {
  std::string* refusal = nullptr;   // null: nothing
  PoisonRecording* kept = nullptr;  // null: what is put in is done

  void Refuse(std::string_view why) const {
    if (refusal != nullptr && refusal->empty()) *refusal = why;
  }
  void MeetHost(std::string_view how) const {
    Refuse(how);
    if (kept != nullptr) throw Error(ErrorCode::kFailed, "a run that is recorded needs the host");
  }
};
extern thread_local PoisonWatch poison_watch;

}  // namespace stepnet
