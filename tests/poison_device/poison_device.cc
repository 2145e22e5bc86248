#include "stepnet/tests/poison_device/poison_device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "stepnet/core/accumulate.h"
#include "stepnet/core/operator.h"
#include "stepnet/executor/executor.h"

namespace stepnet {
namespace {

// Addresses for all memory of the device; pages are taken when they are written.
constexpr std::int64_t kRoom = std::int64_t{16} << 30;
constexpr std::int64_t kLimit = std::int64_t{2} << 30;

std::byte* Reserve(int access) {
  void* room = mmap(nullptr, kRoom, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) throw Error(ErrorCode::kOutOfMemory, "no addresses for the poison device");
  return static_cast<std::byte*>(room);
}

class PoisonRuntime : public DeviceRuntime, public Queue {
 public:
  PoisonRuntime() : room_(Reserve(PROT_NONE)), memory_of_room_(Reserve(PROT_READ | PROT_WRITE)) {}

  // The device's own work goes to the memory of an address.
  template <typename T>
  T* Real(T* address) const {
    const auto* byte = static_cast<const std::byte*>(static_cast<const void*>(address));
    if (byte < room_ || byte >= room_ + kRoom) return address;  // of the host: what a kernel may read there
    return static_cast<T*>(static_cast<void*>(memory_of_room_ + (byte - room_)));
  }

  // Memory comes one after the other, and again by size. Behind each lies a page that not even the device may touch.
  void* Allocate(std::int64_t bytes) override {
    const std::lock_guard lock(mutex_);
    const std::int64_t pages = PagesOf(bytes);
    if (pages > kLimit - memory_.current) {
      throw Error(ErrorCode::kOutOfMemory, StrCat("the poison device has no ", bytes, " bytes"));
    }
    std::byte* memory = nullptr;
    if (std::vector<std::byte*>& free = free_[pages]; !free.empty()) {
      memory = free.back();
      free.pop_back();
    } else {
      if (used_ + pages + kPage > kRoom)
        throw Error(ErrorCode::kOutOfMemory, "the poison device has no more addresses");
      memory = room_ + used_;
      used_ += pages + kPage;
      if (mprotect(Real(memory) + pages, kPage, PROT_NONE) != 0) std::abort();
    }
    memory_.current += pages;
    memory_.peak = std::max(memory_.peak, memory_.current);
    Put([this, memory, pages] { std::memset(Real(memory), 0xff, pages); });
    // At the end of its pages, so that what runs over it meets the one behind.
    return memory + pages - RoundUp(std::max<std::int64_t>(bytes, 1), 256);
  }

  void Free(void* data, std::int64_t bytes) noexcept override {
    const std::lock_guard lock(mutex_);
    const std::int64_t pages = PagesOf(bytes);
    std::byte* memory = static_cast<std::byte*>(data) + RoundUp(std::max<std::int64_t>(bytes, 1), 256) - pages;
    memory_.current -= pages;
    Put([this, memory, pages] { std::memset(Real(memory), 0xff, pages); });
    free_[pages].push_back(memory);
  }

  Queue& queue() override { return *this; }
  MemoryUse memory() const override {
    const std::lock_guard lock(mutex_);
    return memory_;
  }
  std::int64_t num_host_waits() const override {
    const std::lock_guard lock(mutex_);
    return counts_.host_waits;
  }
  PoisonCounts Counts() const {
    const std::lock_guard lock(mutex_);
    PoisonCounts counts = counts_;
    counts.bytes = memory_.current;
    return counts;
  }

  void Copy(const void* from, void* to, std::int64_t bytes) override {
    const std::lock_guard lock(mutex_);
    ++counts_.copies;
    const auto *a = static_cast<const std::byte*>(from), *b = static_cast<const std::byte*>(to);
    if (a < b + bytes && b < a + bytes) std::abort();  // a device may do it in any order
    Put([=, this] { std::memcpy(Real(to), Real(from), bytes); });
  }
  void Fill(void* to, std::uint8_t byte, std::int64_t bytes) override {
    const std::lock_guard lock(mutex_);
    Put([=, this] { std::memset(Real(to), byte, bytes); });
  }
  void Add(const void* from, void* to, DType dtype, std::int64_t count) override {
    const std::lock_guard lock(mutex_);
    Put([=, this] {
      const Shape shape({count});
      Accumulate({const_cast<void*>(Real(from)), &shape, dtype}, {Real(to), &shape, dtype});
    });
  }
  void CopyFromHost(const void* from_host, void* to, std::int64_t bytes) override {
    const auto* begin = static_cast<const std::byte*>(from_host);
    const std::lock_guard lock(mutex_);
    ++counts_.copies_from_host;
    Put([this, to, held = std::vector<std::byte>(begin, begin + bytes)] {
      if (!held.empty()) std::memcpy(Real(to), held.data(), held.size());
    });
  }
  void CopyToHost(const void* from, void* to_host, std::int64_t bytes) override {
    const std::lock_guard lock(mutex_);
    Put([=, this] { std::memcpy(to_host, Real(from), bytes); });
    DoAll();
  }
  void Wait() override {
    const std::lock_guard lock(mutex_);
    DoAll();
  }

