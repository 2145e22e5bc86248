// Devices: where tensors lie and kernels run. This header is all that the program knows of a device; gpu/ says it of
// NVIDIA's, tests/poison_device of one that needs no hardware.
//
// The memory of a device is its own: the host neither reads nor writes it, but by the copies of a Queue. What a device
// does is put into a queue and done later, one thing after the other. So whoever puts in a kernel returns at once, and
// what it wrote can be read by whatever is put into the same queue behind it, without anybody waiting. The host's own
// memory and work need no queue: they are of Device{}, which is no DeviceRuntime.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stepnet {

enum class DType : std::uint8_t;
class LateFaults;
class OpRun;
struct Kernel;
struct OperatorSchema;
struct Region;
struct Target;

enum class DeviceKind : std::uint8_t {
  kCpu,
  kCuda,
  kPrivate,  // one that a program brings: tests, accelerators that nobody else knows
};
inline constexpr DeviceKind kDeviceKinds[] = {DeviceKind::kCpu, DeviceKind::kCuda, DeviceKind::kPrivate};
const char* DeviceKindName(DeviceKind kind);  // "cpu", "cuda", "private"

struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  std::int16_t index = 0;  // among those of its kind

  bool IsHost() const { return kind == DeviceKind::kCpu; }
  friend bool operator==(const Device&, const Device&) = default;
};
std::string DeviceName(const Device& device);  // "cpu", "cuda:0"
std::ostream& operator<<(std::ostream& out, const Device& device);
// Reads "cpu", "cuda" (the first) or "cuda:1". Throws kInvalidArgument for anything else.
Device ParseDevice(const std::string& text);

// Memory held by tensors, in bytes.
struct MemoryUse {
  std::int64_t current = 0;
  std::int64_t peak = 0;
  std::int64_t limit = 0;
  std::int64_t cached = 0;  // beside `current`: freed, and kept to be given out again
};

using StreamId = std::uintptr_t;

// An order of work on one device. Addresses are those of its memory, but where the name says host; bytes may be 0. Any
// thread may put work in. What goes wrong when the work is done is thrown by the next Wait or CopyToHost.
class Queue {
 public:
  virtual ~Queue() = default;
  virtual void Copy(const void* from, void* to, std::int64_t bytes) = 0;  // that do not overlap
  virtual void Fill(void* to, std::uint8_t byte, std::int64_t bytes) = 0;
  // to[i] += from[i]. Throws kTypeMismatch where they are not float or double.
  virtual void Add(const void* from, void* to, DType dtype, std::int64_t count) = 0;
  // `to` becomes `count` times the bytes at `from`, one behind the other.
  virtual void CopyToEach(const void* from, void* to, std::int64_t bytes, std::int64_t count);
  // to[i] += from[k * size + i] for k = 0, 1, … count - 1, in this order. Throws as Add does.
  virtual void AddEach(const void* from, void* to, DType dtype, std::int64_t size, std::int64_t count);
  // Memory of the host has been read when it returns.
  virtual void CopyFromHost(const void* from_host, void* to, std::int64_t bytes) = 0;
  // Waits, as Wait does.
  virtual void CopyToHost(const void* from, void* to_host, std::int64_t bytes) = 0;
  // Returns when all that was put in has been done.
  virtual void Wait() = 0;
  virtual Device device() const = 0;
  // Puts in a mark. When it is reached is known after Wait, in seconds of std::chrono::steady_clock. Null where the
  // queue has no clock.
  virtual std::shared_ptr<const double> MarkTime() { return nullptr; }
  // Streams are the orders of work in which other libraries use the device, by the numbers that DLPack has for them: of
  // CUDA a cudaStream_t, or 1 and 2 for its default ones. This queue's own; 0 where others cannot name it.
  virtual StreamId stream_id() const { return 0; }
  // What the queue is given from now on is done when the stream has done what it was given so far; nobody waits. Throws
  // kInvalidArgument for a stream that is being captured.
  virtual void WaitFor(StreamId stream) { static_cast<void>(stream); }
  // The other way round: what the stream is given from now on is done when the queue has done what it was given so far.
  virtual void LetWait(StreamId stream) { static_cast<void>(stream); }
};

