// Source: NumPy, "NEP 1 — A simple file format for NumPy arrays": the bytes "\x93NUMPY", the version, the length of the
// header (two bytes in version 1, four in later ones), the header as a Python dictionary, the elements.
#include "stepnet/io/npy.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <vector>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/error.h"
#include "stepnet/core/floating.h"
#include "stepnet/core/memory_for.h"
#include "stepnet/core/memory_limit_text.h"
#include "stepnet/core/strings.h"
#include "stepnet/io/file.h"

namespace stepnet {
namespace {

static_assert(std::endian::native == std::endian::little, "elements are swapped for the other byte order alone");

constexpr std::string_view kMagic = "\x93NUMPY";

struct Header {
  std::string descr;
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
};

// The header: a Python dictionary of strings, booleans and tuples of integers.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  Header Parse() {
    Header header;
    bool has_descr = false, has_order = false, has_shape = false;
    Expect('{');
    while (!Accept('}')) {
      const std::string key = String();
      Expect(':');
      if (key == "descr" && !has_descr) {
        if (Peek() == '[') Fail("holds records; arrays of numbers or strings are needed");
        header.descr = String();
        has_descr = true;
      } else if (key == "fortran_order" && !has_order) {
        header.fortran_order = Bool();
        has_order = true;
      } else if (key == "shape" && !has_shape) {
        header.shape = Tuple();
        has_shape = true;
      } else {
        Fail(StrCat("has an unexpected key '", key, "' in its header"));
      }
      if (!Accept(',')) {
        Expect('}');
        break;
      }
    }
    if (Peek() != '\0') Malformed();
    if (!has_descr || !has_order || !has_shape) Fail("lacks 'descr', 'fortran_order' or 'shape' in its header");
    return header;
  }

 private:
  [[noreturn]] void Fail(const std::string& message) const {
    throw Error(ErrorCode::kInputOutput, StrCat(path_, " ", message));
  }
  [[noreturn]] void Malformed() const {
    Fail(StrCat("has a header that is no dictionary, at its character ", position_));
  }

  // The next character that is no space, '\0' at the end.
  char Peek() {
    while (position_ < text_.size() && (text_[position_] == ' ' || text_[position_] == '\n')) ++position_;
    return position_ < text_.size() ? text_[position_] : '\0';
  }
  bool Accept(char c) {
    if (Peek() != c) return false;
    ++position_;
    return true;
  }
  void Expect(char c) {
    if (!Accept(c)) Malformed();
  }

  std::string String() {
    const char quote = Peek();
    if (quote != '\'' && quote != '"') Malformed();
    const size_t end = text_.find(quote, ++position_);
    if (end == std::string_view::npos) Malformed();
    const std::string value(text_.substr(position_, end - position_));
    position_ = end + 1;
    return value;
  }

  bool Bool() {
    Peek();
    for (const bool value : {false, true}) {
      const std::string_view word = value ? "True" : "False";
      if (!text_.substr(position_).starts_with(word)) continue;
      position_ += word.size();
      return value;
    }
    Malformed();
  }

  std::vector<std::int64_t> Tuple() {
    std::vector<std::int64_t> values;
    Expect('(');
    while (!Accept(')')) {
      values.push_back(Int());
      if (!Accept(',')) {
        Expect(')');
        break;
      }
    }
    return values;
  }

  std::int64_t Int() {
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    if (!is_digit(Peek())) Malformed();
    std::int64_t value = 0;
    while (position_ < text_.size() && is_digit(text_[position_])) {
      const int digit = text_[position_++] - '0';
      if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, digit, &value)) {
        Fail("has a size of more than 2^63 in its header");
      }
    }
    if (position_ < text_.size() && text_[position_] == 'L') ++position_;  // Python 2 wrote longs so
    return value;
  }

  std::string_view text_;
  const std::string& path_;
  size_t position_ = 0;
};

// How an element is stored, from a `descr` like "<f4".
struct Element {
  DType dtype = DType::kFloat;
  std::int64_t bytes = 0;  // in the file
  bool swapped = false;
  bool utf32 = false;  // kString only: characters of four bytes
};

std::optional<DType> NumberType(std::string_view code) {
  if (code == "f2") return DType::kFloat16;
  if (code == "f4") return DType::kFloat;
  if (code == "f8") return DType::kDouble;
  if (code == "i1") return DType::kInt8;
  if (code == "i2") return DType::kInt16;
  if (code == "i4") return DType::kInt32;
  if (code == "i8") return DType::kInt64;
  if (code == "u1") return DType::kUInt8;
  if (code == "u2") return DType::kUInt16;
  if (code == "b1") return DType::kBool;
  return std::nullopt;
}

