#include "stepnet/core/allowed_files.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "stepnet/core/printable.h"

namespace stepnet {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void Refuse(const OperatorCall& op, const std::string& path, const std::string& reason) {
  throw Error(ErrorCode::kInputOutput, StrCat(op.type(), " may not open \"", PrintableLine(path), "\": ", reason));
}

fs::path AllowedFolder(const OperatorCall& op, const std::string& path) {
  const std::string& allowed = op.options().allow_files;
  if (allowed.empty()) {
    Refuse(op, path, "operators open files under `rnn_runner run --allow_files=DIR` alone, inside DIR");
  }
  std::error_code fault;
  fs::path folder = fs::canonical(allowed, fault);
  if (!fault && !fs::is_directory(folder, fault) && !fault) fault = std::make_error_code(std::errc::not_a_directory);
  if (fault) Refuse(op, path, StrCat("the folder of --allow_files, ", allowed, ": ", fault.message()));
  return folder;
}

std::string AllowedFile(const OperatorCall& op, const std::string& path) {
  const fs::path folder = AllowedFolder(op, path);
  if (path.find('\0') != std::string::npos) Refuse(op, path, "a path holds no NUL");
  std::error_code fault;
  // What does not exist yet stays in the path as it is written, less its "..".
  const fs::path file = fs::weakly_canonical(fs::absolute(path), fault);
  if (fault) Refuse(op, path, fault.message());
  if (!IsInside(file, folder)) {
    Refuse(op, path, StrCat("it lies outside of ", folder.string(), ", the folder of --allow_files"));
  }
  // A link to what does not exist counts as nothing above, and writing to it would make its target.
  for (fs::path part = file; part != folder; part = part.parent_path()) {
    if (fs::is_symlink(part, fault)) Refuse(op, path, StrCat(part.string(), " is a link that leads nowhere"));
  }
  return file.string();
}

}  // namespace

bool IsInside(const fs::path& file, const fs::path& folder) {
  const auto [end_of_folder, rest] = std::mismatch(folder.begin(), folder.end(), file.begin(), file.end());
  return end_of_folder == folder.end() && rest != file.end();
}

std::vector<std::string> AllowedFiles(const OperatorCall& op) {
  std::vector<std::string> files;
  for (const std::string& path : op.schema().files(op)) files.push_back(AllowedFile(op, path));
  return files;
}

}  // namespace stepnet
