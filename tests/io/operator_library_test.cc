#include "stepnet/io/operator_library.h"

#include "stepnet/tests/core/temp_dir.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

TEST(OperatorLibrary, RefusesFilesThatAreNone) {
  const TempDir dir;
  ExpectError([&] { LoadOperatorLibrary(dir.Path("none.so")); },
              "input/output error: no operator library " + dir.Path("none.so"));
  const std::string text = dir.Put("text.so", "not a library");
  ExpectError([&] { LoadOperatorLibrary(text); },
              "…input/output error: cannot load the operator library " + text + ": ");
}

}  // namespace
}  // namespace stepnet
