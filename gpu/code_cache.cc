#include "stepnet/gpu/code_cache.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/io/crc32c.h"
#include "stepnet/io/file.h"

namespace stepnet {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic = "StepNet device code 1\n";
constexpr std::string_view kExtension = ".cubin";
// A file of that age that has another name is what a process left that was killed while it wrote.
constexpr auto kAbandoned = std::chrono::hours(1);

// FNV-1a; entries hold their keys, so two keys of one hash cost time and nothing else.
std::uint64_t HashOf(std::string_view bytes) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3u;
  return hash;
}

void Append(std::string_view part, std::string* entry) {
  const std::uint64_t size = part.size();
  entry->append(reinterpret_cast<const char*>(&size), sizeof(size));
  entry->append(part);
}

bool TakePart(std::string_view* entry, std::string* part) {
  std::uint64_t size = 0;
  if (entry->size() < sizeof(size)) return false;
  std::memcpy(&size, entry->data(), sizeof(size));
  entry->remove_prefix(sizeof(size));
  if (entry->size() < size) return false;
  part->assign(entry->substr(0, size));
  entry->remove_prefix(size);
  return true;
}

// magic, checksum of what follows, key, cubin, log
std::string EntryOf(std::string_view key, const DeviceCode& code) {
  std::string parts;
  for (const std::string_view part : {key, std::string_view(code.cubin), std::string_view(code.log)}) {
    Append(part, &parts);
  }
  const std::uint32_t checksum = Crc32c(parts);
  std::string entry(kMagic);
  entry.append(reinterpret_cast<const char*>(&checksum), sizeof(checksum));
  return entry + parts;
}

bool ParseEntry(std::string_view entry, std::string_view key, DeviceCode* code) {
  std::uint32_t checksum = 0;
  if (!entry.starts_with(kMagic) || entry.size() < kMagic.size() + sizeof(checksum)) return false;
  entry.remove_prefix(kMagic.size());
  std::memcpy(&checksum, entry.data(), sizeof(checksum));
  entry.remove_prefix(sizeof(checksum));
  std::string kept_key;
  return Crc32c(entry) == checksum && TakePart(&entry, &kept_key) && kept_key == key &&
         TakePart(&entry, &code->cubin) && TakePart(&entry, &code->log) && entry.empty();
}

}  // namespace

CodeCache::CodeCache(std::string folder, std::int64_t max_bytes) : folder_(std::move(folder)), max_bytes_(max_bytes) {}

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
  const bool is_kept = Read(key, code.get());
  if (!is_kept) {
    *code = CompileDeviceCode(source, architecture);
    Keep(key, *code);
  }
  const std::lock_guard lock(mutex_);
  ++(is_kept ? counts_.read : counts_.compiled);
  return code;
}

std::string CodeCache::PathOf(std::string_view key) const {
  char digits[16];
  const auto end = std::to_chars(std::begin(digits), std::end(digits), HashOf(key), 16).ptr;
  return StrCat(folder_, "/", std::string_view(digits, end - digits), kExtension);
}

bool CodeCache::Read(const std::string& key, DeviceCode* code) const {
  if (folder_.empty()) return false;
  const std::string path = PathOf(key);
  std::error_code fault;
  if (!fs::is_regular_file(path, fault)) return false;
  try {
    if (!ParseEntry(ReadFile(path), key, code)) return false;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kCancelled) throw;
    return false;
  }
  fs::last_write_time(path, fs::file_time_type::clock::now(), fault);  // used now
  return true;
}

void CodeCache::Keep(const std::string& key, const DeviceCode& code) const {
  if (folder_.empty()) return;
  std::error_code fault;
  if (fs::create_directories(folder_, fault)) fs::permissions(folder_, fs::perms::owner_all, fault);
  try {
    WriteFile(PathOf(key), EntryOf(key, code));
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kCancelled) throw;
    return;
  }
  RemoveOldest();
}

void CodeCache::RemoveOldest() const {
  struct Entry {
    fs::path path;
    fs::file_time_type used;
    std::int64_t bytes;
  };
  std::vector<Entry> entries;
  std::int64_t bytes = 0;
  std::error_code fault;
  const auto now = fs::file_time_type::clock::now();
  for (fs::directory_iterator file(folder_, fault), end; !fault && file != end; file.increment(fault)) {
    std::error_code gone;  // another process removes files too
    const fs::file_time_type used = file->last_write_time(gone);
    const auto size = static_cast<std::int64_t>(file->file_size(gone));
    const std::string name = file->path().filename().string();
    if (gone || name.find(kExtension) == std::string::npos) continue;
    if (name.ends_with(kExtension)) {
      entries.push_back({.path = file->path(), .used = used, .bytes = size});
      bytes += size;
    } else if (now - used > kAbandoned) {
      fs::remove(file->path(), gone);
    }
  }
  std::ranges::sort(entries, {}, &Entry::used);
  for (const Entry& entry : entries) {
    if (bytes <= max_bytes_) break;
    fs::remove(entry.path, fault);
    bytes -= entry.bytes;
  }
}

std::string DefaultCacheFolder() {
  const auto variable = [](const char* name) -> std::string {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
  };
  if (std::getenv("STEPNET_CACHE_DIR") != nullptr) return variable("STEPNET_CACHE_DIR");
  if (const std::string folder = variable("XDG_CACHE_HOME"); folder.starts_with("/")) return folder + "/stepnet";
  const std::string home = variable("HOME");
  return home.empty() ? "" : home + "/.cache/stepnet";
}

CodeCache& SharedCodeCache() {
  static CodeCache cache(DefaultCacheFolder());
  return cache;
}

}  // namespace stepnet