// Keeps what a thread puts into the queue of a device, to put it in again as one.
class Recorder {
 public:
  virtual ~Recorder() = default;
  // Calls `work`, which is done as ever. `refusal` becomes why it could not be kept, where nothing else speaks against
  // it yet: the thread has taken memory of the device or given some back, copied between it and the host, or waited
  // for it. What it puts in would be something else the next time.
  virtual void Watch(const std::function<void()>& work, std::string* refusal) = 0;
  // Calls `work`; what it puts into DeviceRuntime::queue() is kept, in place of what was kept before, and not done.
  // `refusal` as for Watch. Where there is one, or something is thrown, nothing is kept.
  virtual void Record(const std::function<void()>& work, std::string* refusal) = 0;
  // How many lanes there are in what is kept: what is in different ones may be done at the same time.
  virtual int num_lanes() const { return 1; }
  // Calls `work`, within that of Record: what it puts in stands in this lane, behind what is in the lane, what the
  // calls `behind` of this function have put in, and what is before that in their lanes. Calls are numbered from 0 in
  // each recording. What nobody puts into a lane is in lane 0. Elsewhere it is done as ever, one thing after the other.
  virtual void InLane(int lane, std::span<const int> behind, const std::function<void()>& work) {
    static_cast<void>(lane), static_cast<void>(behind);
    work();
  }
  // Within the call of Record: one piece of what is kept ends here and the next one begins, in whichever lane; what
  // comes from now on is done when all of the piece is. Elsewhere nothing. Throws where the piece cannot be kept.
  virtual void Cut() {}
  // How many pieces there are of what is kept: 0 where nothing is, and 1 where nobody has cut.
  virtual int num_pieces() const = 0;
  // Puts in one of them. Whoever plays puts in all, in their order, or goes no further than one of them. The memory
  // that they use is the caller's care. At most two pieces are under way: it returns when all before this one are
  // done, and at once for the last. Waits count as those of the host (DeviceRuntime::num_host_waits).
  virtual void Play(int piece) = 0;
};

// One device, from when it is first asked for to the end of the process. Safe to use from any thread.
class DeviceRuntime {
 public:
  virtual ~DeviceRuntime() = default;
  // Uninitialised, aligned to 256 bytes, never null. What the queue was given before may still use memory that is freed
  // here, and what it is given later may use it again: memory belongs to the order of the queue. Throws kOutOfMemory.
  virtual void* Allocate(std::int64_t bytes) = 0;
  virtual void Free(void* memory, std::int64_t bytes) noexcept = 0;
  virtual Queue& queue() = 0;
  virtual MemoryUse memory() const = 0;
  // Limits what Allocate gives out, and keeps, in all. Throws kInvalidArgument for less than is in use.
  virtual void SetMemoryLimit(std::int64_t bytes) = 0;
  // A record for what is put into queue(); null where kernels that check values are waited for.
  virtual std::unique_ptr<LateFaults> MakeLateFaults();
  // How often the host has waited for the device since the process began.
  virtual std::int64_t num_host_waits() const = 0;
  // What has been chosen for work on this device since the process began, a line each: algorithms of products.
  virtual std::vector<std::string> Choices() const { return {}; }
  // Null where nothing can be kept.
  virtual std::unique_ptr<Recorder> MakeRecorder() { return nullptr; }
  // Calls `then` once, when the queue has done what it was given so far: within this call or a later one, of whichever
  // thread, or within a wait for the queue. It must not throw.
  virtual void WhenDone(std::function<void()> then) noexcept;
  // Makes this device the thread's current one in the device's own library, where others in this process may have
  // chosen another. What is returned chooses that one again when it ends; null where there is nothing to choose.
  virtual std::shared_ptr<void> MakeCurrent() { return nullptr; }
};

// What a device runs at once: a region that several operators have become, or several regions, one after the other.
struct DeviceRegion {
  std::vector<const Region*> regions = {};  // that require nothing
  // How many groups several regions keep apart (core/regions/region_groups.h). Each group goes through all
  // regions, whatever the others do.
  std::int64_t groups = 1;
  std::string name = {};  // what profiles call it
  // Inputs of int64, the same at every index, that lie on the host: they are read when the region is put into the
  // queue.
  std::vector<int> host_inputs = {};
  int device_index = 0;
};
// Puts a run of it into the queue of `run`. Pointers are as for EvaluateRegion (core/regions/region.h), of one region
// after the other, to memory of the device.
using RunRegionFn =
    std::function<void(const OpRun& run, std::span<const void* const> inputs, std::span<void* const> outputs)>;

struct DeviceSpec {
  const Target* target = nullptr;
  std::string executor = {};  // the one that runs plans where nobody chooses
  // The runtime of one of them, the same each time. Throws kInvalidArgument, with the reason, where there is none.
  std::function<DeviceRuntime&(int index)> open = {};
  // The kernel of a type that registers none for the device, or null: for what follows from formulas. The same each
  // time.
  std::function<const Kernel*(const OperatorSchema& schema)> find_kernel = {};
  // What runs a region on the device. Null where operators run one by one.
  std::function<RunRegionFn(const DeviceRegion& region)> make_region = {};
};

// Makes the devices of a kind known, as a variable at namespace scope; of several for a kind the last one holds.
class DeviceRegistration {
 public:
  DeviceRegistration(DeviceKind kind, DeviceSpec spec);
};

// Null where this program knows no such devices.
const DeviceSpec* FindDeviceSpec(DeviceKind kind);
// Does what FindDeviceSpec does, throws kInvalidArgument where there is none.
const DeviceSpec& GetDeviceSpec(DeviceKind kind);
// REQUIRES: not the host. Throws kInvalidArgument, with the reason, where there is no such device.
DeviceRuntime& RuntimeOf(const Device& device);

}  // namespace stepnet
