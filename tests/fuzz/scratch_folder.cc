#include "scratch_folder.h"

#include <unistd.h>

#include <filesystem>

#include "stepnet/core/strings.h"

namespace stepnet {

const std::string& ScratchFolder() {
  struct Folder {
    const std::string path = StrCat(std::filesystem::temp_directory_path().string(), "/stepnet_fuzz.", getpid());
    Folder() { std::filesystem::create_directories(path); }
    ~Folder() {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
  };
  static const Folder folder;
  return folder.path;
}

}  // namespace stepnet
