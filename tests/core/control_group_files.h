// ControlGroupFiles: a folder that looks as where a system shows its control groups.
#pragma once

#include <filesystem>
#include <string>

#include "stepnet/io/file.h"
#include "temp_dir.h"

namespace stepnet {

class ControlGroupFiles {
 public:
  void Put(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = dir_.Path(path);
    std::filesystem::create_directories(file.parent_path());
    WriteFile(file.string(), text);
  }
  std::string mount() const { return dir_.path(); }

 private:
  TempDir dir_;
};

}  // namespace stepnet
