#include "stepnet/python/src/options.h"

#include <algorithm>
#include <utility>

#include "stepnet/cells/cell_options.h"
#include "stepnet/compiler/passes/passes.h"
#include "stepnet/core/device.h"
#include "stepnet/core/error.h"
#include "stepnet/core/name_characters.h"
#include "stepnet/core/strings.h"
#include "stepnet/core/thread_pool.h"
#include "stepnet/io/proto_io.h"
#include "stepnet/python/src/arrays.h"
#include "stepnet/python/src/text_caster.h"

namespace nb = nanobind;

namespace stepnet::python {

namespace {

[[noreturn]] void ThrowOfAnotherType(const std::string& name, nb::handle value, const char* expected) {
  throw Error(ErrorCode::kTypeMismatch, StrCat(name, " is ", ReprOf(value), "; it must be ", expected));
}

// Whether it is a whole number that a Number can hold, which then becomes `number`. Truth values are none.
template <typename Number>
bool IsWholeNumber(nb::handle value, Number* number) {
  return !PyBool_Check(value.ptr()) && nb::try_cast(value, *number);
}

bool IsCellOption(const std::string& name) { return CellOptions::descriptor()->FindFieldByName(name) != nullptr; }

// `0.5`, `true` or `reverse`.
std::string OptionTextOf(const std::string& name, nb::handle value) {
  double number = 0;
  if (PyBool_Check(value.ptr())) return nb::cast<bool>(value) ? "true" : "false";
  if (nb::try_cast(value, number)) return ShortestText(number);
  const std::string word = nb::isinstance<nb::str>(value) ? Utf8Of(value) : "";
  const bool is_word = !word.empty() && IsNameStart(word.front()) && std::ranges::all_of(word, IsNamePart);
  if (!is_word) ThrowOfAnotherType(StrCat("the option ", name), value, "a number, a word, or True or False");
  return word;
}

}  // namespace

std::int64_t WholeNumberOf(const char* name, nb::handle value) {
  std::int64_t number = 0;
  if (!IsWholeNumber(value, &number)) ThrowOfAnotherType(name, value, "a whole number of 64 bits");
  return number;
}

std::uint64_t SeedOf(nb::handle value) {
  std::uint64_t seed = 0;
  if (!IsWholeNumber(value, &seed)) ThrowOfAnotherType("seed", value, "a whole number from 0 on, of 64 bits");
  return seed;
}

bool TruthOf(const char* name, nb::handle value) {
  bool truth = false;
  if (!nb::try_cast(value, truth)) ThrowOfAnotherType(name, value, "True or False");
  return truth;
}

std::string TextOf(const char* name, nb::handle value) {
  std::string text;
  if (!nb::try_cast(value, text)) ThrowOfAnotherType(name, value, "a text");
  return text;
}

std::vector<std::string> NamesOf(const char* name, nb::handle value) {
  std::vector<std::string> names;
  for (const nb::handle each : value) {
    std::string text;
    if (!nb::try_cast(each, text)) ThrowOfAnotherType(StrCat("a name of ", name), each, "a text");
    names.push_back(std::move(text));
  }
  return names;
}

RunRequest RunRequestOf(nb::handle threads, nb::handle device, nb::handle opt_level, const nb::list& disable_pass,
                        nb::handle seed) {
  return {.threads = WholeNumberOf("threads", threads),
          .device = TextOf("device", device),
          .opt_level = WholeNumberOf("opt_level", opt_level),
          .disable_pass = NamesOf("disable_pass", disable_pass),
          .seed = SeedOf(seed)};
}

RunOptions MakeRunOptions(const RunRequest& request) {
  const auto& [threads, device, opt_level, disable_pass, seed] = request;
  if (threads < 0 || threads > kMaxThreads) {
    throw Error(
        ErrorCode::kInvalidArgument,
        StrCat("threads is ", threads, "; it must be between 0, as many as are worth having, and ", kMaxThreads));
  }
  if (opt_level < 0 || opt_level > kMaxOptLevel) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("opt_level is ", opt_level, "; it must be between 0 and ", kMaxOptLevel));
  }
  const RunOptions options = {.threads = static_cast<int>(threads),
                              .opt_level = static_cast<int>(opt_level),
                              .seed = seed,
                              .disabled_passes = {disable_pass.begin(), disable_pass.end()}};
  CheckDisabledPasses(options.disabled_passes);
  for (const Pass& pass : Passes()) {
    if (opt_level >= pass.opt_level || !options.disabled_passes.contains(pass.name)) continue;
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("disable_pass names \"", pass.name, "\", which runs from opt_level ", pass.opt_level,
                       " on, and opt_level is ", opt_level));
  }
  const Device where = ParseDevice(device);
  if (!where.IsHost()) RuntimeOf(where);
  return OnDevice(options, where);
}

