#include "stepnet/gpu/code_cache.h"

#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "stepnet/core/strings.h"

namespace stepnet {

CodeCache::CodeCache(std::string folder, std::int64_t max_bytes, const DeviceCompiler& compiler)
    : kept_(std::move(folder), ".cubin", max_bytes), compiler_(compiler), stamp_(kept_.folder(), compiler) {}

std::shared_ptr<const DeviceCode> CodeCache::Get(std::string_view source, std::string_view architecture) {
  const std::string key = StrCat(architecture, "\n", source);
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
    std::shared_ptr<const DeviceCode> code = Make(source, architecture);
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

bool CodeCache::Read(const std::string& key, DeviceCode* code) const {
  std::optional<std::vector<std::string>> kept = kept_.Read(key);
  if (!kept || kept->size() != 2) return false;
  *code = {.cubin = std::move((*kept)[0]), .log = std::move((*kept)[1])};
  return true;
}

std::shared_ptr<const DeviceCode> CodeCache::Make(std::string_view source, std::string_view architecture) {
  auto code = std::make_shared<DeviceCode>();
  const auto key_of = [&](const std::string& compiler) { return StrCat(compiler, "\n", architecture, "\n", source); };
  const std::string key = key_of(stamp_.Text());
  bool is_kept = Read(key, code.get());
  if (!is_kept) {
    // The compiler that is opened now may be another one than the stamp told of.
    const std::string opened_key = key_of(stamp_.OpenedText());
    is_kept = opened_key != key && Read(opened_key, code.get());
    if (!is_kept) {
      *code = compiler_.compile(source, architecture);
      kept_.Keep(opened_key, {code->cubin, code->log});
    }
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
