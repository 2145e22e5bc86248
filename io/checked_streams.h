// Streams between Protocol Buffers and memory that stop where a run is to stop (cancellation.h). Protocol Buffers are
// given no exception to pass on: a stream ends for them, and who called them calls Rethrow before looking at what came
// out.
#pragma once

#include <google/protobuf/io/zero_copy_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <optional>
#include <string>
#include <string_view>

#include "stepnet/core/error.h"

namespace stepnet {

class StreamStop {
 public:
  // Whether the stream shall end here. Looks no more once it shall.
  bool IsDue();
  bool is_done() const { return error_.has_value(); }
  // Throws kCancelled where the stream was ended.
  void Rethrow() const;

 private:
  std::optional<Error> error_;
};

// Gives `bytes`, less than 2 GiB of them, block by block.
class CheckedInput : public google::protobuf::io::ZeroCopyInputStream {
 public:
  explicit CheckedInput(std::string_view bytes);
  bool Next(const void** data, int* size) override { return !stop_.IsDue() && array_.Next(data, size); }
  void BackUp(int count) override { array_.BackUp(count); }
  bool Skip(int count) override { return array_.Skip(count); }
  std::int64_t ByteCount() const override { return array_.ByteCount(); }
  void Rethrow() const { stop_.Rethrow(); }

 private:
  google::protobuf::io::ArrayInputStream array_;
  StreamStop stop_;
};

// Appends to a string.
class CheckedOutput : public google::protobuf::io::ZeroCopyOutputStream {
 public:
  explicit CheckedOutput(std::string* text) : string_(text) {}
  bool Next(void** data, int* size) override { return !stop_.IsDue() && string_.Next(data, size); }
  void BackUp(int count) override { string_.BackUp(count); }
  std::int64_t ByteCount() const override { return string_.ByteCount(); }
  bool is_stopped() const { return stop_.is_done(); }
  void Rethrow() const { stop_.Rethrow(); }

 private:
  google::protobuf::io::StringOutputStream string_;
  StreamStop stop_;
};

}  // namespace stepnet
