#include "stepnet/core/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <limits>
#include <system_error>

#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/core/tensor.h"

namespace stepnet {
namespace {

constexpr std::int64_t kMaxMessageBytes = std::numeric_limits<std::int32_t>::max();

std::string SystemReason(int code) { return std::generic_category().message(code); }

[[noreturn]] void ThrowSystem(const char* action, const std::string& path, int code = errno) {
  throw Error(ErrorCode::kInputOutput, StrCat("cannot ", action, " ", path, ": ", SystemReason(code)));
}

int CloseFile(std::FILE* file) { return file != nullptr ? std::fclose(file) : 0; }

std::unique_ptr<std::FILE, int (*)(std::FILE*)> OpenForReading(const std::string& path, struct stat* status) {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"), CloseFile);
  if (file == nullptr) ThrowSystem("read", path);
  if (fstat(fileno(file.get()), status) != 0) ThrowSystem("read", path);
  if (S_ISDIR(status->st_mode)) ThrowSystem("read", path, EISDIR);
  return file;
}

// So that the new name outlives a crash of the machine. Some file systems know no such thing of folders; then the name
// is as safe as it can be.
void SyncFolderOf(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  const int descriptor = open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  static_cast<void>(fsync(descriptor));
  close(descriptor);
}

void CheckSize(const std::string& path, std::int64_t size) {
  if (size >= kMaxMessageBytes) {
    throw Error(ErrorCode::kInputOutput, StrCat(path, " has ", size, " bytes; one message holds less than 2 GiB"));
  }
  const std::int64_t limit = TensorMemory().limit;
  if (size > limit) {
    throw Error(ErrorCode::kOutOfMemory, StrCat(path, " has ", size, " bytes; ", limit, " are allowed"));
  }
}

}  // namespace

std::string ReadFile(const std::string& path) {
  struct stat status = {};
  const auto file = OpenForReading(path, &status);
  std::string content;
  constexpr size_t kBlock = 1 << 16;
  if (S_ISREG(status.st_mode)) {
    CheckSize(path, status.st_size);
    content.reserve(static_cast<size_t>(status.st_size) + kBlock);
  }
  // Pipes and devices say nothing of their size, so the end decides.
  for (;;) {
    const size_t before = content.size();
    content.resize(before + kBlock);
    const size_t got = std::fread(content.data() + before, 1, kBlock, file.get());
    content.resize(before + got);
    CheckSize(path, static_cast<std::int64_t>(content.size()));
    if (got < kBlock) break;
  }
  if (std::ferror(file.get()) != 0) ThrowSystem("read", path);
  return content;
}

void WriteFile(const std::string& path, std::string_view content) {
  FileWriter writer(path);
  writer.Write(content);
  writer.Commit();
}

FileReader::FileReader(const std::string& path) : path_(path), file_(nullptr, CloseFile) {
  struct stat status = {};
  file_ = OpenForReading(path, &status);
  if (!S_ISREG(status.st_mode)) {
    throw Error(ErrorCode::kInputOutput, StrCat("cannot read ", path, ": not a regular file"));
  }
  size_ = status.st_size;
}

void FileReader::Read(void* data, std::int64_t bytes, std::string_view what) {
  if (bytes > left()) {
    throw Error(ErrorCode::kInputOutput, StrCat(path_, " ends early: ", what, " at byte ", position_, " needs ", bytes,
                                                " bytes, ", left(), " are left"));
  }
  if (bytes == 0) return;
  const size_t got = std::fread(data, 1, static_cast<size_t>(bytes), file_.get());
  position_ += static_cast<std::int64_t>(got);
  if (static_cast<std::int64_t>(got) == bytes) return;
  if (std::ferror(file_.get()) != 0) ThrowSystem("read", path_);
  throw Error(ErrorCode::kInputOutput, StrCat(path_, " became shorter while it was read"));
}

FileWriter::FileWriter(const std::string& path) : path_(path), target_(path), file_(nullptr, CloseFile) {
  struct stat status = {};
  const bool exists = stat(path.c_str(), &status) == 0;
  if (exists && S_ISDIR(status.st_mode)) ThrowSystem("write", path, EISDIR);
  if (exists && !S_ISREG(status.st_mode)) {  // to rename over /dev/stdout would take it away from everybody
    file_.reset(std::fopen(path.c_str(), "wbe"));
    if (file_ == nullptr) ThrowSystem("write", path);
    return;
  }
  if (exists) {
    std::error_code ignored;
    const std::filesystem::path real = std::filesystem::canonical(path, ignored);
    if (!real.empty()) target_ = real.string();
  }
  static std::atomic<int> counter{0};
  temporary_ = StrCat(target_, ".", getpid(), ".", counter++, ".tmp");
  const int descriptor = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor < 0) {
    temporary_.clear();
    ThrowSystem("write", path);
  }
  if (exists) static_cast<void>(fchmod(descriptor, status.st_mode & 07777));
  file_.reset(fdopen(descriptor, "wb"));
  if (file_ == nullptr) {
    const int code = errno;
    close(descriptor);
    unlink(temporary_.c_str());
    ThrowSystem("write", path, code);
  }
}

FileWriter::~FileWriter() {
  file_.reset();
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void FileWriter::Write(const void* data, std::int64_t bytes) {
  if (bytes == 0) return;
  if (std::fwrite(data, 1, static_cast<size_t>(bytes), file_.get()) != static_cast<size_t>(bytes)) {
    ThrowSystem("write", path_);
  }
}

void FileWriter::Commit() {
  if (std::fflush(file_.get()) != 0) ThrowSystem("write", path_);
  if (!temporary_.empty() && fsync(fileno(file_.get())) != 0) ThrowSystem("write", path_);
  if (std::fclose(file_.release()) != 0) ThrowSystem("write", path_);
  if (temporary_.empty()) return;
  if (std::rename(temporary_.c_str(), target_.c_str()) != 0) ThrowSystem("write", path_);
  temporary_.clear();
  SyncFolderOf(target_);
}

}  // namespace stepnet
