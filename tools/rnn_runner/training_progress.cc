#include "stepnet/tools/rnn_runner/training_progress.h"

#include <cstdio>
#include <iostream>
#include <numbers>

#include "stepnet/report/text.h"
#include "stepnet/tools/rnn_runner/progress.h"
#include "stepnet/tools/rnn_runner/status_line.h"

namespace stepnet::runner {

TrainingProgress::TrainingProgress(std::int64_t done, std::int64_t iterations, std::int64_t tokens, Losses losses)
    : done_(done), iterations_(iterations), tokens_(tokens), losses_(losses), last_(Now()) {}

TrainingProgress::~TrainingProgress() { StatusLine::Clear(); }

void TrainingProgress::Add(double loss, std::int64_t iterations_per_epoch) {
  const double now = Now();
  seconds_ += now - last_;
  last_ = now;
  ++done_;
  ++trained_;
  losses_.sum += loss;
  ++losses_.count;
  if (!StatusLine::IsOn()) return;
  const double mean = Mean();
  const auto left =
      static_cast<long>(seconds_ / static_cast<double>(trained_) * static_cast<double>(iterations_ - done_));
  char line[256];
  std::snprintf(line, sizeof(line),
                "iteration %ld/%ld, epoch %.1f: loss %.4f, %.3f bits per character; %.0f tokens/s, %ld:%02ld left",
                static_cast<long>(done_), static_cast<long>(iterations_),
                static_cast<double>(done_) / static_cast<double>(iterations_per_epoch), mean,
                mean * std::numbers::log2e, static_cast<double>(trained_ * tokens_) / seconds_, left / 60, left % 60);
  StatusLine::Show(line);
}

void TrainingProgress::ShowValidation(double bits, bool is_best) {
  char line[256];
  std::snprintf(line, sizeof(line),
                "iteration %ld/%ld: bits per character: training %.3f, validation %.3f%s; %.0f tokens/s\n",
                static_cast<long>(done_), static_cast<long>(iterations_), Mean() * std::numbers::log2e, bits,
                is_best ? " (best)" : "", static_cast<double>(trained_ * tokens_) / seconds_);
  std::cerr << line;
  losses_ = {};
  last_ = Now();
}

}  // namespace stepnet::runner
