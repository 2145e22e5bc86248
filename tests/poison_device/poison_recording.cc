#include "poison_recording.h"

#include <algorithm>
#include <random>

namespace stepnet {

thread_local PoisonWatch poison_watch;

void DoInSomeOrder(const PoisonRecording& recording, unsigned seed) {
  std::minstd_rand random(seed);
  std::vector<size_t> done(recording.size(), 0);  // works, by call
  const auto is_over = [&](size_t c) { return done[c] == recording[c].works.size(); };
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
    recording[c].works[done[c]++]();
    while (ready.size() == 1 && !is_over(c)) recording[c].works[done[c]++]();
  }
}

}  // namespace stepnet
