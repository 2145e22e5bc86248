// PlayingObserver: an observer that runs may be recorded and played beside (core/recorded_run.h).
#pragma once

#include <algorithm>

#include "stepnet/core/observer.h"

namespace stepnet {

// Others see each operator of each run, so nothing is played while they look.
class PlayingObserver : public Observer {
 public:
  // Whether it is enough to see what is put in while it is recorded, and of runs that are played the net alone.
  virtual bool LetsPlay() const = 0;
};

inline bool AllLetPlay(const ObserverList& observers) {
  return std::ranges::all_of(observers, [](const Observer* observer) {
    const auto* playing = dynamic_cast<const PlayingObserver*>(observer);
    return playing != nullptr && playing->LetsPlay();
  });
}

}  // namespace stepnet
