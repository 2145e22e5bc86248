// PoisonRuntime: the memory of a poison device and its queue, whose work is done late.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "poison_conditions.h"
#include "poison_recording.h"
#include "stepnet/core/device.h"

namespace stepnet {

class PoisonRuntime : public DeviceRuntime, public Queue {
 public:
  explicit PoisonRuntime(int index);

  // The device's own work goes to the memory of an address.
  template <typename T>
  T* Real(T* address) const {
    const auto* byte = static_cast<const std::byte*>(static_cast<const void*>(address));
    if (byte < room_ || byte >= room_ + kRoom) return address;  // of the host: what a kernel may read there
    return static_cast<T*>(static_cast<void*>(memory_of_room_ + (byte - room_)));
  }

  // Memory comes one after the other, and again by size. Behind each lies a page that not even the device may touch.
  void* Allocate(std::int64_t bytes) override;

  void Free(void* data, std::int64_t bytes) noexcept override;

  Queue& queue() override { return *this; }
  void WhenDone(std::function<void()> then) noexcept override;
  MemoryUse memory() const override;
  void SetMemoryLimit(std::int64_t bytes) override;
  std::unique_ptr<LateFaults> MakeLateFaults() override;
  std::unique_ptr<Recorder> MakeRecorder() override;
  std::int64_t num_host_waits() const override { return Counts().host_waits; }
  PoisonCounts Counts() const;

  std::vector<std::int64_t> Orders() const;

  void Copy(const void* from, void* to, std::int64_t bytes) override;
  void Fill(void* to, std::uint8_t byte, std::int64_t bytes) override;
  void Add(const void* from, void* to, DType dtype, std::int64_t count) override;
  void CopyFromHost(const void* from_host, void* to, std::int64_t bytes) override;
  void CopyToHost(const void* from, void* to_host, std::int64_t bytes) override;
  void Wait() override;

  Device device() const override { return {.kind = DeviceKind::kPrivate, .index = static_cast<std::int16_t>(index_)}; }
  StreamId stream_id() const override { return kFirstPoisonStream + index_; }
  void WaitFor(StreamId stream) override { Order(-static_cast<std::int64_t>(stream)); }
  void LetWait(StreamId stream) override { Order(static_cast<std::int64_t>(stream)); }
  std::shared_ptr<const double> MarkTime() override;

  void PutKernel(std::function<void()> run);

  // All of them, one after the other, as one work; and waits, or not, until that is the only one.
  void PutRecorded(const std::shared_ptr<const PoisonRecording>& recording, bool waits);

 private:
  // Addresses for all memory of the device; pages are taken when they are written.
  static constexpr std::int64_t kRoom = std::int64_t{16} << 30;
  static constexpr std::int64_t kLimit = std::int64_t{2} << 30;
  static constexpr std::int64_t kPage = 4096;
  static std::byte* Reserve(int access);
  static std::int64_t RoundUp(std::int64_t bytes, std::int64_t unit) { return (bytes + unit - 1) / unit * unit; }
  static std::int64_t PagesOf(std::int64_t bytes) { return RoundUp(std::max<std::int64_t>(bytes, 1), kPage); }

  // Whether the test asked for this one to fail.
  bool Fails(PoisonFault fault) const;

  void PutWork(std::function<void()> work);

  void Put(std::function<void()> work);

  // Some queues go on, by chance, if a test asked for that.
  static void SomeGoOn();

  void WaitForAll(std::unique_lock<std::mutex> lock);

  void Order(std::int64_t stream);

  // Without the lock: functions may want others.
  void CallReady(std::unique_lock<std::mutex> lock);

  // What is done now. A failure is thrown by the next wait.
  void Do(std::int64_t count);

  void DoAll() { DoAllBut(0); }
  void DoAllBut(std::int64_t last);

  const int index_;
  std::mutex& mutex_ = ThePoisonConditions().mutex;
  std::byte* const room_;            // addresses, behind which is nothing
  std::byte* const memory_of_room_;  // what is at them
  std::int64_t used_ = 0;
  std::map<std::int64_t, std::vector<std::byte*>> free_;  // by size
  MemoryUse memory_ = {.limit = kLimit};
  std::deque<std::function<void()>> work_;
  std::int64_t done_ = 0;                                               // works
  std::deque<std::pair<std::int64_t, std::function<void()>>> pending_;  // and how many works are to be done before
  std::exception_ptr failure_;                                          // of work that has been done
  PoisonCounts counts_;
  std::vector<std::int64_t> orders_;
};

// That of private:index. Throws kInvalidArgument where there is none.
PoisonRuntime& PoisonRuntimeAt(int index);

std::unique_ptr<Recorder> MakePoisonRecorder(PoisonRuntime& runtime);

}  // namespace stepnet
