#include "stepnet/nets/packed_layers.h"

#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

void Add(const Shape& shape, PackedPart* part, PackedLayout* layout) {
  *part = {.shape = shape, .offset = layout->size};
  if (!__builtin_add_overflow(layout->size, shape.size(), &layout->size)) return;
  throw Error(ErrorCode::kShapeMismatch, "the parameters of RNN would have more than 2^63 elements");
}

int NumMatrices(const PackedLayers& layers) { return layers.projection > 0 ? 3 : 2; }
int NumParts(const PackedLayers& layers) { return NumMatrices(layers) + (layers.has_biases ? 2 : 0); }

}  // namespace

std::int64_t PackedLayers::gates() const { return mode == "lstm" ? 4 : mode == "gru" ? 3 : 1; }

const std::vector<std::string>& PackedModes() {
  static const std::vector<std::string> modes = {"rnn_relu", "rnn_tanh", "lstm", "gru"};
  return modes;
}

PackedLayout LayoutOf(const PackedLayers& layers) {
  const std::int64_t rows = layers.gates() * layers.state, num_cells = layers.layers * layers.directions();
  const int num_matrices = NumMatrices(layers), num_parts = NumParts(layers);
  PackedLayout layout;
  layout.parts.resize(num_cells * num_parts);
  for (std::int64_t cell = 0; cell < num_cells; ++cell) {
    PackedPart* part = &layout.parts[cell * num_parts];
    const bool is_first = cell < layers.directions();
    Add(Shape({rows, is_first ? layers.input : layers.directions() * layers.output()}), part++, &layout);
    Add(Shape({rows, layers.output()}), part++, &layout);
    if (layers.projection > 0) Add(Shape({layers.projection, layers.state}), part, &layout);
  }
  for (std::int64_t cell = 0; cell < num_cells && layers.has_biases; ++cell) {
    PackedPart* part = &layout.parts[cell * num_parts + num_matrices];
    Add(Shape({rows}), part++, &layout);
    Add(Shape({rows}), part, &layout);
  }
  return layout;
}

std::vector<std::string> NamesOf(const PackedLayers& layers) {
  std::vector<std::string> parts = {"weight_ih", "weight_hh"};
  if (layers.projection > 0) parts.emplace_back("weight_hr");
  if (layers.has_biases) parts.insert(parts.end(), {"bias_ih", "bias_hh"});
  std::vector<std::string> names;
  for (std::int64_t layer = 0; layer < layers.layers; ++layer) {
    const std::string place = layers.layers > 1 ? StrCat("layer", layer, "/") : "";
    for (std::int64_t direction = 0; direction < layers.directions(); ++direction) {
      for (const std::string& part : parts) names.push_back(StrCat(place, direction == 1 ? "reverse/" : "", part));
    }
  }
  return names;
}

}  // namespace stepnet
