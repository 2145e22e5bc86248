#include "stepnet/io/minidb.h"

#include <algorithm>
#include <limits>

#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/core/tensor.h"
#include "stepnet/io/crc32c.h"
#include "stepnet/io/safetensors.h"

namespace stepnet {
namespace {

struct RecordHeader {
  std::int32_t key_bytes = 0;
  std::int32_t value_bytes = 0;
};
static_assert(sizeof(RecordHeader) == 8);

std::uint32_t Extended(std::uint32_t crc, const RecordHeader& header, std::string_view key, std::string_view value) {
  crc = Crc32c({reinterpret_cast<const char*>(&header), sizeof(header)}, crc);
  return Crc32c(value, Crc32c(key, crc));
}

bool IsSensible(const RecordHeader& header) { return header.key_bytes > 0 && header.value_bytes >= 0; }

}  // namespace

MiniDbReader::MiniDbReader(const std::string& path) : file_(path) {}

bool MiniDbReader::Next(std::string* key, std::string* value) {
  if (file_.left() == 0) return false;
  const std::int64_t start = file_.size() - file_.left();
  RecordHeader header;
  file_.Read(&header, sizeof(header), "the header of a minidb record");
  const std::int64_t wanted = std::int64_t{header.key_bytes} + header.value_bytes;
  if (!IsSensible(header) || wanted > file_.left()) {
    throw Error(ErrorCode::kInputOutput, StrCat(file_.path(), " is no minidb or is cut off: the record at byte ", start,
                                                " has a key of ", header.key_bytes, " and a value of ",
                                                header.value_bytes, " bytes, ", file_.left(), " are left"));
  }
  const std::int64_t limit = TensorMemory().limit;
  if (wanted > limit) {
    throw Error(ErrorCode::kOutOfMemory, StrCat("the record at byte ", start, " of ", file_.path(), " has ", wanted,
                                                " bytes; ", limit, " are allowed"));
  }
  key->resize(static_cast<size_t>(header.key_bytes));
  value->resize(static_cast<size_t>(header.value_bytes));
  file_.Read(key->data(), header.key_bytes, "a key");
  file_.Read(value->data(), header.value_bytes, "a value");
  checksum_ = Extended(checksum_, header, *key, *value);
  return true;
}

MiniDbWriter::MiniDbWriter(const std::string& path) : path_(path), file_(path) {}

void MiniDbWriter::Add(std::string_view key, std::string_view value) {
  constexpr size_t kMaxBytes = std::numeric_limits<std::int32_t>::max();
  if (key.empty() || key.size() > kMaxBytes || value.size() > kMaxBytes) {
    throw Error(ErrorCode::kInputOutput, StrCat("cannot write ", path_, ": a minidb record of a key of ", key.size(),
                                                " and a value of ", value.size(), " bytes"));
  }
  const RecordHeader header{.key_bytes = static_cast<std::int32_t>(key.size()),
                            .value_bytes = static_cast<std::int32_t>(value.size())};
  file_.Write(&header, sizeof(header));
  file_.Write(key);
  file_.Write(value);
  checksum_ = Extended(checksum_, header, key, value);
}

void MiniDbWriter::Commit() { file_.Commit(); }

bool LooksLikeMiniDb(const std::string& path) {
  constexpr std::int32_t kMaxKeyBytes = 4096;
  try {
    FileReader file(path);
    RecordHeader header;
    file.Read(&header, sizeof(header), "a header");
    if (!IsSensible(header) || header.key_bytes > kMaxKeyBytes) return false;
    std::string key(static_cast<size_t>(header.key_bytes), '\0');
    file.Read(key.data(), header.key_bytes, "a key");
    // The lengths may be one of 64 bits, that of the header of safetensors.
    const bool is_safetensors = header.value_bytes == 0 && StartsSafetensorsHeader(key);
    return !is_safetensors &&
           std::ranges::all_of(key, [](char c) { return static_cast<unsigned char>(c) >= 0x20 && c != 0x7f; });
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInputOutput) throw;
    return false;
  }
}

}  // namespace stepnet
