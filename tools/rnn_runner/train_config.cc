#include "stepnet/tools/rnn_runner/train_config.h"

#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>

#include <cstdint>
#include <filesystem>
#include <limits>
#include <vector>

#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/io/proto_io.h"
#include "stepnet/nets/training_net.h"

namespace stepnet::runner {
namespace {

void CheckFields(const TrainConfig& config) {
  const auto check = [](bool ok, const char* field, const auto& value, const char* must) {
    if (!ok) throw Error(ErrorCode::kInvalidArgument, StrCat(field, " is ", value, ", must be ", must));
  };
  check(!config.text().empty(), "text", "missing", "a UTF-8 file");
  check(!config.cell().empty(), "cell", "missing", "the file of a cell");
  check(config.validation() > 0 && config.validation() < 1, "validation", config.validation(), "above 0 and below 1");
  const auto check_positive = [&](const char* field, std::int64_t value) { check(value > 0, field, value, "above 0"); };
  // Far from overflow when two of them are multiplied.
  constexpr std::int64_t kLargest = std::numeric_limits<std::int32_t>::max();
  const auto check_size = [&](const char* field, std::int64_t value) {
    check(value > 0 && value <= kLargest, field, value, "from 1 to 2147483647");
  };
  check_size("embedding", config.embedding());
  check_size("batch", config.batch());
  check_size("steps", config.steps());
  check_positive("iterations", config.iterations());
  check_positive("validate_every", config.validate_every());
  check_positive("checkpoint_every", config.checkpoint_every());
  check_positive("keep_checkpoints", config.keep_checkpoints());
  for (const CellSize& size : config.size()) {
    check(!size.name().empty(), "size.name", "missing", "that of a size of the cell");
    check_size(StrCat("size ", size.name()).c_str(), size.value());
  }
}

// Where a field is, with the number that a repeated one is followed by.
std::string PathOf(const std::vector<google::protobuf::util::MessageDifferencer::SpecificField>& fields) {
  std::vector<std::string> names;
  for (const auto& field : fields) {
    names.push_back(field.field->name() + (field.index >= 0 ? StrCat("[", field.index, "]") : ""));
  }
  return Join(names, ".");
}

// Collects differences as "field: old → new"; absent fields show their default.
class DifferenceList : public google::protobuf::util::MessageDifferencer::Reporter {
 public:
  using Message = google::protobuf::Message;
  using Fields = std::vector<google::protobuf::util::MessageDifferencer::SpecificField>;

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
    list_.push_back(StrCat(PathOf(fields), ": ", Value(old, last.field, last.index), " → ",
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

  std::vector<std::string> list_;
};

}  // namespace

TrainJob ReadTrainJob(const std::string& path) {
  TrainJob job;
  ReadMessage(path, &job.config);
  TrainConfig& config = job.config;
  try {
    CheckFields(config);
    OptimizerDef& optimizer = *config.mutable_optimizer();
    const bool decays_over = optimizer.schedule() == OptimizerDef::POLY || optimizer.schedule() == OptimizerDef::COSINE;
    if (decays_over && !optimizer.has_decay_over() && optimizer.warmup() >= 0) {
      optimizer.set_decay_over(std::max<std::int64_t>(1, config.iterations() - optimizer.warmup()));
    }
    CheckOptimizer(optimizer);
  } catch (...) {
    throw CurrentError().At({.file = path});
  }
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  job.text = (folder / config.text()).string();
  job.model.cell = ReadCell((folder / config.cell()).string());
  job.model.cell.def.mutable_options()->MergeFrom(config.options());
  job.model.embedding = config.embedding();
  for (const CellSize& size : config.size()) job.model.sizes[size.name()] = size.value();
  return job;
}

std::string Differences(const TrainState& checkpoint, const TrainState& now) {
  std::vector<std::string> differences;
  const auto compare = [&](const std::string& what, const google::protobuf::Message& old,
                           const google::protobuf::Message& current) {
    DifferenceList list;
    google::protobuf::util::MessageDifferencer differencer;
    differencer.ReportDifferencesTo(&list);
    differencer.set_message_field_comparison(google::protobuf::util::MessageDifferencer::EQUIVALENT);
    differencer.Compare(old, current);
    for (const std::string& difference : list.list()) differences.push_back(what + difference);
  };
  compare("", checkpoint.config(), now.config());
  compare("of the cell, ", checkpoint.cell(), now.cell());
  if (checkpoint.text_crc32c() != now.text_crc32c()) differences.push_back("the text is another one");
  return Join(differences, "; ");
}

}  // namespace stepnet::runner
