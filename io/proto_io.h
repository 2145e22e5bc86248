// Reading and writing messages of the file format: binary or text, whichever the file is.
//
// Files are untrusted. What a file holds decides how it is read, not its name. Nesting deeper than 100 messages,
// truncated data, files of 2 GiB or more, and messages that would take more memory than tensors may are errors.
#pragma once

#include <string>

#include "stepnet/io/file.h"

namespace google::protobuf {
class Message;
}

namespace stepnet {

// To be called before messages are looked at by the names of their fields; what is below does so. Protocol Buffers then
// make the descriptions of all types, and are of no use any more when memory is refused to them. Throws kOutOfMemory.
void PrepareMessages();

// Reads `path` into `*message`, which keeps its value on failure. Throws kInputOutput when the file cannot be read or
// does not hold such a message: for text as "FILE:LINE:COLUMN: …", for unknown names with the nearest one, for a file
// of another kind with that kind. A file without any field of the message is an error. Throws kOutOfMemory.
void ReadMessage(const std::string& path, google::protobuf::Message* message);

// Does what ReadMessage does, from what ReadFile gave; `what` names it in errors.
void ParseMessage(const std::string& content, const std::string& what, google::protobuf::Message* message);

// Text when the name ends in .pbtxt, .prototxt or .txt, otherwise binary. Replaces `path` at once (FileWriter). Text
// lacks what is not known here (unknown_fields.h). Throws kInputOutput.
void WriteMessage(const google::protobuf::Message& message, const std::string& path);

// Parses text; `what` names it in errors ("step_net of op 3"). Text without any field gives an empty message. Throws as
// ReadMessage does.
void ParseMessageText(const std::string& text, const std::string& what, google::protobuf::Message* message);
// Parses binary bytes; `what` names them in errors. No bytes give an empty message. Throws as ReadMessage does.
void ParseMessageBytes(const std::string& bytes, const std::string& what, google::protobuf::Message* message);
// Text that can be read back, so without what is not known here.
std::string PrintMessageText(const google::protobuf::Message& message);

bool IsTextFileName(const std::string& path);
// Whether bytes can be text: they have no control characters but white space.
bool LooksLikeText(std::string_view content);

// What a file is.
enum class MessageKind {
  kUnknown,
  kNetDef,
  kMetaNetDef,
  kPlanDef,
  kTensorProtos,
  kTensorProto,
  kBlobProto,
  kMiniDb,
  kCellDef,
  kTrainConfig,  // told from text alone, as people write it
  kSafetensors,
  kNpz,
};
const char* MessageKindName(MessageKind kind);  // "NetDef", …, "minidb"

// Tells from the content; kUnknown when nothing fits. Throws kInputOutput when the file cannot be read.
MessageKind DetectKind(const std::string& path);
MessageKind DetectKindOf(const std::string& content);  // of a file that is no minidb

}  // namespace stepnet
