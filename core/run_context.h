// RunContext: what a thread of execution lends to the kernels that it runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stepnet/core/device.h"
#include "stepnet/core/fault_record.h"
#include "stepnet/core/observer.h"

namespace stepnet {

// Temporary memory of kernels, on one device. What Get returned is valid until Reset; memory is kept for the next
// kernel, so that the second run of a shape allocates nothing.
class Scratch {
 public:
  Scratch() = default;
  explicit Scratch(Device device) : device_(device) {}
  Device device() const { return device_; }
  // 64-byte aligned, uninitialised. Throws kOutOfMemory.
  void* Get(std::int64_t bytes);
  // Makes all memory free to be used anew.
  void Reset() {
    if (!overflow_.empty()) Grow();
    used_ = 0;
  }

 private:
  struct Release {
    Release() : runtime(nullptr), bytes(0) {}
    Release(DeviceRuntime* runtime, std::int64_t bytes) : runtime(runtime), bytes(bytes) {}
    void operator()(std::byte* data) const;
    DeviceRuntime* runtime;  // null: the host
    std::int64_t bytes;
  };
  using Block = std::unique_ptr<std::byte[], Release>;
  Block Allocate(std::int64_t bytes) const;
  void Grow();  // to what was used, in one block

  Device device_ = {};
  Block block_;
  std::int64_t capacity_ = 0;
  std::int64_t used_ = 0;
  std::vector<Block> overflow_;  // what did not fit; the next Reset grows block_ instead
};

// The number of a run in memory of a device.
class RunCell {
 public:
  explicit RunCell(Device device);
  RunCell(const RunCell&) = delete;
  RunCell& operator=(const RunCell&) = delete;
  ~RunCell();

  Device device() const { return device_; }
  const void* memory() const { return memory_; }
  // They hold for what is put into `queue` from now on.
  void Set(std::uint64_t run, Queue& queue);

 private:
  const Device device_;
  void* const memory_;
  std::optional<std::uint64_t> run_;
};

// What whoever records a run, to play it again, has to know of those who take part in it (core/recorded_run.h).
struct RecordingNotes {
  // Who has read the number of the run, and is given that of the next one before what was recorded is played.
  struct Reader {
    const std::uint64_t* from = nullptr;      // where the number was read; null: it was 0
    std::shared_ptr<RunCell> cell = nullptr;  // who keeps it, on the device
    std::uint64_t* copy = nullptr;            // or on the host
  };
  std::vector<Reader> readers = {};
  std::string refusal = {};             // why what runs cannot be played, or empty
  std::int64_t num_step_operators = 0;  // that step nets run, over all steps
  Recorder* recorder = nullptr;         // that keeps what runs; null where it is only watched
  std::int64_t num_in_piece = 0;        // step operators since its last Recorder::Cut

  void Note(Reader reader);
  // The first one counts.
  void Refuse(std::string_view why) {
    if (refusal.empty()) refusal = why;
  }
  // Whether the piece that is recorded has no room for so many more step operators, of `max`. Whoever puts them in cuts
  // first then, and counts them.
  bool IsFullFor(std::int64_t num_operators, std::int64_t max) const {
    return recorder != nullptr && num_in_piece > 0 && num_operators > max - num_in_piece;
  }
  void Cut();
  // Gives them the numbers of now. What was read `then` is read from `now`.
  void SetNumbers(const std::uint64_t* then, const std::uint64_t* now, Queue& queue) const;
};

struct RunContext {
  Scratch scratch = {};  // of the host
  // Where the kernels that run now put in what their device is to do; null for those of the CPU, who do it.
  Queue* queue = nullptr;
  Scratch device_scratch = {};  // of that device
  ObserverList observers = {};
  // Counts the runs of the net, for RandomStream: memory of whoever runs it, which kernels read when they run, so that
  // one that was recorded draws new numbers when it is played again. Null: 0.
  const std::uint64_t* run = nullptr;
  // Where kernels that check values note what is wrong; null: they throw at once.
  FaultRecord* faults = nullptr;
  // Where kernels of a device note it instead, and go on without waiting; null: they wait. `site` says where they are.
  LateFaults* late_faults = nullptr;
  FaultSite site = {};
  // What runs now is to do nothing where a fault has been noted there before: what it writes outlives the run. Asked of
  // kernels that say Kernel::stops_after_faults.
  bool stops_after_faults = false;
  // The contexts of the threads that share this one's work, by lane; 0 is this thread's own. They are kept for the next
  // time.
  std::vector<RunContext> lanes;
  // What speaks against recording what runs now; null where nobody records it, or is about to.
  RecordingNotes* recording = nullptr;

  std::uint64_t RunNumber() const {
    if (recording != nullptr) recording->Refuse("the host reads the number of the run");
    return run == nullptr ? 0 : *run;
  }
  // Where it is on the device, for kernels that are put in now.
  const void* RunNumberOnDevice();
  // Writes it to a place of the host, which lives for as long as what runs may be played, also when it is played.
  void KeepRunNumber(std::uint64_t* copy);
  std::shared_ptr<RunCell> run_cell = {};

  // What runs from now on runs on this device, and the temporary memory is free again.
  void UseDevice(Device device);
  void ResetScratch() {
    scratch.Reset();
    device_scratch.Reset();
  }
  // Serves the run that the other one serves: tells the same observers, notes faults in the same record.
  void ServeRunOf(const RunContext& other);
  // Makes lanes [0, num_lanes), which serve the same run.
  // What a lane runs may do so again with lanes of its own.
  void PrepareLanes(int num_lanes);
};

}  // namespace stepnet
