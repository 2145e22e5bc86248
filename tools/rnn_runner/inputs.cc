#include "stepnet/tools/rnn_runner/inputs.h"

#include <glog/logging.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iostream>
#include <limits>
#include <numbers>
#include <optional>
#include <set>

#include "stepnet/core/floating.h"
#include "stepnet/core/memory_for.h"
#include "stepnet/core/random.h"
#include "stepnet/io/npy.h"
#include "stepnet/io/tensor_io.h"
#include "stepnet/nets/net_check.h"
#include "stepnet/report/text.h"
#include "stepnet/tools/rnn_runner/common_flags.h"
#include "stepnet/tools/rnn_runner/tensor_text.h"

DEFINE_string(input, "", "tensors from .npy files, one a blob");
DEFINE_string(input_pb, "",
              "tensors from a file of TensorProtos, binary or text, or of another kind that holds tensors with names:\n"
              "safetensors, .npz, BlobProto, minidb");
DEFINE_string(input_fill, "uniform",
              "what the blobs of --shape hold: zeros, ones, uniform (in [-1, 1)) or normal (mean 0, deviation 1)");
DEFINE_string(shape, "",
              "blobs to generate: sizes, a dtype (float when left out) and a value for every element, or random whole\n"
              "numbers from one to another (else --input_fill), as x=5x3x4, w=4x4:double, lengths=3:int32=5,\n"
              "words=5x3=integers:0:99");

namespace stepnet::runner {
namespace {

// What other files' tables ask for before this file's constants are made.
std::vector<std::string> Fills() { return {"zeros", "ones", "uniform", "normal"}; }

// Random whole numbers.
struct Range {
  double first = 0;
  double last = 0;
};

struct Filled {
  std::string blob;
  Shape shape;
  DType dtype = DType::kFloat;
  std::optional<double> value = {};
  std::optional<Range> range = {};

