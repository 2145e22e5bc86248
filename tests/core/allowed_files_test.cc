// Which files the operators of a net reach.
#include "stepnet/core/allowed_files.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "stepnet/io/proto_io.h"
#include "stepnet/nets/net.h"
#include "stepnet/proto/net.pb.h"
#include "stepnet/tests/operators/op_test.h"
#include "temp_dir.h"

namespace stepnet {
namespace {

namespace fs = std::filesystem;

// Names files as its argument says, and opens none.
const Registration opens = Operator("test.Opens")
                               .Arg("paths", std::vector<std::string>{}, "")
                               .OpensFiles([](const OperatorCall& op) { return op.Strings("paths"); })
                               .Shapes([](const ShapeQuery&) { return std::vector<TensorInfo>(); })
                               .Cpu([](const OperatorCall& op) -> RunFn {
                                 AllowedFiles(op);
                                 return [](const OpRun&) {};
                               });

class AllowedFilesTest : public testing::Test {
 protected:
  AllowedFilesTest() {
    fs::create_directories(dir_.Path("in/deeper"));
    fs::create_directories(dir_.Path("in_too"));
  }
  // The real path of a file when what `folder` names is allowed.
  static std::string Allowed(const std::string& path, const std::string& folder) {
    OperatorDef def;
    def.set_type("test.Opens");
    Argument& paths = *def.add_arg();
    paths.set_name("paths");
    paths.add_strings(path);
    return AllowedFiles(OperatorCall(def, {.allow_files = folder})).front();
  }
  std::string Allowed(const std::string& path) const { return Allowed(path, dir_.Path("in")); }
  void IsRefused(const std::string& path) const {
    ExpectError([&] { Allowed(path); }, "input/output error: test.Opens may not open \"" + path +
                                            "\": it lies outside of " + dir_.Path("in") +
                                            ", the folder of --allow_files");
  }
  TempDir dir_;
};

TEST_F(AllowedFilesTest, NoneWithoutAFolder) {
  ExpectError([] { Allowed("f", ""); },
              "input/output error: test.Opens may not open \"f\": operators open files under `rnn_runner run "
              "--allow_files=DIR` alone, inside DIR");
}

TEST_F(AllowedFilesTest, ThoseInsideTheFolder) {
  dir_.Put("in/there", "");
  EXPECT_EQ(Allowed(dir_.Path("in/there")), dir_.Path("in/there"));
  EXPECT_EQ(Allowed(dir_.Path("in/new")), dir_.Path("in/new"));
  EXPECT_EQ(Allowed(dir_.Path("in/deeper/../new")), dir_.Path("in/new"));
  EXPECT_EQ(Allowed(dir_.Path("in/absent/../new")), dir_.Path("in/new"));
  EXPECT_EQ(Allowed(dir_.Path("in/new"), dir_.Path("in_too/../in/")), dir_.Path("in/new"));
}

TEST_F(AllowedFilesTest, NoneOutside) {
  IsRefused("/etc/passwd");
  IsRefused(dir_.Path("in"));
  IsRefused(dir_.Path("in/"));
  IsRefused(dir_.Path("in/../out"));
  IsRefused(dir_.Path("in/absent/../../out"));
  IsRefused(dir_.Path("in_too/file"));
  IsRefused("relative");
}

TEST_F(AllowedFilesTest, NoneBehindLinks) {
  fs::create_symlink(dir_.Path("in_too"), dir_.Path("in/folder"));
  fs::create_symlink("/etc/passwd", dir_.Path("in/file"));
  fs::create_symlink(dir_.Path("absent"), dir_.Path("in/nowhere"));
  IsRefused(dir_.Path("in/folder/file"));
  IsRefused(dir_.Path("in/folder/../out"));
  IsRefused(dir_.Path("in/file"));
  ExpectError([&] { Allowed(dir_.Path("in/nowhere")); },
              "input/output error: test.Opens may not open \"" + dir_.Path("in/nowhere") +
                  "\": " + dir_.Path("in/nowhere") + " is a link that leads nowhere");
  fs::create_symlink(dir_.Path("in/deeper"), dir_.Path("in/within"));
  EXPECT_EQ(Allowed(dir_.Path("in/within/new")), dir_.Path("in/deeper/new"));
}

TEST_F(AllowedFilesTest, TheFolderMayBeALink) {
  fs::create_symlink(dir_.Path("in"), dir_.Path("link"));
  EXPECT_EQ(Allowed(dir_.Path("link/new"), dir_.Path("link")), dir_.Path("in/new"));
}

TEST_F(AllowedFilesTest, TheFolderIsOne) {
  dir_.Put("file", "");
  ExpectError([&] { Allowed("f", dir_.Path("absent")); }, "…may not open \"f\": the folder of --allow_files, " +
                                                              dir_.Path("absent") + ": No such file or directory");
  ExpectError([&] { Allowed("f", dir_.Path("file")); }, "…: Not a directory");
}

TEST_F(AllowedFilesTest, APathHoldsNoNul) {
  const std::string path = dir_.Path("in/a") + std::string("\0b", 2);
  ExpectError([&] { Allowed(path); }, "…a path holds no NUL");
}

// Operators of step nets, too, see the folder of the run alone.
TEST_F(AllowedFilesTest, EveryOperatorThatOpensFilesAsksFirst) {
  for (const std::string type : {"Load", "Save", "DBExists", "Print"}) {
    EXPECT_TRUE(GetOperator(type).files != nullptr) << type;
  }
}

}  // namespace
}  // namespace stepnet
