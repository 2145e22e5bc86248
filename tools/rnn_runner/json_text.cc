#include "stepnet/tools/rnn_runner/json_text.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <vector>

#include "stepnet/core/error.h"
#include "stepnet/core/printable.h"
#include "stepnet/core/strings.h"

namespace stepnet::runner {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr std::uint32_t kNoUtf8 = 0xfffd;

std::string AsciiJson(std::string_view json) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string ascii;
  const auto add = [&](std::uint32_t unit) {
    ascii += "\\u";
    for (int shift = 12; shift >= 0; shift -= 4) ascii += kDigits[unit >> shift & 15];
  };
  while (!json.empty()) {
    const Utf8Character character = FirstCharacter(json);
    const std::uint32_t code = character.bytes > 0 ? character.code : kNoUtf8;
    if (code < 0x7f) {
      ascii += json[0];
    } else if (code <= 0xffff) {
      add(code);
    } else {
      add(0xd800 + (code - 0x10000) / 0x400);
      add(0xdc00 + code % 0x400);
    }
    json.remove_prefix(std::max<size_t>(1, character.bytes));
  }
  return ascii;
}

std::string WithoutStrangeBytes(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const size_t bytes = FirstCharacter(text).bytes;
    result += bytes > 0 ? text.substr(0, bytes) : "\xef\xbf\xbd";
    text.remove_prefix(std::max<size_t>(1, bytes));
  }
  return result;
}

// The library leaves out strings that are no UTF-8, without a word.
void MakeUtf8(Message* message) {
  const google::protobuf::Reflection& reflection = *message->GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(*message, &fields);
  for (const FieldDescriptor* field : fields) {
    const bool is_message = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (!is_message && field->type() != FieldDescriptor::TYPE_STRING) continue;
    if (!field->is_repeated()) {
      if (is_message) {
        MakeUtf8(reflection.MutableMessage(message, field));
      } else {
        reflection.SetString(message, field, WithoutStrangeBytes(reflection.GetString(*message, field)));
      }
      continue;
    }
    for (int i = 0; i < reflection.FieldSize(*message, field); ++i) {
      if (is_message) {
        MakeUtf8(reflection.MutableRepeatedMessage(message, field, i));
      } else {
        const std::string text = reflection.GetRepeatedString(*message, field, i);
        reflection.SetRepeatedString(message, field, i, WithoutStrangeBytes(text));
      }
    }
  }
}

}  // namespace

std::string JsonText(Message* message, const std::string& path) {
  MakeUtf8(message);
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  std::string json;
  const auto status = google::protobuf::util::MessageToJsonString(*message, &json, options);
  if (!status.ok()) {
    throw Error(ErrorCode::kInputOutput, StrCat(path, " cannot be written as JSON: ", std::string(status.message())));
  }
  return AsciiJson(json);
}

}  // namespace stepnet::runner
