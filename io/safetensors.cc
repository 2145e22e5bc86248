#include "stepnet/io/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/error.h"
#include "stepnet/core/memory_limit_text.h"
#include "stepnet/core/strings.h"
#include "stepnet/io/file.h"
#include "stepnet/io/memory_ahead.h"

namespace stepnet {
namespace {

static_assert(std::endian::native == std::endian::little, "elements are read as they lie");

constexpr std::int64_t kLengthBytes = 8;
constexpr const char* kMetadata = "__metadata__";
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

// The dtypes of the format, in the order in which the reference implementation lays tensors out, so that each is
// aligned. Those without one of ours are known by their size alone.
struct FormatDType {
  std::string_view name;
  std::int64_t bits;
  std::optional<DType> dtype = std::nullopt;
};
constexpr FormatDType kDTypes[] = {
    {"U64", 64},
    {"I64", 64, DType::kInt64},
    {"F64", 64, DType::kDouble},
    {"C64", 64},
    {"F32", 32, DType::kFloat},
    {"U32", 32},
    {"I32", 32, DType::kInt32},
    {"BF16", 16, DType::kBFloat16},
    {"F16", 16, DType::kFloat16},
    {"U16", 16, DType::kUInt16},
    {"I16", 16, DType::kInt16},
    {"F8_E8M0", 8},
    {"F8_E4M3", 8},
    {"F8_E5M2", 8},
    {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8},
    {"I8", 8, DType::kInt8},
    {"U8", 8, DType::kUInt8},
    {"F6_E3M2", 6},
    {"F6_E2M3", 6},
    {"F4", 4},
    {"BOOL", 8, DType::kBool},
};

const FormatDType* FindDType(std::string_view name) {
  const auto* found = std::ranges::find(kDTypes, name, &FormatDType::name);
  return found == std::end(kDTypes) ? nullptr : found;
}

std::string SupportedDTypes() {
  std::vector<std::string_view> names;
  for (const FormatDType& known : kDTypes) {
    if (known.dtype) names.push_back(known.name);
  }
  return Join(names, ", ");
}

// What the header says of a tensor.
struct Entry {
  std::string name = {};
  std::string dtype = {};
  std::vector<std::int64_t> dims = {};
  std::int64_t begin = 0;  // of its bytes, from the start of the data
  std::int64_t end = 0;

  std::string Description() const {
    if (std::ssize(dims) > Shape::kMaxRank) return StrCat(dtype, " of ", dims.size(), " dimensions");
    return StrCat(dtype, " [", Join(dims, ", "), "]");
  }
};

[[noreturn]] void Throw(const std::string& message) { throw Error(ErrorCode::kInputOutput, message); }

// Names in messages: a header may hold one of any length.
std::string Quoted(std::string_view name) {
  constexpr size_t kMaxBytes = 200;
  return name.size() <= kMaxBytes ? StrCat('"', name, '"') : StrCat('"', name.substr(0, kMaxBytes), "…\"");
}

// Takes the header as the parser comes upon its parts, so that no tree of it is ever in memory.
class HeaderHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<Entry> TakeEntries() { return std::move(entries_); }

