// Messages as JSON for others to read.
#pragma once

#include <string>

namespace google::protobuf {
class Message;
}

namespace stepnet::runner {

// Fields by their names in the .proto files, in ASCII: nothing in names of files shall drive a terminal, or be hidden
// from who reads it. Bytes of names that are no UTF-8 become U+FFFD, in `*message` too. Throws kInputOutput, naming
// `path`.
std::string JsonText(google::protobuf::Message* message, const std::string& path);

}  // namespace stepnet::runner