  void PutKernel(std::function<void()> run) {
    const std::lock_guard lock(mutex_);
    ++counts_.kernels;
    Put(std::move(run));
  }

 private:
  static constexpr std::int64_t kPage = 4096;
  static std::int64_t RoundUp(std::int64_t bytes, std::int64_t unit) { return (bytes + unit - 1) / unit * unit; }
  static std::int64_t PagesOf(std::int64_t bytes) { return RoundUp(std::max<std::int64_t>(bytes, 1), kPage); }

  void Put(std::function<void()> work) { work_.push_back(std::move(work)); }

  void DoAll() {
    ++counts_.host_waits;
    std::exception_ptr failure;
    while (!work_.empty()) {
      const std::function<void()> work = std::move(work_.front());
      work_.pop_front();
      try {
        if (failure == nullptr) work();
      } catch (...) {
        failure = std::current_exception();
      }
    }
    if (failure != nullptr) std::rethrow_exception(failure);
  }

  mutable std::mutex mutex_;
  std::byte* const room_;            // addresses, behind which is nothing
  std::byte* const memory_of_room_;  // what is at them
  std::int64_t used_ = 0;
  std::map<std::int64_t, std::vector<std::byte*>> free_;  // by size
  MemoryUse memory_ = {.limit = kLimit};
  std::deque<std::function<void()>> work_;
  PoisonCounts counts_;
};

PoisonRuntime& TheRuntime() {
  static PoisonRuntime& runtime = *new PoisonRuntime;
  return runtime;
}

// One run of a kernel, with copies of what the caller lends to it.
class LateRun {
 public:
  explicit LateRun(const OpRun& run)
      : run_number_(run.context().RunNumber()),
        faults_(run.context().faults),
        step_(run.step()),
        part_(run.part()),
        parts_(run.parts()) {
    if (run.range() != nullptr) range_ = *run.range();
    for (int i = 0; i < run.num_inputs(); ++i) Hold(run.In(i), &inputs_);
    for (int o = 0; o < run.num_outputs(); ++o) {
      Hold(run.Out(o), &outputs_);
      if (run.Adds(o)) adds_ |= std::uint64_t{1} << o;
    }
  }

  void Do(const RunFn& kernel) {
    const std::vector<TensorView> inputs = Views(inputs_), outputs = Views(outputs_);
    RunContext context;
    context.run = &run_number_;
    context.faults = faults_;
    OpRun run(inputs, outputs, context, step_);
    run.SetPart(part_, parts_);
    run.SetAdds(adds_);
    if (range_) run.SetRange(&*range_);
    kernel(run);
  }

 private:
  struct Held {
    TensorView view;
    Shape shape;
  };
  static void Hold(const TensorView& view, std::vector<Held>* held) {
    held->push_back({view, view.shape == nullptr ? Shape() : *view.shape});
    held->back().view.data = TheRuntime().Real(static_cast<std::byte*>(view.data));
  }
  static std::vector<TensorView> Views(const std::vector<Held>& held) {
    std::vector<TensorView> views;
    for (const Held& item : held) {
      views.push_back(item.view);
      if (item.view.shape != nullptr) views.back().shape = &item.shape;
    }
    return views;
  }

  std::vector<Held> inputs_, outputs_;
  const std::uint64_t run_number_;
  FaultRecord* const faults_;
  const std::int64_t step_;
  const int part_, parts_;
  std::uint64_t adds_ = 0;
  std::optional<RunRange> range_;
};

// The kernel of the CPU, put into the queue. One that notes faults in a record of the caller's is waited for.
Kernel LateKernel(const Kernel& cpu) {
  const bool waits = cpu.checks_values;
  return {.make = [make = cpu.make, waits](const OperatorCall& op) -> RunFn {
            return [kernel = make(op), waits](const OpRun& run) {
              const auto late = std::make_shared<LateRun>(run);
              TheRuntime().PutKernel([kernel, late] { late->Do(kernel); });
              if (waits) TheRuntime().Wait();
            };
          },
          .can_add = cpu.can_add,
          .checks_values = cpu.checks_values};
}

const Kernel* FindLateKernel(const OperatorSchema& schema) {
  static std::mutex mutex;
  static std::map<const OperatorSchema*, Kernel> kernels;
  const Kernel* cpu = schema.FindKernel(DeviceKind::kCpu);
  if (cpu == nullptr || cpu->takes_blobs) return nullptr;
  const std::lock_guard lock(mutex);
  const auto [found, is_new] = kernels.try_emplace(&schema);
  if (is_new) found->second = LateKernel(*cpu);
  return &found->second;
}

constexpr Target kPoisonTarget = {.device = DeviceKind::kPrivate};
const DeviceRegistration poison(DeviceKind::kPrivate, {.target = &kPoisonTarget,
                                                       .executor = "serial",
                                                       .open = [](int) -> DeviceRuntime& { return TheRuntime(); },
                                                       .find_kernel = FindLateKernel});
const ExecutorRegistration serial("serial", DeviceKind::kPrivate, MakeSerialExecutor);

}  // namespace

PoisonCounts CountsOfPoisonDevice() { return TheRuntime().Counts(); }

}  // namespace stepnet
