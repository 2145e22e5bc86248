#include "stepnet/gpu/code_cache.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <thread>
#include <vector>

#include "no_device_compiler.h"
#include "scoped_variable.h"
#include "stepnet/core/strings.h"
#include "stepnet/tests/core/error_of.h"
#include "stepnet/tests/core/temp_dir.h"

namespace stepnet {
namespace {

std::string Kernel(int number) {
  return StrCat("extern \"C\" __global__ void k", number, "(int* x) { *x = ", number, "; }");
}

class CodeCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNoDeviceCompilerHere(); !why.empty()) GTEST_SKIP() << why;
  }
  // Entries, without what is kept of the compiler.
  std::vector<std::string> Files() const {
    std::vector<std::string> names = dir_.Names();
    std::erase_if(names, [](const std::string& name) { return name.ends_with(".compiler"); });
    return names;
  }
  std::string OnlyFile() const {
    const std::vector<std::string> names = Files();
    return names.size() == 1 ? names[0] : StrCat(names.size(), " files");
  }

  const TempDir dir_;
};

TEST_F(CodeCacheTest, CompilesOnceAProcessAndOnceAFolder) {
  CodeCache first(dir_.path());
  const auto code = first.Get(Kernel(1), "sm_80");
  EXPECT_EQ(first.Get(Kernel(1), "sm_80"), code);
  EXPECT_EQ(first.counts().compiled, 1);

  CodeCache second(dir_.path());
  EXPECT_TRUE(second.Get(Kernel(1), "sm_80")->cubin == code->cubin);
  EXPECT_EQ(second.Get(Kernel(1), "sm_80")->log, code->log);
  EXPECT_EQ(second.counts().compiled, 0);
  EXPECT_EQ(second.counts().read, 1);
  EXPECT_FALSE(second.Get(Kernel(1), "sm_90a")->cubin == code->cubin) << "another architecture";
  second.Get(Kernel(2), "sm_80");
  EXPECT_EQ(second.counts().compiled, 2);
  EXPECT_EQ(Files().size(), 3u);
}

TEST_F(CodeCacheTest, MakesDamagedEntriesAnew) {
  const std::string want = CodeCache(dir_.path()).Get(Kernel(1), "sm_80")->cubin;
  const std::string name = OnlyFile(), whole = dir_.Get(name);
  std::vector<std::string> damaged = {"", whole.substr(0, 10), whole.substr(0, whole.size() - 1), whole + "x"};
  for (size_t at = 0; at < whole.size(); at += 97) {
    damaged.push_back(whole);
    damaged.back()[at] ^= 4;
  }
  int made = 0;
  for (size_t i = 0; i < damaged.size(); i += damaged.size() / 12 + 1) {
    dir_.Put(name, damaged[i]);
    CodeCache cache(dir_.path());
    EXPECT_TRUE(cache.Get(Kernel(1), "sm_80")->cubin == want) << i;
    EXPECT_EQ(cache.counts().compiled, 1) << i;
    // Not byte for byte: what the compiler says has the time that it took.
    CodeCache again(dir_.path());
    EXPECT_TRUE(again.Get(Kernel(1), "sm_80")->cubin == want) << i;
    EXPECT_EQ(again.counts().read, 1) << i;
    ++made;
  }
  EXPECT_GT(made, 8);
}

// Another key may have the same hash.
TEST_F(CodeCacheTest, TakesNoEntryForAnother) {
  CodeCache(dir_.path()).Get(Kernel(1), "sm_80");
  const std::string first = OnlyFile(), entry = dir_.Get(first);
  std::filesystem::remove(dir_.Path(first));
  const std::string want = CodeCache(dir_.path()).Get(Kernel(2), "sm_80")->cubin;
  dir_.Put(OnlyFile(), entry);
  EXPECT_TRUE(CodeCache(dir_.path()).Get(Kernel(2), "sm_80")->cubin == want);
}

TEST_F(CodeCacheTest, KeepsWhatWasUsedLast) {
  CodeCache(dir_.path()).Get(Kernel(0), "sm_80");
  const auto bytes = static_cast<std::int64_t>(dir_.Get(OnlyFile()).size());
  for (int k = 1; k < 5; ++k) {
    CodeCache(dir_.path(), 3 * bytes + bytes / 2).Get(Kernel(k), "sm_80");
    CodeCache(dir_.path()).Get(Kernel(0), "sm_80");
    EXPECT_LE(Files().size(), 3u);
  }
  CodeCache cache(dir_.path());
  for (const int k : {0, 4}) cache.Get(Kernel(k), "sm_80");
  EXPECT_EQ(cache.counts().read, 2);
}

