#include "stepnet/io/file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <limits>
#include <map>
#include <mutex>
#include <string_view>
#include <system_error>
#include <utility>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/core/tensor.h"

namespace stepnet {
namespace {

constexpr std::int64_t kWorkOfByte = 1;   // that is written: of a disk that takes a gigabyte a second
constexpr std::int64_t kBytesOfWork = 8;  // that are read: of a disk that gives eight
// The system reads ahead by what it is asked for: disks are faster with large blocks.
constexpr std::int64_t kBytesAtOnce = kWorkOfBlock * kBytesOfWork;
constexpr std::string_view kTemporaryEnding = ".tmp";
constexpr std::int64_t kMaxMessageBytes = std::numeric_limits<std::int32_t>::max();

std::string SystemReason(int code) { return std::generic_category().message(code); }

[[noreturn]] void ThrowSystem(const char* action, const std::string& path, int code = errno) {
  throw Error(ErrorCode::kInputOutput, StrCat("cannot ", action, " ", path, ": ", SystemReason(code)));
}

[[noreturn]] void ThrowNotRegular(const std::string& path) {
  throw Error(
      ErrorCode::kInputOutput,
      StrCat("cannot read ", path, ": not a regular file; of pipes and devices, /dev/stdin and /dev/fd/N can be read"));
}

int CloseFile(std::FILE* file) { return file != nullptr ? std::fclose(file) : 0; }

std::string FolderOf(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  return folder.empty() ? "." : folder.string();
}

// So that the new name outlives a crash of the machine. Some file systems know no such thing of folders; then the name
// is as safe as it can be.
void SyncFolderOf(const std::string& path) {
  const int descriptor = open(FolderOf(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  static_cast<void>(fsync(descriptor));
  close(descriptor);
}

// An open file can be given a name by this path.
std::string NameInProc(int descriptor) { return StrCat("/proc/self/fd/", descriptor); }

// A new file that has no name in the folder yet; -1 where that cannot be.
int OpenWithoutName(const std::string& folder) {
  const int descriptor = open(folder.c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666);
  if (descriptor < 0 || access(NameInProc(descriptor).c_str(), F_OK) == 0) return descriptor;
  close(descriptor);
  return -1;
}

// Where the links that `path` may be lead, also to a file that is not there yet: who follows them writes there.
std::string TargetOf(const std::string& path) {
  constexpr int kMaxLinks = 40;  // as the kernel has it
  std::error_code fault;
  std::filesystem::path target = path;
  for (int links = 0; std::filesystem::is_symlink(target, fault); ++links) {
    const std::filesystem::path next = std::filesystem::read_symlink(target, fault);
    if (fault) break;
    if (links == kMaxLinks) ThrowSystem("write", path, ELOOP);
    target = target.parent_path() / next;
  }
  return target.string();
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

// A file that is read, and how many bytes it has.
struct Opened {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file{nullptr, CloseFile};
  std::int64_t size = 0;
};

// The descriptor that a name stands for: standard input, or one that whoever started the program handed over, as a
// shell's <(…). -1 for every other name.
int DescriptorNamed(std::string_view path) {
  if (path == "/dev/stdin") return STDIN_FILENO;
  for (const std::string_view folder : {"/dev/fd/", "/proc/self/fd/"}) {
    if (!path.starts_with(folder)) continue;
    int descriptor = -1;
    const auto [rest, fault] = std::from_chars(path.data() + folder.size(), path.data() + path.size(), descriptor);
    return fault == std::errc() && rest == path.data() + path.size() ? descriptor : -1;
  }
  return -1;
}

bool IsStream(int descriptor) {
  struct stat status = {};
  if (descriptor < 0 || fstat(descriptor, &status) != 0) return false;
  return S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode) || S_ISCHR(status.st_mode);
}

// What a stream has given so far. It is kept: a stream can be read once, and files are read as often as it takes to
// tell what they hold.
struct Stream {
  std::string content;
  bool ended = false;
};

// A stream says nothing of its size, nor of when it will end. When this throws, another call goes on where it stopped.
void ReadToEnd(int descriptor, const std::string& path, Stream* stream) {
  constexpr int kMillisecondsBetweenChecks = 20;
  constexpr size_t kBlock = 1 << 16;
  std::string& content = stream->content;
  while (!stream->ended) {
    CheckSize(path, static_cast<std::int64_t>(content.size()));
    CheckCancelled();
    pollfd wait{.fd = descriptor, .events = POLLIN, .revents = 0};
    const int ready = poll(&wait, 1, kMillisecondsBetweenChecks);
    if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
    if (ready < 0) ThrowSystem("read", path);
    const size_t before = content.size();
    content.resize(before + kBlock);
    const ssize_t got = read(descriptor, content.data() + before, kBlock);
    content.resize(before + static_cast<size_t>(std::max<ssize_t>(0, got)));
    if (got < 0 && errno != EINTR && errno != EAGAIN) ThrowSystem("read", path);
    stream->ended = got == 0;
  }
}

const std::string& ContentOfStream(int descriptor, const std::string& path) {
  static std::mutex mutex;
  static std::map<int, Stream> streams;
  const std::lock_guard lock(mutex);
  Stream& stream = streams[descriptor];
  ReadToEnd(descriptor, path, &stream);
  return stream.content;
}

// A regular file, or a stream that was handed over. Another pipe or device may never answer, also to who opens it.
Opened OpenForReading(const std::string& path) {
  Opened opened;
  if (const int stream = DescriptorNamed(path); IsStream(stream)) {
    const std::string& content = ContentOfStream(stream, path);
    opened.file.reset(fmemopen(const_cast<char*>(content.data()), content.size(), "rb"));
    if (opened.file == nullptr) ThrowSystem("read", path);
    opened.size = static_cast<std::int64_t>(content.size());
    return opened;
  }
  const int descriptor = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (descriptor < 0) {
    if (errno == ENXIO) ThrowNotRegular(path);  // a socket, or a device that is not there
    ThrowSystem("read", path);
  }
  opened.file.reset(fdopen(descriptor, "rb"));
  if (opened.file == nullptr) {
    const int code = errno;
    close(descriptor);
    ThrowSystem("read", path, code);
  }
  struct stat status = {};
  if (fstat(descriptor, &status) != 0) ThrowSystem("read", path);
  if (S_ISDIR(status.st_mode)) ThrowSystem("read", path, EISDIR);
  if (!S_ISREG(status.st_mode)) ThrowNotRegular(path);
  opened.size = status.st_size;
  return opened;
}

}  // namespace

std::string ReadFile(const std::string& path) {
  const Opened opened = OpenForReading(path);
  CheckSize(path, opened.size);
  std::string content;
  constexpr size_t kBlock = 1 << 20;
  content.reserve(static_cast<size_t>(opened.size) + 1);
  // Some files, as those of /proc, have more than their size says.
  for (;;) {
    CheckCancelled();
    const size_t before = content.size();
    const size_t room = std::max<size_t>(1, std::min(kBlock, content.capacity() - before));
    content.resize(before + room);
    const size_t got = std::fread(content.data() + before, 1, room, opened.file.get());
    content.resize(before + got);
    CheckSize(path, static_cast<std::int64_t>(content.size()));
    if (got < room) break;
  }
  if (std::ferror(opened.file.get()) != 0) ThrowSystem("read", path);
  return content;
}

void WriteFile(const std::string& path, std::string_view content) {
  FileWriter writer(path);
  writer.Write(content);
  writer.Commit();
}

FileReader::FileReader(const std::string& path) : path_(path), file_(nullptr, CloseFile) {
  Opened opened = OpenForReading(path);
  file_ = std::move(opened.file);
  size_ = opened.size;
}

void FileReader::Read(void* data, std::int64_t bytes, std::string_view what) {
  if (bytes > left()) {
    throw Error(ErrorCode::kInputOutput, StrCat(path_, " ends early: ", what, " at byte ", position_, " needs ", bytes,
                                                " bytes, ", left(), " are left"));
  }
  for (std::int64_t begin = 0; begin < bytes;) {
    const std::int64_t block = std::min(bytes - begin, kBytesAtOnce);
    CountWork(block / kBytesOfWork);
    const size_t got = std::fread(static_cast<char*>(data) + begin, 1, static_cast<size_t>(block), file_.get());
    begin += static_cast<std::int64_t>(got);
    position_ += static_cast<std::int64_t>(got);
    if (std::cmp_equal(got, block)) continue;
    if (std::ferror(file_.get()) != 0) ThrowSystem("read", path_);
    throw Error(ErrorCode::kInputOutput, StrCat(path_, " became shorter while it was read"));
  }
}

void FileReader::SeekTo(std::int64_t position) {
  if (position == position_) return;
  if (fseeko(file_.get(), position, SEEK_SET) != 0) ThrowSystem("read", path_);
  position_ = position;
}

void ExpectNoPipe(const std::string& path) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0 || !S_ISFIFO(status.st_mode)) return;
  throw Error(ErrorCode::kInputOutput, StrCat("cannot write ", path, ": it is a pipe"));
}

std::string_view FileOfTemporary(std::string_view name) {
  if (!name.ends_with(kTemporaryEnding)) return "";
  name.remove_suffix(kTemporaryEnding.size());
  for (int part = 0; part < 2; ++part) {  // the number, then the process
    const size_t dot = name.find_last_not_of("0123456789");
    if (dot == std::string_view::npos || dot + 1 == name.size() || name[dot] != '.') return "";
    name = name.substr(0, dot);
  }
  return name;
}

FileWriter::FileWriter(const std::string& path) : path_(path), file_(nullptr, CloseFile) {
  struct stat status = {};
  const bool exists = stat(path.c_str(), &status) == 0;
  if (exists && S_ISDIR(status.st_mode)) ThrowSystem("write", path, EISDIR);
  if (exists && !S_ISREG(status.st_mode)) {  // to rename over /dev/stdout would take it away from everybody
    // A pipe that nobody reads is an error, not something to wait for.
    const int descriptor = open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (descriptor < 0) ThrowSystem("write", path);
    fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) & ~O_NONBLOCK);
    file_.reset(fdopen(descriptor, "wb"));
    return;
  }
  target_ = TargetOf(path);
  static std::atomic<int> counter{0};
  temporary_ = StrCat(target_, ".", getpid(), ".", counter++, kTemporaryEnding);
  int descriptor = OpenWithoutName(FolderOf(target_));
  if (descriptor < 0) {
    descriptor = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    has_name_ = true;
  }
  if (descriptor < 0) {
    temporary_.clear();
    ThrowSystem("write", path);
  }
  if (exists) static_cast<void>(fchmod(descriptor, status.st_mode & 07777));
  file_.reset(fdopen(descriptor, "wb"));
  if (file_ == nullptr) {
    const int code = errno;
    close(descriptor);
    if (has_name_) unlink(temporary_.c_str());
    ThrowSystem("write", path, code);
  }
}

