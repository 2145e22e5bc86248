// Reading and writing messages of the file format: binary or text, whichever the file is.
//
// Files are untrusted. Nesting deeper than 100 messages, truncated data and files larger than 2 GiB are errors.
#pragma once

#include <string>

namespace google::protobuf {
class Message;
}

namespace stepnet {

class NetDef;

// Reads `path` into `*message`, which keeps its value on failure. Throws kInputOutput: for text with line, column and,
// for unknown field names, the nearest one.
void ReadMessage(const std::string& path, google::protobuf::Message* message);

// Text when the name ends in .pbtxt, .prototxt or .txt, otherwise binary. Writes a temporary file beside `path` and
// renames it, so that `path` holds the old or the new content, never a part. Throws kInputOutput.
void WriteMessage(const google::protobuf::Message& message, const std::string& path);

// Parses text; `what` names it in errors ("step_net of op 3"). Throws kInputOutput.
void ParseMessageText(const std::string& text, const std::string& what, google::protobuf::Message* message);
std::string PrintMessageText(const google::protobuf::Message& message);

bool IsTextFileName(const std::string& path);

// Writes `content` to `path` by way of a temporary file, as WriteMessage does. Throws kInputOutput.
void WriteFile(const std::string& path, const std::string& content);
std::string ReadFile(const std::string& path);

}  // namespace stepnet
