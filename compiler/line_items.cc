#include "stepnet/compiler/line_items.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "stepnet/io/wire_scan.h"

namespace stepnet {
namespace {

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
