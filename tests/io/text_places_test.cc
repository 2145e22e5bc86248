#include "stepnet/io/text_places.h"

#include <gtest/gtest.h>

#include "stepnet/proto/train.pb.h"

namespace stepnet {
namespace {

using Place = std::optional<std::pair<int, int>>;

TEST(TextPlaces, AreThoseOfTheFields) {
  const TextPlaces places(
      "text: 'a'\n  batch: 2 size { name: 'D' value: 1 }\nsize {\n name: 'H' }\noptimizer { warmup: 5 }",
      TrainConfig());
  EXPECT_EQ(places.Find("text"), Place({1, 1}));
  EXPECT_EQ(places.Find("batch"), Place({2, 3}));
  EXPECT_EQ(places.Find("size[0].value"), Place({2, 29}));
  EXPECT_EQ(places.Find("size[1]"), Place({3, 1}));
  EXPECT_EQ(places.Find("size[1].name"), Place({4, 2}));
  EXPECT_EQ(places.Find("optimizer.warmup"), Place({5, 13}));
}

TEST(TextPlaces, AreUnknownOfWhatTheTextDoesNotSet) {
  const TextPlaces places("size { name: 'D' }", TrainConfig());
  for (const char* path :
       {"text", "size[1]", "size[0].value", "size[7].name", "optimizer.warmup", "no.such", "", ".", "text.text"}) {
    EXPECT_EQ(places.Find(path), std::nullopt) << path;
  }
}

TEST(TextPlaces, AreUnknownOfOtherText) {
  EXPECT_EQ(TextPlaces("net { }", TrainConfig()).Find("text"), std::nullopt);
  EXPECT_EQ(TextPlaces(std::string("\0\1\2", 3), TrainConfig()).Find("text"), std::nullopt);
}

}  // namespace
}  // namespace stepnet