Element ParseDescr(const std::string& descr, const std::string& path) {
  Element element;
  std::string_view code = descr;
  if (!code.empty() && std::string_view("<>|=").find(code[0]) != std::string_view::npos) {
    element.swapped = code[0] == '>';
    code.remove_prefix(1);
  }
  if (const auto dtype = NumberType(code)) {
    element.dtype = *dtype;
    element.bytes = DTypeBytes(*dtype);
    return element;
  }
  // The length of the longest string follows the letter.
  constexpr size_t kMaxDigits = 9;
  const bool is_string = code.size() > 1 && code.size() <= 1 + kMaxDigits && (code[0] == 'U' || code[0] == 'S') &&
                         std::ranges::all_of(code.substr(1), [](char c) { return c >= '0' && c <= '9'; });
  if (is_string) {
    element.dtype = DType::kString;
    element.utf32 = code[0] == 'U';
    element.bytes = std::stoll(std::string(code.substr(1))) * (element.utf32 ? 4 : 1);
    return element;
  }
  throw Error(ErrorCode::kInputOutput, StrCat(path, " holds elements of type '", descr,
                                              "'; f2 f4 f8 i1 i2 i4 i8 u1 u2 b1, U and S are supported"));
}

void AppendUtf8(std::uint32_t code, std::string* text) {
  if (code < 0x80) {
    text->push_back(static_cast<char>(code));
    return;
  }
  const int tail = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  constexpr std::array<unsigned, 4> kLead = {0, 0xc0, 0xe0, 0xf0};
  text->push_back(static_cast<char>(kLead[tail] | (code >> (6 * tail))));
  for (int i = tail - 1; i >= 0; --i) text->push_back(static_cast<char>(0x80 | ((code >> (6 * i)) & 0x3f)));
}

// The characters of UTF-8 text; nothing when it is not UTF-8.
std::optional<std::vector<std::uint32_t>> DecodeUtf8(const std::string& text) {
  std::vector<std::uint32_t> codes;
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i++]);
    const int tail = lead < 0x80 ? 0 : lead < 0xc0 ? -1 : lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : lead < 0xf8 ? 3 : -1;
    if (tail < 0 || i + tail > text.size()) return std::nullopt;
    std::uint32_t code = tail == 0 ? lead : lead & (0x3fu >> tail);
    for (int k = 0; k < tail; ++k) {
      const auto next = static_cast<unsigned char>(text[i++]);
      if ((next & 0xc0) != 0x80) return std::nullopt;
      code = (code << 6) | (next & 0x3f);
    }
    constexpr std::array<std::uint32_t, 4> kMin = {0, 0x80, 0x800, 0x10000};
    const bool surrogate = code >= 0xd800 && code < 0xe000;
    if (code < kMin[tail] || code > 0x10ffff || surrogate) return std::nullopt;
    codes.push_back(code);
  }
  return codes;
}

// One string from the file's fixed width; zeros fill it up.
std::string DecodeString(const std::byte* data, const Element& element, const std::string& path) {
  std::string text;
  if (!element.utf32) {
    text.assign(reinterpret_cast<const char*>(data), static_cast<size_t>(element.bytes));
  } else {
    for (std::int64_t i = 0; i < element.bytes; i += 4) {
      std::uint32_t code = 0;
      std::memcpy(&code, data + i, sizeof(code));
      if (element.swapped) code = __builtin_bswap32(code);
      if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) {
        throw Error(ErrorCode::kInputOutput, StrCat(path, " holds ", code, ", which is no character"));
      }
      AppendUtf8(code, &text);
    }
  }
  text.resize(text.find_last_not_of('\0') + 1);
  return text;
}

void SwapBytes(std::byte* data, std::int64_t count, std::int64_t bytes) {
  for (std::int64_t i = 0; i < count; ++i) std::reverse(data + i * bytes, data + (i + 1) * bytes);
}

// Copies elements that lie with the first index running fastest to where they lie row by row.
void CopyFromFortranOrder(const Tensor& from, const Tensor& to) {
  const Shape& shape = to.shape();
  const auto copy = [&](auto zero) {
    using T = decltype(zero);
    const T* source = static_cast<const T*>(from.raw());
    T* out = static_cast<T*>(to.raw());
    std::array<std::int64_t, Shape::kMaxRank> index = {};
    std::array<std::int64_t, Shape::kMaxRank> stride = {};
    std::int64_t product = 1;
    for (int d = 0; d < shape.rank(); ++d) {
      stride[d] = product;
      product *= shape[d];
    }
    std::int64_t at = 0;
    for (std::int64_t i = 0; i < shape.size(); ++i) {
      out[i] = source[at];
      for (int d = shape.rank() - 1; d >= 0; --d) {
        at += stride[d];
        if (++index[d] < shape[d]) break;
        at -= stride[d] * shape[d];
        index[d] = 0;
      }
    }
  };
  if (from.dtype() == DType::kString) return copy(std::string());
  switch (DTypeBytes(from.dtype())) {
    case 1: return copy(std::uint8_t{});
    case 2: return copy(std::uint16_t{});
    case 4: return copy(std::uint32_t{});
    default: return copy(std::uint64_t{});
  }
}

