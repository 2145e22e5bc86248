#include "poison_recording.h"

#include <algorithm>
#include <random>

namespace stepnet {

thread_local PoisonWatch poison_watch;

void DoInSomeOrder(const PoisonRecording& recording, unsigned seed) {
  std::minstd_rand random(seed);
  std::vector<size_t> done(recording.size(), 0);  // works, by call
  // A call without works is one of nothing: it, too, comes behind those that it waits for, and before those behind it.
  const auto is_over = [&](size_t c) { return done[c] == std::max<size_t>(recording[c].works.size(), 1); };
  const auto go_on = [&](size_t c) {
    if (const size_t next = done[c]++; next < recording[c].works.size()) recording[c].works[next]();
  };
  const auto may_go_on = [&](size_t c) {
    if (is_over(c)) return false;
    for (size_t before = 0; before < c; ++before) {
      const bool is_awaited =
          recording[before].lane == recording[c].lane ||
          (recording[before].number >= 0 && std::ranges::count(recording[c].behind, recording[before].number) > 0);
      if (is_awaited && !is_over(before)) return false;
    }
    return true;
  };
  for (;;) {
    std::vector<size_t> ready;
    for (size_t c = 0; c < recording.size(); ++c) {
      if (may_go_on(c)) ready.push_back(c);
    }
    if (ready.empty()) return;
    const size_t c = ready[random() % ready.size()];
    go_on(c);
    while (ready.size() == 1 && !is_over(c)) go_on(c);
  }
}

}  // namespace stepnet
