#include "stepnet/io/zip_archive.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/error.h"
#include "stepnet/core/memory_limit_text.h"
#include "stepnet/core/strings.h"
#include "stepnet/core/tensor.h"

namespace stepnet {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are read as they lie");

// Records begin with one of these.
constexpr std::uint32_t kLocalHeader = 0x04034b50;
constexpr std::uint32_t kDirectoryEntry = 0x02014b50;
constexpr std::uint32_t kDirectoryEnd = 0x06054b50;
constexpr std::uint32_t kDirectoryEnd64 = 0x06064b50;
constexpr std::uint32_t kLocator64 = 0x07064b50;
// Their bytes, without names and what else is of any length.
constexpr std::int64_t kLocalHeaderBytes = 30;
constexpr std::int64_t kDirectoryEntryBytes = 46;
constexpr std::int64_t kDirectoryEndBytes = 22;
constexpr std::int64_t kDirectoryEnd64Bytes = 56;
constexpr std::int64_t kLocator64Bytes = 20;

constexpr int kStored = 0;
constexpr int kDeflated = 8;
constexpr std::uint16_t kSizes64 = 1;  // the extra field with what 32 bits do not hold
constexpr std::uint32_t kIn64 = 0xffffffff;
constexpr std::uint16_t kManyIn64 = 0xffff;
constexpr std::int64_t kMaxDirectoryBytes = 100'000'000;
constexpr std::int64_t kWorkOfChecksum = 1;  // of a byte

// A number at a place that has been checked.
template <typename T>
T NumberAt(std::string_view bytes, std::int64_t at) {
  T number;
  std::memcpy(&number, bytes.data() + at, sizeof(T));
  return number;
}

template <typename T>
void Append(T number, std::string* bytes) {
  bytes->append(reinterpret_cast<const char*>(&number), sizeof(T));
}

[[noreturn]] void Throw(const std::string& path, const std::string& message) {
  throw Error(ErrorCode::kInputOutput, StrCat(path, ": ", message));
}

std::string ReadBytes(FileReader* file, std::int64_t at, std::int64_t bytes, std::string_view what) {
  file->SeekTo(at);
  std::string text(static_cast<size_t>(bytes), '\0');
  file->Read(text.data(), bytes, what);
  return text;
}

// A size or position in the file, which is at most `limit`; below 0, nothing is.
std::int64_t Within(std::uint64_t number, std::int64_t limit, const char* what, const std::string& path) {
  if (limit >= 0 && number <= static_cast<std::uint64_t>(limit)) return static_cast<std::int64_t>(number);
  Throw(path, StrCat("the zip archive is damaged or cut off: ", what, " is ", number, ", beyond ", limit));
}

struct Directory {
  std::int64_t at = 0;
  std::int64_t bytes = 0;
  std::int64_t entries = 0;
};

// The record that a file ends with; a comment of any length may follow it.
std::int64_t FindDirectoryEnd(FileReader* file) {
  const std::int64_t max_end = kDirectoryEndBytes + std::numeric_limits<std::uint16_t>::max();
  const std::int64_t begin = std::max<std::int64_t>(0, file->size() - max_end);
  const std::string tail = ReadBytes(file, begin, file->size() - begin, "the end of the archive");
  for (std::int64_t at = std::ssize(tail) - kDirectoryEndBytes; at >= 0; --at) {
    if (NumberAt<std::uint32_t>(tail, at) != kDirectoryEnd) continue;
    if (at + kDirectoryEndBytes + NumberAt<std::uint16_t>(tail, at + 20) == std::ssize(tail)) return begin + at;
  }
  Throw(file->path(), "the zip archive is cut off: it has no directory");
}

Directory FindDirectory(FileReader* file) {
  const std::string& path = file->path();
  const std::int64_t end_at = FindDirectoryEnd(file);
  const std::string end = ReadBytes(file, end_at, kDirectoryEndBytes, "the end of the directory");
  if (NumberAt<std::uint16_t>(end, 4) != NumberAt<std::uint16_t>(end, 6))
    Throw(path, "the zip archive has several parts");
  std::uint64_t entries = NumberAt<std::uint16_t>(end, 10);
  std::uint64_t bytes = NumberAt<std::uint32_t>(end, 12);
  std::uint64_t at = NumberAt<std::uint32_t>(end, 16);
  std::int64_t limit = end_at;
  if (entries == kManyIn64 || bytes == kIn64 || at == kIn64) {
    const std::int64_t locator_at = end_at - kLocator64Bytes;
    const std::string locator =
        locator_at < 0 ? "" : ReadBytes(file, locator_at, kLocator64Bytes, "the locator of the directory");
    if (!locator.empty() && NumberAt<std::uint32_t>(locator, 0) == kLocator64) {
      limit = Within(NumberAt<std::uint64_t>(locator, 8), locator_at - kDirectoryEnd64Bytes, "the end of its directory",
                     path);
      const std::string end64 = ReadBytes(file, limit, kDirectoryEnd64Bytes, "the end of the directory");
      if (NumberAt<std::uint32_t>(end64, 0) != kDirectoryEnd64)
        Throw(path, "the zip archive has no directory where it says");
      entries = NumberAt<std::uint64_t>(end64, 32);
      bytes = NumberAt<std::uint64_t>(end64, 40);
      at = NumberAt<std::uint64_t>(end64, 48);
    }
  }
  Directory directory{.at = Within(at, limit, "the place of its directory", path)};
  directory.bytes = Within(bytes, limit - directory.at, "the length of its directory", path);
  directory.entries = Within(entries, directory.bytes / kDirectoryEntryBytes, "the number of its entries", path);
  return directory;
}

// The value of the extra field `id`; none where it is missing.
std::string_view ExtraField(std::string_view extra, std::uint16_t id) {
  constexpr std::int64_t kHeadBytes = 4;
  while (std::ssize(extra) >= kHeadBytes) {
    const std::int64_t bytes = NumberAt<std::uint16_t>(extra, 2);
    if (kHeadBytes + bytes > std::ssize(extra)) break;
    if (NumberAt<std::uint16_t>(extra, 0) == id) return extra.substr(kHeadBytes, static_cast<size_t>(bytes));
    extra.remove_prefix(static_cast<size_t>(kHeadBytes + bytes));
  }
  return {};
}

// Reads one record off the front of the directory, whose entries lie before `limit`.
ZipEntry TakeEntry(std::string_view* directory, std::int64_t limit, const std::string& path) {
  const auto too_short = [&](std::int64_t bytes) {
    if (bytes > std::ssize(*directory)) Throw(path, "the directory of the zip archive ends within an entry");
  };
  too_short(kDirectoryEntryBytes);
  const std::string_view record = *directory;
  if (NumberAt<std::uint32_t>(record, 0) != kDirectoryEntry) Throw(path, "the directory of the zip archive is damaged");
  const std::int64_t name_bytes = NumberAt<std::uint16_t>(record, 28);
  const std::int64_t extra_bytes = NumberAt<std::uint16_t>(record, 30);
  const std::int64_t all_bytes = kDirectoryEntryBytes + name_bytes + extra_bytes + NumberAt<std::uint16_t>(record, 32);
  too_short(all_bytes);
  constexpr std::uint16_t kEncrypted = 1 | 1 << 6 | 1 << 13;
  ZipEntry entry{.name = std::string(record.substr(kDirectoryEntryBytes, static_cast<size_t>(name_bytes))),
                 .method = NumberAt<std::uint16_t>(record, 10),
                 .is_encrypted = (NumberAt<std::uint16_t>(record, 8) & kEncrypted) != 0,
                 .checksum = NumberAt<std::uint32_t>(record, 16)};
  std::string_view sizes64 = ExtraField(
      record.substr(static_cast<size_t>(kDirectoryEntryBytes + name_bytes), static_cast<size_t>(extra_bytes)),
      kSizes64);
  const auto size_at = [&](std::int64_t at) -> std::uint64_t {
    const auto size = NumberAt<std::uint32_t>(record, at);
    if (size != kIn64) return size;
    if (sizes64.size() < sizeof(std::uint64_t)) Throw(path, StrCat("the zip archive lacks the size of ", entry.name));
    const auto size64 = NumberAt<std::uint64_t>(sizes64, 0);
    sizes64.remove_prefix(sizeof(std::uint64_t));
    return size64;
  };
  const std::uint64_t bytes = size_at(24);
  entry.packed_bytes = Within(size_at(20), limit, "the size of an entry", path);
  entry.header_at = Within(size_at(42), limit - entry.packed_bytes, "the place of an entry", path);
  constexpr std::int64_t kMaxInflated = 1032;  // what deflate makes of a byte
  std::int64_t max_bytes = std::numeric_limits<std::int64_t>::max();
  if (entry.method == kStored) max_bytes = entry.packed_bytes;
  if (entry.method == kDeflated && entry.packed_bytes < max_bytes / kMaxInflated)
    max_bytes = entry.packed_bytes * kMaxInflated;
  entry.bytes = Within(bytes, max_bytes, "the length of an entry", path);
  directory->remove_prefix(static_cast<size_t>(all_bytes));
  return entry;
}

// Throws where entries share bytes of the file; says of each where the next begins.
void CheckNoOverlap(std::vector<ZipEntry>* entries, std::int64_t limit, const std::string& path) {
  std::vector<ZipEntry*> in_order;
  for (ZipEntry& entry : *entries) in_order.push_back(&entry);
  std::ranges::sort(in_order, {}, &ZipEntry::header_at);
  for (size_t i = 0; i < in_order.size(); ++i) {
    ZipEntry& entry = *in_order[i];
    entry.end_limit = i + 1 < in_order.size() ? in_order[i + 1]->header_at : limit;
    if (entry.header_at + kLocalHeaderBytes + std::ssize(entry.name) + entry.packed_bytes <= entry.end_limit) continue;
    Throw(path, StrCat("the entry \"", entry.name, "\" of the zip archive overlaps what lies behind it"));
  }
}

// The content of one entry.
class EntryReader : public ByteSource {
 public:
  EntryReader(FileReader* file, const ZipEntry& entry)
      : file_(file), entry_(entry), path_(StrCat(file->path(), "/", entry.name)), packed_left_(entry.packed_bytes) {
    if (entry.method != kDeflated) return;
    if (inflateInit2(&stream_, -MAX_WBITS) != Z_OK) throw std::bad_alloc();
    is_open_ = true;
  }
  ~EntryReader() override {
    if (is_open_) inflateEnd(&stream_);
  }
  EntryReader(const EntryReader&) = delete;
  EntryReader& operator=(const EntryReader&) = delete;

