#include "stepnet/io/proto_io.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/message.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "stepnet/core/error.h"
#include "stepnet/core/memory_limit_text.h"
#include "stepnet/core/strings.h"
#include "stepnet/core/system_memory.h"
#include "stepnet/core/tensor.h"
#include "stepnet/io/checked_streams.h"
#include "stepnet/io/minidb.h"
#include "stepnet/io/safetensors.h"
#include "stepnet/io/wire_scan.h"
#include "stepnet/io/zip_archive.h"
#include "stepnet/proto/cell.pb.h"
#include "stepnet/proto/metanet.pb.h"
#include "stepnet/proto/net.pb.h"
#include "stepnet/proto/train.pb.h"

namespace stepnet {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::TextFormat;

// The text between the first `before` and the `"` that follows it, or nothing.
std::optional<std::string> Quoted(const std::string& text, std::string_view before) {
  const size_t found = text.find(before);
  if (found == std::string::npos) return std::nullopt;
  const size_t begin = found + before.size();
  const size_t end = text.find('"', begin);
  if (end == std::string::npos) return std::nullopt;
  return text.substr(begin, end - begin);
}

// Enum values that some field `name` of `type`, or of a message within it, can have.
void CollectEnumValues(const Descriptor& type, const std::string& name, std::set<const Descriptor*>* seen,
                       std::vector<std::string>* values) {
  if (!seen->insert(&type).second) return;
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (field.message_type() != nullptr) CollectEnumValues(*field.message_type(), name, seen, values);
    if (field.name() != name || field.enum_type() == nullptr) continue;
    for (int k = 0; k < field.enum_type()->value_count(); ++k) {
      values->push_back(field.enum_type()->value(k)->name());
    }
  }
}

// "lr" of "learning_rate".
std::string InitialsOf(const std::string& name) {
  std::string initials;
  for (size_t i = 0; i < name.size(); ++i) {
    if (i == 0 || name[i - 1] == '_') initials += name[i];
  }
  return initials;
}

// The nearest field, also by its initials.
std::string FieldHint(const std::string& wrong, const Descriptor& type) {
  std::vector<std::string> names;
  for (int i = 0; i < type.field_count(); ++i) names.push_back(type.field(i)->name());
  const std::string nearest = DidYouMean(wrong, names);
  const auto same = std::ranges::find(names, wrong, InitialsOf);
  if (!nearest.empty() || wrong.size() < 2 || same == names.end()) return nearest;
  return StrCat("; did you mean \"", *same, "\"?");
}

// Where a field of that name stands, if not in `enclosing`: in a message of which it has one, or in the whole, `type`.
std::string BlockHint(const std::string& name, const Descriptor& enclosing, const Descriptor& type) {
  std::vector<std::string> blocks;
  for (int i = 0; i < enclosing.field_count(); ++i) {
    const FieldDescriptor& field = *enclosing.field(i);
    if (field.message_type() == nullptr || field.is_repeated() ||
        field.message_type()->FindFieldByName(name) == nullptr)
      continue;
    blocks.push_back(StrCat(field.name(), " { ", name, ": … }"));
  }
  if (!blocks.empty()) return StrCat("; it stands in a block: ", Join(blocks, " or "));
  if (&enclosing == &type || type.FindFieldByName(name) == nullptr) return "";
  return StrCat("; it is a field of ", type.name(), ", outside of this block");
}

// The nearest value or, where none is near, all.
std::string ValueHint(const std::string& wrong, const std::vector<std::string>& values) {
  const std::string nearest = DidYouMean(wrong, values);
  return !nearest.empty() || values.empty() ? nearest : StrCat("; it can be ", Join(values, ", "));
}

// `; did you mean "op"?` for the parser's messages about names, otherwise "".
std::string Suggestion(const std::string& message, const Descriptor& type) {
  if (const auto field_name = Quoted(message, "has no field named \"")) {
    const auto type_name = Quoted(message, "Message type \"");
    const Descriptor* enclosing = type_name ? type.file()->pool()->FindMessageTypeByName(*type_name) : nullptr;
    if (enclosing == nullptr) return "";
    const std::string block = BlockHint(*field_name, *enclosing, type);
    return block.empty() ? FieldHint(*field_name, *enclosing) : block;
  }
  if (message.starts_with("Expected string, got: ")) return "; strings stand in double quotes";
  if (message.starts_with("Expected integer or identifier, got: \"")) return "; names of values stand without quotes";
  if (const auto value = Quoted(message, "Unknown enumeration value of \"")) {
    const auto field_name = Quoted(message, "for field \"");
    std::set<const Descriptor*> seen;
    std::vector<std::string> values;
    if (field_name) CollectEnumValues(type, *field_name, &seen, &values);
    return ValueHint(*value, values);
  }
  return "";
}

