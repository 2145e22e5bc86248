// A library for --op_library with a formula that is wrong whatever it is given: MISTAKE is one of those below.
#include <stdexcept>

#include "stepnet/core/formulas/formula.h"

namespace stepnet {
namespace {

[[maybe_unused]] void unknown_input(Formula& f) { f.Out({f.In("x") + f.In("z")}); }
[[maybe_unused]] void unknown_argument(Formula& f) { f.Out({f.In("x") * f.Number("alpha")}); }
[[maybe_unused]] void number_of_int(Formula& f) { f.Out({f.In("x") * f.Number("k")}); }
[[maybe_unused]] void number_and_truth(Formula& f) { f.Out({f.In("x") + (f.In("x") < 0)}); }
[[maybe_unused]] void throws(Formula&) { throw std::runtime_error("no more ink"); }

const Registration broken =
    Operator("acme.Q").Input("x", "any shape").Output("y", "the shape of x").Arg("k", 1, "k").Formula(MISTAKE);

}  // namespace
}  // namespace stepnet