Header ReadHeader(ByteSource* file) {
  std::array<char, 8> start = {};
  file->Read(start.data(), start.size(), "the start of a .npy file");
  if (std::string_view(start.data(), kMagic.size()) != kMagic) {
    throw Error(ErrorCode::kInputOutput, StrCat(file->path(), " is no .npy file"));
  }
  const int major = static_cast<unsigned char>(start[6]);
  if (major < 1 || major > 3) {
    throw Error(ErrorCode::kInputOutput,
                StrCat(file->path(), " is of .npy version ", major, "; versions 1 to 3 are supported"));
  }
  std::uint32_t length = 0;
  file->Read(&length, major == 1 ? 2 : 4, "the length of the header");
  if (length > file->left()) {
    throw Error(ErrorCode::kInputOutput,
                StrCat(file->path(), " is cut off: its header has ", length, " bytes, ", file->left(), " are left"));
  }
  constexpr std::uint32_t kMaxLength = 1 << 20;
  if (length > kMaxLength) {
    throw Error(ErrorCode::kInputOutput, StrCat(file->path(), " has a header of ", length, " bytes"));
  }
  std::string text(length, '\0');
  file->Read(text.data(), length, "the header");
  return HeaderParser(text, file->path()).Parse();
}

// The elements in the order of the file.
void ReadElements(ByteSource* file, const Element& element, const Tensor& tensor) {
  if (element.dtype == DType::kString) {
    if (tensor.size() == 0) return;
    const Tensor data(DType::kUInt8, {element.bytes});
    for (std::int64_t i = 0; i < tensor.size(); ++i) {
      file->Read(data.raw(), element.bytes, "an element");
      tensor.data<std::string>()[i] = DecodeString(static_cast<const std::byte*>(data.raw()), element, file->path());
    }
    return;
  }
  file->Read(tensor.raw(), tensor.size_bytes(), "the elements");
  auto* data = static_cast<std::byte*>(tensor.raw());
  if (element.swapped) SwapBytes(data, tensor.size(), element.bytes);
  if (element.dtype == DType::kBool) {  // a bool is 0 or 1 in memory
    for (std::int64_t i = 0; i < tensor.size(); ++i) data[i] = data[i] != std::byte{0} ? std::byte{1} : std::byte{0};
  }
}

// Reads to the end, so that whatever is wrong with the source is found.
void ReadOver(ByteSource* file) {
  std::vector<std::byte> block(static_cast<size_t>(std::min<std::int64_t>(file->left(), 1 << 16)));
  while (file->left() > 0) file->Read(block.data(), std::min(file->left(), std::ssize(block)), "the elements");
}

// The width of the strings, in characters of `utf32` or bytes; at least 1, as NumPy has it.
std::int64_t StringWidth(const Tensor& tensor, const std::string& path, bool* utf32) {
  *utf32 = true;
  std::int64_t characters = 1;
  std::int64_t bytes = 1;
  for (std::int64_t i = 0; i < tensor.size(); ++i) {
    const std::string& text = tensor.data<std::string>()[i];
    if (text.ends_with('\0')) {
      throw Error(ErrorCode::kInputOutput,
                  StrCat("cannot write ", path, ": element ", i, " ends in a zero byte, which .npy drops"));
    }
    bytes = std::max(bytes, static_cast<std::int64_t>(text.size()));
    const auto codes = DecodeUtf8(text);
    if (!codes) *utf32 = false;
    if (codes) characters = std::max(characters, static_cast<std::int64_t>(codes->size()));
  }
  return *utf32 ? characters : bytes;
}

// Strings, each as wide as the widest, as bytes.
Tensor EncodeStrings(const Tensor& tensor, std::int64_t width, bool utf32) {
  const std::int64_t bytes_of_one = width * (utf32 ? 4 : 1);
  Tensor encoded = Tensor::Zeros(DType::kUInt8, Shape({tensor.size(), bytes_of_one}));
  for (std::int64_t i = 0; i < tensor.size(); ++i) {
    CountWork(kWorkOfString);
    const std::string& text = tensor.data<std::string>()[i];
    std::uint8_t* out = encoded.data<std::uint8_t>() + i * bytes_of_one;
    if (utf32) {
      const std::vector<std::uint32_t> codes = *DecodeUtf8(text);
      if (!codes.empty()) std::memcpy(out, codes.data(), codes.size() * sizeof(codes[0]));
    } else {
      std::copy(text.begin(), text.end(), out);
    }
  }
  return encoded;
}