// Keeps the first error, as "FILE:LINE:COLUMN: message".
class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  FirstError(const std::string& what, const Descriptor& type) : what_(what), type_(type) {}

  void AddError(int line, int column, const std::string& message) override {
    if (!text_.empty()) return;
    if (line >= 0) place_ = {line, column};
    text_ = what_;
    if (line >= 0) text_ += StrCat(":", line + 1, ":", column + 1);
    // The parser's sentences end with a full stop; ours do not, and the package of the messages says nothing.
    std::string sentence = message;
    if (sentence.ends_with('.')) sentence.pop_back();
    for (size_t at; (at = sentence.find("\"stepnet.")) != std::string::npos;) sentence.erase(at + 1, 8);
    text_ += StrCat(": ", sentence, Suggestion(message, type_));
  }
  void AddWarning(int, int, const std::string&) override {}

  const std::string& text() const { return text_; }
  // Line and column from 0; of an error in the message as a whole, the end of the text.
  std::pair<int, int> place() const { return place_; }

 private:
  std::string what_;
  const Descriptor& type_;
  std::string text_;
  std::pair<int, int> place_ = {std::numeric_limits<int>::max(), 0};
};

void CheckMemory(const std::string& what, std::int64_t bytes) {
  const std::int64_t limit = TensorMemory().limit;
  if (bytes <= limit) return;
  throw Error(ErrorCode::kOutOfMemory, StrCat(what, " may take ", bytes, " bytes of memory once it is read; ", limit,
                                              " are allowed ", kRaiseMemoryLimit));
}

// Gives device options the field that binary files have, whose name later versions of Caffe2 have changed; false, with
// the error, for one that has both and in them two numbers.
bool TakeDeviceIds(FirstError* error, Message* message) {
  if (auto* const option = dynamic_cast<DeviceOption*>(message)) {
    if (!option->has_device_id()) return true;
    if (option->has_cuda_gpu_id() && option->cuda_gpu_id() != option->device_id()) {
      error->AddError(-1, 0,
                      StrCat("a device_option has device_id ", option->device_id(), " and cuda_gpu_id ",
                             option->cuda_gpu_id(), ", which are two names of one number; leave one out"));
      return false;
    }
    option->set_cuda_gpu_id(option->device_id());
    option->clear_device_id();
    return true;
  }
  const google::protobuf::Reflection& fields = *message->GetReflection();
  std::vector<const FieldDescriptor*> present;
  fields.ListFields(*message, &present);
  for (const FieldDescriptor* const field : present) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (!field->is_repeated()) {
      if (!TakeDeviceIds(error, fields.MutableMessage(message, field))) return false;
      continue;
    }
    for (int i = 0; i < fields.FieldSize(*message, field); ++i) {
      if (!TakeDeviceIds(error, fields.MutableRepeatedMessage(message, field, i))) return false;
    }
  }
  return true;
}

// Parses into `message`; false with the first error in `error`.
bool ParseText(const std::string& text, const std::string& what, FirstError* error, Message* message) {
  // A message takes a brace, a value at least two characters: neither takes more memory than this.
  constexpr std::int64_t kBytesOfCharacter = 24;
  const std::int64_t messages = std::ranges::count_if(text, [](char c) { return c == '{' || c == '<'; });
  CheckMemory(what, messages * kMaxMessageBytes + static_cast<std::int64_t>(text.size()) * kBytesOfCharacter);
  TextFormat::Parser parser;
  parser.RecordErrorsTo(error);
  parser.SetRecursionLimit(kMaxMessageNesting);
  CheckedInput input(WithoutByteOrderMark(text));
  const bool parses = parser.Parse(&input, message);
  input.Rethrow();
  if (!parses || text.find("device_id") == std::string::npos) return parses;
  return TakeDeviceIds(error, message);
}

