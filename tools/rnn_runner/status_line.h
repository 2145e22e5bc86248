// The line on a terminal that says how far long work is. There is one, below everything else that is printed: whatever
// is written to std::cout or std::cerr takes it away first.
#pragma once

#include <streambuf>
#include <string>

namespace stepnet::runner {

class StatusLine {
 public:
  // Whether standard error is a terminal, and TurnOff was not called. Elsewhere Show does nothing.
  static bool IsOn();
  // It stays so as long as the process runs: a log tells on standard error how far the work is.
  static void TurnOff();

  // Replaces the line; true when that was done. A line that comes too soon behind another one is left out: a terminal
  // that scrolls no faster can be read. Control characters of `text` are shown.
  static bool Show(const std::string& text);
  static void Clear();
};

// While it lives, std::cerr takes the status line away before it writes.
class StandardError : public std::streambuf {
 public:
  StandardError();
  ~StandardError() override;

 protected:
  int_type overflow(int_type c) override;
  std::streamsize xsputn(const char* text, std::streamsize size) override;
  int sync() override;

 private:
  std::streambuf* before_;
};

}  // namespace stepnet::runner
