// A library for --op_library that ends the process while it is loaded.
#include <csignal>

#include "stepnet/core/operator.h"

namespace {

const int crashes = std::raise(SIGKILL);
const stepnet::Registration never = stepnet::Operator("test.Never").Input("x", "").Output("y", "");

}  // namespace
