// CodeCache: machine code of kernels, compiled once and kept on disk for the next process (gpu/kept_files.h). The key
// is source, architecture, compiler and its options; the compiler is opened when something is to be compiled
// (gpu/compiler_stamp.h).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "stepnet/gpu/compiler_stamp.h"
#include "stepnet/gpu/kept_files.h"
#include "stepnet/gpu/nvrtc.h"
#include "stepnet/gpu/shared_values.h"

namespace stepnet {

// So much code that nobody uses any more is kept, here in memory and loaded on each GPU (gpu/cuda/loaded_code.h): that
// of so many regions and operators.
inline constexpr size_t kMaxUnusedCode = 256;

class CodeCache {
 public:
  static constexpr std::int64_t kMaxBytes = std::int64_t{256} << 20;

  // In a folder, as KeptFiles says; "": in memory alone.
  explicit CodeCache(std::string folder, std::int64_t max_bytes = kMaxBytes, const DeviceCompiler& compiler = {});

  // The code of `source` for an architecture. It is compiled where it is neither in memory nor on disk, and then throws
  // as CompileDeviceCode. Safe to call from any thread; who asks for what another thread is compiling waits for it.
  std::shared_ptr<const DeviceCode> Get(std::string_view source, std::string_view architecture);

  struct Counts {
    std::int64_t compiled = 0;
    std::int64_t read = 0;  // from disk
  };
  Counts counts() const { return {.compiled = num_compiled_, .read = num_read_}; }
  const std::string& folder() const { return kept_.folder(); }

 private:
  std::unique_ptr<const DeviceCode> Make(std::string_view source, std::string_view architecture);
  bool Read(const std::string& key, DeviceCode* code) const;

  const KeptFiles kept_;
  const DeviceCompiler compiler_;
  CompilerStamp stamp_;
  SharedValues<DeviceCode> made_{kMaxUnusedCode};  // by architecture and source
  std::atomic<std::int64_t> num_compiled_ = 0, num_read_ = 0;
};

// The cache of this process, in the default folder.
CodeCache& SharedCodeCache();

}  // namespace stepnet