  bool has_own_values() const { return value || range; }
};

[[noreturn]] void ThrowBadShape(const std::string& item, const std::string& why) {
  throw UsageError(
      StrCat("--shape has \"", item, "\": ", why, "; it takes BLOB=2x3x4, BLOB=2x3:int64 or BLOB=2:int32=7"));
}

template <typename T>
T ParseNumber(const std::string& item, const std::string& text) {
  T number = {};
  const char* const end = text.data() + text.size();
  const auto [rest, fault] = std::from_chars(text.data(), end, number);
  if (fault == std::errc::result_out_of_range && rest == end) ThrowBadShape(item, StrCat(text, " is beyond 64 bits"));
  if (fault != std::errc() || rest != end) ThrowBadShape(item, StrCat("\"", text, "\" is no number"));
  return number;
}

DType ParseDType(const std::string& item, const std::string& name) {
  const std::optional<DType> dtype = DTypeNamed(name);
  if (dtype && *dtype != DType::kString) return *dtype;
  std::vector<std::string> names;
  for (int i = 0; i < static_cast<int>(DType::kString); ++i) names.emplace_back(DTypeName(static_cast<DType>(i)));
  throw UsageError(StrCat("--shape has \"", item, "\": no dtype \"", name, "\"", DidYouMean(name, names)));
}

constexpr double kExact = 9007199254740992;  // 2^53, up to where doubles, as which values are read, have all integers

// The value that the text says. An integer that would not be exactly that is refused.
double ParseValue(const std::string& item, const std::string& text) {
  std::int64_t integer = 0;
  const auto [rest, fault] = std::from_chars(text.data(), text.data() + text.size(), integer);
  const bool is_integer = rest == text.data() + text.size() && fault != std::errc::invalid_argument;
  if (is_integer && (fault != std::errc() || std::abs(static_cast<double>(integer)) >= kExact)) {
    throw UsageError(
        StrCat("--shape has \"", item, "\": it takes integers below 2^53; --input takes larger ones, in a file"));
  }
  return ParseNumber<double>(item, text);
}

// Whether the dtype has the number: rounded, where it is floating.
bool Holds(DType dtype, double value) {
  const auto is_in = [&](double low, double high) {
    return std::floor(value) == value && low <= value && value <= high;
  };
  switch (dtype) {
    case DType::kBool: return is_in(0, 1);
    case DType::kUInt8: return is_in(0, 255);
    case DType::kInt8: return is_in(-128, 127);
    case DType::kUInt16: return is_in(0, 65535);
    case DType::kInt16: return is_in(-32768, 32767);
    case DType::kInt32: return is_in(-2147483648.0, 2147483647);
    case DType::kInt64: return is_in(-kExact, kExact);
    case DType::kFloat: return !std::isfinite(value) || std::abs(value) <= std::numeric_limits<float>::max();
    default: return true;
  }
}

constexpr std::string_view kIntegers = "integers:";

// integers:FIRST:LAST
Range ParseRange(const std::string& item, const std::string& text) {
  const std::vector<std::string> ends = SplitList(text.substr(kIntegers.size()), ':');
  if (ends.size() != 2) ThrowBadShape(item, "random whole numbers are said as integers:FIRST:LAST");
  const Range range{.first = ParseValue(item, ends[0]), .last = ParseValue(item, ends[1])};
  if (std::floor(range.first) != range.first || std::floor(range.last) != range.last || range.first > range.last) {
    ThrowBadShape(item, StrCat("there are no whole numbers from ", ends[0], " to ", ends[1]));
  }
  return range;
}

// BLOB=SIZES[:DTYPE][=VALUE]
Filled ParseFilled(const std::string& item) {
  const size_t equals = item.find('=');
  if (equals == std::string::npos || equals == 0) ThrowBadShape(item, "it lacks blob or sizes");
  Filled filled{.blob = item.substr(0, equals), .shape = {}};
  std::string rest = item.substr(equals + 1);
  if (const size_t at = rest.find('='); at != std::string::npos) {
    const std::string value = rest.substr(at + 1);
    if (value.starts_with(kIntegers)) {
      filled.range = ParseRange(item, value);
    } else {
      filled.value = ParseValue(item, value);
    }
    rest.resize(at);
  }
  if (const size_t colon = rest.find(':'); colon != std::string::npos) {
    filled.dtype = ParseDType(item, rest.substr(colon + 1));
    rest.resize(colon);
  }
  if (filled.value && !Holds(filled.dtype, *filled.value)) {
    ThrowBadShape(item, StrCat(filled.dtype, " has no ", *filled.value));
  }
  for (const double end : {filled.range.value_or(Range{}).first, filled.range.value_or(Range{}).last}) {
    if (!Holds(filled.dtype, end)) ThrowBadShape(item, StrCat(filled.dtype, " has no ", end));
  }
  std::vector<std::int64_t> sizes;
  for (const std::string& size : SplitList(rest, 'x')) sizes.push_back(ParseNumber<std::int64_t>(item, size));
  try {
    filled.shape = Shape(sizes);
  } catch (const Error& error) {
    ThrowBadShape(item, error.message());
  }
  return filled;
}

// Element i of what --input_fill says.
double Generated(const std::string& fill, const RandomStream& random, std::int64_t i) {
  if (fill == "zeros") return 0;
  if (fill == "ones") return 1;
  if (fill == "uniform") return 2.0 * random.Uniform(i) - 1;
  // Box and Muller, one normal number from two uniform ones; 1 - u lies in (0, 1].
  const double radius = std::sqrt(-2 * std::log(1.0 - random.Uniform(2 * i)));
  return radius * std::cos(2 * std::numbers::pi * random.Uniform(2 * i + 1));
}

// Element i of a blob of --shape.
double Element(const Filled& filled, const RandomStream& random, std::int64_t i) {
  if (filled.value) return *filled.value;
  if (!filled.range) return Generated(FLAGS_input_fill, random, i);
  const auto [first, last] = *filled.range;
  return std::min(last, first + std::floor(random.Uniform(i) * (last - first + 1)));
}

bool IsRandomFill() { return FLAGS_input_fill == "uniform" || FLAGS_input_fill == "normal"; }

Tensor Generate(const Filled& filled, std::uint64_t number) {
  if (!filled.has_own_values() && IsRandomFill() && !IsFloating(filled.dtype)) {
    throw UsageError(StrCat("\"", filled.blob, "\" is ", filled.dtype, ", which --input_fill=", FLAGS_input_fill,
                            " cannot fill; give a value, --shape=", filled.blob, "=…:", filled.dtype,
                            "=1 or =integers:0:9 for random ones, or leave out the dtype where it is to be float"));
  }
  const RandomStream stream(FLAGS_seed, number, /*run=*/0, /*step=*/0);
  Tensor tensor(filled.dtype, filled.shape);
  FillFromNumbers(tensor, [&](std::int64_t i) { return Element(filled, stream, i); });
  return tensor;
}

void AddNpyFiles(NamedTensors* fed) {
  for (const std::string& item : SplitList(FLAGS_input)) {
    const size_t equals = item.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == item.size()) {
      throw UsageError(StrCat("--input has \"", item, "\"; it takes BLOB=FILE.npy"));
    }
    const std::string path = item.substr(equals + 1);
    try {
      fed->emplace_back(item.substr(0, equals), ReadNpy(path));
    } catch (const Error& error) {
      if (!HoldsOnlyTensors(path)) throw;
      throw Error(error.code(), StrCat(error.message(), "; --input_pb=", path, " takes it, with its names"));
    }
  }
}

// Operator and input that reads a blob, for the message that the blob is missing.
std::string ReaderText(const NetDef& net, const std::string& blob) {
  for (int k = 0; k < net.op_size(); ++k) {
    const OperatorDef& op = net.op(k);
    for (int i = 0; i < op.input_size(); ++i) {
      if (op.input(i) != blob) continue;
      std::string text = StrCat("read by op ", k, " `", OperatorText(op), "`");
      const OperatorSchema* schema = FindOperator(op.type());
      if (schema == nullptr || schema->inputs.empty()) return text;
      const size_t formal = std::min<size_t>(static_cast<size_t>(i), schema->inputs.size() - 1);
      return StrCat(text, " as ", schema->inputs[formal].name, ": ", schema->inputs[formal].doc);
    }
  }
  return "an external output";
}

// What nets that share a workspace take from it, and what they write.
struct BlobsTaken {
  std::set<std::string> taken;    // read before the net writes it, or listed as input and never written
  std::set<std::string> written;  // by any of them
};

// Outputs of a gradient operator that it adds to, or leaves as they are (gradient_requests).
std::vector<std::string> OutputsThatStay(const OperatorDef& op) {
  std::vector<std::string> stay;
  for (const Argument& argument : op.arg()) {
    if (op.type() != "RecurrentNetworkGradient" || argument.name() != "gradient_requests") continue;
    for (int k = 0; k < std::min(argument.strings_size(), op.output_size()); ++k) {
      if (argument.strings(k) != "write") stay.push_back(op.output(k));
    }
  }
  return stay;
}

BlobsTaken TakenBy(const std::vector<const NetDef*>& nets) {
  BlobsTaken blobs;
  for (const NetDef* net : nets) {
    std::set<std::string> written;
    for (const OperatorDef& op : net->op()) written.insert(op.output().begin(), op.output().end());
    for (const std::string& blob : ReadFirst(*net)) blobs.taken.insert(blob);
    for (const OperatorDef& op : net->op()) {
      for (std::string& blob : OutputsThatStay(op)) blobs.taken.insert(std::move(blob));
    }
    for (const std::string& blob : net->external_input()) {
      if (!written.contains(blob)) blobs.taken.insert(blob);
    }
    blobs.written.merge(written);
  }
  return blobs;
}

}  // namespace

