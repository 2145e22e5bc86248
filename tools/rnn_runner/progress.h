// How far long work is, and the clock.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace stepnet::runner {

// Shows in the status line (status_line.h) how far long work is, until the object goes away.
class Progress {
 public:
  explicit Progress(std::string what) : what_(std::move(what)) {}
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void Show(std::int64_t done, std::int64_t of, const std::string& name = "") const;

 private:
  std::string what_;
};

double Now();  // seconds of a clock that never goes back

}  // namespace stepnet::runner
