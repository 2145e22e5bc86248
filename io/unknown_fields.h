// Fields that messages hold and their types do not declare: those of other versions of the format. Binary files keep
// them, text has no name for them.
#pragma once

#include <cstddef>
#include <string>

namespace google::protobuf {
class Message;
}

namespace stepnet {

// The first of them, as "op[3].arg[0].99, op[4].17", and how many more there are; "" where there are none. An enum
// value that this version does not know goes by the name of its field.
std::string UnknownFieldsText(const google::protobuf::Message& message, std::size_t shown = 5);

}  // namespace stepnet