std::vector<FlagUse> InputFlags() {
  return {{.name = "input", .value = "BLOB=FILE.npy,…", .is_list = true, .kind = ValueKind::kInputFile},
          {.name = "input_pb", .value = "F,…", .is_list = true, .kind = ValueKind::kInputFile},
          {.name = "shape", .value = "BLOB=SIZES,…", .is_list = true},
          {.name = "input_fill", .value = Join(Fills(), "|")},
          {.name = "seed", .value = "N"}};
}

bool FillsAtRandom() {
  const std::vector<std::string> items = SplitList(FLAGS_shape);
  return std::ranges::any_of(items, [](const std::string& item) {
    const Filled filled = ParseFilled(item);
    return filled.range || (!filled.value && IsRandomFill());
  });
}

NamedTensors ReadInputs(ValuesUse use) {
  const std::vector<std::string> fills = Fills();
  if (std::ranges::find(fills, FLAGS_input_fill) == fills.end()) {
    throw UsageError(StrCat("--input_fill is \"", FLAGS_input_fill, "\", must be one of ", Join(fills, ", "),
                            DidYouMean(FLAGS_input_fill, fills)));
  }
  if (FLAGS_shape.empty() && IsGiven("input_fill")) {
    throw UsageError("--input_fill fills what --shape names, and there is no --shape");
  }
  NamedTensors fed;
  for (const std::string& path : SplitList(FLAGS_input_pb)) {
    for (auto& tensor : ReadTensors(path)) fed.push_back(std::move(tensor));
  }
  AddNpyFiles(&fed);
  std::uint64_t number = 0;
  bool uses_fill = false;
  for (const std::string& item : SplitList(FLAGS_shape)) {
    Filled filled = ParseFilled(item);
    uses_fill = uses_fill || !filled.has_own_values();
    if (use == ValuesUse::kUnread && !filled.has_own_values()) filled.value = 0;
    fed.emplace_back(filled.blob,
                     WithMemoryFor("the blob of --shape", filled.blob, [&] { return Generate(filled, number++); }));
  }
  if (!uses_fill && IsGiven("input_fill")) {
    throw UsageError(
        StrCat("--input_fill is ", FLAGS_input_fill, ", and every blob of --shape has a value of its own"));
  }
  std::set<std::string> once;
  for (const auto& [name, tensor] : fed) {
    LOG(INFO) << PrintableLine(name) << " " << tensor.Description();
    if (!once.insert(name).second) throw UsageError(StrCat("\"", name, "\" is fed twice"));
  }
  return fed;
}

