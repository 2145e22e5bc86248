#include "stepnet/core/error.h"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>

#include "source_path.h"
#include "stepnet/io/file.h"

namespace stepnet {
namespace {

TEST(Error, ShowsCodeAndMessage) {
  const Error error(ErrorCode::kShapeMismatch, "x is [32, 64]");
  EXPECT_STREQ(error.what(), "shape mismatch: x is [32, 64]");
  EXPECT_EQ(error.code(), ErrorCode::kShapeMismatch);
  EXPECT_EQ(error.message(), "x is [32, 64]");
  EXPECT_TRUE(error.places().empty());
}

// The compiler warns of a code that is missing here; null for what is no code.
const char* ExpectedName(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return "invalid argument";
    case ErrorCode::kInvalidNet: return "invalid net";
    case ErrorCode::kShapeMismatch: return "shape mismatch";
    case ErrorCode::kTypeMismatch: return "type mismatch";
    case ErrorCode::kInputOutput: return "input/output error";
    case ErrorCode::kOutOfMemory: return "out of memory";
    case ErrorCode::kCancelled: return "cancelled";
    case ErrorCode::kFailed: return "operator failed";
    case ErrorCode::kInternal: return "internal error";
    case ErrorCode::kSyntaxError: return "syntax error";
  }
  return nullptr;
}

TEST(Error, EveryCodeHasANameAndIsDocumented) {
  const std::string document = ReadFile(SourcePath("docs/errors.md"));
  int codes = 0;
  for (; const char* name = ExpectedName(static_cast<ErrorCode>(codes)); ++codes) {
    EXPECT_STREQ(ErrorCodeName(static_cast<ErrorCode>(codes)), name);
    EXPECT_NE(document.find("` | " + std::string(name) + " | "), std::string::npos) << name;
  }
  EXPECT_GE(codes, 10) << "the codes are not numbered without a gap";
}

TEST(Error, NamesAFileOnce) {
  Error cut(ErrorCode::kInputOutput, "the file is cut off");
  cut.At({.file = "w.npz"}).At({.file = "w.npz"}).At({.file = "net.pb", .net = "n"}).At({.file = "net.pb"});
  EXPECT_STREQ(cut.what(), "input/output error: the file is cut off\n  in file w.npz\n  in net \"n\", file net.pb");
  for (const char* message : {"w.npz: it has no directory", "w.npz:1:4: no field", "w.npz holds nothing"}) {
    EXPECT_EQ(Error(ErrorCode::kInputOutput, message).At({.file = "w.npz"}).what(),
              std::string("input/output error: ") + message);
    EXPECT_EQ(Error(ErrorCode::kInputOutput, message).At({.file = "w.np"}).places().size(), 1U);
  }
}

TEST(Error, AddsPlacesFromTheInsideOut) {
  Error error(ErrorCode::kShapeMismatch, "no fit");
  error.At({.net = "cell", .op_index = 0, .op_text = "y = FC(x, w)", .blobs = "x float [2], w float [3]", .step = 7});
  error.At({.file = "model.pb", .net = "outer", .op_index = 4});
  EXPECT_STREQ(error.what(),
               "shape mismatch: no fit\n"
               "  at op 0 `y = FC(x, w)` with x float [2], w float [3]\n"
               "  in net \"cell\", step 7\n"
               "  at op 4\n"
               "  in net \"outer\", file model.pb");
  ASSERT_EQ(error.places().size(), 2u);
  EXPECT_EQ(error.places()[0].step, 7);
  EXPECT_EQ(error.places()[1].file, "model.pb");
}

TEST(Error, EmptyPlacesSayNothing) {
  EXPECT_STREQ(Error(ErrorCode::kFailed, "x").At({}).what(), "operator failed: x");
  EXPECT_STREQ(Error(ErrorCode::kFailed, "x").At({.op_text = "y = F()"}).what(),
               "operator failed: x\n  at op `y = F()`");
}

TEST(Error, ShortensHugePlaces) {
  const std::string huge(100000, 'a');
  Error error(ErrorCode::kInvalidNet, "x");
  error.At({.file = huge, .net = huge, .op_index = 1, .op_text = huge, .blobs = huge});
  EXPECT_LT(std::string(error.what()).size(), 3000u);
}

template <typename Throw>
Error Caught(Throw&& action) {
  try {
    action();
  } catch (...) {
    return CurrentError();
  }
  ADD_FAILURE();
  return Error(ErrorCode::kInternal, "");
}

TEST(Error, AnyExceptionBecomesOne) {
  EXPECT_STREQ(Caught([] { throw Error(ErrorCode::kInvalidNet, "x").At({.net = "n"}); }).what(),
               "invalid net: x\n  in net \"n\"");
  EXPECT_STREQ(Caught([] { throw std::runtime_error("made to fail"); }).what(), "operator failed: made to fail");
  EXPECT_STREQ(Caught([] { throw std::bad_alloc(); }).what(), "out of memory: the system has no more memory to give");
  EXPECT_STREQ(Caught([] { throw 3; }).what(), "operator failed: an exception that is no std::exception");
}

}  // namespace
}  // namespace stepnet
