#include "stepnet/tools/rnn_runner/train_config.h"

#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "stepnet/cells/cell_options.h"
#include "stepnet/cells/source_line.h"
#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/io/proto_io.h"
#include "stepnet/io/text_places.h"
#include "stepnet/nets/training_net.h"

namespace stepnet::runner {
namespace {

// A config with the places of its fields.
struct ConfigText {
  std::string path;
  std::string text;
  TextPlaces places;

  // Where the field is, or what should have it.
  std::optional<std::pair<int, int>> Find(std::string_view field) const {
    const auto place = places.Find(field);
    const size_t dot = field.rfind('.');
    return place || dot == std::string_view::npos ? place : Find(field.substr(0, dot));
  }
  // "train.prototxt:3:5" as far as it is known.
  std::string PlaceOf(std::string_view field) const {
    const auto place = Find(field);
    return place ? StrCat(path, ":", place->first, ":", place->second) : path;
  }
  // The error with the line of the field.
  Error Blamed(const Error& error, std::string_view field) const {
    const auto place = Find(field);
    const std::string line = place ? SourceLine(text, place->first, place->second) : "";
    return Error(error.code(), error.message() + line).At({.file = PlaceOf(field)});
  }
  [[noreturn]] void Refuse(std::string_view field, const std::string& why) const {
    throw Blamed(Error(ErrorCode::kInvalidArgument, why), field);
  }
};

void CheckFields(const TrainConfig& config, const ConfigText& text) {
  const auto check = [&](bool ok, const std::string& field, const auto& value, const char* must) {
    if (!ok) text.Refuse(field, StrCat(field, " is ", value, ", must be ", must));
  };
  check(!config.text().empty(), "text", "missing", "a UTF-8 file");
  check(!config.cell().empty(), "cell", "missing", "the file of a cell");
  check(config.validation() > 0 && config.validation() < 1, "validation", config.validation(), "above 0 and below 1");
  const auto check_positive = [&](const char* field, std::int64_t value) { check(value > 0, field, value, "above 0"); };
  // Far from overflow when two of them are multiplied.
  constexpr std::int64_t kMaxSize = std::numeric_limits<std::int32_t>::max();
  const auto is_size = [&](std::int64_t value) { return value > 0 && value <= kMaxSize; };
  constexpr const char* kSizeRange = "from 1 to 2147483647";
  check(is_size(config.embedding()), "embedding", config.embedding(), kSizeRange);
  check(is_size(config.batch()), "batch", config.batch(), kSizeRange);
  check(is_size(config.steps()), "steps", config.steps(), kSizeRange);
  check_positive("iterations", config.iterations());
  check_positive("validate_every", config.validate_every());
  check_positive("checkpoint_every", config.checkpoint_every());
  check_positive("keep_checkpoints", config.keep_checkpoints());
  std::set<std::string_view> sizes;
  for (int i = 0; i < config.size_size(); ++i) {
    const CellSize& size = config.size(i);
    const std::string field = StrCat("size[", i, "]");
    if (size.name().empty()) text.Refuse(field, "size.name is missing, must be that of a size of the cell");
    if (!sizes.insert(size.name()).second) text.Refuse(field, StrCat("size ", size.name(), " is given twice"));
    if (is_size(size.value())) continue;
    const std::string found = size.has_value() ? StrCat("is ", size.value()) : "has no value";
    text.Refuse(field + ".value", StrCat("size ", size.name(), " ", found, ", must be ", kSizeRange));
  }
}

// Throws unless the cell has the sizes that the config gives, and none of them is that of its input.
void CheckSizeNames(const TrainConfig& config, const ConfigText& text, const CellSource& cell) {
  std::vector<std::string> names;
  for (const CellSize& size : cell.def.size()) names.push_back(size.name());
  for (int i = 0; i < config.size_size(); ++i) {
    const std::string& name = config.size(i).name();
    const bool is_of_input = cell.def.input_size() == 1 && std::ranges::count(cell.def.input(0).shape(), name) > 0;
    if (is_of_input) {
      text.Refuse(StrCat("size[", i, "].name"),
                  StrCat("the size ", name, " is that of the cell's input; the field embedding says it"));
    }
    if (std::ranges::find(names, name) != names.end()) continue;
    text.Refuse(StrCat("size[", i, "].name"),
                StrCat("cell \"", cell.def.name(), "\" has no size ", name, DidYouMean(name, names), "; its sizes are ",
                       names.empty() ? "none" : Join(names, ", ")));
  }
}

// Reads the cell and gives it the config's options.
CellSource CellOf(const TrainConfig& config, const ConfigText& text, const std::string& path) {
  CellSource cell;
  try {
    cell = ReadCell(path);
    CheckCell(cell);
  } catch (...) {
    throw CurrentError().At({.file = text.PlaceOf("cell")});
  }
  CheckSizeNames(config, text, cell);
  if (!config.has_options()) return cell;
  CellSource here{.def = {}, .file = text.path, .places = {}, .text = text.text};
  *here.def.mutable_options() = config.options();
  if (const auto place = text.places.Find("options")) here.places[{CellPart::kOptions, 0}] = *place;
  const google::protobuf::Descriptor& type = *CellOptions::descriptor();
  for (int k = 0; k < type.field_count(); ++k) {
    const auto place = text.places.Find("options." + type.field(k)->name());
    if (place) here.places[{CellPart::kOptions, type.field(k)->number()}] = *place;
  }
  return WithOptions(std::move(cell), here);
}

// Text, whatever it says: bytes of another kind of file can pass for a config by accident, with nonsense for values.
std::string ReadConfigText(const std::string& path) {
  const MessageKind kind = DetectKind(path);
  std::string content = ReadFile(path);
  const bool is_cell = IsShortCell(content);
  if (kind != MessageKind::kMiniDb && !is_cell && LooksLikeText(content)) return content;
  const std::string found = is_cell                         ? "a cell"
                            : kind == MessageKind::kUnknown ? "no text"
                                                            : StrCat("a ", MessageKindName(kind));
  throw Error(ErrorCode::kInputOutput,
              StrCat(path, " is ", found, "; the text of a TrainConfig is needed (docs/training.md)"));
}

// The name that an element of a repeated field has, or "".
std::string NameOf(const google::protobuf::Message& element) {
  const google::protobuf::FieldDescriptor* name = element.GetDescriptor()->FindFieldByName("name");
  return name == nullptr ? "" : element.GetReflection()->GetString(element, name);
}

// Where a field of `message` is: `parameter "w".initializer`, and `op[3].type` in what has no name.
std::string PathOf(const google::protobuf::Message& message,
                   const std::vector<google::protobuf::util::MessageDifferencer::SpecificField>& fields) {
  std::vector<std::string> names;
  const google::protobuf::Message* in = &message;
  for (size_t i = 0; i < fields.size(); ++i) {
    const google::protobuf::FieldDescriptor* field = fields[i].field;
    const int index = fields[i].index;
    names.push_back(field->name() + (index >= 0 ? StrCat("[", index, "]") : ""));
    if (i + 1 == fields.size()) break;
    const google::protobuf::Reflection& reflection = *in->GetReflection();
    in = index >= 0 ? &reflection.GetRepeatedMessage(*in, field, index) : &reflection.GetMessage(*in, field);
    const std::string name = index >= 0 ? NameOf(*in) : "";
    if (!name.empty()) names.back() = StrCat(field->name(), " \"", name, "\"");
  }
  return Join(names, ".");
}

// Collects differences as "field: old → new"; absent fields show their default.
class DifferenceList : public google::protobuf::util::MessageDifferencer::Reporter {
 public:
  using Message = google::protobuf::Message;
  using Fields = std::vector<google::protobuf::util::MessageDifferencer::SpecificField>;

