// Tests verify thoroughly what passes make, however they are started (compiler/passes/passes.h).
#include <cstdlib>

namespace stepnet {
namespace {

[[maybe_unused]] const int set = setenv("STEPNET_VERIFY_PASSES", "1", /*overwrite=*/0);

}  // namespace
}  // namespace stepnet
