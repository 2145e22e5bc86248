#include "stepnet/tools/rnn_runner/made_folder.h"

#include <gtest/gtest.h>

#include <fstream>
#include <stdexcept>

#include "stepnet/tests/core/temp_dir.h"

namespace stepnet::runner {
namespace {

// Makes the folder and fails when `write` has been called.
template <typename Write>
void Fail(const std::string& path, Write&& write) {
  try {
    std::error_code fault;
    const MadeFolder folder(path, &fault);
    EXPECT_TRUE(std::filesystem::is_directory(path));
    write();
    throw std::runtime_error("made to fail");
  } catch (const std::runtime_error&) {
  }
}

TEST(MadeFolder, IsGoneWhereAFailureLeavesItEmpty) {
  const TempDir dir;
  Fail(dir.Path("outer/inner"), [] {});
  EXPECT_FALSE(std::filesystem::exists(dir.Path("outer")));
  Fail(dir.Path("outer/inner/"), [] {});
  EXPECT_FALSE(std::filesystem::exists(dir.Path("outer")));
}

TEST(MadeFolder, StaysWithWhatItHolds) {
  const TempDir dir;
  Fail(dir.Path("outer/inner"), [&] { std::ofstream(dir.Path("outer/file")) << "x"; });
  EXPECT_TRUE(std::filesystem::exists(dir.Path("outer/file")));
  EXPECT_FALSE(std::filesystem::exists(dir.Path("outer/inner")));
}

TEST(MadeFolder, StaysWhereItWasThereBefore) {
  const TempDir dir;
  std::filesystem::create_directory(dir.Path("given"));
  Fail(dir.Path("given"), [] {});
  EXPECT_TRUE(std::filesystem::exists(dir.Path("given")));
}

TEST(MadeFolder, StaysWhereNothingFails) {
  const TempDir dir;
  std::error_code fault;
  { const MadeFolder folder(dir.Path("made"), &fault); }
  EXPECT_TRUE(std::filesystem::exists(dir.Path("made")));
}

TEST(MadeFolder, SaysWhyItCannotBeMade) {
  const TempDir dir;
  std::ofstream(dir.Path("file")) << "x";
  std::error_code fault;
  const MadeFolder folder(dir.Path("file/inner"), &fault);
  EXPECT_EQ(fault, std::errc::not_a_directory);
}

}  // namespace
}  // namespace stepnet::runner