std::string NumberDescr(DType dtype) {
  switch (dtype) {
    case DType::kFloat16: return "<f2";
    case DType::kDouble: return "<f8";
    case DType::kInt8: return "|i1";
    case DType::kInt16: return "<i2";
    case DType::kInt32: return "<i4";
    case DType::kInt64: return "<i8";
    case DType::kUInt8: return "|u1";
    case DType::kUInt16: return "<u2";
    case DType::kBool: return "|b1";
    default: return "<f4";
  }
}

std::string HeaderBytes(const std::string& descr, const Shape& shape) {
  std::string text = StrCat("{'descr': '", descr, "', 'fortran_order': False, 'shape': (", Join(shape.dims(), ", "),
                            shape.rank() == 1 ? ",), }" : "), }");
  // Spaces and a line feed, so that the elements start at a multiple of 64 bytes.
  constexpr size_t kBefore = 10;
  constexpr size_t kAlignment = 64;
  text.append(kAlignment - 1 - (kBefore + text.size()) % kAlignment, ' ');
  text.push_back('\n');
  const std::array<char, 4> rest = {1, 0, static_cast<char>(text.size() & 0xff), static_cast<char>(text.size() >> 8)};
  return StrCat(kMagic, std::string_view(rest.data(), rest.size()), text);
}

}  // namespace

TensorInfo ReadNpyFrom(ByteSource* source, const std::function<Tensor(DType, const Shape&)>& find_place) {
  const std::string& path = source->path();
  const Header header = ReadHeader(source);
  const Element element = ParseDescr(header.descr, path);
  try {
    const Shape shape(header.shape);
    std::int64_t needed = 0;
    if (__builtin_mul_overflow(shape.size(), element.bytes, &needed) || needed != source->left()) {
      throw Error(ErrorCode::kInputOutput,
                  StrCat("an array '", header.descr, "' ", shape, " has ", shape.size(), " elements of ", element.bytes,
                         " bytes, the file has ", source->left(), " bytes of them"));
    }
    // Characters are not counted among the memory of tensors, and an archive may hold far more of them than its bytes.
    if (const std::int64_t limit = TensorMemory().limit; element.dtype == DType::kString && needed > limit) {
      throw Error(ErrorCode::kOutOfMemory, StrCat("strings ", shape, " of ", element.bytes, " bytes each take ", needed,
                                                  " bytes; ", limit, " are allowed ", kRaiseMemoryLimit));
    }
    const Tensor place = find_place(element.dtype, shape);
    if (!place.defined()) {
      ReadOver(source);
    } else if (!header.fortran_order || shape.rank() < 2) {
      ReadElements(source, element, place);
    } else {
      const Tensor as_in_file(element.dtype, shape);
      ReadElements(source, element, as_in_file);
      CopyFromFortranOrder(as_in_file, place);
    }
    return {.dtype = element.dtype, .shape = shape};
  } catch (const Error& error) {
    if (error.message().starts_with(path) || error.code() == ErrorCode::kCancelled) throw;
    throw Error(error.code() == ErrorCode::kOutOfMemory ? error.code() : ErrorCode::kInputOutput,
                StrCat(path, ": ", error.message()));
  }
}

Tensor ReadNpy(const std::string& path) {
  FileReader file(path);
  Tensor tensor;
  ReadNpyFrom(&file, [&](DType dtype, const Shape& shape) { return tensor = Tensor(dtype, shape); });
  return tensor;
}

NpyBytes EncodeNpy(const Tensor& anywhere, const std::string& path) {
  const Tensor tensor = WithMemoryFor("a copy to be written to", path, [&] {
    const Tensor on_host = anywhere.To({});
    return on_host.dtype() == DType::kBFloat16 ? Widened(on_host) : on_host;
  });
  if (tensor.dtype() != DType::kString) {
    return {.header = HeaderBytes(NumberDescr(tensor.dtype()), tensor.shape()), .elements = tensor};
  }
  bool utf32 = false;
  const std::int64_t width = StringWidth(tensor, path, &utf32);
  return {.header = HeaderBytes(StrCat(utf32 ? "<U" : "|S", width), tensor.shape()),
          .elements = EncodeStrings(tensor, width, utf32)};
}

void WriteNpy(const Tensor& tensor, const std::string& path) {
  const NpyBytes bytes = EncodeNpy(tensor, path);
  FileWriter file(path);
  file.Write(bytes.header);
  file.Write(bytes.elements.raw(), bytes.elements.size_bytes());
  file.Commit();
}

}  // namespace stepnet
