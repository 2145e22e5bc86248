// Threads that go through the steps of a stage together: each does its part of a task, waits until all parts are done,
// and goes on with its part of the next one, which finds in its cache what that thread left there.
#pragma once

#include "stepnet/compiler/schedule.h"
#include "stepnet/executor/run_state.h"

namespace stepnet {

// Runs steps [begin, end) of the stage, a loop, by a schedule of Sharing::kLockstep or kBatch. Throws what the first
// failing instruction threw; nothing is running any more then.
void RunInLockstep(RunState& state, const Stage& stage, std::int64_t begin, std::int64_t end, const Schedule& schedule,
                   RunContext& context);

}  // namespace stepnet
