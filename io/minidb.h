// minidb: Caffe2's file of keys with values, in the order in which they were written.
//
// A record is the key's length, the value's length (both int32, in the machine's byte order), the key, the value.
// Files are untrusted: lengths are checked against what is left of the file before memory is taken.
#pragma once

#include <string>

#include "stepnet/io/file.h"

namespace stepnet {

class MiniDbReader {
 public:
  explicit MiniDbReader(const std::string& path);  // throws kInputOutput

  // The next record; false at the end. Throws kInputOutput, saying at which byte, for a record that is cut off or
  // whose lengths make no sense; kOutOfMemory for a value larger than the limit of tensor memory.
  bool Next(std::string* key, std::string* value);

  std::uint32_t checksum() const { return checksum_; }  // CRC32C of the records so far

 private:
  FileReader file_;
  std::uint32_t checksum_ = 0;
};

// Replaces the file when Commit is called, not before.
class MiniDbWriter {
 public:
  explicit MiniDbWriter(const std::string& path);          // throws kInputOutput
  void Add(std::string_view key, std::string_view value);  // throws kInputOutput
  void Commit();                                           // throws kInputOutput

  std::uint32_t checksum() const { return checksum_; }  // CRC32C of the records so far

 private:
  std::string path_;
  FileWriter file_;
  std::uint32_t checksum_ = 0;
};

// True when the file starts with a record: a key of printable characters with sensible lengths. False as well for what
// cannot be read.
bool LooksLikeMiniDb(const std::string& path);

}  // namespace stepnet
