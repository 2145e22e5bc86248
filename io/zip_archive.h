// Zip archives whose entries are stored or deflated, with the sizes of zip64.
//
// Source: PKWARE, "APPNOTE.TXT - .ZIP File Format Specification", version 6.3.10, sections 4.3 to 4.5; RFC 1951
// (deflate).
//
// Files are untrusted: the directory is checked against the file before memory is taken, entries may not overlap, what
// an entry inflates to is never more than the directory says, and its checksum is compared.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stepnet/io/byte_source.h"
#include "stepnet/io/file.h"

namespace stepnet {

// Whether a file that begins so is one.
inline constexpr std::int64_t kZipStartBytes = 4;
bool StartsZip(std::string_view start);

struct ZipEntry {
  std::string name;
  int method = 0;              // how it is packed: 0 stored, 8 deflated; others cannot be opened
  bool is_encrypted = false;   // cannot be opened either
  std::uint32_t checksum = 0;  // CRC-32 of its content
  std::int64_t packed_bytes = 0;
  std::int64_t bytes = 0;
  std::int64_t header_at = 0;  // where its local header begins in the file
  std::int64_t end_limit = 0;  // where its data ends at the latest
};

class ZipReader {
 public:
  // Reads the directory. Throws kInputOutput, and kOutOfMemory where it may take more than tensors may.
  explicit ZipReader(const std::string& path);

  const std::vector<ZipEntry>& entries() const { return entries_; }  // in the order of the directory

  // The content of an entry, whose path() is "ARCHIVE/ENTRY". One at a time is read. Reading to its end also compares
  // length and checksum. Throws kInputOutput. The reader must outlive it.
  std::unique_ptr<ByteSource> Open(const ZipEntry& entry);

 private:
  FileReader file_;
  std::vector<ZipEntry> entries_;
};

// Writes entries as they are, without packing them. The same entries give the same bytes.
class ZipWriter {
 public:
  explicit ZipWriter(const std::string& path) : file_(path), path_(path) {}  // throws kInputOutput

  // An entry whose content is `parts`, one behind the other. Throws kInputOutput.
  void Add(const std::string& name, const std::vector<std::span<const std::byte>>& parts);
  void Commit();  // writes the directory, and replaces the file; throws kInputOutput

 private:
  FileWriter file_;
  std::string path_;
  std::int64_t position_ = 0;
  std::vector<ZipEntry> entries_;
};

}  // namespace stepnet
