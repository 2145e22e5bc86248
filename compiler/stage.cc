#include "stepnet/compiler/stage.h"

#include "stepnet/core/strings.h"

namespace stepnet {

std::string StageTitle(const Stage& stage) {
  std::string title = "in each step";
  if (stage.steps_at_once == kAllSteps) {
    title = stage.is_behind ? "once behind all steps" : "once for all steps";
  } else if (stage.steps_at_once > 1) {
    title = StrCat("for ", stage.steps_at_once, " steps at once");
  }
  return stage.min_steps > 0 ? StrCat(title, ", in runs of ", stage.min_steps, " steps or more") : title;
}

}  // namespace stepnet
