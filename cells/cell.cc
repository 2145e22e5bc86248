#include "stepnet/cells/cell.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <cctype>

#include "stepnet/cells/source_line.h"
#include "stepnet/core/error.h"
#include "stepnet/core/name_characters.h"
#include "stepnet/core/strings.h"
#include "stepnet/io/proto_io.h"
#include "stepnet/io/text_places.h"

namespace stepnet {
namespace {

bool HasCellName(const std::string& path) { return path.ends_with(".cell"); }

// Where the first word behind the comments starts.
size_t FirstWord(std::string_view content) {
  size_t at = content.size() - WithoutByteOrderMark(content).size();
  while (at < content.size()) {
    if (content[at] == '#') {
      at = std::min(content.find('\n', at), content.size() - 1);
    } else if (content[at] != ' ' && content[at] != '\n' && content[at] != '\t' && content[at] != '\r') {
      break;
    }
    ++at;
  }
  return at;
}

// Whether a file holds a message, of whatever type, and nothing that somebody wrote as a short cell: in text, a field's
// name with ':' or '{' behind it.
bool LooksLikeMessage(const std::string& content) {
  if (!LooksLikeText(content)) return DetectKindOf(content) != MessageKind::kUnknown;
  size_t at = FirstWord(content);
  const size_t begin = at;
  while (at < content.size() && IsWordPart(content[at])) ++at;
  if (at == begin) return false;
  at = std::min(content.find_first_not_of(" \t\r\n", at), content.size());
  return at < content.size() && (content[at] == ':' || content[at] == '{');
}

// Where the parts of a message stand in the text that it was parsed from.
void FindPlaces(const std::string& text, CellSource* source) {
  static const std::map<std::string, CellPart> kParts = {
      {"size", CellPart::kSize},       {"input", CellPart::kInput},         {"state", CellPart::kState},
      {"capture", CellPart::kCapture}, {"parameter", CellPart::kParameter}, {"op", CellPart::kOperator},
      {"output", CellPart::kOutput},   {"options", CellPart::kOptions}};
  const TextPlaces places(text, source->def);
  for (const auto& [name, part] : kParts) {
    const google::protobuf::FieldDescriptor* field = CellDef::descriptor()->FindFieldByName(name);
    const int count = field->is_repeated() ? source->def.GetReflection()->FieldSize(source->def, field) : 1;
    for (int i = 0; i < count; ++i) {
      if (const auto place = places.Find(StrCat(name, "[", i, "]"))) source->places[{part, i}] = *place;
    }
  }
  const auto add = [&](const google::protobuf::Descriptor& type, const std::string& path, CellPart part, auto index) {
    for (int k = 0; k < type.field_count(); ++k) {
      const auto place = places.Find(StrCat(path, ".", type.field(k)->name()));
      if (place) source->places[{part, index(type.field(k)->number())}] = *place;
    }
  };
  add(*CellOptions::descriptor(), "options", CellPart::kOptions, [](int number) { return number; });
  for (int i = 0; i < source->def.parameter_size(); ++i) {
    const auto place = places.Find(StrCat("parameter[", i, "].initializer"));
    if (place) source->places[{CellPart::kInitializer, i}] = *place;
  }
  for (int i = 0; i < source->def.state_size(); ++i) {
    add(*CellState::descriptor(), StrCat("state[", i, "]"), CellPart::kStateOption,
        [i](int number) { return StateOption(i, number); });
  }
}

// The number of the operator that writes the blob; -1 for none.
int WriterOf(const CellDef& cell, const std::string& blob) {
  const auto writes = [&](const OperatorDef& op) { return std::ranges::count(op.output(), blob) > 0; };
  const auto found = std::ranges::find_if(cell.op(), writes);
  return found == cell.op().end() ? -1 : static_cast<int>(found - cell.op().begin());
}

}  // namespace

std::optional<std::pair<int, int>> CellSource::Find(CellPart part, int index) const {
  if (const auto found = places.find({part, index}); found != places.end()) return found->second;
  if (part == CellPart::kOptions && index != 0) return Find(part, 0);
  if (part == CellPart::kInitializer) return Find(CellPart::kParameter, index);
  if (part == CellPart::kStateOption) return Find(CellPart::kState, StateOfOption(index));
  if (part == CellPart::kStateWrite) return Find(CellPart::kOperator, WriterOf(def, def.state(index).name()));
  return std::nullopt;
}

std::string CellSource::Place(CellPart part, int index) const {
  if (part == CellPart::kOptions && options_from) return options_from->Place(part, index);
  const std::string name = file.empty() ? StrCat("cell \"", def.name(), "\"") : file;
  const auto found = Find(part, index);
  return !found ? name : StrCat(name, ":", found->first, ":", found->second);
}

std::string CellSource::Line(CellPart part, int index) const {
  if (part == CellPart::kOptions && options_from) return options_from->Line(part, index);
  const auto found = Find(part, index);
  return !found ? "" : SourceLine(text, found->first, found->second);
}

std::string CellSource::Fault(CellPart part, int index, const std::string& message) const {
  return StrCat(Place(part, index), ": ", message, Line(part, index));
}

CellSource ReadCell(const std::string& path) { return ParseCell(ReadFile(path), path); }

CellSource ParseCell(const std::string& content, const std::string& what) {
  const std::string_view text = WithoutByteOrderMark(content);
  if (text.size() != content.size()) return ParseCell(std::string(text), what);
  if (IsShortCell(content) || !LooksLikeMessage(content)) return ParseShortCell(content, what);
  CellSource source{.def = {}, .file = what, .text = content};
  ParseMessage(content, what, &source.def);
  FindPlaces(content, &source);
  return source;
}

bool IsShortCell(const std::string& content) {
  const size_t at = FirstWord(content);
  constexpr std::string_view kWord = "cell";
  if (content.compare(at, kWord.size(), kWord) != 0) return false;
  const size_t behind = at + kWord.size();
  return behind == content.size() || (!IsWordPart(content[behind]) && content[behind] != ':');
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
