// Probe: looks into step nets while they run. Every operator of a probed net calls what the test gives before its own
// kernel, whose values it leaves alone; there a test may throw, wait, or note who runs when.
#pragma once

#include <compare>
#include <functional>
#include <set>
#include <string>

#include "stepnet/proto/net.pb.h"

namespace stepnet {

// An operator of a step net in one step, or in several at once.
struct ProbePlace {
  std::string op;         // "y = test.Probed.FC(x, w, b)"
  std::int64_t step = 0;  // the first

  friend auto operator<=>(const ProbePlace&, const ProbePlace&) = default;
};

// The net with operators in its step nets, forward and backward, that do the same and can be probed.
NetDef Probed(NetDef net);

class Probe {
 public:
  // Calls `visit` while the probe lives, from the thread that runs the operator. One probe at a time, made and ended
  // while no net runs.
  explicit Probe(std::function<void(const ProbePlace&)> visit);
  ~Probe();
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;

  // Kernels of probed operators that are under way now, those that visit included.
  static int NumRunning();
};

// Every place that `run` goes through.
std::set<ProbePlace> PlacesOf(const std::function<void()>& run);

}  // namespace stepnet
