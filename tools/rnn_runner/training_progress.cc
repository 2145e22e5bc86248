#include "stepnet/tools/rnn_runner/training_progress.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <numbers>

#include "stepnet/tools/rnn_runner/text.h"

namespace stepnet::runner {

TrainingProgress::TrainingProgress(std::int64_t done, std::int64_t iterations, std::int64_t tokens)
    : is_terminal_(isatty(STDERR_FILENO) == 1), done_(done), iterations_(iterations), tokens_(tokens), last_(Now()) {}

TrainingProgress::~TrainingProgress() { Clear(); }

void TrainingProgress::Add(double loss, std::int64_t iterations_per_epoch) {
  const double now = Now();
  seconds_ += now - last_;
  last_ = now;
  ++done_;
  ++trained_;
  sum_ += loss;
  ++count_;
  constexpr double kInterval = 0.1;  // a terminal that scrolls no faster can be read
  if (!is_terminal_ || (shown_ >= 0 && now - shown_ < kInterval)) return;
  shown_ = now;
  const double mean = sum_ / static_cast<double>(count_);
  const auto left =
      static_cast<long>(seconds_ / static_cast<double>(trained_) * static_cast<double>(iterations_ - done_));
  std::fprintf(
      stderr,
      "\r\033[Kiteration %ld/%ld, epoch %.1f: loss %.4f, %.3f bits per character; %.0f tokens/s, %ld:%02ld left",
      static_cast<long>(done_), static_cast<long>(iterations_),
      static_cast<double>(done_) / static_cast<double>(iterations_per_epoch), mean, mean * std::numbers::log2e,
      static_cast<double>(trained_ * tokens_) / seconds_, left / 60, left % 60);
  std::fflush(stderr);
}

void TrainingProgress::ShowValidation(double bits, bool is_best) {
  Clear();
  const double mean = sum_ / static_cast<double>(count_);
  std::fprintf(stderr, "iteration %ld/%ld: bits per character: training %.3f, validation %.3f%s; %.0f tokens/s\n",
               static_cast<long>(done_), static_cast<long>(iterations_), mean * std::numbers::log2e, bits,
               is_best ? " (best)" : "", static_cast<double>(trained_ * tokens_) / seconds_);
  sum_ = 0;
  count_ = 0;
  last_ = Now();
}

void TrainingProgress::Clear() {
  if (shown_ >= 0) std::fprintf(stderr, "\r\033[K");
  shown_ = -1;
}

}  // namespace stepnet::runner
