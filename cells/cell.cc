#include "stepnet/cells/cell.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <cctype>

#include "stepnet/cells/source_line.h"
#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/io/proto_io.h"

namespace stepnet {
namespace {

class NoErrors : public google::protobuf::io::ErrorCollector {
  void AddError(int, int, const std::string&) override {}
};

bool HasCellName(const std::string& path) { return path.ends_with(".cell"); }

// Where the parts of a message stand in the text that it was parsed from.
void FindPlaces(const std::string& text, CellSource* source) {
  static const std::map<std::string, CellPart> kParts = {
      {"size", CellPart::kSize},       {"input", CellPart::kInput},         {"state", CellPart::kState},
      {"capture", CellPart::kCapture}, {"parameter", CellPart::kParameter}, {"op", CellPart::kOperator},
      {"output", CellPart::kOutput},   {"options", CellPart::kOptions}};
  google::protobuf::TextFormat::Parser parser;
  google::protobuf::TextFormat::ParseInfoTree tree;
  NoErrors no_errors;  // of a file that is no text
  parser.RecordErrorsTo(&no_errors);
  parser.WriteLocationsTo(&tree);
  CellDef again;
  if (!parser.ParseFromString(text, &again)) return;
  for (const auto& [name, part] : kParts) {
    const google::protobuf::FieldDescriptor* field = CellDef::descriptor()->FindFieldByName(name);
    const int count = field->is_repeated() ? again.GetReflection()->FieldSize(again, field) : 1;
    for (int i = 0; i < count; ++i) {
      const auto place = tree.GetLocation(field, field->is_repeated() ? i : -1);
      if (place.line >= 0) source->places[{part, i}] = {place.line + 1, place.column + 1};
    }
  }
}

}  // namespace

std::string CellSource::Place(CellPart part, int index) const {
  const std::string name = file.empty() ? StrCat("cell \"", def.name(), "\"") : file;
  const auto found = places.find({part, index});
  return found == places.end() ? name : StrCat(name, ":", found->second.first, ":", found->second.second);
}

std::string CellSource::Line(CellPart part, int index) const {
  const auto found = places.find({part, index});
  return found == places.end() ? "" : SourceLine(text, found->second.first, found->second.second);
}

std::string CellSource::Fault(CellPart part, int index, const std::string& message) const {
  return StrCat(Place(part, index), ": ", message, Line(part, index));
}

CellSource ReadCell(const std::string& path) { return ParseCell(ReadFile(path), path); }

CellSource ParseCell(const std::string& content, const std::string& what) {
  if (IsShortCell(content) || (HasCellName(what) && DetectKindOf(content) != MessageKind::kCellDef)) {
    return ParseShortCell(content, what);
  }
  CellSource source{.def = {}, .file = what, .text = content};
  ParseMessage(content, what, &source.def);
  FindPlaces(content, &source);
  return source;
}

bool IsShortCell(const std::string& content) {
  // The first word behind the comments is enough.
  size_t at = 0;
  while (at < content.size()) {
    if (content[at] == '#') {
      at = content.find('\n', at);
      if (at == std::string::npos) return false;
    } else if (content[at] != ' ' && content[at] != '\n' && content[at] != '\t' && content[at] != '\r') {
      break;
    }
    ++at;
  }
  constexpr std::string_view kWord = "cell";
  if (content.compare(at, kWord.size(), kWord) != 0) return false;
  const size_t behind = at + kWord.size();
  return behind == content.size() || (std::isalnum(static_cast<unsigned char>(content[behind])) == 0 &&
                                      content[behind] != '_' && content[behind] != ':');
}

bool IsCell(const std::string& content, const std::string& path) {
  return HasCellName(path) || IsShortCell(content) || DetectKindOf(content) == MessageKind::kCellDef;
}

std::string PreviousOf(const CellState& state) {
  return state.has_previous() ? state.previous() : state.name() + "_prev";
}

std::string NameOf(const CellOutput& output) {
  if (output.has_name()) return output.name();
  return output.last() ? output.blob() + "_last" : output.blob();
}

}  // namespace stepnet