  // `whole` is the older one of the messages that are compared, and must outlive this.
  explicit DifferenceList(const Message& whole) : whole_(whole) {}

  void ReportAdded(const Message& old, const Message& now, const Fields& fields) override {
    Add(old, now, fields, /*is_change=*/false);
  }
  void ReportDeleted(const Message& old, const Message& now, const Fields& fields) override {
    Add(old, now, fields, /*is_change=*/false);
  }
  void ReportModified(const Message& old, const Message& now, const Fields& fields) override {
    Add(old, now, fields, /*is_change=*/true);
  }
  const std::vector<std::string>& list() const { return list_; }

 private:
  void Add(const Message& old, const Message& now, const Fields& fields, bool is_change) {
    const auto& last = fields.back();
    // A message differs because fields of it do, which are reported too.
    if (is_change && last.field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE) return;
    list_.push_back(StrCat(PathOf(whole_, fields), ": ", Value(old, last.field, last.index), " → ",
                           Value(now, last.field, last.new_index >= 0 ? last.new_index : last.index)));
  }
  // `index` is that of an element of a repeated field, which one of two messages may not have.
  static std::string Value(const Message& message, const google::protobuf::FieldDescriptor* field, int index) {
    std::string text;
    if (field->is_repeated() && index >= message.GetReflection()->FieldSize(message, field)) return "nothing";
    google::protobuf::TextFormat::Printer printer;
    printer.SetSingleLineMode(true);
    printer.PrintFieldValueToString(message, field, field->is_repeated() ? index : -1, &text);
    if (text.ends_with(' ')) text.pop_back();  // behind the last field of a message
    return text;
  }

