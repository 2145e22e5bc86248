#include "stepnet/tools/rnn_runner/command_files.h"

#include <gflags/gflags.h>

#include <filesystem>
#include <system_error>

#include "stepnet/core/strings.h"
#include "stepnet/tools/rnn_runner/common_flags.h"

namespace stepnet::runner {
namespace {

namespace fs = std::filesystem;

struct WrittenFile {
  std::string path;
  std::string by;  // "--trace", "OUT"
};

struct WrittenFolder {
  std::string path;
  std::string flag;
  std::function<bool(const std::string& name)> is_written;
};

struct Files {
  std::vector<std::string> read;
  std::vector<WrittenFile> written;
  std::vector<WrittenFolder> folders;
};

Files& OfTheCommand() {
  static Files files;
  return files;
}

fs::path PathOf(const fs::path& file) {
  std::error_code ignored;  // writing it tells
  return fs::weakly_canonical(fs::absolute(file, ignored), ignored);
}

// Whether both are one file, by whatever links. Terminals and pipes hold nothing that could be written over.
bool AreOne(const fs::path& a, const fs::path& b) {
  std::error_code ignored;  // reading or writing it tells
  if (fs::exists(a, ignored)) return fs::is_regular_file(a, ignored) && fs::equivalent(a, b, ignored);
  return !fs::exists(b, ignored) && PathOf(a) == PathOf(b);
}

// The file of the folder that would be written and is this one; "" where there is none.
std::string FileIn(const WrittenFolder& folder, const fs::path& file) {
  const fs::path same_name = fs::path(folder.path) / file.filename();
  if (folder.is_written(file.filename().string()) && AreOne(file, same_name)) return same_name.string();
  std::error_code ignored;  // there may be no such folder
  for (fs::directory_iterator entry(folder.path, ignored), end; !ignored && entry != end; entry.increment(ignored)) {
    if (folder.is_written(entry->path().filename().string()) && AreOne(file, entry->path())) {
      return entry->path().string();
    }
  }
  return "";
}

[[noreturn]] void ThrowOwnInput(const std::string& path, const std::string& by, const char* kind) {
  throw UsageError(StrCat("would write over its own input, ", path, "; ", by, " must be another ", kind));
}

void Compare(const std::string& read, const WrittenFile& written) {
  if (AreOne(read, written.path)) ThrowOwnInput(read, written.by, "file");
}

void Compare(const std::string& read, const WrittenFolder& folder) {
  if (!FileIn(folder, read).empty()) ThrowOwnInput(read, folder.flag, "folder");
}

void Compare(const WrittenFile& written, const WrittenFolder& folder) {
  const std::string file = FileIn(folder, written.path);
  if (file.empty()) return;
  throw UsageError(StrCat("would write ", file, " for ", folder.flag, " and for ", written.by, "; ", written.by,
                          " must be another file"));
}

void NoteWrittenFile(const std::string& path, const std::string& by) {
  Files& files = OfTheCommand();
  const WrittenFile& written = files.written.emplace_back(WrittenFile{.path = path, .by = by});
  for (const std::string& read : files.read) Compare(read, written);
  for (const WrittenFolder& folder : files.folders) Compare(written, folder);
}

void NoteFlag(const FlagUse& flag) {
  const std::string value = gflags::GetCommandLineFlagInfoOrDie(flag.name.c_str()).current_value;
  if (value.empty()) return;
  if (flag.kind == ValueKind::kOutputFile) NoteWrittenFile(value, "--" + flag.name);
  if (flag.kind != ValueKind::kInputFile) return;
  const bool has_names = flag.value.find('=') != std::string::npos;  // BLOB=FILE
  for (const std::string& item : flag.is_list ? SplitList(value) : std::vector{value}) {
    const size_t equals = has_names ? item.find('=') : std::string::npos;
    NoteRead(equals == std::string::npos ? item : item.substr(equals + 1));
  }
}

}  // namespace

void NoteFiles(const Command& command, const std::vector<std::string>& operands) {
  const size_t num_written = command.writes_last_operand ? 1 : 0;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (i + num_written >= operands.size()) {
      NoteWrittenFile(operands[i], command.operands.substr(command.operands.rfind(' ') + 1));
    } else if (command.operand_kind == ValueKind::kInputFile) {
      NoteRead(operands[i]);
    }
  }
  for (const FlagUse& flag : command.flags) NoteFlag(flag);
}

void NoteRead(const std::string& path) {
  Files& files = OfTheCommand();
  files.read.push_back(path);
  for (const WrittenFile& written : files.written) Compare(path, written);
  for (const WrittenFolder& folder : files.folders) Compare(path, folder);
}

void NoteWritten(const std::string& folder, const std::string& flag,
                 const std::function<bool(const std::string& name)>& is_written) {
  Files& files = OfTheCommand();
  const WrittenFolder& noted = files.folders.emplace_back(WrittenFolder{folder, flag, is_written});
  for (const std::string& read : files.read) Compare(read, noted);
  for (const WrittenFile& written : files.written) Compare(written, noted);
}

}  // namespace stepnet::runner
