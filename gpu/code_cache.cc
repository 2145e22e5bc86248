#include "stepnet/gpu/code_cache.h"

#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "stepnet/core/strings.h"

namespace stepnet {

CodeCache::CodeCache(std::string folder, std::int64_t max_bytes) : kept_(std::move(folder), ".cubin", max_bytes) {}

std::shared_ptr<const DeviceCode> CodeCache::Get(std::string_view source, std::string_view architecture) {
  std::string key = StrCat(DeviceCompilerText(), "\n", architecture, "\n", source);
  std::promise<std::shared_ptr<const DeviceCode>> promise;
  {
    std::unique_lock lock(mutex_);
    if (const auto found = made_.find(key); found != made_.end()) {
      const Future future = found->second;
      lock.unlock();
      return future.get();
    }
    made_.emplace(key, promise.get_future().share());
  }
  try {
    std::shared_ptr<const DeviceCode> code = Make(key, source, architecture);
    promise.set_value(code);
    return code;
  } catch (...) {
    promise.set_exception(std::current_exception());
    const std::lock_guard lock(mutex_);
    made_.erase(key);
    throw;
  }
}

CodeCache::Counts CodeCache::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

std::shared_ptr<const DeviceCode> CodeCache::Make(const std::string& key, std::string_view source,
                                                  std::string_view architecture) {
  auto code = std::make_shared<DeviceCode>();
  std::optional<std::vector<std::string>> kept = kept_.Read(key);
  const bool is_kept = kept && kept->size() == 2;
  if (is_kept) {
    *code = {.cubin = std::move((*kept)[0]), .log = std::move((*kept)[1])};
  } else {
    *code = CompileDeviceCode(source, architecture);
    kept_.Keep(key, {code->cubin, code->log});
  }
  const std::lock_guard lock(mutex_);
  ++(is_kept ? counts_.read : counts_.compiled);
  return code;
}

CodeCache& SharedCodeCache() {
  static CodeCache cache(DefaultCacheFolder());
  return cache;
}

}  // namespace stepnet