void ParseScanned(const WireScan& scan, const std::string& bytes, const std::string& what, Message* message) {
  CheckMemory(what, scan.max_bytes);
  CheckedInput input(bytes);
  const bool parses = message->ParsePartialFromZeroCopyStream(&input);
  input.Rethrow();
  if (!parses) {
    throw Error(ErrorCode::kInputOutput,
                StrCat(what, " holds no ", message->GetDescriptor()->name(), " that can be parsed"));
  }
  if (!message->IsInitialized()) {
    throw Error(ErrorCode::kInputOutput,
                StrCat(what, " lacks required fields: ", message->InitializationErrorString()));
  }
}

// Prints values until the stream stops: the printer goes on to the end of the message, and values are what takes time.
class ValuePrinter : public TextFormat::FastFieldValuePrinter {
 public:
  using Generator = TextFormat::BaseTextGenerator;
  using Base = TextFormat::FastFieldValuePrinter;

  explicit ValuePrinter(const CheckedOutput& output) : output_(output) {}
  void PrintInt32(std::int32_t value, Generator* to) const override {
    if (!output_.is_stopped()) Base::PrintInt32(value, to);
  }
  void PrintInt64(std::int64_t value, Generator* to) const override {
    if (!output_.is_stopped()) Base::PrintInt64(value, to);
  }
  void PrintFloat(float value, Generator* to) const override {
    if (!output_.is_stopped()) Base::PrintFloat(value, to);
  }
  void PrintDouble(double value, Generator* to) const override {
    if (!output_.is_stopped()) Base::PrintDouble(value, to);
  }
  void PrintBytes(const std::string& value, Generator* to) const override {
    if (!output_.is_stopped()) Base::PrintBytes(value, to);
  }

 private:
  const CheckedOutput& output_;
};

bool HasAnyField(const Message& message) {
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  return !fields.empty();
}

struct Candidate {
  MessageKind kind;
  const Message* prototype;
  bool is_text = false;  // never binary
};

// The candidates, those first that are preferred when a file fits several.
const std::array<Candidate, 8>& Candidates() {
  static const std::array<Candidate, 8> candidates = {{
      {MessageKind::kNetDef, &NetDef::default_instance()},
      {MessageKind::kTensorProtos, &TensorProtos::default_instance()},
      {MessageKind::kMetaNetDef, &MetaNetDef::default_instance()},
      {MessageKind::kPlanDef, &PlanDef::default_instance()},
      {MessageKind::kBlobProto, &BlobProto::default_instance()},
      {MessageKind::kTensorProto, &TensorProto::default_instance()},
      {MessageKind::kCellDef, &CellDef::default_instance()},
      {MessageKind::kTrainConfig, &TrainConfig::default_instance(), /*is_text=*/true},
  }};
  return candidates;
}

// Some fields that a type does not know are normal: later versions of the format have more.
bool HasFewOddities(const WireScan& scan) {
  constexpr std::int64_t kMinUnusualFields = 4;
  return scan.oddities * kMinUnusualFields <= scan.fields;
}

// Short messages of one type can pass for another by accident, with fields that the other does not know.
MessageKind DetectBinaryKind(const std::string& content) {
  MessageKind best = MessageKind::kUnknown;
  std::int64_t fewest = std::numeric_limits<std::int64_t>::max();
  for (const Candidate& candidate : Candidates()) {
    if (candidate.is_text) continue;
    const WireScan scan = ScanWire(*candidate.prototype->GetDescriptor(), content);
    const bool fits = scan.ok() && scan.known > 0 && HasFewOddities(scan);
    if (!fits || scan.oddities >= fewest) continue;
    best = candidate.kind;
    fewest = scan.oddities;
  }
  return best;
}

// The kind that parses, or gets further than others before its first error.
MessageKind DetectTextKind(const std::string& content) {
  MessageKind best = MessageKind::kUnknown;
  std::set<std::pair<int, int>> places;
  for (const Candidate& candidate : Candidates()) {
    const std::unique_ptr<Message> message(candidate.prototype->New());
    FirstError error("", *message->GetDescriptor());
    if (ParseText(content, "the text", &error, message.get())) {
      if (HasAnyField(*message)) return candidate.kind;
    } else {
      if (places.empty() || error.place() > *places.rbegin()) best = candidate.kind;
      places.insert(error.place());
    }
  }
  return places.size() > 1 ? best : MessageKind::kUnknown;
}

