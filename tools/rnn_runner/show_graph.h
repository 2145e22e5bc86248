// rnn_runner show --graph.
#pragma once

#include <string>
#include <vector>

namespace stepnet::runner {

// What --graph can be: the passes in their order, and what graphs become before and behind them.
std::vector<std::string> GraphNames();

// Runs the net in `path` and prints the graph of each of its step nets (compiler/step_graph.h) as `pass` leaves it;
// "last": as plans are made from it; "plan": the plan
// (compiler/plan_text.h).
int ShowGraphs(const std::string& path, const std::string& pass);

}  // namespace stepnet::runner
