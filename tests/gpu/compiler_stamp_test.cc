// Which compiler there is, known without opening it. No compiler is needed here.
#include "stepnet/gpu/compiler_stamp.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "scoped_variable.h"
#include "stepnet/core/strings.h"
#include "stepnet/gpu/code_cache.h"
#include "stepnet/tests/core/temp_dir.h"

namespace stepnet {
namespace {

// One in a file of its own, which counts how often it is opened and what it compiles.
class CompilerStampTest : public testing::Test {
 protected:
  // The code of the source "x" as another process gets it, which notes whether it opened the compiler.
  std::string GetAnew() {
    opened_ = compiled_ = 0;
    CodeCache cache(kept_.path(), CodeCache::kMaxBytes, compiler_);
    return cache.Get("x", "sm_80")->cubin;
  }

  const TempDir kept_, lib_;
  std::string path_ = lib_.Put("libcompiler.so", "first");
  std::string version_ = "first";
  int opened_ = 0, compiled_ = 0;
  const DeviceCompiler compiler_ = {.text = [this] { return ++opened_, version_; },
                                    .file = [this] { return path_; },
                                    .compile =
                                        [this](std::string_view source, std::string_view) {
                                          ++compiled_;
                                          return DeviceCode{.cubin = StrCat(source, " by ", version_), .log = {}};
                                        }};
};

TEST_F(CompilerStampTest, WhatIsOnDiskOpensNoCompiler) {
  EXPECT_EQ(GetAnew(), "x by first");
  EXPECT_EQ(opened_, 1);
  EXPECT_EQ(compiled_, 1);
  EXPECT_EQ(GetAnew(), "x by first");
  EXPECT_EQ(opened_, 0);
  EXPECT_EQ(compiled_, 0);
}

TEST_F(CompilerStampTest, IsStaleWhenTheFileIsAnother) {
  GetAnew();
  lib_.Put("libcompiler.so", "second, which is longer");
  version_ = "second";
  EXPECT_EQ(GetAnew(), "x by second");
  EXPECT_EQ(opened_, 1);
  GetAnew();
  EXPECT_EQ(opened_, 0);
  // Its size is the same and its time another; it is the same compiler, and what it made is there.
  using namespace std::chrono_literals;
  std::filesystem::last_write_time(path_, std::filesystem::file_time_type::clock::now() + 5s);
  EXPECT_EQ(GetAnew(), "x by second");
  EXPECT_EQ(opened_, 1);
  EXPECT_EQ(compiled_, 0);
  std::filesystem::remove(path_);
  path_ = lib_.Put("elsewhere.so", "third");
  version_ = "third";
  EXPECT_EQ(GetAnew(), "x by third");
}

// The last code that was compiled is in memory; the rest is on disk, where there is a folder.
TEST_F(CompilerStampTest, MemoryIsBounded) {
  constexpr int kSources = 2 * static_cast<int>(kMaxUnusedCode);
  for (const bool has_folder : {true, false}) {
    compiled_ = 0;
    CodeCache cache(has_folder ? kept_.path() : "", CodeCache::kMaxBytes, compiler_);
    for (int k = 0; k < kSources; ++k) cache.Get(StrCat(k), "sm_80");
    EXPECT_EQ(compiled_, kSources);
    cache.Get(StrCat(kSources - 1), "sm_80");
    EXPECT_EQ(compiled_, kSources);
    EXPECT_EQ(cache.counts().read, 0);
    EXPECT_EQ(cache.Get("0", "sm_80")->cubin, "0 by first");
    EXPECT_EQ(compiled_, has_folder ? kSources : kSources + 1);
    EXPECT_EQ(cache.counts().read, has_folder ? 1 : 0);
  }
}

TEST_F(CompilerStampTest, IsOfThePlacesThatAreLookedAt) {
  const ScopedVariable home("CUDA_HOME", "/one");
  GetAnew();
  const ScopedVariable other("CUDA_HOME", "/two");
  path_ = lib_.Put("other.so", "other");
  version_ = "other";
  EXPECT_EQ(GetAnew(), "x by other");
  EXPECT_EQ(opened_, 1);
}

// The loader finds another library, and nothing that the stamp knows of has changed.
TEST_F(CompilerStampTest, TellsOfTheCompilerThatIsOpenedInTheEnd) {
  GetAnew();
  path_ = lib_.Put("other.so", "other");
  version_ = "other";
  opened_ = compiled_ = 0;
  CodeCache cache(kept_.path(), CodeCache::kMaxBytes, compiler_);
  EXPECT_EQ(cache.Get("x", "sm_80")->cubin, "x by first");
  EXPECT_EQ(opened_, 0);
  EXPECT_EQ(cache.Get("y", "sm_80")->cubin, "y by other");
  EXPECT_EQ(GetAnew(), "x by other");
  EXPECT_EQ(compiled_, 1);
}

TEST_F(CompilerStampTest, IsNotKeptWithoutAFolder) {
  for (int process = 0; process < 2; ++process) {
    opened_ = 0;
    EXPECT_EQ(CompilerStamp("", compiler_).Text(), "first");
    EXPECT_EQ(opened_, 1);
  }
}

}  // namespace
}  // namespace stepnet
