#include "stepnet/gpu/kept_files.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>

#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/io/crc32c.h"
#include "stepnet/io/file.h"

namespace stepnet {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic = "StepNet device code 1\n";
constexpr size_t kNumDigits = 16;  // of a hash in a name
// A temporary file of that age is what a process left that was killed while it wrote.
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

// magic, checksum of what follows, key, parts
std::string EntryOf(std::string_view key, const std::vector<std::string>& kept) {
  std::string parts;
  Append(key, &parts);
  for (const std::string& part : kept) Append(part, &parts);
  const std::uint32_t checksum = Crc32c(parts);
  std::string entry(kMagic);
  entry.append(reinterpret_cast<const char*>(&checksum), sizeof(checksum));
  return entry + parts;
}

std::optional<std::vector<std::string>> ParseEntry(std::string_view entry, std::string_view key) {
  std::uint32_t checksum = 0;
  if (!entry.starts_with(kMagic) || entry.size() < kMagic.size() + sizeof(checksum)) return std::nullopt;
  entry.remove_prefix(kMagic.size());
  std::memcpy(&checksum, entry.data(), sizeof(checksum));
  entry.remove_prefix(sizeof(checksum));
  std::string kept_key;
  if (Crc32c(entry) != checksum || !TakePart(&entry, &kept_key) || kept_key != key) return std::nullopt;
  std::vector<std::string> parts;
  while (!entry.empty()) {
    if (!TakePart(&entry, &parts.emplace_back())) return std::nullopt;
  }
  return parts;
}

}  // namespace

KeptFiles::KeptFiles(std::string folder, std::string extension, std::int64_t max_bytes)
    : folder_(std::move(folder)), extension_(std::move(extension)), max_bytes_(max_bytes) {}

std::string KeptFiles::PathOf(std::string_view key) const {
  char digits[kNumDigits];
  const char* const end = std::to_chars(std::begin(digits), std::end(digits), HashOf(key), 16).ptr;
  const std::string_view hash(digits, end - digits);
  return StrCat(folder_, "/", std::string(kNumDigits - hash.size(), '0'), hash, extension_);
}

bool KeptFiles::IsEntry(std::string_view name) const {
  const bool has_extension = name.ends_with(extension_);
  return has_extension && name.find_first_not_of("0123456789abcdef") == kNumDigits &&
         name.size() == kNumDigits + extension_.size();
}

std::optional<std::vector<std::string>> KeptFiles::Read(std::string_view key) const {
  if (folder_.empty()) return std::nullopt;
  const std::string path = PathOf(key);
  std::error_code fault;
  if (!fs::is_regular_file(path, fault)) return std::nullopt;
  std::optional<std::vector<std::string>> parts;
  try {
    parts = ParseEntry(ReadFile(path), key);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kCancelled) throw;
  }
  if (parts) fs::last_write_time(path, fs::file_time_type::clock::now(), fault);  // used now
  return parts;
}

void KeptFiles::Keep(std::string_view key, const std::vector<std::string>& parts) const {
  if (folder_.empty()) return;
  std::error_code fault;
  if (fs::create_directories(folder_, fault)) fs::permissions(folder_, fs::perms::owner_all, fault);
  try {
    WriteFile(PathOf(key), EntryOf(key, parts));
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kCancelled) throw;
    return;
  }
  RemoveOldest();
}

void KeptFiles::RemoveOldest() const {
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
    if (gone) continue;
    if (IsEntry(name)) {
      entries.push_back({.path = file->path(), .used = used, .bytes = size});
      bytes += size;
    } else if (IsEntry(FileOfTemporary(name)) && now - used > kAbandoned) {
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

}  // namespace stepnet
