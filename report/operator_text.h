// All that the registration of an operator says about it, as people read it.
#pragma once

#include <string>

#include "stepnet/core/operator.h"

namespace stepnet {

// Its inputs, outputs and arguments, what it computes as a formula, its gradient and its kernels; in lines, or as a
// section of a page.
std::string OperatorAsText(const OperatorSchema& schema);
std::string OperatorAsMarkdown(const OperatorSchema& schema);

}  // namespace stepnet