  bool start_object(size_t) override {
    if (in_ == In::kFile) return Enter(In::kHeader);
    if (in_ != In::kHeader) Unexpected("an object");
    if (name_ == kMetadata) {
      if (has_metadata_) Throw(StrCat("the header has \"", kMetadata, "\" twice"));
      has_metadata_ = true;
      return Enter(In::kMetadata);
    }
    CountWork(kWorkOfString);
    entries_.push_back({.name = name_});
    has_dtype_ = has_shape_ = has_offsets_ = false;
    return Enter(In::kTensor);
  }
  bool key(std::string& key) override {
    if (in_ == In::kHeader) {
      name_ = std::move(key);
    } else if (in_ == In::kTensor) {
      bool* const has = key == "dtype"          ? &has_dtype_
                        : key == "shape"        ? &has_shape_
                        : key == "data_offsets" ? &has_offsets_
                                                : nullptr;
      if (has == nullptr) Throw(StrCat(Named(), " has ", Quoted(key), ", which the format does not know"));
      if (*has) Throw(StrCat(Named(), " has ", Quoted(key), " twice"));
      *has = true;
      field_ = has;
    }
    return true;
  }
  bool end_object() override {
    if (in_ == In::kHeader) return Enter(In::kFile);
    if (in_ == In::kTensor) {
      const char* const lacks = !has_dtype_     ? "dtype"
                                : !has_shape_   ? "shape"
                                : !has_offsets_ ? "data_offsets"
                                                : nullptr;
      if (lacks != nullptr) Throw(StrCat(Named(), " has no \"", lacks, "\""));
    }
    return Enter(In::kHeader);
  }
  bool start_array(size_t) override {
    if (in_ != In::kTensor || (field_ != &has_shape_ && field_ != &has_offsets_)) Unexpected("a list");
    offsets_ = 0;
    return Enter(field_ == &has_shape_ ? In::kShape : In::kOffsets);
  }
  bool end_array() override {
    if (in_ == In::kOffsets && offsets_ != 2) {
      Throw(StrCat(Named(), " has \"data_offsets\" that are not two numbers"));
    }
    return Enter(In::kTensor);
  }
  bool number_unsigned(std::uint64_t value) override {
    CountWork(kWorkOfString);
    if (in_ != In::kShape && in_ != In::kOffsets) Unexpected("a number");
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      Throw(StrCat(Named(), " has the number ", value, ", which is beyond 2^63"));
    }
    const auto number = static_cast<std::int64_t>(value);
    Entry& entry = entries_.back();
    if (in_ == In::kShape) {
      entry.dims.push_back(number);
    } else {
      (offsets_++ == 0 ? entry.begin : entry.end) = number;
    }
    return true;
  }
  bool string(std::string& value) override {
    CountWork(kWorkOfString);
    if (in_ == In::kMetadata) return true;
    if (in_ != In::kTensor || field_ != &has_dtype_) Unexpected("a string");
    entries_.back().dtype = std::move(value);
    return true;
  }
  bool null() override { Unexpected("null"); }
  bool boolean(bool) override { Unexpected("a truth value"); }
  bool number_integer(std::int64_t) override { Unexpected("a negative number"); }
  bool number_float(double, const std::string& text) override { Unexpected(StrCat("the number ", text.substr(0, 40))); }
  bool binary(binary_t&) override { Unexpected("bytes"); }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    Throw(StrCat("the header is no JSON, at its character ", position));
  }

 private:
  enum class In { kFile, kHeader, kMetadata, kTensor, kShape, kOffsets };

  bool Enter(In in) {
    in_ = in;
    return true;
  }
  std::string Named() const { return StrCat("tensor ", Quoted(entries_.back().name)); }
  [[noreturn]] void Unexpected(const std::string& what) const {
    switch (in_) {
      case In::kFile: Throw(StrCat("the header is ", what, ", an object is needed"));
      case In::kHeader: Throw(StrCat("the header has ", what, " as ", Quoted(name_), ", an object is needed"));
      case In::kMetadata: Throw(StrCat("\"", kMetadata, "\" holds ", what, ", strings are needed"));
      case In::kShape: Throw(StrCat(Named(), " has ", what, " in its \"shape\", sizes are needed"));
      case In::kOffsets: Throw(StrCat(Named(), " has ", what, " in its \"data_offsets\", positions are needed"));
      case In::kTensor: break;
    }
    const char* const field = field_ == &has_dtype_ ? "dtype" : field_ == &has_shape_ ? "shape" : "data_offsets";
    Throw(StrCat(Named(), " has ", what, " as its \"", field, "\", ",
                 field_ == &has_dtype_ ? "a string" : "a list of numbers", " is needed"));
  }

  std::vector<Entry> entries_;
  In in_ = In::kFile;
  std::string name_;  // the last one of the header
  bool has_metadata_ = false;
  bool has_dtype_ = false, has_shape_ = false, has_offsets_ = false;
  const bool* field_ = nullptr;  // the one of these whose value comes next
  int offsets_ = 0;              // that have been read
};

void CheckNoNameTwice(const std::vector<Entry>& entries) {
  std::vector<std::string_view> names;
  names.reserve(entries.size());
  for (const Entry& entry : entries) names.push_back(entry.name);
  std::ranges::sort(names);
  const auto twice = std::ranges::adjacent_find(names);
  if (twice != names.end()) Throw(StrCat("tensor ", Quoted(*twice), " comes twice"));
}

// Throws unless dtype and shape are worth the bytes between the offsets; of a dtype that nobody knows, nothing is
// known.
void CheckBytes(const Entry& entry) {
  const FormatDType* const known = FindDType(entry.dtype);
  if (known == nullptr) return;
  std::int64_t bits = known->bits;
  bool overflows = false;
  for (const std::int64_t dim : entry.dims) overflows = overflows || __builtin_mul_overflow(bits, dim, &bits);
  if (overflows) Throw(StrCat("tensor ", Quoted(entry.name), " has sizes whose product is beyond 2^63 bits"));
  const std::int64_t bytes = entry.end - entry.begin;
  if (bits % 8 == 0 && bits / 8 == bytes) return;
  const std::string needed = bits % 8 == 0 ? StrCat(bits / 8, " bytes") : StrCat(bits, " bits");
  Throw(StrCat("tensor ", Quoted(entry.name), " is ", entry.Description(), ", which takes ", needed,
               "; its data_offsets [", entry.begin, ", ", entry.end, "] hold ", bytes, " bytes"));
}

