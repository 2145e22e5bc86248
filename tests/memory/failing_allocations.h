// Allocations that fail on request: those of the C++ operators, in all threads of the program.
#pragma once

#include <cstdint>

namespace stepnet {

// While it lives, allocations are counted from 1, and those in [first, last] fail. One at a time.
class FailingAllocations {
 public:
  FailingAllocations(std::int64_t first, std::int64_t last);
  ~FailingAllocations() { Stop(); }
  FailingAllocations(const FailingAllocations&) = delete;
  FailingAllocations& operator=(const FailingAllocations&) = delete;

  void Stop();                 // what is allocated from now on is neither counted nor fails
  std::int64_t count() const;  // of allocations so far
};

// That were made and not freed.
std::int64_t LiveAllocations();

}  // namespace stepnet