TEST_F(CodeCacheTest, RemovesWhatKilledProcessesLeft) {
  using namespace std::chrono_literals;
  const std::string left = dir_.Put("0123456789abcdef.cubin.77.0.tmp", "half an ent");
  const std::string begun = dir_.Put("fedcba9876543210.cubin.78.0.tmp", "");
  const std::string other = dir_.Put("letter.txt", "somebody's");
  for (const std::string& file : {left, other}) {
    std::filesystem::last_write_time(file, std::filesystem::file_time_type::clock::now() - 3h);
  }
  CodeCache(dir_.path()).Get(Kernel(1), "sm_80");
  EXPECT_FALSE(std::filesystem::exists(left));
  EXPECT_TRUE(std::filesystem::exists(begun)) << "somebody is writing it";
  EXPECT_TRUE(std::filesystem::exists(other));
}

TEST_F(CodeCacheTest, WorksWithoutAFolder) {
  const std::string file = dir_.Put("file", "");
  for (const std::string& folder : {std::string(), file + "/below", std::string("/proc/stepnet")}) {
    CodeCache cache(folder);
    EXPECT_FALSE(cache.Get(Kernel(1), "sm_80")->cubin.empty()) << folder;
    EXPECT_EQ(cache.counts().compiled, 1);
  }
}

TEST_F(CodeCacheTest, CompilesOnceForManyThreads) {
  CodeCache cache(dir_.path());
  std::vector<std::jthread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&cache, i] { EXPECT_FALSE(cache.Get(Kernel(i % 2), "sm_80")->cubin.empty()); });
  }
  threads.clear();
  EXPECT_EQ(cache.counts().compiled, 2);
}

TEST_F(CodeCacheTest, DoesNotKeepFailures) {
  CodeCache cache(dir_.path());
  for (int i = 0; i < 2; ++i) EXPECT_NE(ErrorOf([&] { cache.Get("error", "sm_80"); }), "no error");
  EXPECT_TRUE(Files().empty());
}

// Many processes write and read one folder, some of which are killed.
TEST_F(CodeCacheTest, SharesAFolderWithOtherProcesses) {
  const std::string want = CodeCache("").Get(Kernel(7), "sm_80")->cubin;
  std::vector<pid_t> children;
  for (int i = 0; i < 5; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      for (int k = 0; k < 6; ++k) {
        for (const std::string& name : dir_.Names()) {
          if (k % 3 == 0 && name.ends_with(".cubin")) unlink(dir_.Path(name).c_str());
        }
        if (CodeCache(dir_.path()).Get(Kernel(7), "sm_80")->cubin != want) _exit(1);
      }
      _exit(0);
    }
    children.push_back(child);
  }
  kill(children[0], SIGKILL);
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(child == children[0] || status == 0) << status;
  }
  EXPECT_TRUE(CodeCache(dir_.path()).Get(Kernel(7), "sm_80")->cubin == want);
}

// Whatever a process was doing when it was killed: looking, compiling, writing.
TEST_F(CodeCacheTest, SurvivesProcessesThatAreKilledWhileTheyCompile) {
  const std::string want = CodeCache("").Get(Kernel(3), "sm_80")->cubin;
  for (int k = 0; k < 12; ++k) {
    const pid_t child = fork();
    if (child == 0) {
      CodeCache(dir_.path()).Get(Kernel(3), "sm_80");
      _exit(0);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(k * k));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(CodeCache(dir_.path()).Get(Kernel(3), "sm_80")->cubin == want) << k;
    for (const std::string& name : dir_.Names()) {
      if (name.ends_with(".cubin")) std::filesystem::remove(dir_.Path(name));
    }
  }
}

TEST(DefaultCacheFolder, FollowsTheEnvironment) {
  const auto folder = [](const char* own, const char* xdg, const char* home) {
    const ScopedVariable own_variable("STEPNET_CACHE_DIR", own), xdg_variable("XDG_CACHE_HOME", xdg);
    const ScopedVariable home_variable("HOME", home);
    return DefaultCacheFolder();
  };
  EXPECT_EQ(folder("/own", "/xdg", "/home/me"), "/own");
  EXPECT_EQ(folder("", "/xdg", "/home/me"), "") << "empty: none";
  EXPECT_EQ(folder(nullptr, "/xdg", "/home/me"), "/xdg/stepnet");
  EXPECT_EQ(folder(nullptr, "relative", "/home/me"), "/home/me/.cache/stepnet");
  EXPECT_EQ(folder(nullptr, nullptr, "/home/me"), "/home/me/.cache/stepnet");
  EXPECT_EQ(folder(nullptr, nullptr, nullptr), "");
}

}  // namespace
}  // namespace stepnet
