#include "stepnet/io/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/tensor.h"
#include "stepnet/io/minidb.h"
#include "stepnet/tests/core/limited_memory.h"
#include "stepnet/tests/core/source_path.h"
#include "stepnet/tests/core/temp_dir.h"
#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

std::string Record(std::int32_t key_bytes, std::int32_t value_bytes, const std::string& rest) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &key_bytes, 4);
  std::memcpy(bytes.data() + 4, &value_bytes, 4);
  return bytes + rest;
}

TEST(File, ReadsAndReplaces) {
  const TempDir dir;
  WriteFile(dir.Path("a"), "one");
  EXPECT_EQ(ReadFile(dir.Path("a")), "one");
  WriteFile(dir.Path("a"), std::string("t\0o", 3));
  EXPECT_EQ(ReadFile(dir.Path("a")), std::string("t\0o", 3));
  WriteFile(dir.Path("a"), "");
  EXPECT_EQ(ReadFile(dir.Path("a")), "");
  const std::string large(1000000, 'x');
  WriteFile(dir.Path("a"), large);
  EXPECT_EQ(ReadFile(dir.Path("a")), large);
  EXPECT_EQ(dir.Names(), std::vector<std::string>{"a"});
}

TEST(File, WithoutCommitNothingChanges) {
  const TempDir dir;
  WriteFile(dir.Path("a"), "old");
  {
    FileWriter writer(dir.Path("a"));
    writer.Write("new");
    EXPECT_EQ(dir.Get("a"), "old");
  }
  EXPECT_EQ(dir.Get("a"), "old");
  EXPECT_EQ(dir.Names(), std::vector<std::string>{"a"});
}

