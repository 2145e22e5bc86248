// CodeCache: machine code of kernels, compiled once and kept on disk for the next process.
//
// An entry is a file whose name is a hash of the key (source, architecture, compiler and its options); it holds the key
// itself, so that no two keys are taken for one, and a checksum. Files are written under another name and renamed: any
// number of processes may share a folder, and one that is killed leaves nothing that is used. What is damaged is
// compiled anew, and what cannot be written is not kept.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "stepnet/gpu/nvrtc.h"

namespace stepnet {

class CodeCache {
 public:
  static constexpr std::int64_t kMaxBytes = std::int64_t{256} << 20;

  // In `folder`, which is made when there is something to keep; "": in memory alone. When there is more than
  // `max_bytes`, what was used longest ago goes.
  explicit CodeCache(std::string folder, std::int64_t max_bytes = kMaxBytes);

  // The code of `source` for an architecture: compiled at most once in this process. Safe to call from any thread; who
  // asks for what another thread is compiling waits for it. Throws as CompileDeviceCode.
  std::shared_ptr<const DeviceCode> Get(std::string_view source, std::string_view architecture);

  struct Counts {
    std::int64_t compiled = 0;
    std::int64_t read = 0;  // from disk
  };
  Counts counts() const;
  const std::string& folder() const { return folder_; }

 private:
  using Future = std::shared_future<std::shared_ptr<const DeviceCode>>;
  std::shared_ptr<const DeviceCode> Make(const std::string& key, std::string_view source,
                                         std::string_view architecture);
  std::string PathOf(std::string_view key) const;
  bool Read(const std::string& key, DeviceCode* code) const;
  void Keep(const std::string& key, const DeviceCode& code) const;
  void RemoveOldest() const;

  const std::string folder_;
  const std::int64_t max_bytes_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, Future> made_;  // by key
  Counts counts_;
};

// $STEPNET_CACHE_DIR (set and empty: none), else stepnet in $XDG_CACHE_HOME, else ~/.cache/stepnet; "": none.
std::string DefaultCacheFolder();
// The cache of this process, in the default folder.
CodeCache& SharedCodeCache();

}  // namespace stepnet
