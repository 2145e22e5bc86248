// Stage: nodes of a step graph, or instructions of a plan, one behind the other, that run for a number of steps at
// once.
#pragma once

#include <cstdint>
#include <string>

namespace stepnet {

// Stands for the number of steps of what runs once for all steps, however many those are.
inline constexpr std::int64_t kAllSteps = 0;

// Plans know no number of steps; estimates that need one are made for runs of this many, on any machine.
inline constexpr std::int64_t kTypicalSteps = 128;
inline std::int64_t TypicalStepsOf(std::int64_t steps_at_once) {
  return steps_at_once == kAllSteps ? kTypicalSteps : steps_at_once;
}

// [begin, end) run in turn for one step after the other, for several steps at once, or once for all: for the rows of
// all steps, or for what is the same in all of them.
struct Stage {
  int begin = 0;
  int end = 0;
  std::int64_t steps_at_once = 1;
  std::int64_t min_steps = 0;  // runs of fewer steps leave it out
  bool is_behind = false;      // of kAllSteps: it comes last, and reads what all steps have added up (Home::Kind::kSum)
};

// "in each step", "for 16 steps at once", "once for all steps, in runs of 4 steps or more", "once behind all steps".
std::string StageTitle(const Stage& stage);

}  // namespace stepnet
