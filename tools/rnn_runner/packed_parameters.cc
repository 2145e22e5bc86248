#include "stepnet/tools/rnn_runner/packed_parameters.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "stepnet/core/error.h"
#include "stepnet/core/floating.h"
#include "stepnet/core/memory_for.h"
#include "stepnet/core/strings.h"
#include "stepnet/report/text.h"
#include "stepnet/tools/rnn_runner/common_flags.h"

namespace stepnet::runner {
namespace {

constexpr const char* kPacked = "parameters";
constexpr std::int64_t kMaxLayers = 1000, kMaxSize = 1LL << 31;  // those of the operator RNN

[[noreturn]] void RefuseFlag(const std::string& fault) {
  throw UsageError(StrCat("--packed ", fault,
                          "; it takes MODE:L,H, with L layers and H units, and behind them "
                          "bidirectional, projection=P, no_biases and input=D"));
}

std::int64_t ParseSize(const std::string& what, std::string_view text, std::int64_t max) {
  std::int64_t size = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), size);
  if (fault == std::errc() && end == text.data() + text.size() && size >= 1 && size <= max) return size;
  RefuseFlag(StrCat("has \"", text, "\" for ", what, ", which is from 1 to ", max));
}

void ParseWord(const std::string& word, PackedLayers* layers) {
  constexpr std::string_view kProjection = "projection=", kInput = "input=";
  if (word == "bidirectional") {
    layers->bidirectional = true;
  } else if (word == "no_biases") {
    layers->has_biases = false;
  } else if (word.starts_with(kProjection)) {
    layers->projection = ParseSize("projection", word.substr(kProjection.size()), kMaxSize);
  } else if (word.starts_with(kInput)) {
    layers->input = ParseSize("input", word.substr(kInput.size()), kMaxSize);
  } else {
    RefuseFlag(
        StrCat("has \"", word, "\"", DidYouMean(word, {"bidirectional", "no_biases", "projection=P", "input=D"})));
  }
}

// "lstm with 2 layers of 128 units in both directions", for messages.
std::string Described(const PackedLayers& layers) {
  return StrCat(layers.mode, " with ", Count(layers.layers, "layer"), " of ", layers.state, " units",
                layers.projection > 0 ? StrCat(" projected to ", layers.projection) : "",
                layers.bidirectional ? " in both directions" : "", layers.has_biases ? "" : " without biases");
}

// The first of them: there may be a thousand layers.
std::string FirstOf(std::vector<std::string> names) {
  constexpr size_t kShown = 10;
  if (names.size() <= kShown) return Join(names, ", ");
  const size_t count = names.size();
  names.resize(kShown);
  return StrCat(Join(names, ", "), ", … (", count, " in all)");
}

// The input size with which layers have `size` parameters. Throws kShapeMismatch where there is none, or another one is
// said.
std::int64_t InputOf(PackedLayers layers, const std::string& name, std::int64_t size) {
  const std::int64_t said = layers.input;
  layers.input = 0;
  const std::int64_t others = LayoutOf(layers).size, for_each = layers.directions() * layers.gates() * layers.state;
  const bool is_whole = size >= others && (size - others) % for_each == 0;
  if (is_whole && (said == 0 || others + for_each * said == size)) return (size - others) / for_each;
  const std::string given =
      said == 0 ? "" : StrCat(", ", others + for_each * said, " for input=", said, ", as is said");
  const std::string fitting = is_whole ? StrCat("; input=", (size - others) / for_each, " fits") : "; none fits";
  throw Error(ErrorCode::kShapeMismatch, StrCat("\"", name, "\" has ", size, " elements; ", Described(layers), " have ",
                                                others, " + ", for_each, " D for an input of size D", given, fitting));
}

NamedTensors Split(const std::string& name, const Tensor& vector, PackedLayers layers) {
  layers.input = InputOf(layers, name, vector.size());
  const PackedLayout layout = LayoutOf(layers);
  const std::vector<std::string> names = NamesOf(layers);
  NamedTensors tensors;
  for (size_t i = 0; i < names.size(); ++i) {
    const PackedPart& part = layout.parts[i];
    tensors.emplace_back(
        names[i], WithMemoryFor("the tensor", names[i], [&] {
          return vector.At(part.offset * DTypeBytes(vector.dtype()), vector.dtype(), part.shape).Clone();
        }));
  }
  return tensors;
}