  const std::string& path() const override { return path_; }
  std::int64_t left() const override { return entry_.bytes - position_; }

  void Read(void* data, std::int64_t bytes, std::string_view what) override {
    if (bytes > left()) {
      Throw(path_,
            StrCat("it ends early: ", what, " at byte ", position_, " needs ", bytes, " bytes, ", left(), " are left"));
    }
    auto* const out = static_cast<Bytef*>(data);
    InBlocks(bytes, kWorkOfChecksum, [&](std::int64_t begin, std::int64_t end) {
      if (is_open_) {
        Inflate(out + begin, end - begin);
      } else {
        file_->Read(out + begin, end - begin, what);
      }
      checksum_ = static_cast<std::uint32_t>(crc32_z(checksum_, out + begin, static_cast<size_t>(end - begin)));
    });
    position_ += bytes;
    if (bytes > 0 && left() == 0) CheckEnd();
  }

 private:
  // Fills `out`.
  void Inflate(Bytef* out, std::int64_t bytes) {
    stream_.next_out = out;
    stream_.avail_out = static_cast<uInt>(bytes);
    while (stream_.avail_out > 0) {
      if (has_ended_)
        Throw(path_, StrCat("it inflates to fewer than the ", entry_.bytes, " bytes that the archive says"));
      Step();
    }
  }
  void Step() {
    if (stream_.avail_in == 0 && packed_left_ > 0) {
      const std::int64_t block = std::min<std::int64_t>(packed_left_, std::ssize(packed_));
      file_->Read(packed_.data(), block, "packed bytes");
      packed_left_ -= block;
      stream_.next_in = packed_.data();
      stream_.avail_in = static_cast<uInt>(block);
    }
    const int status = inflate(&stream_, Z_NO_FLUSH);
    if (status == Z_MEM_ERROR) throw std::bad_alloc();
    if (status != Z_OK && status != Z_STREAM_END) Throw(path_, "its packed bytes are damaged or cut off");
    has_ended_ = status == Z_STREAM_END;
  }
  void CheckEnd() {
    if (is_open_) {
      Bytef beyond = 0;
      stream_.next_out = &beyond;
      stream_.avail_out = 1;
      while (!has_ended_ && stream_.avail_out > 0) Step();
      if (stream_.avail_out == 0) {
        Throw(path_, StrCat("it inflates to more than the ", entry_.bytes, " bytes that the archive says"));
      }
    }
    if (checksum_ != entry_.checksum) Throw(path_, "it is damaged: its checksum differs");
  }

