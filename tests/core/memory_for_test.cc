#include "stepnet/core/memory_for.h"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>

#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

TEST(MemoryFor, ErrorsOfMemorySayWhatItIsFor) {
  EXPECT_EQ(WithMemoryFor("the input", "x", [] { return 3; }), 3);
  const auto fails_with = [](const auto& exception) {
    return [exception] { WithMemoryFor("the input", "x", [&] { throw exception; }); };
  };
  ExpectError(fails_with(Error(ErrorCode::kOutOfMemory, "4 bytes are too much")),
              "out of memory: there is no memory for the input \"x\": 4 bytes are too much");
  ExpectError(fails_with(std::bad_alloc()),
              "out of memory: there is no memory for the input \"x\": the system has no more memory to give");
}

TEST(MemoryFor, OtherErrorsStayAsTheyAre) {
  ExpectError([] { WithMemoryFor("the input", "x", [] { throw Error(ErrorCode::kShapeMismatch, "no"); }); },
              "shape mismatch: no");
  EXPECT_THROW(WithMemoryFor("the input", "x", [] { throw std::runtime_error("no"); }), std::runtime_error);
}

}  // namespace
}  // namespace stepnet
