// TextPlaces: where the fields of a message stand in the text that it was parsed from.
#pragma once

#include <google/protobuf/message.h>
#include <google/protobuf/text_format.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace stepnet {

class TextPlaces {
 public:
  // Bytes, and text that is no message of `type`, have no places.
  TextPlaces(const std::string& text, const google::protobuf::Message& type);

  // Line and column, from 1, of a field by its path: "optimizer.warmup", "size[1].value". Nothing for a field that the
  // text does not set.
  std::optional<std::pair<int, int>> Find(std::string_view path) const;

 private:
  const google::protobuf::Descriptor& type_;
  google::protobuf::TextFormat::ParseInfoTree tree_;
};

}  // namespace stepnet
