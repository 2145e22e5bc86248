#include "stepnet/io/text_places.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/tokenizer.h>

#include <charconv>

namespace stepnet {
namespace {

using google::protobuf::FieldDescriptor;

class NoErrors : public google::protobuf::io::ErrorCollector {
  void AddError(int, int, const std::string&) override {}
};

// The I of "name[I]", which becomes "name"; 0 where there is none.
int TakeIndex(std::string_view* name) {
  const size_t bracket = name->find('[');
  if (bracket == std::string_view::npos) return 0;
  int index = 0;
  std::from_chars(name->data() + bracket + 1, name->data() + name->size(), index);
  *name = name->substr(0, bracket);
  return index;
}

}  // namespace

TextPlaces::TextPlaces(const std::string& text, const google::protobuf::Message& type) : type_(*type.GetDescriptor()) {
  google::protobuf::TextFormat::Parser parser;
  NoErrors no_errors;
  parser.RecordErrorsTo(&no_errors);
  parser.WriteLocationsTo(&tree_);
  const std::unique_ptr<google::protobuf::Message> again(type.New());
  static_cast<void>(parser.ParseFromString(text, again.get()));
}

std::optional<std::pair<int, int>> TextPlaces::Find(std::string_view path) const {
  const google::protobuf::Descriptor* type = &type_;
  const google::protobuf::TextFormat::ParseInfoTree* tree = &tree_;
  while (type != nullptr && tree != nullptr) {
    const size_t dot = path.find('.');
    std::string_view name = path.substr(0, dot);
    const int index = TakeIndex(&name);
    const FieldDescriptor* field = type->FindFieldByName(std::string(name));
    if (field == nullptr) break;
    const int number = field->is_repeated() ? index : -1;
    if (dot == std::string_view::npos) {
      const auto place = tree->GetLocation(field, number);
      if (place.line < 0) break;
      return std::pair(place.line + 1, place.column + 1);
    }
    type = field->message_type();
    tree = tree->GetTreeForNested(field, number);
    path.remove_prefix(dot + 1);
  }
  return std::nullopt;
}

}  // namespace stepnet
