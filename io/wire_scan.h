// WireScan: a walk over the bytes of a binary message without parsing them.
//
// It answers what the parser does not: where and why bytes are malformed, how well they fit a message type, and how
// much memory the parsed message will take at most, before any of it is taken.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace google::protobuf {
class Descriptor;
}

namespace stepnet {

// Messages may nest this deep, in both formats.
inline constexpr int kMaxMessageNesting = 100;

// What the C++ library keeps of a message at most, with its presence bits and empty fields, in bytes.
inline constexpr std::int64_t kMaxMessageBytes = 320;

struct WireScan {
  std::string problem = {};    // "" for well-formed bytes, otherwise what is wrong and where
  std::int64_t known = 0;      // fields of the outermost message that its type declares, with content that fits
  std::int64_t fields = 0;     // anywhere
  std::int64_t oddities = 0;   // anywhere: unknown fields, fields of another wire type, names that are no text
  std::int64_t max_bytes = 0;  // of memory once parsed

  bool ok() const { return problem.empty(); }
};

WireScan ScanWire(const google::protobuf::Descriptor& type, std::string_view bytes);

}  // namespace stepnet
