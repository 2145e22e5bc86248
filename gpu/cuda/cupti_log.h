// CUPTI, opened while the program runs, as a log of what GPUs do.
#pragma once

#include <memory>

#include "stepnet/core/activity_log.h"

namespace stepnet {

// A log of all GPUs of this process. Throws kFailed where there is no CUPTI, naming what to install, where the program
// was built without its headers, or where somebody else, a profiler or another log, has it.
std::unique_ptr<ActivityLog> MakeCuptiLog();

}  // namespace stepnet
