#include "stepnet/io/checked_streams.h"

#include "stepnet/core/cancellation.h"

namespace stepnet {

bool StreamStop::IsDue() {
  if (error_) return true;
  try {
    CheckCancelled();
  } catch (const Error& error) {
    error_ = error;
  }
  return error_.has_value();
}

void StreamStop::Rethrow() const {
  if (error_) throw *error_;
}

CheckedInput::CheckedInput(std::string_view bytes)
    : array_(bytes.data(), static_cast<int>(bytes.size()), /*block_size=*/1 << 18) {}

}  // namespace stepnet
