// RunContext: what a thread of execution lends to the kernels that it runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "stepnet/core/observer.h"

namespace stepnet {

// Temporary memory of kernels. What Get returned is valid until Reset; memory is kept for the next kernel, so that the
// second run of a shape allocates nothing.
class Scratch {
 public:
  // 64-byte aligned, uninitialised. Throws kOutOfMemory.
  void* Get(std::int64_t bytes);
  // All memory may be used anew.
  void Reset();

 private:
  struct AlignedDelete {
    void operator()(std::byte* data) const;
  };
  using Block = std::unique_ptr<std::byte[], AlignedDelete>;
  static Block Allocate(std::int64_t bytes);

  Block block_;
  std::int64_t capacity_ = 0;
  std::int64_t used_ = 0;
  std::vector<Block> overflow_;  // what did not fit; the next Reset grows block_ instead
};

struct RunContext {
  Scratch scratch = {};
  ObserverList observers = {};
  std::uint64_t run = 0;  // counts the runs of the net, for RandomStream
  // Of the threads that share this one's work, by lane; 0 is this thread's own. They are kept for the next time.
  std::vector<RunContext> lanes;

  // Makes lanes [0, num_lanes), which serve the same run and tell the same observers. What a lane runs may do so again
  // with lanes of its own.
  void PrepareLanes(int num_lanes);
};

}  // namespace stepnet
