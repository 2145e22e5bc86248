// rnn_runner show --schedule.
#pragma once

#include <string>
#include <vector>

#include "stepnet/tools/rnn_runner/command.h"

namespace stepnet::runner {

std::vector<FlagUse> ScheduleFlags();

// Runs the net in `path` and prints the schedules of its step nets, as text or for Graphviz; with --simulate how long
// they would take on some number of threads. What a device would be given is found without it, from a run on the CPU.
int ShowSchedules(const std::string& path);

}  // namespace stepnet::runner
