#include "stepnet/gpu/kept_files.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>

#include "stepnet/core/strings.h"
#include "stepnet/tests/core/temp_dir.h"

namespace stepnet {
namespace {

using Parts = std::vector<std::string>;
constexpr std::int64_t kNoLimit = std::int64_t{1} << 40;

TEST(KeptFiles, GiveBackWhatWasKept) {
  const TempDir dir;
  const KeptFiles first(dir.path(), ".a", kNoLimit);
  EXPECT_FALSE(first.Read("key"));
  const Parts parts = {"one", "", std::string("\0\n", 2)};
  first.Keep("key", parts);
  first.Keep("none", {});
  const KeptFiles second(dir.path(), ".a", kNoLimit);
  EXPECT_EQ(second.Read("key"), parts);
  EXPECT_EQ(second.Read("none"), Parts());
  EXPECT_FALSE(second.Read("other"));
  EXPECT_FALSE(KeptFiles(dir.path(), ".b", kNoLimit).Read("key"));
  second.Keep("key", {"two"});
  EXPECT_EQ(first.Read("key"), Parts{"two"});
}

TEST(KeptFiles, DoNotFindWhatIsDamaged) {
  const TempDir dir;
  const KeptFiles files(dir.path(), ".a", kNoLimit);
  files.Keep("key", {"one", "two"});
  const std::string name = dir.Names().at(0), whole = dir.Get(name);
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    dir.Put(name, whole.substr(0, bytes));
    EXPECT_FALSE(files.Read("key")) << bytes;
    std::string changed = whole;
    changed[bytes] ^= 1;
    dir.Put(name, changed);
    EXPECT_FALSE(files.Read("key")) << bytes;
  }
  dir.Put(name, whole);
  EXPECT_TRUE(files.Read("key"));
}

// The folder may be one that a user has files in, which look like entries.
TEST(KeptFiles, LeaveFilesOfOthersAlone) {
  using namespace std::chrono_literals;
  const std::vector<std::string> names = {"mine.a",
                                          "mine.a.txt",
                                          "decade.a",                        // no 16 digits
                                          "0123456789ABCDEF.a",              // no digits of ours
                                          "x0123456789abcdef.a",             //
                                          "0123456789abcdef0.a",             //
                                          "0123456789abcdef.b",              // of other KeptFiles
                                          "0123456789abcdef.a.b",            //
                                          "0123456789abcdef.a.tmp",          // nobody's temporary name
                                          "0123456789abcdef.a.12.tmp",       //
                                          "0123456789abcdef.a.12.3x.tmp",    //
                                          "0123456789abcdef.a.12.3.tmp.gz",  //
                                          "mine.a.12.3.tmp",                 // of another file
                                          "0123456789abcdef.b.12.3.tmp"};
  const TempDir dir;
  const std::string entry = "0123456789abcdef.a", left = "0123456789abcdef.a.12.3.tmp";
  for (const std::string& name : names) dir.Put(name, std::string(1000, 'x'));
  for (const std::string& name : {entry, left}) dir.Put(name, "old");
  for (const std::string& name : dir.Names()) {
    std::filesystem::last_write_time(dir.Path(name), std::filesystem::file_time_type::clock::now() - 3h);
  }
  const KeptFiles files(dir.path(), ".a", /*max_bytes=*/200);
  files.Keep("key", {"one"});
  EXPECT_TRUE(files.Read("key")) << "files of others do not count";
  EXPECT_TRUE(std::filesystem::exists(dir.Path(entry))) << "there is room";
  files.Keep("other", {std::string(150, 'x')});
  EXPECT_FALSE(std::filesystem::exists(dir.Path(entry)));
  EXPECT_FALSE(std::filesystem::exists(dir.Path(left)));
  for (const std::string& name : names) EXPECT_TRUE(std::filesystem::exists(dir.Path(name))) << name;
}

// Also where its hash begins with zeros.
TEST(KeptFiles, FindAndRemoveWhateverNameAnEntryHas) {
  const TempDir dir;
  for (int key = 0; key < 40; ++key) {
    const KeptFiles files(dir.path(), ".a", /*max_bytes=*/1);
    files.Keep(StrCat(key), {"one"});
    ASSERT_EQ(dir.Names(), std::vector<std::string>()) << "no room for one";
  }
}

TEST(KeptFiles, KeepNothingWithoutAFolder) {
  const KeptFiles files("", ".a", kNoLimit);
  files.Keep("key", {"one"});
  EXPECT_FALSE(files.Read("key"));
}

}  // namespace
}  // namespace stepnet