// Sorts entries as their data lies, and throws unless they cover all of it, no byte twice.
void CheckOffsets(std::vector<Entry>* entries, std::int64_t data_bytes) {
  std::ranges::sort(*entries, {}, [](const Entry& entry) { return std::pair(entry.begin, entry.end); });
  std::int64_t covered = 0;
  for (const Entry& entry : *entries) {
    const std::string offsets =
        StrCat("tensor ", Quoted(entry.name), " has the data_offsets [", entry.begin, ", ", entry.end, "]");
    if (entry.end < entry.begin) Throw(StrCat(offsets, ", of which the second is smaller"));
    if (entry.begin < covered) Throw(StrCat(offsets, " and overlaps what lies before, to ", covered));
    if (entry.begin > covered) Throw(StrCat(offsets, ", and nothing holds what lies before, from ", covered));
    if (entry.end > data_bytes) {
      Throw(StrCat(offsets, "; the file is cut off: it has ", data_bytes, " bytes of data"));
    }
    CheckBytes(entry);
    covered = entry.end;
  }
  if (covered < data_bytes)
    Throw(StrCat("the file has ", data_bytes, " bytes of data, of which tensors hold ", covered));
}

// The tensors of a file in the order of their data, at which `file` stands then.
std::vector<Entry> ReadHeader(FileReader* file) {
  // What a character of the header takes at most, until tensors are handed over: the least that can be said of one is
  // 49 characters, and everything that is kept of one but its elements takes a kilobyte or some.
  constexpr std::int64_t kMemoryOfCharacter = 32;
  std::uint64_t length = 0;
  file->Read(&length, kLengthBytes, "the length of the header");
  if (length > static_cast<std::uint64_t>(kMaxSafetensorsHeader)) {
    Throw(StrCat("the length of the header is ", length, " bytes, and the file has ", file->left(), " behind it; ",
                 kMaxSafetensorsHeader, " are allowed"));
  }
  const auto bytes = static_cast<std::int64_t>(length);
  if (bytes > file->left())
    Throw(StrCat("the file is cut off: the header has ", bytes, " bytes, ", file->left(), " are left"));
  if (const std::int64_t limit = TensorMemory().limit; bytes * kMemoryOfCharacter > limit) {
    throw Error(ErrorCode::kOutOfMemory, StrCat("the header of ", bytes, " bytes may take ", bytes * kMemoryOfCharacter,
                                                " bytes of memory; ", limit, " are allowed ", kRaiseMemoryLimit));
  }
  std::string text(length, '\0');
  file->Read(text.data(), bytes, "the header");
  if (!text.starts_with('{')) Throw("the header does not begin with a brace");
  HeaderHandler handler;
  nlohmann::json::sax_parse(text, &handler);
  std::vector<Entry> entries = handler.TakeEntries();
  CheckNoNameTwice(entries);
  CheckOffsets(&entries, file->left());
  return entries;
}

TensorInfo InfoOf(const Entry& entry) {
  const FormatDType* const known = FindDType(entry.dtype);
  if (known == nullptr || !known->dtype) {
    Throw(StrCat("tensor ", Quoted(entry.name), " is ", Quoted(entry.dtype), ", which is not supported; ",
                 SupportedDTypes(), " are"));
  }
  if (std::ssize(entry.dims) > Shape::kMaxRank) {
    Throw(StrCat("tensor ", Quoted(entry.name), " has ", entry.dims.size(), " dimensions; tensors have at most ",
                 Shape::kMaxRank));
  }
  return {.dtype = *known->dtype, .shape = Shape(entry.dims)};
}

void ReadElements(FileReader* file, const Tensor& place) {
  file->Read(place.raw(), place.size_bytes(), "the elements");
  if (place.dtype() != DType::kBool) return;
  auto* const bytes = static_cast<std::uint8_t*>(place.raw());  // a bool is 0 or 1 in memory
  InBlocks(place.size(), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) bytes[i] = bytes[i] != 0 ? 1 : 0;
  });
}

const FormatDType* Find(DType dtype) { return std::ranges::find(kDTypes, std::optional(dtype), &FormatDType::dtype); }

