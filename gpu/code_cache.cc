#include "stepnet/gpu/code_cache.h"

#include <optional>
#include <utility>
#include <vector>

#include "stepnet/core/strings.h"

namespace stepnet {

CodeCache::CodeCache(std::string folder, std::int64_t max_bytes, const DeviceCompiler& compiler)
    : kept_(std::move(folder), ".cubin", max_bytes), compiler_(compiler), stamp_(kept_.folder(), compiler) {}

std::shared_ptr<const DeviceCode> CodeCache::Get(std::string_view source, std::string_view architecture) {
  return made_.Get(StrCat(architecture, "\n", source), [&] { return Make(source, architecture); });
}

bool CodeCache::Read(const std::string& key, DeviceCode* code) const {
  std::optional<std::vector<std::string>> kept = kept_.Read(key);
  if (!kept || kept->size() != 2) return false;
  *code = {.cubin = std::move((*kept)[0]), .log = std::move((*kept)[1])};
  return true;
}

std::unique_ptr<const DeviceCode> CodeCache::Make(std::string_view source, std::string_view architecture) {
  auto code = std::make_unique<DeviceCode>();
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
  ++(is_kept ? num_read_ : num_compiled_);
  return code;
}

CodeCache& SharedCodeCache() {
  static CodeCache cache(DefaultCacheFolder());
  return cache;
}

}  // namespace stepnet