ArrayPlace PlaceFor(const Device& device, nb::handle stream, const TensorExchange* exchange) {
  ArrayPlace place{.device = device, .exchange = exchange};
  if (!stream.is_none()) place.stream = static_cast<StreamId>(WholeNumberOf("stream", stream));
  return place;
}

CellWords CellWordsOf(const nb::dict& given) {
  CellWords words;
  for (const auto& [name, value] : given) {
    const std::string text = Utf8Of(name);
    const bool may_be_option = IsCellOption(text);
    std::int64_t number = 0;
    if (IsWholeNumber(value, &number)) {
      words[text] = StrCat(number);
    } else if (may_be_option) {
      words[text] = OptionTextOf(text, value);
    } else {
      const bool is_too_large = PyLong_CheckExact(value.ptr()) != 0;
      ThrowOfAnotherType(StrCat("the size ", text), value,
                         is_too_large ? "a whole number of 64 bits" : "a whole number");
    }
  }
  return words;
}

CellSizes TakeWords(const CellWords& words, CellSource* cell) {
  CellSizes sizes;
  std::vector<std::string> options;
  for (const auto& [name, text] : words) {
    const bool is_size =
        std::ranges::count(cell->def.size(), name, [](const CellSize& size) { return size.name(); }) > 0;
    if (IsCellOption(name) && !is_size) {
      options.push_back(StrCat(name, "=", text));
    } else if (const auto number = IntegerOf(text)) {
      sizes[name] = *number;
    } else {
      throw Error(ErrorCode::kTypeMismatch, StrCat("the size ", name, " is ", text, "; it must be a whole number"));
    }
  }
  if (!options.empty()) *cell = WithOptions(std::move(*cell), ParseCellOptions(Join(options, ", "), "options"));
  return sizes;
}

GradientRequests RequestsOf(const nb::dict& requests) {
  GradientRequests result;
  for (const auto& [name, value] : requests) {
    const std::string text = Utf8Of(name), where = StrCat("gradient_requests says for \"", text, "\"");
    if (!nb::isinstance<nb::str>(value)) {
      throw Error(ErrorCode::kTypeMismatch,
                  StrCat(where, " ", ReprOf(value), "; it must be \"write\", \"add\" or \"none\""));
    }
    result[text] = ParseGradientRequest(Utf8Of(value), where);
  }
  return result;
}

CellSource SourceOf(const std::string& text_or_path, bool is_text) {
  const std::string content = is_text ? text_or_path : ReadFile(text_or_path);
  const std::string what = is_text ? "<text>" : text_or_path;
  const MessageKind kind = IsCell(content, what) ? MessageKind::kCellDef : DetectKindOf(content);
  if (kind == MessageKind::kNetDef || kind == MessageKind::kMetaNetDef) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat(is_text ? "the text" : what, " is a net and no cell; stepnet.load takes it"));
  }
  return ParseCell(content, what);
}

}  // namespace stepnet::python
