// Files: whole reads, and writes that leave the old or the new content, never a part.
//
// Regular files are read, and what /dev/stdin and /dev/fd/N stand for, pipes and devices too: those are read once, to
// their end, and have the same content whenever they are read again. Other pipes and devices are kInputOutput. Reading
// and writing are stopped as runs are (cancellation.h).
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "stepnet/io/byte_source.h"

namespace stepnet {

// Everything in `path`. Throws kInputOutput when it cannot be read or holds 2 GiB or more (what one message may hold),
// kOutOfMemory when it is larger than the limit of tensor memory.
std::string ReadFile(const std::string& path);

// Replaces `path`, as FileWriter does. Throws kInputOutput.
void WriteFile(const std::string& path, std::string_view content);

// A file that is read from front to back, or from where SeekTo says. It is read and not mapped: one that becomes
// shorter meanwhile is kInputOutput.
class FileReader : public ByteSource {
 public:
  explicit FileReader(const std::string& path);  // throws kInputOutput
  const std::string& path() const override { return path_; }
  std::int64_t size() const { return size_; }
  std::int64_t left() const override { return size_ - position_; }

  void Read(void* data, std::int64_t bytes, std::string_view what) override;
  // Goes on at byte `position`. REQUIRES 0 <= position <= size(). Throws kInputOutput.
  void SeekTo(std::int64_t position);

 private:
  std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  std::int64_t size_ = 0;
  std::int64_t position_ = 0;
};

// Throws kInputOutput when `path` is a pipe: to open it for writing may take for ever.
void ExpectNoPipe(const std::string& path);

// The file for which a FileWriter gives what it writes this temporary name: "name" of "name.PID.NUMBER.tmp"; "" for
// other names. Names are those in a folder.
std::string_view FileOfTemporary(std::string_view name);

// Writes to a file that has no name until Commit flushes it to the disk, where the file system can do that (O_TMPFILE),
// so that a process which is killed leaves nothing; elsewhere under a temporary name beside `path`. Commit renames. A
// device or pipe is written directly. A symbolic link stays one, and where it leads is written, whether a file is there
// already or not.
class FileWriter {
 public:
  explicit FileWriter(const std::string& path);  // throws kInputOutput
  ~FileWriter();                                 // without Commit: `path` is as it was
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void Write(const void* data, std::int64_t bytes);  // throws kInputOutput
  void Write(std::string_view bytes) { Write(bytes.data(), static_cast<std::int64_t>(bytes.size())); }
  void Commit();  // throws kInputOutput

 private:
  std::string path_;       // as given, for messages
  std::string target_;     // where links lead
  std::string temporary_;  // "" when written directly or committed
  bool has_name_ = false;  // the temporary one
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

}  // namespace stepnet