// The header as a JSON text, for tensors in the order of their data.
std::string HeaderText(const NamedTensors& tensors) {
  std::string text = "{";
  std::int64_t begin = 0;
  for (const auto& [name, tensor] : tensors) {
    std::string quoted;
    try {
      quoted = nlohmann::json(name).dump();
    } catch (const nlohmann::json::exception&) {
      Throw(StrCat("the name of tensor ", Quoted(name), " is no UTF-8"));
    }
    const std::int64_t end = begin + tensor.size_bytes();
    text += StrCat(text.size() == 1 ? "" : ",", quoted, ":{\"dtype\":\"", Find(tensor.dtype())->name, "\",\"shape\":[",
                   Join(tensor.shape().dims(), ","), "],\"data_offsets\":[", begin, ",", end, "]}");
    begin = end;
  }
  text += '}';
  constexpr size_t kAlignment = 8;
  text.append((kAlignment - text.size() % kAlignment) % kAlignment, ' ');
  if (std::ssize(text) > kMaxSafetensorsHeader) {
    Throw(StrCat("the header would have ", text.size(), " bytes; ", kMaxSafetensorsHeader, " are allowed"));
  }
  return text;
}

// Gives them in the order of the file. Throws for what the format cannot hold.
NamedTensors Sorted(NamedTensors tensors) {
  std::ranges::sort(tensors, {}, [](const auto& named) {
    return std::pair(Find(named.second.dtype()), std::string_view(named.first));
  });
  std::vector<std::string_view> names;
  for (const auto& [name, tensor] : tensors) {
    if (tensor.dtype() == DType::kString) {
      Throw(StrCat("tensor ", Quoted(name), " is ", tensor.Description(), ", and safetensors have no strings"));
    }
    if (name == kMetadata) Throw(StrCat("a tensor is called ", Quoted(name), ", which means something else there"));
    names.push_back(name);
  }
  std::ranges::sort(names);
  const auto twice = std::ranges::adjacent_find(names);
  if (twice != names.end()) Throw(StrCat("two tensors are called ", Quoted(*twice)));
  return tensors;
}

}  // namespace

bool StartsSafetensors(std::string_view start) {
  if (std::ssize(start) <= kLengthBytes || !StartsSafetensorsHeader(start.substr(kLengthBytes))) return false;
  std::uint64_t length = 0;
  std::memcpy(&length, start.data(), kLengthBytes);
  if (length <= std::numeric_limits<std::uint32_t>::max()) return true;
  // Other files may have a brace there: texts, and minidbs, of which the first key and value have these lengths. A
  // length that is neither is a wrong one.
  const bool is_text =
      start.substr(0, kLengthBytes).find_first_of(std::string_view("\0\xff", 2)) == std::string_view::npos;
  return !is_text && static_cast<std::int32_t>(length) <= 0;
}

bool StartsSafetensorsHeader(std::string_view start) {
  if (start.starts_with(kByteOrderMark)) start.remove_prefix(kByteOrderMark.size());
  const size_t first = start.find_first_not_of(" \t\n\r");
  return first != std::string_view::npos && start[first] == '{';
}

FoundTensors ReadSafetensors(const std::string& path, const NameFilter& wanted, const PlaceFinder& find_place) {
  FileReader file(path);
  try {
    const std::vector<Entry> entries = ReadHeader(&file);
    const std::int64_t data_at = file.size() - file.left();
    FoundTensors found;
    std::vector<Tensor> places;
    std::vector<std::int64_t> positions;  // of the elements of each, in the file
    for (const Entry& entry : entries) {
      if (!IsWanted(wanted, entry.name)) continue;
      const TensorInfo info = InfoOf(entry);
      places.push_back(find_place(entry.name, info.dtype, info.shape));
      positions.push_back(data_at + entry.begin);
      found.push_back({.name = entry.name, .info = info, .place = places.back()});
    }
    const MemoryAhead ahead(places);
    for (size_t i = 0; i < places.size(); ++i) {
      if (!places[i].defined()) continue;
      file.SeekTo(positions[i]);
      ReadElements(&file, places[i]);
    }
    return found;
  } catch (Error& error) {
    if (error.message().find(path) != std::string::npos) throw;
    throw error.At({.file = path});
  }
}

void WriteSafetensors(const NamedTensors& tensors, const std::string& path) {
  NamedTensors sorted;
  std::string header;
  try {
    sorted = Sorted(tensors);
    header = HeaderText(sorted);
  } catch (const Error& error) {
    throw Error(error.code(), StrCat("cannot write ", path, ": ", error.message()));
  }
  FileWriter file(path);
  const std::uint64_t length = header.size();
  file.Write(&length, kLengthBytes);
  file.Write(header);
  for (const auto& [name, tensor] : sorted) {
    const Tensor on_host = tensor.To({});
    file.Write(on_host.raw(), on_host.size_bytes());
  }
  file.Commit();
}

}  // namespace stepnet
