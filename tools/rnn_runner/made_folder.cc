#include "stepnet/tools/rnn_runner/made_folder.h"

#include <unistd.h>

#include <exception>

#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"

namespace stepnet::runner {

MadeFolder::MadeFolder(const std::string& path, std::error_code* fault) : exceptions_(std::uncaught_exceptions()) {
  std::error_code ignored;  // what cannot be looked at cannot be made either
  for (std::filesystem::path part = path; !part.empty() && !std::filesystem::exists(part, ignored);) {
    made_.push_back(part);
    part = part.parent_path();
  }
  std::filesystem::create_directories(path, *fault);
}

MadeFolder::MadeFolder(const std::string& path, std::error_code fault) : MadeFolder(path, &fault) {
  if (!fault && std::filesystem::is_directory(path, fault)) return;
  throw Error(ErrorCode::kInputOutput,
              StrCat("cannot make the folder ", path, ": ", fault ? fault.message() : "it is a file"));
}

MadeFolder::~MadeFolder() {
  if (std::uncaught_exceptions() == exceptions_) return;
  for (const std::filesystem::path& folder : made_) rmdir(folder.c_str());  // fails where it holds something
}

}  // namespace stepnet::runner
