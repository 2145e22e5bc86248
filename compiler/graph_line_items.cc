#include "stepnet/compiler/graph_line_items.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "stepnet/io/wire_scan.h"

namespace stepnet {
namespace {

constexpr std::int64_t kMaxSteps = std::numeric_limits<int>::max();
constexpr std::int64_t kMaxStepsAtOnce = 1 << 20;

// The first thing that is wrong with arguments, "1:12: …".
class ArgumentErrors : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, google::protobuf::io::ColumnNumber column, const std::string& message) override {
    if (text_.empty()) text_ = StrCat(": ", line + 1, ":", column + 1, ": ", message);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

DType ReadDType(LineReader& line) {
  const std::string word = line.Word();
  if (const std::optional<DType> dtype = DTypeNamed(word)) return *dtype;
  line.Throw(StrCat("there is no dtype \"", word, "\""));
}

Tensor ReadElements(LineReader& line, const TensorInfo& info) {
  std::vector<std::int64_t> elements;
  while (!line.Skip("}")) {
    if (!elements.empty()) line.Expect(", ");
    elements.push_back(line.Integer());
  }
  if (std::ssize(elements) != info.shape.size()) line.Throw(StrCat(info.Description(), " has other elements"));
  if (info.dtype == DType::kInt64) return Tensor::Of(info.shape, elements);
  if (info.dtype != DType::kInt32) line.Throw(StrCat("elements of ", info.Description(), " are not known"));
  const std::vector<std::int32_t> narrow(elements.begin(), elements.end());
  if (!std::ranges::equal(elements, narrow)) line.Throw("elements are out of range");
  return Tensor::Of(info.shape, narrow);
}

}  // namespace

Shape ReadShape(LineReader& line) {
  line.Expect(" [");
  std::vector<std::int64_t> dims;
  while (!line.StartsWith("]")) {
    if (!dims.empty()) line.Expect(", ");
    dims.push_back(line.Integer());
  }
  line.Expect("]");
  return Shape(dims);
}

TensorInfo ReadTensorInfo(LineReader& line) {
  TensorInfo info{.dtype = ReadDType(line), .shape = {}};
  info.shape = ReadShape(line);
  if (info.shape.size() > kMaxValueBytes / 8) line.Throw(StrCat(info.Description(), " is out of range"));
  if (line.Skip(" {")) info.value = ReadElements(line, info);
  return info;
}

BaseRows ReadRows(LineReader& line) {
  line.Expect("^");
  BaseRows rows{.name = line.Word()};
  line.Expect(" at ");
  rows.base = line.Index();
  if (!line.Skip("[")) return rows;
  rows.begins_at_steps = line.Skip("T");
  if (!rows.begins_at_steps || line.Skip("+")) rows.begin = line.Integer();
  line.Expect(":");
  if (!line.StartsWith("]")) rows.end = line.Integer();
  line.Expect("]");
  return rows;
}

Slot ReadPlace(LineReader& line) {
  Slot slot{.storage_class = StorageClass::kShared, .base = line.Index()};
  if (!line.Skip("[")) return slot;
  slot.storage_class = StorageClass::kLinked;
  slot.row_bytes = line.IntegerUpTo(kMaxValueBytes);
  line.Expect(" * ");
  if (line.Skip("(t ")) {
    const bool minus = line.Skip("- ");
    if (!minus) line.Expect("+ ");
    const std::int64_t rows = line.IntegerUpTo(kMaxSteps);
    slot.offset = minus ? -rows : rows;
    line.Expect(")");
  } else {
    line.Expect("t");
  }
  line.Expect("]");
  return slot;
}

Stage ReadStage(LineReader& line) {
  Stage stage;
  stage.is_behind = line.Skip("once behind all steps");
  if (stage.is_behind || line.Skip("once for all steps")) {
    stage.steps_at_once = kAllSteps;
  } else if (line.Skip("for ")) {
    stage.steps_at_once = line.IntegerUpTo(kMaxStepsAtOnce);
    if (stage.steps_at_once < 1) line.Throw("a stage is for no step");
    line.Expect(" steps at once");
  } else {
    line.Expect("in each step");
  }
  if (line.Skip(", in runs of ")) {
    stage.min_steps = line.IntegerUpTo(kMaxSteps);
    line.Expect(" steps or more");
  }
  line.Expect(":");
  return stage;
}

void ReadArguments(LineReader& line, OperatorDef* def) {
  line.Expect(" {");
  std::string_view arguments = line.Rest();
  if (!arguments.ends_with("}")) line.Throw("the arguments do not end");
  arguments.remove_suffix(1);
  google::protobuf::TextFormat::Parser parser;
  parser.SetRecursionLimit(kMaxMessageNesting);
  ArgumentErrors errors;
  parser.RecordErrorsTo(&errors);
  if (!parser.ParseFromString(std::string(arguments), def)) {
    line.Throw("the arguments cannot be read" + errors.text());
  }
  for (const auto& [is_said, what] :
       {std::pair(def->has_type(), "type"), {def->input_size() > 0, "input"}, {def->output_size() > 0, "output"}}) {
    if (is_said) line.Throw(StrCat("the arguments say \"", what, "\", which stands before them"));
  }
}

}  // namespace stepnet