  FileReader* file_;
  const ZipEntry entry_;
  std::string path_;
  std::int64_t position_ = 0;
  std::int64_t packed_left_;  // in the file
  std::uint32_t checksum_ = 0;
  z_stream stream_ = {};
  bool is_open_ = false;  // the stream
  bool has_ended_ = false;
  std::array<Bytef, 1 << 16> packed_;
};

// What the record of an entry has in both its local header and the directory, from the version on.
std::string CommonFields(const ZipEntry& entry, bool has_sizes64, size_t extra_bytes) {
  constexpr std::uint16_t kVersion = 45;  // the one that has zip64
  constexpr std::uint16_t kNameIsUtf8 = 1 << 11;
  constexpr std::uint32_t kTimeAndDate = 0x00210000;  // the first of 1980
  const auto size = static_cast<std::uint32_t>(has_sizes64 ? kIn64 : entry.bytes);
  std::string fields;
  Append(kVersion, &fields);
  Append(kNameIsUtf8, &fields);
  Append(static_cast<std::uint16_t>(kStored), &fields);
  Append(kTimeAndDate, &fields);
  Append(entry.checksum, &fields);
  Append(size, &fields);  // packed
  Append(size, &fields);
  Append(static_cast<std::uint16_t>(entry.name.size()), &fields);
  Append(static_cast<std::uint16_t>(extra_bytes), &fields);
  return fields;
}

std::string Sizes64(const std::vector<std::int64_t>& sizes) {
  std::string extra;
  if (sizes.empty()) return extra;
  Append(kSizes64, &extra);
  Append(static_cast<std::uint16_t>(sizes.size() * sizeof(std::int64_t)), &extra);
  for (const std::int64_t size : sizes) Append(size, &extra);
  return extra;
}

bool Needs64(std::int64_t number) { return number >= std::int64_t{kIn64}; }

std::string LocalHeader(const ZipEntry& entry) {
  const bool has_sizes64 = Needs64(entry.bytes);
  const std::string extra = has_sizes64 ? Sizes64({entry.bytes, entry.bytes}) : "";
  std::string record;
  Append(kLocalHeader, &record);
  return StrCat(record, CommonFields(entry, has_sizes64, extra.size()), entry.name, extra);
}

std::string DirectoryRecord(const ZipEntry& entry) {
  const bool has_sizes64 = Needs64(entry.bytes);
  std::vector<std::int64_t> sizes;
  if (has_sizes64) sizes = {entry.bytes, entry.bytes};
  if (Needs64(entry.header_at)) sizes.push_back(entry.header_at);
  const std::string extra = Sizes64(sizes);
  constexpr std::uint16_t kMadeBy = 3 << 8 | 45;         // Unix, which says what attributes mean
  constexpr std::uint32_t kAttributes = 0100644U << 16;  // a regular file that all may read
  std::string record;
  Append(kDirectoryEntry, &record);
  Append(kMadeBy, &record);
  record += CommonFields(entry, has_sizes64, extra.size());
  record.append(2 + 2 + 2, '\0');  // no comment, the first part, no attributes within
  Append(kAttributes, &record);
  Append(static_cast<std::uint32_t>(Needs64(entry.header_at) ? kIn64 : entry.header_at), &record);
  return StrCat(record, entry.name, extra);
}

std::string DirectoryEnd(std::int64_t entries, std::int64_t at, std::int64_t bytes) {
  std::string record;
  const bool is_in_64 = entries >= kManyIn64 || Needs64(at) || Needs64(bytes);
  if (is_in_64) {
    constexpr std::uint16_t kVersion = 45;
    Append(kDirectoryEnd64, &record);
    Append(kDirectoryEnd64Bytes - 12, &record);  // of what follows
    Append(kVersion, &record);
    Append(kVersion, &record);
    record.append(4 + 4, '\0');  // of one part
    for (const std::int64_t number : {entries, entries, bytes, at}) Append(number, &record);
    Append(kLocator64, &record);
    record.append(4, '\0');
    Append(at + bytes, &record);
    Append(std::uint32_t{1}, &record);
  }
  const auto count = static_cast<std::uint16_t>(is_in_64 ? kManyIn64 : entries);
  Append(kDirectoryEnd, &record);
  record.append(2 + 2, '\0');
  Append(count, &record);
  Append(count, &record);
  Append(static_cast<std::uint32_t>(is_in_64 ? kIn64 : bytes), &record);
  Append(static_cast<std::uint32_t>(is_in_64 ? kIn64 : at), &record);
  record.append(2, '\0');
  return record;
}

}  // namespace