constexpr std::string_view kMxnetArrays("\x12\x01\0\0\0\0\0\0", 8);  // how files of mxnet.nd.save begin
constexpr std::string_view kNoNames("\0\0\0\0\0\0\0\0", 8);  // how those of a list end: with the number of names

[[noreturn]] void ThrowOtherKind(const std::string& content, const std::string& what, const Message& message,
                                 const std::string& why) {
  const std::string& wanted = message.GetDescriptor()->name();
  const MessageKind kind = DetectKindOf(content);
  std::string text = StrCat(what, " does not hold a ", wanted);
  if (content.starts_with("\x93NUMPY")) {
    text +=
        ", it is a .npy of NumPy, one array without a name; numpy.savez(FILE, NAME=array) writes arrays by name, and "
        "Python takes {NAME: array}, too";
  } else if (content.starts_with(kMxnetArrays)) {
    const bool is_list = content.ends_with(kNoNames);
    text += StrCat(", it has arrays of MXNet", is_list ? " without names" : "",
                   "; where that is installed, numpy.savez(\"F.npz\", ",
                   is_list ? "*[array.asnumpy() for array in mxnet.nd.load(FILE)]"
                           : "**{name: array.asnumpy() for name, array in mxnet.nd.load(FILE).items()}",
                   ") writes a file that is read", is_list ? ", in which they are called arr_0, arr_1 and on" : "");
  } else if (kind != MessageKind::kUnknown && wanted != MessageKindName(kind)) {
    text += StrCat(", it looks like a ", MessageKindName(kind));
  } else if (what.ends_with(".onnx")) {
    text += "; `python -m stepnet.onnx MODEL.onnx NET.pbtxt PARAMS.safetensors` makes a net of a model in ONNX";
  } else if (what.ends_with(".safetensors")) {
    text += ", nor safetensors, which begin with the length of a header in 8 bytes and the header, in braces";
  } else if (!why.empty()) {
    text += StrCat(": ", why);
  }
  throw Error(ErrorCode::kInputOutput, text);
}

}  // namespace

bool LooksLikeText(std::string_view content) {
  return std::ranges::all_of(content, [](char c) {
    const auto code = static_cast<unsigned char>(c);
    return code >= 0x20 ? code != 0x7f : c == '\n' || c == '\t' || c == '\r' || c == '\f' || c == '\v';
  });
}

void PrepareMessages() {
  // Not std::call_once: the C library needs memory to pass an exception on from there.
  static const bool is_prepared = [] {
    RequireMemory(4 << 20, "Protocol Buffers");
    for (const auto describe :
         {&NetDef::descriptor, &MetaNetDef::descriptor, &CellDef::descriptor, &OptimizerDef::descriptor}) {
      static_cast<void>(describe());
    }
    return true;
  }();
  static_cast<void>(is_prepared);
}

void ParseMessageText(const std::string& text, const std::string& what, Message* message) {
  PrepareMessages();
  const std::unique_ptr<Message> fresh(message->New());
  FirstError error(what, *message->GetDescriptor());
  if (!ParseText(text, what, &error, fresh.get())) throw Error(ErrorCode::kInputOutput, error.text());
  message->GetReflection()->Swap(message, fresh.get());
}

void ParseMessageBytes(const std::string& bytes, const std::string& what, Message* message) {
  PrepareMessages();
  const std::unique_ptr<Message> fresh(message->New());
  const WireScan scan = ScanWire(*message->GetDescriptor(), bytes);
  if (!scan.ok()) {
    throw Error(ErrorCode::kInputOutput,
                StrCat(what, " does not hold a ", message->GetDescriptor()->name(), ": ", scan.problem));
  }
  ParseScanned(scan, bytes, what, fresh.get());
  message->GetReflection()->Swap(message, fresh.get());
}

void ReadMessage(const std::string& path, Message* message) { ParseMessage(ReadFile(path), path, message); }

