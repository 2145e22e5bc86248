// Completions: what is added to nets before they are checked and bound.
//
// Nets that other programs wrote can leave out what follows from the net as a whole. Whoever knows how to add it
// registers a completion.
#pragma once

#include <functional>
#include <memory>

namespace stepnet {

class NetDef;

using Completion = std::function<void(NetDef* net)>;

class CompletionRegistration {
 public:
  explicit CompletionRegistration(Completion completion);
};

// A copy of the net after all completions, in the order of their registration.
std::shared_ptr<const NetDef> Completed(const NetDef& net);

}  // namespace stepnet