  const Message& whole_;
  std::vector<std::string> list_;
};

}  // namespace

TrainJob ReadTrainJob(const std::string& path) {
  TrainJob job;
  TrainConfig& config = job.config;
  const std::string content = ReadConfigText(path);
  ParseMessage(content, path, &config);
  const ConfigText text{.path = path, .text = content, .places = TextPlaces(content, config)};
  CheckFields(config, text);
  OptimizerDef& optimizer = *config.mutable_optimizer();
  const bool decays_over = optimizer.schedule() == OptimizerDef::POLY || optimizer.schedule() == OptimizerDef::COSINE;
  if (decays_over && !optimizer.has_decay_over() && optimizer.warmup() >= 0) {
    optimizer.set_decay_over(std::max<std::int64_t>(1, config.iterations() - optimizer.warmup()));
  }
  try {
    CheckOptimizer(optimizer);
  } catch (const Error& error) {  // its message starts with the field
    throw text.Blamed(error, std::string_view(error.message()).substr(0, error.message().find(' ')));
  }
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  job.text = (folder / config.text()).string();
  job.cell = (folder / config.cell()).string();
  job.model.cell = CellOf(config, text, job.cell);
  job.model.embedding = config.embedding();
  for (const CellSize& size : config.size()) job.model.sizes[size.name()] = size.value();
  return job;
}

std::string Differences(const TrainState& checkpoint, const TrainState& now) {
  std::vector<std::string> differences;
  const auto compare = [&](const std::string& what, const google::protobuf::Message& old,
                           const google::protobuf::Message& current) {
    DifferenceList list(old);
    google::protobuf::util::MessageDifferencer differencer;
    differencer.ReportDifferencesTo(&list);
    differencer.set_message_field_comparison(google::protobuf::util::MessageDifferencer::EQUIVALENT);
    differencer.IgnoreField(CellDef::descriptor()->FindFieldByName("doc"));
    differencer.Compare(old, current);
    for (const std::string& difference : list.list()) differences.push_back(what + difference);
  };
  // How many iterations come after those that are done changes nothing of these, unless the learning rate falls over
  // all of them, and then decay_over differs, too.
  TrainConfig old = checkpoint.config();
  const std::int64_t iterations = now.config().iterations();
  old.set_iterations(iterations);
  compare("", old, now.config());
  if (iterations != checkpoint.config().iterations()) {
    for (std::string& difference : differences) {
      if (!difference.starts_with("optimizer.decay_over: ")) continue;
      difference += StrCat(", as it follows from iterations; with decay_over: ", old.optimizer().decay_over(),
                           " in its optimizer the run goes on");
    }
    if (iterations <= checkpoint.iteration()) {
      differences.push_back(StrCat("iterations: ", checkpoint.config().iterations(), " → ", iterations, ", and ",
                                   checkpoint.iteration(), " are done"));
    }
  }
  compare("of the cell, ", checkpoint.cell(), now.cell());
  if (checkpoint.text_crc32c() != now.text_crc32c()) differences.push_back("the text is another one");
  return Join(differences, "; ");
}

}  // namespace stepnet::runner
