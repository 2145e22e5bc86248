// KeptFiles: what was costly to make, kept in a folder for the next process.
//
// An entry is a file whose name is a hash of its key; it holds the key itself, so that no two keys are taken for one,
// and a checksum. Files are written under another name and renamed: any number of processes may share a folder, and one
// that is killed leaves nothing that is used. What is damaged is not found, and what cannot be written is not kept.
// Files that have other names are left alone: the folder may be one of the user's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stepnet {

// Safe to use from any thread.
class KeptFiles {
 public:
  // In `folder`, which is made when there is something to keep; "": nothing is kept. Names of files are 16 hexadecimal
  // digits and `extension`, as ".cubin"; when the files hold more than `max_bytes`, what was used longest ago goes.
  KeptFiles(std::string folder, std::string extension, std::int64_t max_bytes);

  // What was kept under the key.
  std::optional<std::vector<std::string>> Read(std::string_view key) const;
  void Keep(std::string_view key, const std::vector<std::string>& parts) const;
  const std::string& folder() const { return folder_; }

 private:
  std::string PathOf(std::string_view key) const;
  bool IsEntry(std::string_view name) const;
  void RemoveOldest() const;

  const std::string folder_;
  const std::string extension_;
  const std::int64_t max_bytes_;
};

// $STEPNET_CACHE_DIR (set and empty: none), else stepnet in $XDG_CACHE_HOME, else ~/.cache/stepnet; "": none.
std::string DefaultCacheFolder();

}  // namespace stepnet
