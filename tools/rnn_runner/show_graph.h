// rnn_runner show --graph.
#pragma once

#include <string>

namespace stepnet::runner {

// Runs the net in `path` and prints the graph of each of its step nets (compiler/step_graph.h) as `pass` leaves it;
// "last": as plans are made from it; "plan": the plan
// (compiler/plan_text.h).
int ShowGraphs(const std::string& path, const std::string& pass);

}  // namespace stepnet::runner