void CheckInputs(const NetDef& net, const Workspace& workspace) {
  std::vector<std::string> missing;
  std::string first;
  for (const std::string& blob : ReadFirst(net)) {
    const Blob* found = workspace.FindBlob(blob);
    if (found != nullptr && (found->HasTensor() || found->HasObject())) continue;
    if (missing.empty()) first = blob;
    missing.push_back(StrCat("\n  \"", PrintableLine(blob), "\", ", PrintableLine(ReaderText(net, blob))));
  }
  if (missing.empty()) return;
  const std::string name = PrintableLine(first);
  throw Error(ErrorCode::kInvalidArgument,
              StrCat(Count(static_cast<std::int64_t>(missing.size()), "input"), missing.size() == 1 ? " is" : " are",
                     " missing", Join(missing, ""), "\n  --input=", name, "=FILE.npy, --shape=", name,
                     "=SIZES or --input_pb=FILE gives inputs, --init_net=FILE parameters"))
      .At({.net = net.name()});
}

void CheckRead(const std::string& path, const std::vector<const NetDef*>& nets, const NamedTensors& fed,
               const std::vector<std::string>& also_read) {
  BlobsTaken blobs = TakenBy(nets);
  blobs.taken.insert(also_read.begin(), also_read.end());
  const std::vector<std::string> taken(blobs.taken.begin(), blobs.taken.end());
  std::set<std::string>
      typed;  // on the command line, where a wrong name is a mistake; files may hold more than is read
  for (const std::string& flag : {FLAGS_input, FLAGS_shape}) {
    for (const std::string& item : SplitList(flag)) typed.insert(item.substr(0, item.find('=')));
  }
  std::vector<std::string> mistakes;
  for (const auto& [name, tensor] : fed) {
    if (blobs.taken.contains(name)) continue;
    const std::string fault = blobs.written.contains(name)
                                  ? StrCat("the net writes \"", name, "\" before it reads it; what is given is lost")
                                  : StrCat("the net does not read \"", name, "\"", DidYouMean(name, taken));
    if (typed.contains(name)) {
      mistakes.push_back(fault);
    } else {
      std::cerr << Printable(fault) << "\n";
    }
  }
  if (mistakes.empty()) return;
  throw Error(ErrorCode::kInvalidArgument, Join(mistakes, "\n"))
      .At({.file = path, .net = nets.size() == 1 ? nets.front()->name() : ""});
}

void RemarkOnUnread(const std::vector<const NetDef*>& nets, const std::vector<std::string>& given) {
  const BlobsTaken blobs = TakenBy(nets);
  const auto is_taken = [&](const std::string& name) { return blobs.taken.contains(name); };
  if (given.empty() || std::ranges::any_of(given, is_taken)) return;
  const std::string others = given.size() > 1 ? StrCat(" and ", given.size() - 1, " more") : "";
  std::cerr << Printable(
                   StrCat("the net reads nothing of what ", FLAGS_init_net, " gives: ", Quoted(given.front()), others))
            << "\n";
}

}  // namespace stepnet::runner
