#include <algorithm>
#include <filesystem>

#include "op_test.h"
#include "stepnet/nets/net.h"
#include "stepnet/tests/core/temp_dir.h"

namespace stepnet {
namespace {

// What an action writes to standard error.
std::string ErrorOutput(const std::function<void()>& action) {
  testing::internal::CaptureStderr();
  action();
  return testing::internal::GetCapturedStderr();
}

TEST(Print, WritesALine) {
  const auto printed = [](const Tensor& x) { return ErrorOutput([&] { OpTest("Print", 0).Input("x", x).Run(); }); };
  EXPECT_EQ(printed(Tensor::Of<float>({2, 2}, {1, -2.5f, 3, 4e10f})), "x float [2, 2]: 1, -2.5, 3, 4e+10\n");
  EXPECT_EQ(printed(Tensor::Of<std::int8_t>({2}, {65, -1})), "x int8 [2]: 65, -1\n");
  EXPECT_EQ(printed(Tensor::Of<std::uint8_t>({1}, {200})), "x uint8 [1]: 200\n");
  EXPECT_EQ(printed(Tensor::Of<bool>({2}, {true, false})), "x bool [2]: 1, 0\n");
  EXPECT_EQ(printed(Tensor::Of<std::string>({1}, {"a b"})), "x string [1]: \"a b\"\n");
  EXPECT_EQ(printed(Tensor::Of<Float16>({1}, {ToFloat16(1.5f)})), "x float16 [1]: 1.5\n");
  EXPECT_EQ(printed(Tensor::Of<BFloat16>({1}, {ToBFloat16(-2)})), "x bfloat16 [1]: -2\n");
  EXPECT_EQ(printed(Tensor::Of<std::int64_t>({0, 3}, {})), "x int64 [0, 3]:\n");
}

TEST(Print, StopsAtItsLimit) {
  EXPECT_EQ(ErrorOutput([] {
              OpTest("Print", 0).Arg("limit", 2).Input("x", Tensor::Of<std::int32_t>({3}, {1, 2, 3})).Run();
            }),
            "x int32 [3]: 1, 2, …\n");
  const std::string thousand =
      ErrorOutput([] { OpTest("Print", 0).Input("x", Tensor::Zeros(DType::kInt32, {2000})).Run(); });
  EXPECT_EQ(std::ranges::count(thousand, '0'), 3 + 1000);
}

TEST(Print, SkipsRuns) {
  NetDef def;
  OperatorDef& op = *def.add_op();
  op.set_type("Print");
  op.add_input("x");
  Argument& every = *op.add_arg();
  every.set_name("every_n");
  every.set_i(3);
  Workspace workspace;
  workspace.SetTensor("x", Tensor::Of<std::int32_t>({1}, {7}));
  const auto net = Net::Create(def, workspace);
  std::vector<std::string> lines;
  for (int run = 0; run < 5; ++run) lines.push_back(ErrorOutput([&] { net->Run(); }));
  EXPECT_EQ(lines, (std::vector<std::string>{"x int32 [1]: 7\n", "", "", "x int32 [1]: 7\n", ""}));
}

// A net of one Print.
NetDef PrintOf(bool to_file, const std::string& blob = "../scope/x") {
  NetDef def;
  OperatorDef& op = *def.add_op();
  op.set_type("Print");
  op.add_input(blob);
  Argument& argument = *op.add_arg();
  argument.set_name("to_file");
  argument.set_i(to_file ? 1 : 0);
  return def;
}

TEST(Print, AppendsToAFileOfTheCurrentFolder) {
  const std::filesystem::path before = std::filesystem::current_path();
  const TempDir dir;
  std::filesystem::current_path(dir.path());
  Workspace workspace;
  workspace.SetTensor("../scope/x", Tensor::Of<std::int32_t>({1}, {7}));
  for (int run = 0; run < 2; ++run) RunNetOnce(PrintOf(/*to_file=*/true), workspace, {.allow_files = "."});
  ExpectError([&] { RunNetOnce(PrintOf(/*to_file=*/true), workspace); },
              "…Print may not open \"..__scope__x.log\": operators open files under");
  std::filesystem::current_path(before);
  EXPECT_EQ(dir.Names(), std::vector<std::string>{"..__scope__x.log"});
  EXPECT_EQ(dir.Get("..__scope__x.log"), "../scope/x int32 [1]: 7\n../scope/x int32 [1]: 7\n");
}

TEST(Print, NamesNoFileWithControlCharacters) {
  const TempDir dir;
  const std::string blob = "a\n\x1b[31m\xe2\x80\xae";
  Workspace workspace;
  workspace.SetTensor(blob, Tensor::Of<std::int32_t>({1}, {7}));
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(dir.path());
  RunNetOnce(PrintOf(/*to_file=*/true, blob), workspace, {.allow_files = "."});
  std::filesystem::current_path(before);
  EXPECT_EQ(dir.Names(), std::vector<std::string>{"a\\x0a\\x1b[31m\\xe2\\x80\\xae.log"});
}

TEST(Print, IsQuietWhereItShallBe) {
  Workspace workspace;
  workspace.SetTensor("../scope/x", Tensor::Of<std::int32_t>({1}, {7}));
  EXPECT_EQ(ErrorOutput([&] { RunNetOnce(PrintOf(/*to_file=*/false), workspace, {.quiet = true}); }), "");
}

TEST(Print, RefusesBadArguments) {
  ExpectError([] { OpTest("Print", 0).Arg("every_n", 0).Input("x", {1}, {1}).Run(); },
              "…Print: every_n is 0, must be at least 1\n");
  ExpectError([] { OpTest("Print", 0).Arg("limit", -1).Input("x", {1}, {1}).Run(); },
              "…Print: limit is -1, must be at least 0\n");
}

}  // namespace
}  // namespace stepnet