bool StartsZip(std::string_view start) {
  if (std::ssize(start) < kZipStartBytes) return false;
  const auto signature = NumberAt<std::uint32_t>(start, 0);
  return signature == kLocalHeader || signature == kDirectoryEnd;  // of an archive without entries
}

ZipReader::ZipReader(const std::string& path) : file_(path) {
  // What a byte of the directory takes at most, with what readers keep of entries: one has at least 46 bytes.
  constexpr std::int64_t kMemoryOfByte = 32;
  const Directory directory = FindDirectory(&file_);
  if (directory.bytes > kMaxDirectoryBytes) {
    Throw(path, StrCat("the directory of the zip archive has ", directory.bytes, " bytes; ", kMaxDirectoryBytes,
                       " are allowed"));
  }
  if (const std::int64_t limit = TensorMemory().limit; directory.bytes * kMemoryOfByte > limit) {
    throw Error(ErrorCode::kOutOfMemory,
                StrCat(path, ": the directory of the zip archive may take ", directory.bytes * kMemoryOfByte,
                       " bytes of memory; ", limit, " are allowed ", kRaiseMemoryLimit));
  }
  const std::string bytes = ReadBytes(&file_, directory.at, directory.bytes, "the directory");
  std::string_view rest = bytes;
  entries_.reserve(static_cast<size_t>(directory.entries));
  for (std::int64_t i = 0; i < directory.entries; ++i) {
    CountWork(kWorkOfString);
    entries_.push_back(TakeEntry(&rest, directory.at, path));
  }
  if (!rest.empty()) Throw(path, "the directory of the zip archive has more entries than it says");
  CheckNoOverlap(&entries_, directory.at, path);
}

