// The layout of the vector of parameters, against offsets that were written down by hand from its description.
#include "stepnet/nets/packed_layers.h"

#include <map>

#include "stepnet/tests/operators/op_test.h"

namespace stepnet {
namespace {

std::map<std::string, std::string> Places(const PackedLayers& layers) {
  const PackedLayout layout = LayoutOf(layers);
  const std::vector<std::string> names = NamesOf(layers);
  EXPECT_EQ(layout.parts.size(), names.size());
  std::map<std::string, std::string> places;
  for (size_t i = 0; i < names.size(); ++i) {
    places[names[i]] = StrCat(layout.parts[i].offset, " ", layout.parts[i].shape);
  }
  return places;
}

using NamedPlaces = std::map<std::string, std::string>;

TEST(PackedLayers, HaveAllWeightsBeforeAllBiases) {
  const PackedLayers layers{.mode = "gru", .layers = 2, .input = 3, .state = 2};
  const NamedPlaces expected = {{"layer0/weight_ih", "0 [6, 3]"},  {"layer0/weight_hh", "18 [6, 2]"},
                                {"layer1/weight_ih", "30 [6, 2]"}, {"layer1/weight_hh", "42 [6, 2]"},
                                {"layer0/bias_ih", "54 [6]"},      {"layer0/bias_hh", "60 [6]"},
                                {"layer1/bias_ih", "66 [6]"},      {"layer1/bias_hh", "72 [6]"}};
  EXPECT_EQ(Places(layers), expected);
  EXPECT_EQ(LayoutOf(layers).size, 78);
}

TEST(PackedLayers, HaveTheReverseDirectionBehindTheForwardOne) {
  const PackedLayers layers{
      .mode = "lstm", .layers = 1, .input = 1, .state = 2, .projection = 1, .bidirectional = true};
  const NamedPlaces expected = {{"weight_ih", "0 [8, 1]"},
                                {"weight_hh", "8 [8, 1]"},
                                {"weight_hr", "16 [1, 2]"},
                                {"reverse/weight_ih", "18 [8, 1]"},
                                {"reverse/weight_hh", "26 [8, 1]"},
                                {"reverse/weight_hr", "34 [1, 2]"},
                                {"bias_ih", "36 [8]"},
                                {"bias_hh", "44 [8]"},
                                {"reverse/bias_ih", "52 [8]"},
                                {"reverse/bias_hh", "60 [8]"}};
  EXPECT_EQ(Places(layers), expected);
  EXPECT_EQ(LayoutOf(layers).size, 68);
}

TEST(PackedLayers, OfSeveralReadBothDirectionsOfTheOneBelow) {
  PackedLayers layers{.mode = "rnn_tanh", .layers = 2, .input = 0, .state = 3, .bidirectional = true};
  EXPECT_EQ(Places(layers).at("layer0/reverse/weight_ih"), "9 [3, 0]");
  EXPECT_EQ(Places(layers).at("layer1/weight_ih"), "18 [3, 6]");
  layers.has_biases = false;
  EXPECT_EQ(Places(layers).size(), 8u);
  EXPECT_EQ(LayoutOf(layers).size, 2 * 9 + 2 * (18 + 9));
}

TEST(PackedLayers, AreNotLargerThanAnyTensor) {
  ExpectError([] { LayoutOf({.mode = "lstm", .layers = 1000, .input = 1, .state = std::int64_t{1} << 31}); },
              "…shape mismatch: ");
}

}  // namespace
}  // namespace stepnet
