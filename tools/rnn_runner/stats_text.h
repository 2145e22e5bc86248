// RunStats for people and programs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "stepnet/core/device.h"
#include "stepnet/tools/rnn_runner/run_stats.h"

namespace stepnet::runner {

// Tables of instructions and threads for each net and step net, and what the executor made of the threads.
std::string StatsText(const std::vector<NetStats>& nets);
// Its memory, how often the host waited for it, and what was chosen for it; "" for the host.
std::string DeviceText(const Device& device);
nlohmann::ordered_json StatsJson(const std::vector<NetStats>& nets);

}  // namespace stepnet::runner