void ParseMessage(const std::string& content, const std::string& what, Message* message) {
  PrepareMessages();
  const Descriptor& type = *message->GetDescriptor();
  if (content.empty()) throw Error(ErrorCode::kInputOutput, StrCat(what, " is empty, a ", type.name(), " is needed"));
  const std::unique_ptr<Message> fresh(message->New());
  const WireScan scan = ScanWire(type, content);
  const bool fits_binary = scan.ok() && scan.known > 0;
  // Bytes without control characters can be either, and are text nearly always. Others are text only by name, to get
  // the text parser's message about them.
  const bool looks_like_text = LooksLikeText(content);
  bool read = false;
  if (looks_like_text || (!fits_binary && IsTextFileName(what))) {
    FirstError error(what, type);
    read = ParseText(content, what, &error, fresh.get());
    if (!read && !fits_binary) {
      const MessageKind kind = DetectKindOf(content);
      const bool other = kind != MessageKind::kUnknown && type.name() != MessageKindName(kind);
      throw Error(ErrorCode::kInputOutput,
                  StrCat(error.text(), other ? StrCat(" (the file looks like a ", MessageKindName(kind), ")") : ""));
    }
    if (!read) fresh->Clear();
  }
  if (!read) {
    const auto is_other_kind = [&] {
      const MessageKind kind = DetectBinaryKind(content);
      return kind != MessageKind::kUnknown && type.name() != MessageKindName(kind);
    };
    if (!fits_binary || (!HasFewOddities(scan) && is_other_kind())) {
      ThrowOtherKind(content, what, *message, scan.problem);
    }
    ParseScanned(scan, content, what, fresh.get());
  }
  if (!HasAnyField(*fresh)) ThrowOtherKind(content, what, *message, "it sets no field");
  message->GetReflection()->Swap(message, fresh.get());
}

void WriteMessage(const Message& message, const std::string& path) {
  if (IsTextFileName(path)) return WriteFile(path, PrintMessageText(message));
  const size_t size = message.ByteSizeLong();
  if (size >= static_cast<size_t>(std::numeric_limits<std::int32_t>::max())) {
    throw Error(ErrorCode::kInputOutput, StrCat("cannot write ", path, ": the message has ", size,
                                                " bytes, and one message holds less than 2 GiB"));
  }
  std::string bytes;
  bytes.reserve(size);
  bool is_written = false;
  {
    CheckedOutput output(&bytes);
    is_written = message.SerializePartialToZeroCopyStream(&output);
    output.Rethrow();
  }
  if (!is_written) {
    throw Error(ErrorCode::kInputOutput, StrCat("cannot write ", path, ": the message cannot be serialised"));
  }
  WriteFile(path, bytes);
}

std::string PrintMessageText(const Message& message) {
  PrepareMessages();
  TextFormat::Printer printer;
  printer.SetHideUnknownFields(true);
  std::string text;
  CheckedOutput output(&text);
  printer.SetDefaultFieldValuePrinter(new ValuePrinter(output));  // which the printer then owns
  printer.Print(message, &output);
  output.Rethrow();
  return text;
}

bool IsTextFileName(const std::string& path) {
  return path.ends_with(".pbtxt") || path.ends_with(".prototxt") || path.ends_with(".txt");
}

const char* MessageKindName(MessageKind kind) {
  switch (kind) {
    case MessageKind::kUnknown: return "unknown";
    case MessageKind::kNetDef: return "NetDef";
    case MessageKind::kMetaNetDef: return "MetaNetDef";
    case MessageKind::kPlanDef: return "PlanDef";
    case MessageKind::kTensorProtos: return "TensorProtos";
    case MessageKind::kTensorProto: return "TensorProto";
    case MessageKind::kBlobProto: return "BlobProto";
    case MessageKind::kMiniDb: return "minidb";
    case MessageKind::kCellDef: return "CellDef";
    case MessageKind::kTrainConfig: return "TrainConfig";
    case MessageKind::kSafetensors: return "safetensors file";
    case MessageKind::kNpz: return ".npz archive";
  }
  return "unknown";
}

MessageKind DetectKind(const std::string& path) {
  if (LooksLikeMiniDb(path)) return MessageKind::kMiniDb;
  return DetectKindOf(ReadFile(path));
}

MessageKind DetectKindOf(const std::string& content) {
  PrepareMessages();
  if (content.empty()) return MessageKind::kUnknown;
  if (StartsSafetensors(content)) return MessageKind::kSafetensors;
  if (StartsZip(content)) return MessageKind::kNpz;
  if (!LooksLikeText(content)) return DetectBinaryKind(content);
  const MessageKind kind = DetectTextKind(content);
  return kind != MessageKind::kUnknown ? kind : DetectBinaryKind(content);
}

}  // namespace stepnet
