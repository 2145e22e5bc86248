// Damage to messages, tensors, texts and bytes.
#include <algorithm>
#include <array>
#include <vector>

#include "damage.h"

namespace stepnet {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Sets a field that holds no message, or adds to it when it is repeated.
void SetField(Message* message, const FieldDescriptor* field, std::mt19937& random) {
  const Reflection& of = *message->GetReflection();
  const std::int64_t whole = DamagedInteger(Below(4, random), random);
  const double number = DamagedNumber(1, random);
  const bool adds = field->is_repeated();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32: {
      const auto value = static_cast<std::int32_t>(whole);
      return adds ? of.AddInt32(message, field, value) : of.SetInt32(message, field, value);
    }
    case FieldDescriptor::CPPTYPE_INT64:
      return adds ? of.AddInt64(message, field, whole) : of.SetInt64(message, field, whole);
    case FieldDescriptor::CPPTYPE_UINT32: {
      const auto value = static_cast<std::uint32_t>(whole);
      return adds ? of.AddUInt32(message, field, value) : of.SetUInt32(message, field, value);
    }
    case FieldDescriptor::CPPTYPE_UINT64: {
      const auto value = static_cast<std::uint64_t>(whole);
      return adds ? of.AddUInt64(message, field, value) : of.SetUInt64(message, field, value);
    }
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return adds ? of.AddDouble(message, field, number) : of.SetDouble(message, field, number);
    case FieldDescriptor::CPPTYPE_FLOAT: {
      const auto value = static_cast<float>(number);
      return adds ? of.AddFloat(message, field, value) : of.SetFloat(message, field, value);
    }
    case FieldDescriptor::CPPTYPE_BOOL:
      return adds ? of.AddBool(message, field, whole % 2 == 0) : of.SetBool(message, field, whole % 2 == 0);
    case FieldDescriptor::CPPTYPE_ENUM: {
      const auto* value = field->enum_type()->value(Below(field->enum_type()->value_count(), random));
      return adds ? of.AddEnum(message, field, value) : of.SetEnum(message, field, value);
    }
    case FieldDescriptor::CPPTYPE_STRING: {
      const bool has = !adds && of.HasField(*message, field);
      const std::string value = Misspelt(has ? of.GetString(*message, field) : "x", random);
      return adds ? of.AddString(message, field, value) : of.SetString(message, field, value);
    }
    case FieldDescriptor::CPPTYPE_MESSAGE: return;
  }
}

void DamageRepeated(Message* message, const FieldDescriptor* field, std::mt19937& random) {
  const Reflection& of = *message->GetReflection();
  const int size = of.FieldSize(*message, field);
  const bool is_message = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
  if (size > 0) {
    const int at = Below(size, random);
    switch (random() % 6) {
      case 0: return of.RemoveLast(message, field);
      case 1: return of.SwapElements(message, field, at, Below(size, random));
      case 2:
        if (is_message) return of.AddMessage(message, field)->CopyFrom(of.GetRepeatedMessage(*message, field, at));
        break;
      default:
        if (is_message) return DamageMessage(of.MutableRepeatedMessage(message, field, at), random);
    }
  }
  if (!is_message) return SetField(message, field, random);
  if (!of.AddMessage(message, field)->IsInitialized()) of.RemoveLast(message, field);
}

// A word, a number, a space or a sign.
std::vector<std::string> TokensOf(const std::string& text) {
  const auto kind = [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) || c == '_' || c == '.') return 0;
    return std::isspace(byte) ? 1 : 2;
  };
  std::vector<std::string> tokens;
  for (size_t i = 0; i < text.size(); ++i) {
    if (i == 0 || kind(text[i]) == 2 || kind(text[i]) != kind(text[i - 1])) tokens.emplace_back();
    tokens.back() += text[i];
  }
  return tokens;
}

void DamageToken(std::vector<std::string>* tokens, std::mt19937& random) {
  const auto any = [&] { return Below(static_cast<int>(tokens->size()), random); };
  int at = any();
  for (int tries = 0; tries < 4 && std::isspace(static_cast<unsigned char>((*tokens)[at][0])); ++tries) at = any();
  std::string& token = (*tokens)[at];
  switch (random() % 8) {
    case 0: token.clear(); break;
    case 1: token += token; break;
    case 2: std::swap(token, (*tokens)[any()]); break;
    case 3:
    case 4: token = (*tokens)[any()]; break;
    default:
      if (std::isdigit(static_cast<unsigned char>(token[0]))) {
        token = std::to_string(DamagedInteger(std::strtoll(token.c_str(), nullptr, 10), random));
      } else if (std::isalpha(static_cast<unsigned char>(token[0]))) {
        token = Misspelt(token, random);
      } else {
        static constexpr std::string_view kSigns = "+-*/@()[]{},;:=<>.#\"\n0";
        token = kSigns[random() % kSigns.size()];
      }
  }
  std::erase(*tokens, "");
}

