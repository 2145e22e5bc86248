// Turns: keeps nets apart that run at the same time and touch the same blob.
#pragma once

#include <condition_variable>
#include <list>
#include <mutex>
#include <utility>
#include <vector>

#include "stepnet/core/workspace.h"

namespace stepnet {

class Net;

// The blobs that a net reads and writes.
struct Touches {
  std::vector<std::pair<const Blob*, bool>> blobs;  // sorted; true: written
  bool everything = false;

  bool ConflictsWith(const Touches& other) const;
};
// What `net` touches, whose blobs are in `workspace`. A net with operators that have side effects touches everything.
Touches TouchesOf(const Net& net, const Workspace& workspace);

// Grants turns in the order in which they are asked for, several at once where they do not conflict: nobody waits for
// ever.
class Turns {
 public:
  class Turn {
   public:
    Turn(Turns& turns, const Touches& touches);  // waits
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    Turns& turns_;
    std::list<const Touches*>::iterator place_;
  };

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<const Touches*> queue_;  // those who run and those who wait, by arrival
};

}  // namespace stepnet
