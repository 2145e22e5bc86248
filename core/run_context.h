// RunContext: what a thread of execution lends to the kernels that it runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "stepnet/core/fault_record.h"
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
  // Counts the runs of the net, for RandomStream: memory of whoever runs it, which kernels read when they run, so that
  // one that was recorded draws new numbers when it is played again. Null: 0.
  const std::uint64_t* run = nullptr;
  // Where kernels that check values note what is wrong; null: they throw at once.
  FaultRecord* faults = nullptr;
  // The contexts of the threads that share this one's work, by lane; 0 is this thread's own. They are kept for the next
  // time.
  std::vector<RunContext> lanes;

  std::uint64_t RunNumber() const { return run == nullptr ? 0 : *run; }
  // Makes lanes [0, num_lanes), which serve the same run, tell the same observers and note faults in the same record.
  // What a lane runs may do so again with lanes of its own.
  void PrepareLanes(int num_lanes);
};

// Lends a record of faults to what the context runs, as long as this object lives.
class FaultScope {
 public:
  FaultScope(RunContext& context, FaultRecord* faults)
      : context_(context), before_(std::exchange(context.faults, faults)) {}
  FaultScope(const FaultScope&) = delete;
  FaultScope& operator=(const FaultScope&) = delete;
  ~FaultScope() { context_.faults = before_; }

 private:
  RunContext& context_;
  FaultRecord* before_;
};

}  // namespace stepnet
