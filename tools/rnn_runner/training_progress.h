// What a person sees of a training run, on standard error: a status line where that is a terminal, and a line for each
// validation everywhere.
#pragma once

#include <cstdint>

namespace stepnet::runner {

class TrainingProgress {
 public:
  // Losses since the last validation.
  struct Losses {
    double sum = 0;
    std::int64_t count = 0;
  };

  // `done` iterations of `iterations` are done, of `tokens` characters each; `losses` are those of a process before.
  TrainingProgress(std::int64_t done, std::int64_t iterations, std::int64_t tokens, Losses losses);
  ~TrainingProgress();
  TrainingProgress(const TrainingProgress&) = delete;
  TrainingProgress& operator=(const TrainingProgress&) = delete;

  // An iteration more, with its loss (natural logarithm).
  void Add(double loss, std::int64_t iterations_per_epoch);
  // A line that stays; the time since the iteration is not training's.
  void ShowValidation(double bits, bool is_best);
  const Losses& losses() const { return losses_; }

 private:
  std::int64_t done_;
  const std::int64_t iterations_;
  const std::int64_t tokens_;
  double Mean() const { return losses_.sum / static_cast<double>(losses_.count); }

  Losses losses_;
  double seconds_ = 0;        // of training, in this process
  std::int64_t trained_ = 0;  // iterations in this process
  double last_;               // time of the last iteration or validation
};

}  // namespace stepnet::runner
