// Sums of gradients like an input, where it turns out that nothing is to be summed.
//
// A gradient rule knows no shapes: where an operator may have repeated an input, it writes a SumReduceLike. A step has
// shapes when its plan is made; where the two are equal the sum is a copy, and most copies can go.
#pragma once

#include <optional>

#include "stepnet/compiler/step_plan_request.h"

namespace stepnet {

// The net of the request without sums of equal shapes, as if the gradient rules had known: what gives a term that
// nothing else reads writes the sum, or what reads the sum reads the term. Operators keep their places: what is gone is
// an operator without type, which the import leaves out. A sum stays where both blobs are seen from outside, or one of
// them is overwritten while the other is read. Nothing where no sum goes.
std::optional<NetDef> WithoutEqualSums(const StepPlanRequest& request);

}  // namespace stepnet