// One for each name, in their order.
std::vector<Tensor> InOrder(const NamedTensors& tensors, const std::vector<std::string>& names,
                            const PackedLayers& layers) {
  const auto has_name = [](const std::string& name) {
    return [&name](const auto& named) { return named.first == name; };
  };
  for (const auto& [name, tensor] : tensors) {
    if (std::ranges::count(names, name) > 0) continue;
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("\"", name, "\" is no parameter of ", Described(layers), DidYouMean(name, names), "; these are ",
                       FirstOf(names), " (--output takes those that are named)"));
  }
  std::vector<Tensor> found;
  for (const std::string& name : names) {
    const auto named = std::ranges::find_if(tensors, has_name(name));
    if (named == tensors.end()) {
      throw Error(ErrorCode::kInvalidArgument,
                  StrCat("\"", name, "\" is missing; the parameters of ", Described(layers), " are ", FirstOf(names)));
    }
    found.push_back(named->second);
  }
  return found;
}

Tensor Joined(const NamedTensors& tensors, PackedLayers layers) {
  const std::vector<std::string> names = NamesOf(layers);
  const std::vector<Tensor> parts = InOrder(tensors, names, layers);
  const Tensor& first = parts.front();
  if (layers.input == 0 && first.shape().rank() == 2) layers.input = first.dim(1);
  const PackedLayout layout = LayoutOf(layers);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].shape() != layout.parts[i].shape) {
      throw Error(ErrorCode::kShapeMismatch, StrCat("\"", names[i], "\" is ", parts[i].Description(), "; of ",
                                                    Described(layers), " it is ", layout.parts[i].shape));
    }
    if (parts[i].dtype() == first.dtype()) continue;
    throw Error(ErrorCode::kTypeMismatch, StrCat("\"", names[i], "\" is ", parts[i].Description(), " and \"", names[0],
                                                 "\" ", first.Description(), "; a vector is of one type"));
  }
  const Tensor vector =
      WithMemoryFor("the tensor", kPacked, [&] { return Tensor(first.dtype(), Shape({layout.size})); });
  for (size_t i = 0; i < parts.size(); ++i) {
    const PackedPart& part = layout.parts[i];
    const Tensor place = vector.At(part.offset * DTypeBytes(vector.dtype()), vector.dtype(), part.shape);
    CopyElements(parts[i].View(), place.View());
  }
  return vector;
}

}  // namespace

PackedLayers ParsePackedLayers(const std::string& text) {
  const size_t colon = text.find(':');
  PackedLayers layers{.mode = text.substr(0, colon)};
  if (std::ranges::count(PackedModes(), layers.mode) == 0) {
    RefuseFlag(StrCat("has the mode \"", layers.mode, "\"", DidYouMean(layers.mode, PackedModes()), "; it is one of ",
                      Join(PackedModes(), ", ")));
  }
  const std::vector<std::string> items =
      colon == std::string::npos ? std::vector<std::string>() : SplitList(text.substr(colon + 1));
  if (items.size() < 2) RefuseFlag(StrCat("is \"", text, "\""));
  layers.layers = ParseSize("L", items[0], kMaxLayers);
  layers.state = ParseSize("H", items[1], kMaxSize);
  std::set<std::string> said;
  for (size_t i = 2; i < items.size(); ++i) {
    if (!said.insert(items[i].substr(0, items[i].find('='))).second) RefuseFlag(StrCat("has \"", items[i], "\" twice"));
    ParseWord(items[i], &layers);
  }
  if (layers.projection > 0 && layers.mode != "lstm")
    RefuseFlag(StrCat("has a projection, and ", layers.mode, " has none"));
  return layers;
}

NamedTensors SplitOrJoined(const NamedTensors& tensors, PackedLayers layers) {
  for (const auto& [name, tensor] : tensors) {
    if (IsFloating(tensor.dtype())) continue;
    throw Error(ErrorCode::kTypeMismatch, StrCat("\"", name, "\" is ", tensor.Description(),
                                                 "; parameters are floats (--output takes those that are named)"));
  }
  const bool is_one = tensors.size() == 1;
  if (is_one && tensors.front().second.shape().rank() != 1) {
    throw Error(ErrorCode::kShapeMismatch,
                StrCat("\"", tensors.front().first, "\" is ", tensors.front().second.Description(),
                       "; the parameters of layers are one vector, or several tensors"));
  }
  if (is_one) return Split(tensors.front().first, tensors.front().second, std::move(layers));
  return {{kPacked, Joined(tensors, std::move(layers))}};
}

}  // namespace stepnet::runner