std::unique_ptr<ByteSource> ZipReader::Open(const ZipEntry& entry) {
  const std::string path = StrCat(file_.path(), "/", entry.name);
  if (entry.is_encrypted) Throw(path, "it is encrypted, which is not supported");
  if (entry.method != kStored && entry.method != kDeflated) {
    Throw(path, StrCat("it is packed by method ", entry.method, "; 0 (stored) and 8 (deflated) are supported"));
  }
  if (entry.method == kStored && entry.bytes != entry.packed_bytes) {
    Throw(path, StrCat("it is stored, and has ", entry.bytes, " bytes of ", entry.packed_bytes));
  }
  const std::string header = ReadBytes(&file_, entry.header_at, kLocalHeaderBytes, "the header of an entry");
  const std::int64_t name_bytes = NumberAt<std::uint16_t>(header, 26);
  const std::int64_t name_at = entry.header_at + kLocalHeaderBytes;
  const std::int64_t data_at = name_at + name_bytes + NumberAt<std::uint16_t>(header, 28);
  const bool fits = NumberAt<std::uint32_t>(header, 0) == kLocalHeader &&
                    NumberAt<std::uint16_t>(header, 8) == entry.method && name_bytes == std::ssize(entry.name) &&
                    data_at + entry.packed_bytes <= entry.end_limit;
  if (!fits || ReadBytes(&file_, name_at, name_bytes, "a name") != entry.name) {
    Throw(path, "its header in the zip archive is not what the directory says");
  }
  file_.SeekTo(data_at);
  return std::make_unique<EntryReader>(&file_, entry);
}

void ZipWriter::Add(const std::string& name, const std::vector<std::span<const std::byte>>& parts) {
  constexpr size_t kMaxNameBytes = std::numeric_limits<std::uint16_t>::max();
  if (name.size() > kMaxNameBytes) {
    Throw(StrCat("cannot write ", path_),
          StrCat("a name has ", name.size(), " bytes; ", kMaxNameBytes, " are allowed"));
  }
  ZipEntry entry{.name = name, .header_at = position_};
  for (const auto& part : parts) {
    entry.bytes += std::ssize(part);
    InBlocks(std::ssize(part), kWorkOfChecksum, [&](std::int64_t begin, std::int64_t end) {
      const auto* const data = reinterpret_cast<const Bytef*>(part.data());
      entry.checksum =
          static_cast<std::uint32_t>(crc32_z(entry.checksum, data + begin, static_cast<size_t>(end - begin)));
    });
  }
  const std::string header = LocalHeader(entry);
  file_.Write(header);
  for (const auto& part : parts) file_.Write(part.data(), std::ssize(part));
  position_ += std::ssize(header) + entry.bytes;
  entries_.push_back(std::move(entry));
}

void ZipWriter::Commit() {
  std::int64_t bytes = 0;
  for (const ZipEntry& entry : entries_) {
    const std::string record = DirectoryRecord(entry);
    file_.Write(record);
    bytes += std::ssize(record);
  }
  file_.Write(DirectoryEnd(std::ssize(entries_), position_, bytes));
  file_.Commit();
}

}  // namespace stepnet
