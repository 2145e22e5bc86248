#include "stepnet/io/unknown_fields.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/unknown_field_set.h>

#include <set>
#include <vector>

#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// The places of the first `max` fields, and how many there are.
struct Found {
  std::size_t max;
  std::vector<std::string> places = {};
  std::size_t count = 0;
};

void Collect(const Message& message, const std::string& place, Found* found) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  const auto& unknown = reflection.GetUnknownFields(message);
  std::set<int> numbers;  // once each, however many elements a field has
  for (int i = 0; i < unknown.field_count(); ++i) numbers.insert(unknown.field(i).number());
  for (const int number : numbers) {
    const FieldDescriptor* field = message.GetDescriptor()->FindFieldByNumber(number);
    const std::string name = place + (field != nullptr ? field->name() : StrCat(number));
    ++found->count;
    if (found->places.size() < found->max) found->places.push_back(name);
  }
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (!field->is_repeated()) {
      Collect(reflection.GetMessage(message, field), StrCat(place, field->name(), "."), found);
      continue;
    }
    for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
      Collect(reflection.GetRepeatedMessage(message, field, i), StrCat(place, field->name(), "[", i, "]."), found);
    }
  }
}

}  // namespace

std::string UnknownFieldsText(const Message& message, std::size_t shown) {
  Found found{.max = shown};
  Collect(message, "", &found);
  const std::size_t more = found.count - found.places.size();
  return Join(found.places, ", ") + (more > 0 ? StrCat(" and ", more, " more") : "");
}

}  // namespace stepnet
