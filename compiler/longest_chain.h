// Chains of tasks that wait for each other: what a run takes on threads without number.
#pragma once

#include <cstddef>
#include <vector>

#include "stepnet/compiler/schedule.h"

namespace stepnet {

// A task of a step, and what it waited for last.
struct Finish {
  double microseconds = 0;  // after the begin of the run
  int task = -1;            // -1: it waited for nothing
  int delta = 0;
};

// When each task of `steps` steps ends on threads without number, step by step.
std::vector<Finish> FinishesOf(const Schedule& schedule, size_t steps);

struct ChainLink {
  int instruction = 0;
  // How many steps after the link before it. The first link comes after the last one, or has 0 where no step waits for
  // another.
  int delta = 0;
};
// The longest chain of instructions that comes back to where it began some steps later, which sets the pace of a run
// with threads without number; where no step waits for another, the longest chain of a step.
std::vector<ChainLink> LongestChain(const Schedule& schedule);

}  // namespace stepnet