Shape DamagedShape(const Shape& shape, std::mt19937& random) {
  std::vector<std::int64_t> sizes = shape.ToVector();
  const int rank = static_cast<int>(sizes.size());
  if (rank == 0 || random() % 8 == 0) {
    sizes.insert(sizes.begin() + Below(rank + 1, random), random() % 3);
  } else {
    const int at = Below(rank, random);
    switch (random() % 5) {
      case 0: sizes.erase(sizes.begin() + at); break;
      case 1: sizes[at] = 0; break;
      case 2: std::swap(sizes[at], sizes[Below(rank, random)]); break;
      default: sizes[at] = std::max<std::int64_t>(0, sizes[at] + (random() % 2 == 0 ? 1 : -1));
    }
  }
  return Shape(sizes);
}

// Elements that stay where there is room, else zeros.
Tensor Converted(const Tensor& tensor, DType dtype, const Shape& shape, std::mt19937& random) {
  Tensor result = Tensor::Zeros(dtype, shape);
  if (dtype == DType::kString) return result;
  if (tensor.dtype() == dtype) {
    const std::int64_t elements = std::min(tensor.size(), result.size());
    CopyElements(tensor.Reshaped({tensor.size()}).Slice(0, elements).View(),
                 result.Reshaped({result.size()}).Slice(0, elements).View());
    return result;
  }
  auto* bytes = static_cast<unsigned char*>(result.raw());
  // A bool is 0 or 1.
  for (std::int64_t i = 0; i < result.size_bytes(); ++i) bytes[i] = dtype == DType::kBool ? random() % 2 : random() % 3;
  return result;
}

void DamageElements(Tensor* tensor, std::mt19937& random) {
  if (tensor->size() == 0) return;
  const auto at = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(tensor->size()));
  const double number = DamagedNumber(1, random);
  const std::int64_t whole = DamagedInteger(1, random);
  switch (tensor->dtype()) {
    case DType::kFloat: tensor->data<float>()[at] = static_cast<float>(number); break;
    case DType::kDouble: tensor->data<double>()[at] = number; break;
    case DType::kInt32: tensor->data<std::int32_t>()[at] = static_cast<std::int32_t>(whole); break;
    case DType::kInt64: tensor->data<std::int64_t>()[at] = whole; break;
    case DType::kBool: tensor->data<bool>()[at] ^= true; break;
    case DType::kString: tensor->data<std::string>()[at] += "x"; break;
    default: static_cast<unsigned char*>(tensor->raw())[at] ^= static_cast<unsigned char>(whole);
  }
}

}  // namespace

void DamageMessage(Message* message, std::mt19937& random) {
  const Reflection& of = *message->GetReflection();
  std::vector<const FieldDescriptor*> fields;
  of.ListFields(*message, &fields);
  const google::protobuf::Descriptor& type = *message->GetDescriptor();
  if (type.field_count() == 0) return;
  if (random() % 64 == 0) return of.MutableUnknownFields(message)->AddVarint(4711, random());
  // Mostly a field that the message has.
  const bool is_new = fields.empty() || random() % 4 == 0;
  const FieldDescriptor* field =
      is_new ? type.field(Below(type.field_count(), random)) : fields[Below(static_cast<int>(fields.size()), random)];
  if (field->is_repeated()) return DamageRepeated(message, field, random);
  if (random() % 8 == 0 && !field->is_required()) return of.ClearField(message, field);
  if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) return SetField(message, field, random);
  Message* part = of.MutableMessage(message, field);
  if (!part->IsInitialized()) return of.ClearField(message, field);
  DamageMessage(part, random);
}

void Damage(NamedTensors* tensors, std::mt19937& random) {
  if (tensors->empty()) return;
  const int at = Below(static_cast<int>(tensors->size()), random);
  Tensor& tensor = (*tensors)[at].second;
  switch (random() % 8) {
    case 0: tensors->erase(tensors->begin() + at); break;
    case 1:
    case 2: {
      const auto dtype = static_cast<DType>(random() % (static_cast<unsigned>(DType::kString) + 1));
      tensor = Converted(tensor, dtype, tensor.shape(), random);
      break;
    }
    case 3:
    case 4:
    case 5: tensor = Converted(tensor, tensor.dtype(), DamagedShape(tensor.shape(), random), random); break;
    default: DamageElements(&tensor, random);
  }
}

std::string DamagedText(const std::string& text, std::mt19937& random) {
  std::vector<std::string> tokens = TokensOf(text);
  for (unsigned k = 1 + random() % 3; k > 0 && !tokens.empty(); --k) DamageToken(&tokens, random);
  std::string damaged;
  for (const std::string& token : tokens) damaged += token;
  return damaged;
}

std::string DamagedBytes(std::string bytes, std::mt19937& random) {
  if (bytes.empty()) return bytes;
  const auto position = [&] { return random() % bytes.size(); };
  switch (random() % 4) {
    case 0: return bytes.substr(0, position());
    case 1: {
      for (unsigned flips = 1 + random() % 8; flips > 0; --flips) {
        bytes[position()] ^= static_cast<char>(1U << random() % 8);
      }
      return bytes;
    }
    case 2:  // a small number becomes a large one
      return bytes.replace(position(), 1, "\xff\xff\xff\xff\x0f");
    default: {
      const size_t at = position();
      return bytes.insert(at, bytes.substr(at, 1 + random() % 64));
    }
  }
}

}  // namespace stepnet
