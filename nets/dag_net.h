// The net of type "dag".
#pragma once

#include <memory>

#include "stepnet/nets/net.h"

namespace stepnet {

// Without operators yet; Net::Create adds them, with their kernels for the device. `num_workers` of the NetDef, at
// least 1, is the number of threads.
std::unique_ptr<Net> MakeDagNet(const NetDef& def, DeviceKind device);

}  // namespace stepnet
