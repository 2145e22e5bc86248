#include "harmless_net.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "stepnet/core/net.h"
#include "stepnet/core/net_check.h"

namespace stepnet {

bool IsHarmless(const NetDef& net) {
  constexpr std::array<std::string_view, 7> kTouchTheOutside = {"Load",     "Save",  "Checkpoint", "Snapshot",
                                                                "DBExists", "Print", "CreateDB"};
  return std::ranges::none_of(net.op(), [&](const OperatorDef& op) {
    return std::ranges::find(kTouchTheOutside, op.type()) != kTouchTheOutside.end() ||
           std::ranges::any_of(op.arg(), [](const Argument& arg) {
             // A step net may also be written as text.
             return (arg.has_n() && !IsHarmless(arg.n())) || arg.s().find("type:") != std::string::npos;
           });
  });
}

void CheckAndRun(const NetDef& net, Workspace& workspace) {
  try {
    CheckNet(net);
    if (IsHarmless(net)) Net::Create(net, workspace)->Run();
  } catch (const Error&) {
  }
}

}  // namespace stepnet