FileWriter::~FileWriter() {
  file_.reset();
  if (has_name_ && !temporary_.empty()) unlink(temporary_.c_str());
}

void FileWriter::Write(const void* data, std::int64_t bytes) {
  InBlocks(bytes, kWorkOfByte, [&](std::int64_t begin, std::int64_t end) {
    const auto block = static_cast<size_t>(end - begin);
    if (std::fwrite(static_cast<const char*>(data) + begin, 1, block, file_.get()) != block) {
      ThrowSystem("write", path_);
    }
  });
}

void FileWriter::Commit() {
  if (std::fflush(file_.get()) != 0) ThrowSystem("write", path_);
  if (!temporary_.empty() && fsync(fileno(file_.get())) != 0) ThrowSystem("write", path_);
  if (!temporary_.empty() && !has_name_) {
    const std::string file = NameInProc(fileno(file_.get()));
    if (linkat(AT_FDCWD, file.c_str(), AT_FDCWD, temporary_.c_str(), AT_SYMLINK_FOLLOW) != 0) {
      ThrowSystem("write", path_);
    }
    has_name_ = true;
  }
  if (std::fclose(file_.release()) != 0) ThrowSystem("write", path_);
  if (temporary_.empty()) return;
  if (std::rename(temporary_.c_str(), target_.c_str()) != 0) ThrowSystem("write", path_);
  temporary_.clear();
  SyncFolderOf(target_);
}

}  // namespace stepnet
