// CodeCache: machine code of kernels, compiled once and kept on disk for the next process (gpu/kept_files.h). The key
// is source, architecture, compiler and its options.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "stepnet/gpu/kept_files.h"
#include "stepnet/gpu/nvrtc.h"

namespace stepnet {

class CodeCache {
 public:
  static constexpr std::int64_t kMaxBytes = std::int64_t{256} << 20;

  // In a folder, as KeptFiles says; "": in memory alone.
  explicit CodeCache(std::string folder, std::int64_t max_bytes = kMaxBytes);

  // The code of `source` for an architecture: compiled at most once in this process. Safe to call from any thread; who
  // asks for what another thread is compiling waits for it. Throws as CompileDeviceCode.
  std::shared_ptr<const DeviceCode> Get(std::string_view source, std::string_view architecture);

  struct Counts {
    std::int64_t compiled = 0;
    std::int64_t read = 0;  // from disk
  };
  Counts counts() const;
  const std::string& folder() const { return kept_.folder(); }

 private:
  using Future = std::shared_future<std::shared_ptr<const DeviceCode>>;
  std::shared_ptr<const DeviceCode> Make(const std::string& key, std::string_view source,
                                         std::string_view architecture);

  const KeptFiles kept_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, Future> made_;  // by key
  Counts counts_;
};

// The cache of this process, in the default folder.
CodeCache& SharedCodeCache();

}  // namespace stepnet
