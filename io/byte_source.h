// ByteSource: bytes that are read once, from front to back: a file, or an entry of an archive.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace stepnet {

class ByteSource {
 public:
  virtual ~ByteSource() = default;

  virtual const std::string& path() const = 0;  // for messages
  virtual std::int64_t left() const = 0;        // bytes that have not been read

  // Fills `data`. Throws kInputOutput when fewer than `bytes` are left; `what` says of what ("the header").
  virtual void Read(void* data, std::int64_t bytes, std::string_view what) = 0;
};

}  // namespace stepnet