TEST(File, AWriterThatIsKilledLeavesNothing) {
  const TempDir dir;
  const int unnamed = open(dir.path().c_str(), O_WRONLY | O_TMPFILE, 0666);
  if (unnamed < 0) GTEST_SKIP() << "the file system has no files without a name";
  close(unnamed);
  const pid_t child = fork();
  if (child == 0) {
    FileWriter writer(dir.Path("a"));
    writer.Write(std::string(100'000, 'x'));
    raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(dir.Names(), std::vector<std::string>{});
}

TEST(File, ATemporaryNameTellsWhoseItIs) {
  EXPECT_EQ(FileOfTemporary("a.b.12.0.tmp"), "a.b");
  EXPECT_EQ(FileOfTemporary("7.8.12.0.tmp"), "7.8");
  for (const char* name : {"", ".tmp", "a", "a.tmp", "a.12.tmp", "12.0.tmp", "a..0.tmp", "a.12..tmp", "a.12.x0.tmp",
                           "a.b12.0.tmp", "a.12.0.tmp2", "a.12.0"}) {
    EXPECT_EQ(FileOfTemporary(name), "") << name;
  }
}

TEST(File, TwoWritersOfOneFileDoNotMix) {
  const TempDir dir;
  FileWriter first(dir.Path("a"));
  FileWriter second(dir.Path("a"));
  first.Write("first");
  second.Write("second");
  second.Commit();
  first.Commit();
  EXPECT_EQ(dir.Get("a"), "first");
}

TEST(File, KeepsLinksAndModes) {
  const TempDir dir;
  WriteFile(dir.Path("target"), "old");
  chmod(dir.Path("target").c_str(), 0640);
  std::filesystem::create_symlink("target", dir.Path("link"));
  WriteFile(dir.Path("link"), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(dir.Path("link")));
  EXPECT_EQ(dir.Get("target"), "new");
  struct stat status = {};
  ASSERT_EQ(stat(dir.Path("target").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0640u);
}

TEST(File, WritesThroughLinksThatLeadNowhereYet) {
  const TempDir dir;
  std::filesystem::create_directory(dir.Path("folder"));
  std::filesystem::create_symlink("folder/second", dir.Path("first"));
  std::filesystem::create_symlink("../target", dir.Path("folder/second"));
  WriteFile(dir.Path("first"), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(dir.Path("first")));
  EXPECT_TRUE(std::filesystem::is_symlink(dir.Path("folder/second")));
  EXPECT_EQ(dir.Get("target"), "new");
  std::filesystem::create_symlink(dir.Path("no/folder"), dir.Path("lost"));
  ExpectError([&] { WriteFile(dir.Path("lost"), "new"); },
              "input/output error: cannot write " + dir.Path("lost") + ": No such file or directory");
  std::filesystem::create_symlink("loop", dir.Path("loop"));
  ExpectError([&] { WriteFile(dir.Path("loop"), "new"); },
              "input/output error: cannot write " + dir.Path("loop") + ": Too many levels of symbolic links");
  EXPECT_TRUE(std::filesystem::is_symlink(dir.Path("loop")));
}

TEST(File, WritesDevicesDirectly) {
  WriteFile("/dev/null", "nothing");
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

TEST(File, SaysWhatIsWrong) {
  const TempDir dir;
  ExpectError([&] { WriteFile(dir.Path("no/such/folder"), ""); },
              "input/output error: cannot write " + dir.Path("no/such/folder") + ": No such file or directory");
  ExpectError([&] { WriteFile(dir.path(), ""); },
              "input/output error: cannot write " + dir.path() + ": Is a directory");
  ExpectError([&] { ReadFile(dir.Path("none")); },
              "input/output error: cannot read " + dir.Path("none") + ": No such file or directory");
  FileReader reader(dir.Put("short", "abc"));
  char data[4];
  ExpectError(
      [&] { reader.Read(data, 4, "the header"); },
      "input/output error: " + dir.Path("short") + " ends early: the header at byte 0 needs 4 bytes, 3 are left");
  if (std::filesystem::exists("/dev/full")) {
    ExpectError([] { WriteFile("/dev/full", "x"); },
                "input/output error: cannot write /dev/full: No space left on device");
  }
}

TEST(File, IsReadFromWhereItIsAsked) {
  const TempDir dir;
  FileReader reader(dir.Put("file", "0123456789"));
  std::string read(3, '\0');
  for (const std::int64_t at : {6, 0, 7, 3}) {
    reader.SeekTo(at);
    EXPECT_EQ(reader.left(), 10 - at);
    reader.Read(read.data(), 3, "it");
    EXPECT_EQ(read, std::string("0123456789").substr(static_cast<size_t>(at), 3));
  }
  reader.SeekTo(8);
  ExpectError([&] { reader.Read(read.data(), 3, "it"); }, "…ends early: it at byte 8 needs 3 bytes, 2 are left");
}

// Who opens a pipe that nobody writes waits for ever.
TEST(File, RefusesPipesAndDevices) {
  const TempDir dir;
  const std::string pipe = dir.Path("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {pipe, std::string("/dev/null"), std::string("/dev/zero")}) {
    const std::string message = "input/output error: cannot read " + path +
                                ": not a regular file; of pipes and devices, /dev/stdin and /dev/fd/N can be read";
    ExpectError([&] { ReadFile(path); }, message);
    ExpectError([&] { FileReader reader(path); }, message);
  }
  EXPECT_FALSE(LooksLikeMiniDb(pipe));
}

// A pipe with something in it, by the name under which it can be read.
class Pipe {
 public:
  explicit Pipe(const std::string& content) {
    EXPECT_EQ(pipe(ends_), 0);
    EXPECT_EQ(write(ends_[1], content.data(), content.size()), static_cast<ssize_t>(content.size()));
  }
  ~Pipe() {
    CloseWriter();
    // The reader stays open: its number is that of this pipe as long as the process lives.
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  void CloseWriter() {
    if (ends_[1] >= 0) close(ends_[1]);
    ends_[1] = -1;
  }
  std::string path() const { return "/dev/fd/" + std::to_string(ends_[0]); }

 private:
  int ends_[2] = {-1, -1};
};

TEST(File, APipeThatWasHandedOverIsReadOnceAndHasItsContentEverAfter) {
  Pipe pipe("some text");
  pipe.CloseWriter();
  EXPECT_EQ(ReadFile(pipe.path()), "some text");
  EXPECT_EQ(ReadFile(pipe.path()), "some text");
  FileReader reader(pipe.path());
  EXPECT_EQ(reader.size(), 9);
  char start[4];
  reader.Read(start, sizeof(start), "the start");
  EXPECT_EQ(std::string(start, sizeof(start)), "some");
  EXPECT_EQ(reader.left(), 5);
  Pipe empty("");
  empty.CloseWriter();
  EXPECT_EQ(ReadFile(empty.path()), "");
  EXPECT_EQ(FileReader(empty.path()).size(), 0);
}

TEST(File, APipeThatDoesNotEndIsReadUnderBothLimits) {
  Pipe pipe("some text");
  {
    const Cancellation limit(std::chrono::milliseconds(1));
    const CancellationScope scope(&limit);
    ExpectError([&] { ReadFile(pipe.path()); }, "cancelled: the run took longer than its limit of 0.001 s");
    ExpectError([&] { static_cast<void>(LooksLikeMiniDb(pipe.path())); },
                "cancelled: the run took longer than its limit of 0.001 s");
  }
  {
    const LimitedMemory limited(8);
    const std::string message = "out of memory: " + pipe.path() + " has 9 bytes; 8 are allowed";
    ExpectError([&] { ReadFile(pipe.path()); }, message);
    ExpectError([&] { ReadFile(pipe.path()); }, message);
    ExpectError([&] { static_cast<void>(LooksLikeMiniDb(pipe.path())); }, message);
  }
  pipe.CloseWriter();
  EXPECT_EQ(ReadFile(pipe.path()), "some text") << "nothing of it is lost";
}

TEST(File, LargeFilesAreReadAndWrittenUnderALimit) {
  const TempDir dir;
  std::string content(16 << 20, 'x');
  WriteFile(dir.Path("old"), content);
  Cancellation cancellation;
  cancellation.Cancel();
  const CancellationScope scope(&cancellation);
  const std::string message = "cancelled: the run was cancelled";
  ExpectError([&] { WriteFile(dir.Path("new"), content); }, message);
  ExpectError([&] { MiniDbWriter(dir.Path("new")).Add("key", content); }, message);
  ExpectError([&] { FileReader(dir.Path("old")).Read(content.data(), 16 << 20, "it"); }, message);
  EXPECT_EQ(dir.Names(), std::vector<std::string>{"old"});
}

TEST(File, RefusesFilesOfTwoGigabytes) {
  const TempDir dir;
  dir.Put("huge", "");
  std::filesystem::resize_file(dir.Path("huge"), std::uintmax_t{1} << 31);  // takes no room on the disk
  ExpectError([&] { ReadFile(dir.Path("huge")); },
              "input/output error: " + dir.Path("huge") + " has 2147483648 bytes; one message holds less than 2 GiB");
}

TEST(MiniDb, KeepsOrderAndBytes) {
  const TempDir dir;
  MiniDbWriter writer(dir.Path("db"));
  writer.Add("b", std::string("\0\1\2", 3));
  writer.Add("a", "");
  writer.Add("b", std::string(100000, 'v'));
  EXPECT_FALSE(std::filesystem::exists(dir.Path("db")));
  writer.Commit();
  EXPECT_TRUE(LooksLikeMiniDb(dir.Path("db")));
  MiniDbReader reader(dir.Path("db"));
  std::string key, value;
  std::vector<std::pair<std::string, std::string>> records;
  while (reader.Next(&key, &value)) records.emplace_back(key, value);
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"b", std::string("\0\1\2", 3)}, {"a", ""}, {"b", std::string(100000, 'v')}};
  EXPECT_EQ(records, expected);
  EXPECT_FALSE(reader.Next(&key, &value));
}

TEST(MiniDb, HasCaffe2sLayout) {
  const TempDir dir;
  MiniDbWriter writer(dir.Path("db"));
  writer.Add("key", "value");
  writer.Commit();
  EXPECT_EQ(dir.Get("db"), Record(3, 5, "keyvalue"));
}

TEST(MiniDb, RefusesHostileLengths) {
  const TempDir dir;
  const auto read = [&](const std::string& content) {
    MiniDbReader reader(dir.Put("db", content));
    std::string key, value;
    while (reader.Next(&key, &value)) {
    }
  };
  const std::string start = "input/output error: " + dir.Path("db");
  ExpectError([&] { read(Record(3, 2147483647, "key")); },
              start +
                  " is no minidb or is cut off: the record at byte 0 has a key of 3 and a value of 2147483647 "
                  "bytes, 3 are left");
  ExpectError([&] { read(Record(1, 1, "kv") + Record(-1, 5, "value")); },
              start +
                  " is no minidb or is cut off: the record at byte 10 has a key of -1 and a value of 5 bytes, 5 "
                  "are left");
  ExpectError([&] { read(Record(2, -2, "key")); },
              start +
                  " is no minidb or is cut off: the record at byte 0 has a key of 2 and a value of -2 bytes, 3 "
                  "are left");
  ExpectError([&] { read("abc"); },
              start + " ends early: the header of a minidb record at byte 0 needs 8 bytes, 3 are left");
  const LimitedMemory limited(10);
  ExpectError([&] { read(Record(3, 20, "key" + std::string(20, 'v'))); },
              "out of memory: the record at byte 0 of " + dir.Path("db") + " has 23 bytes; 10 are allowed");
}

TEST(MiniDb, IsToldFromOtherFiles) {
  const TempDir dir;
  EXPECT_FALSE(LooksLikeMiniDb(dir.Path("none")));
  EXPECT_FALSE(LooksLikeMiniDb(dir.Put("a", "")));
  EXPECT_FALSE(LooksLikeMiniDb(dir.Put("a", "name: \"net\"")));
  EXPECT_FALSE(LooksLikeMiniDb(SourcePath("tests/golden/att_lstm_dot/net.pb")));
  EXPECT_TRUE(LooksLikeMiniDb(dir.Put("a", Record(3, 5, "key"))));  // cut off, and its reader will say so
}

TEST(MiniDb, RefusesKeysThatCannotBeRead) {
  const TempDir dir;
  MiniDbWriter writer(dir.Path("db"));
  ExpectError([&] { writer.Add("", "value"); }, "input/output error: cannot write " + dir.Path("db") +
                                                    ": a minidb record of a key of 0 and a value of 5 bytes");
}

}  // namespace
}  // namespace stepnet
