// Source: Protocol Buffers, "Encoding": a message is a sequence of tags (field number * 8 + wire type) with values.
#include "stepnet/io/wire_scan.h"

#include <google/protobuf/descriptor.h>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

enum WireType { kVarint = 0, kFixed64 = 1, kLength = 2, kStartGroup = 3, kEndGroup = 4, kFixed32 = 5 };

// Upper bounds for what the C++ library keeps, in bytes: a string, a repeated scalar (the array grows by doubling).
constexpr std::int64_t kStringBytes = 64;
constexpr std::int64_t kScalarBytes = 16;

constexpr std::int64_t kWorkOfField = 10;

WireType WireTypeOf(const FieldDescriptor& field) {
  switch (field.type()) {
    case FieldDescriptor::TYPE_STRING:
    case FieldDescriptor::TYPE_BYTES:
    case FieldDescriptor::TYPE_MESSAGE: return kLength;
    case FieldDescriptor::TYPE_FLOAT:
    case FieldDescriptor::TYPE_FIXED32:
    case FieldDescriptor::TYPE_SFIXED32: return kFixed32;
    case FieldDescriptor::TYPE_DOUBLE:
    case FieldDescriptor::TYPE_FIXED64:
    case FieldDescriptor::TYPE_SFIXED64: return kFixed64;
    default: return kVarint;
  }
}

bool IsText(std::string_view bytes) {
  for (const char c : bytes) {
    const auto code = static_cast<unsigned char>(c);
    if (code < 0x20 && c != '\t' && c != '\n' && c != '\r') return false;
  }
  return true;
}

class Scanner {
 public:
  explicit Scanner(std::string_view bytes) : bytes_(bytes) {}

  // Walks [position_, end) as a message of `type`.
  bool Message(const Descriptor& type, size_t end, int depth) {
    result_.max_bytes += kMaxMessageBytes;
    while (position_ < end) {
      const size_t start = position_;
      std::uint64_t tag = 0;
      if (!Varint(end, &tag)) return false;
      const std::uint64_t number = tag >> 3;
      const auto wire = static_cast<WireType>(tag & 7);
      if (number == 0 || number > static_cast<std::uint64_t>(FieldDescriptor::kMaxNumber)) {
        return Fail(StrCat("byte ", start, " starts no field of ", type.name()));
      }
      const FieldDescriptor* field = type.FindFieldByNumber(static_cast<int>(number));
      if (!Field(type, field, static_cast<int>(number), wire, start, end, depth)) return false;
    }
    return true;
  }

  WireScan TakeResult() { return std::move(result_); }

 private:
  bool Field(const Descriptor& type, const FieldDescriptor* field, int number, WireType wire, size_t start, size_t end,
             int depth) {
    const auto name = [&] {
      return field != nullptr ? StrCat("field ", type.name(), ".", field->name())
                              : StrCat("field ", number, " of ", type.name());
    };
    size_t length = 0;
    switch (wire) {
      case kVarint: {
        std::uint64_t value = 0;
        if (!Varint(end, &value)) return false;
        break;
      }
      case kFixed64: length = 8; break;
      case kFixed32: length = 4; break;
      case kLength: {
        std::uint64_t value = 0;
        if (!Varint(end, &value)) return false;
        if (value > end - position_) {
          return Fail(StrCat(name(), " at byte ", start, " has ", value, " bytes, ", end - position_, " are left"));
        }
        length = static_cast<size_t>(value);
        break;
      }
      default: return Fail(StrCat("byte ", start, " starts no field of ", type.name()));
    }
    if (length > end - position_) {
      return Fail(StrCat(name(), " at byte ", start, " needs ", length, " bytes, ", end - position_, " are left"));
    }
    const std::string_view content = bytes_.substr(position_, length);
    const bool odd = IsOdd(field, wire, content);
    ++result_.fields;
    if (odd) ++result_.oddities;
    if (depth == 0 && !odd) ++result_.known;
    result_.max_bytes += BytesOf(field, wire, content);
    CountWork(kWorkOfField + static_cast<std::int64_t>(length));
    if (!odd && field->type() == FieldDescriptor::TYPE_MESSAGE) {
      if (depth == kMaxMessageNesting) {
        return Fail(StrCat("messages nest deeper than ", kMaxMessageNesting, " at byte ", start));
      }
      return Message(*field->message_type(), position_ + length, depth + 1);
    }
    position_ += length;
    return true;
  }

  static bool IsOdd(const FieldDescriptor* field, WireType wire, std::string_view content) {
    if (field == nullptr) return true;
    const bool packed = wire == kLength && field->is_packable();
    if (wire != WireTypeOf(*field) && !packed) return true;
    return field->type() == FieldDescriptor::TYPE_STRING && !IsText(content);
  }

  static std::int64_t BytesOf(const FieldDescriptor* field, WireType wire, std::string_view content) {
    const auto length = static_cast<std::int64_t>(content.size());
    if (wire != kLength) return kScalarBytes;
    if (field == nullptr || !field->is_packable()) return kStringBytes + length;
    if (WireTypeOf(*field) != kVarint) return kScalarBytes + 2 * length;
    return kScalarBytes + kScalarBytes * length;
  }

  // At most ten bytes, as the parser has it.
  bool Varint(size_t end, std::uint64_t* value) {
    *value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      if (position_ == end) return Fail(StrCat("the bytes end within a field, at byte ", position_));
      const auto byte = static_cast<unsigned char>(bytes_[position_++]);
      if (shift < 64) *value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) return true;
    }
    return Fail(StrCat("a number of more than ten bytes ends at byte ", position_));
  }

  bool Fail(std::string problem) {
    result_.problem = std::move(problem);
    return false;
  }

  std::string_view bytes_;
  size_t position_ = 0;
  WireScan result_;
};

}  // namespace

WireScan ScanWire(const google::protobuf::Descriptor& type, std::string_view bytes) {
  Scanner scanner(bytes);
  scanner.Message(type, bytes.size(), 0);
  return scanner.TakeResult();
}

}  // namespace stepnet
