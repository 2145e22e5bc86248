// CodeCache: machine code of kernels, compiled once and kept on disk for the next process (gpu/kept_files.h). The key
// is source, architecture, compiler and its options; the compiler is opened when something is to be compiled
// (gpu/compiler_stamp.h).
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "stepnet/gpu/compiler_stamp.h"
#include "stepnet/gpu/kept_files.h"
#include "stepnet/gpu/nvrtc.h"

namespace stepnet {

class CodeCache {
 public:
  static constexpr std::int64_t kMaxBytes = std::int64_t{256} << 20;

  // In a folder, as KeptFiles says; "": in memory alone.
  explicit CodeCache(std::string folder, std::int64_t max_bytes = kMaxBytes, const DeviceCompiler& compiler = {});

  // The code of `source` for an architecture: compiled at most once in this process. Safe to call from any thread; who
  // asks for what another thread is compiling waits for it. Throws as CompileDeviceCode where it is not on disk.
  std::shared_ptr<const DeviceCode> Get(std::string_view source, std::string_view architecture);

  struct Counts {
    std::int64_t compiled = 0;
    std::int64_t read = 0;  // from disk
  };
  Counts counts() const;
  const std::string& folder() const { return kept_.folder(); }

 private:
  using Future = std::shared_future<std::shared_ptr<const DeviceCode>>;
  std::shared_ptr<const DeviceCode> Make(std::string_view source, std::string_view architecture);
  bool Read(const std::string& key, DeviceCode* code) const;

  const KeptFiles kept_;
  const DeviceCompiler compiler_;
  CompilerStamp stamp_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, Future> made_;  // by architecture and source
  Counts counts_;
};

// The cache of this process, in the default folder.
CodeCache& SharedCodeCache();

}  // namespace stepnet
