#include "stepnet/tools/rnn_runner/standard_output.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iostream>

#include "stepnet/core/error.h"
#include "stepnet/core/strings.h"
#include "stepnet/tools/rnn_runner/status_line.h"

namespace stepnet::runner {

StandardOutput::StandardOutput() : before_(std::cout.rdbuf(this)), buffer_(1 << 16) {
  setp(buffer_.data(), buffer_.data() + buffer_.size());
}

StandardOutput::~StandardOutput() {
  sync();
  std::cout.rdbuf(before_);
}

void StandardOutput::Flush() {
  sync();
  if (fault_ == 0) return;
  throw Error(ErrorCode::kInputOutput, StrCat("cannot write to standard output: ", std::strerror(fault_)));
}

StandardOutput::int_type StandardOutput::overflow(int_type c) {
  if (sync() != 0) return traits_type::eof();
  if (!traits_type::eq_int_type(c, traits_type::eof())) sputc(traits_type::to_char_type(c));
  return traits_type::not_eof(c);
}

int StandardOutput::sync() {
  if (pptr() > pbase()) StatusLine::Clear();
  const char* data = pbase();
  while (data < pptr() && fault_ == 0) {
    const ssize_t written = write(STDOUT_FILENO, data, static_cast<size_t>(pptr() - data));
    if (written >= 0) {
      data += written;
    } else if (errno != EINTR) {
      fault_ = errno;
    }
  }
  setp(buffer_.data(), buffer_.data() + buffer_.size());
  return fault_ == 0 ? 0 : -1;
}

}  // namespace stepnet::runner
