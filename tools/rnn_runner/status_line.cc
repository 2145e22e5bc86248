#include "stepnet/tools/rnn_runner/status_line.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <iostream>
#include <mutex>

#include "stepnet/report/text.h"
#include "stepnet/tools/rnn_runner/progress.h"

namespace stepnet::runner {
namespace {

// Operators may print on any thread.
std::mutex mutex;
std::atomic<bool> is_off = false;
bool is_shown = false;
double shown_at = -1;  // time of the last line

}  // namespace

bool StatusLine::IsOn() {
  static const bool is_terminal = isatty(STDERR_FILENO) == 1;
  return is_terminal && !is_off;
}

void StatusLine::TurnOff() {
  Clear();
  is_off = true;
}

bool StatusLine::Show(const std::string& text) {
  constexpr double kInterval = 0.1;  // seconds
  const std::lock_guard lock(mutex);
  const double now = Now();
  if (!IsOn() || (is_shown && now - shown_at < kInterval)) return false;
  is_shown = true;
  shown_at = now;
  std::fputs(("\r\033[K" + Printable(text)).c_str(), stderr);
  std::fflush(stderr);
  return true;
}

void StatusLine::Clear() {
  const std::lock_guard lock(mutex);
  if (!is_shown) return;
  is_shown = false;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
}

StandardError::StandardError() : before_(std::cerr.rdbuf(this)) {}

StandardError::~StandardError() { std::cerr.rdbuf(before_); }

StandardError::int_type StandardError::overflow(int_type c) {
  StatusLine::Clear();
  return traits_type::eq_int_type(c, traits_type::eof()) ? traits_type::not_eof(c)
                                                         : before_->sputc(traits_type::to_char_type(c));
}

std::streamsize StandardError::xsputn(const char* text, std::streamsize size) {
  StatusLine::Clear();
  return before_->sputn(text, size);
}

int StandardError::sync() { return before_->pubsync(); }

}  // namespace stepnet::runner
