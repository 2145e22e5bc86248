// What a person sees of a training run, on standard error: a status line where that is a terminal, and a line for each
// validation everywhere.
#pragma once

#include <cstdint>

namespace stepnet::runner {

class TrainingProgress {
 public:
  // `done` iterations of `iterations` are done, of `tokens` characters each.
  TrainingProgress(std::int64_t done, std::int64_t iterations, std::int64_t tokens);
  ~TrainingProgress();
  TrainingProgress(const TrainingProgress&) = delete;
  TrainingProgress& operator=(const TrainingProgress&) = delete;

  // An iteration more, with its loss (natural logarithm).
  void Add(double loss, std::int64_t iterations_per_epoch);
  // A line that stays; the time since the iteration is not training's.
  void ShowValidation(double bits, bool is_best);

 private:
  std::int64_t done_;
  const std::int64_t iterations_;
  const std::int64_t tokens_;
  double sum_ = 0;            // of losses since the last validation
  std::int64_t count_ = 0;    // of them
  double seconds_ = 0;        // of training, in this process
  std::int64_t trained_ = 0;  // iterations in this process
  double last_;               // time of the last iteration or validation
};

}  // namespace stepnet::runner
