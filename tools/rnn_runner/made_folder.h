// A folder that a command makes for what it writes.
#pragma once

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

namespace stepnet::runner {

// Makes a folder where there is none, with those that it is in. Where the object ends by an exception, those of them
// that are empty are gone again: a command that fails before it has written anything leaves nothing behind.
class MadeFolder {
 public:
  explicit MadeFolder(const std::string& path) : MadeFolder(path, std::error_code()) {}  // throws kInputOutput
  // `fault`: why the folder could not be made.
  MadeFolder(const std::string& path, std::error_code* fault);
  ~MadeFolder();
  MadeFolder(const MadeFolder&) = delete;
  MadeFolder& operator=(const MadeFolder&) = delete;

 private:
  MadeFolder(const std::string& path, std::error_code fault);

  std::vector<std::filesystem::path> made_;  // the innermost first
  const int exceptions_;                     // in flight when it began
};

}  // namespace stepnet::runner
