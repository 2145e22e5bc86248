#include "stepnet/gpu/kept_files.h"

#include <gtest/gtest.h>

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

TEST(KeptFiles, KeepNothingWithoutAFolder) {
  const KeptFiles files("", ".a", kNoLimit);
  files.Keep("key", {"one"});
  EXPECT_FALSE(files.Read("key"));
}

}  // namespace
}  // namespace stepnet
