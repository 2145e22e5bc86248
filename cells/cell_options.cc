#include "stepnet/cells/cell_options.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "stepnet/core/name_characters.h"
#include "stepnet/core/strings.h"
#include "stepnet/io/proto_io.h"

namespace stepnet {
namespace {

using Field = google::protobuf::FieldDescriptor;

std::string InputName(CellReader& reader, const std::string& option) {
  const CellToken& token = reader.Next();
  const std::string input = reader.ExpectName("the name of an input");
  if (input == "true" || input == "false") {
    reader.FailAt(
        token, StrCat(option, " takes the name of an input, which the net then reads: option ", option, " = ", option));
  }
  return input;
}

bool Truth(CellReader& reader) {
  const CellToken& token = reader.Next();
  const std::string value = reader.ExpectName("true or false");
  if (value != "true" && value != "false") reader.FailAt(token, "true or false is expected");
  return value == "true";
}

const google::protobuf::EnumValueDescriptor* Word(CellReader& reader, const google::protobuf::EnumDescriptor& type) {
  std::vector<std::string> values;
  for (int i = 0; i < type.value_count(); ++i) values.push_back(InLowerCase(type.value(i)->name()));
  const std::string expected = StrCat(Join(std::vector(values.begin(), values.end() - 1), ", "), " or ", values.back());
  const CellToken& token = reader.Next();
  const auto found = std::ranges::find(values, reader.ExpectName(expected.c_str()));
  if (found == values.end()) reader.FailAt(token, StrCat(expected, " is expected"));
  return type.value(static_cast<int>(found - values.begin()));
}

void SetValue(CellReader& reader, const Field& field, CellOptions* options) {
  const google::protobuf::Reflection& set = *options->GetReflection();
  switch (field.cpp_type()) {
    case Field::CPPTYPE_INT64: return set.SetInt64(options, &field, reader.ExpectInteger());
    case Field::CPPTYPE_FLOAT: return set.SetFloat(options, &field, reader.ExpectFloat());
    case Field::CPPTYPE_STRING: return set.SetString(options, &field, InputName(reader, field.name()));
    case Field::CPPTYPE_BOOL: return set.SetBool(options, &field, Truth(reader));
    default: return set.SetEnum(options, &field, Word(reader, *field.enum_type()));
  }
}

}  // namespace

std::vector<std::string> CellOptionNames() {
  const google::protobuf::Descriptor& type = *CellOptions::descriptor();
  std::vector<std::string> names;
  for (int i = 0; i < type.field_count(); ++i) names.push_back(type.field(i)->name());
  return names;
}

void TakeCellOption(CellReader& reader, CellSource* cell) {
  const CellToken& token = reader.Next();
  const std::string name = reader.ExpectName("the name of an option");
  reader.Expect('=');
  CellOptions* const options = cell->def.mutable_options();
  const Field* const field = CellOptions::descriptor()->FindFieldByName(name);
  if (field == nullptr) {
    const std::vector<std::string> names = CellOptionNames();
    const std::string nearest = DidYouMean(name, names);
    reader.FailAt(token, StrCat("there is no option \"", name, "\"",
                                nearest.empty() ? StrCat("; there are ", Join(names, ", ")) : nearest));
  }
  if (options->GetReflection()->HasField(*options, field)) {
    reader.FailAt(token, StrCat("the option ", name, " is given twice"));
  }
  cell->places[{CellPart::kOptions, 0}] = {token.line, token.column};  // in case of a fault of several
  cell->places[{CellPart::kOptions, field->number()}] = {token.line, token.column};
  SetValue(reader, *field, options);
}

CellSource ParseCellOptions(const std::string& text, const std::string& what) {
  PrepareMessages();
  CellSource options{.def = {}, .file = what, .text = text};
  try {
    CellReader reader(text, what);
    do {
      TakeCellOption(reader, &options);
    } while (reader.TakeIf(','));
    reader.SkipNewlines();
    const CellToken& next = reader.Next();
    if (next.kind != CellToken::kEnd) reader.Fail(StrCat("',' is expected, not ", next.Description()));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kSyntaxError) throw;
    throw Error(ErrorCode::kInvalidArgument, error.message());
  }
  return options;
}

CellSource WithOptions(CellSource cell, const CellSource& options) {
  CheckCell(cell);
  cell.def.mutable_options()->MergeFrom(options.def.options());
  cell.options_from = std::make_shared<const CellSource>(options);
  CheckCell(cell);  // what is wrong now came with these options
  return cell;
}

}  // namespace stepnet
