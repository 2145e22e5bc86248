#include "poison_device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#include "stepnet/core/accumulate.h"
#include "stepnet/core/memory_changes.h"
#include "stepnet/core/operator.h"
#include "stepnet/core/recording_times.h"
#include "stepnet/core/regions/region_program.h"
#include "stepnet/core/scoped_value.h"
#include "stepnet/executor/recording_executor.h"

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

// The first fault. Kernels hold it: a net may be gone before its work is done.
class NotedFault {
 public:
  bool any() const { return first_.has_value(); }
  void Note(const FaultSite& site, Fault fault) {
    fault.place.step += site.first_step;
    fault.place.op = site.op;
    if (first_ && std::pair(first_->net_op, first_->fault.place) <= std::pair(site.net_op, fault.place)) return;
    first_ = {.net_op = site.net_op, .fault = std::move(fault)};
  }
  std::optional<LateFaults::Found> Take() { return std::exchange(first_, std::nullopt); }

 private:
  std::optional<LateFaults::Found> first_;
};

// Filled when the work is done.
class PoisonFaults : public LateFaults {
 public:
  explicit PoisonFaults(Queue& queue) : queue_(queue) {}
  // Those of the run; null where nobody looks for any.
  static std::shared_ptr<NotedFault> Of(const RunContext& context) {
    const auto* const faults = static_cast<const PoisonFaults*>(context.late_faults);
    return faults == nullptr ? nullptr : faults->noted_;
  }

 protected:
  std::optional<Found> TakeNoted() override {
    queue_.Wait();
    return noted_->Take();
  }

 private:
  Queue& queue_;
  const std::shared_ptr<NotedFault> noted_ = std::make_shared<NotedFault>();
};

// What tests ask of all poison devices, and what guards their queues: work of one may be done while another is used.
struct Conditions {
  std::mutex mutex;
  std::optional<std::mt19937> order;  // by which queues go on
  std::optional<PoisonFault> fault;   // of private:0
  std::int64_t before_fault = 0;      // that do not fail
};

Conditions& TheConditions() {
  static Conditions& conditions = *new Conditions;
  return conditions;
}

using Works = std::vector<std::function<void()>>;

// What is kept of work, in calls of Recorder::InLane and what is put in between them.
struct KeptCall {
  int lane = 0;
  std::vector<int> behind = {};  // numbers of calls; what is no call has none
  int number = -1;
  Works works = {};
};
using Recording = std::deque<KeptCall>;

// One that a device may take which does the work of several lanes at the same time.
void DoInSomeOrder(const Recording& recording, unsigned seed) {
  std::minstd_rand random(seed);
  std::vector<size_t> done(recording.size(), 0);  // works, by call
  // A call without works is one of nothing: it, too, comes behind those that it waits for, and before those behind it.
  const auto is_over = [&](size_t c) { return done[c] == std::max<size_t>(recording[c].works.size(), 1); };
  const auto go_on = [&](size_t c) {
    if (const size_t next = done[c]++; next < recording[c].works.size()) recording[c].works[next]();
  };
  const auto may_go_on = [&](size_t c) {
    if (is_over(c)) return false;
    for (size_t before = 0; before < c; ++before) {
      const bool is_awaited =
          recording[before].lane == recording[c].lane ||
          (recording[before].number >= 0 && std::ranges::count(recording[c].behind, recording[before].number) > 0);
      if (is_awaited && !is_over(before)) return false;
    }
    return true;
  };
  for (;;) {
    std::vector<size_t> ready;
    for (size_t c = 0; c < recording.size(); ++c) {
      if (may_go_on(c)) ready.push_back(c);
    }
    if (ready.empty()) return;
    const size_t c = ready[random() % ready.size()];
    go_on(c);
    while (ready.size() == 1 && !is_over(c)) go_on(c);
  }
}

// What a thread watches, or records.
struct Watched {
  std::string* refusal = nullptr;  // null: nothing
  Recording* kept = nullptr;       // null: what is put in is done

  void Refuse(std::string_view why) const {
    if (refusal != nullptr && refusal->empty()) *refusal = why;
  }
  void MeetHost(std::string_view how) const {
    Refuse(how);
    if (kept != nullptr) throw Error(ErrorCode::kFailed, "a run that is recorded needs the host");
  }
};
thread_local Watched watched;

class PoisonRuntime : public DeviceRuntime, public Queue {
 public:
  explicit PoisonRuntime(int index)
      : index_(index), room_(Reserve(PROT_NONE)), memory_of_room_(Reserve(PROT_READ | PROT_WRITE)) {}

  // The device's own work goes to the memory of an address.
  template <typename T>
  T* Real(T* address) const {
    const auto* byte = static_cast<const std::byte*>(static_cast<const void*>(address));
    if (byte < room_ || byte >= room_ + kRoom) return address;  // of the host: what a kernel may read there
    return static_cast<T*>(static_cast<void*>(memory_of_room_ + (byte - room_)));
  }

  // Memory comes one after the other, and again by size. Behind each lies a page that not even the device may touch.
  void* Allocate(std::int64_t bytes) override {
    watched.Refuse("it takes memory of the device");
    NoteMemoryChange();
    const std::lock_guard lock(mutex_);
    const std::int64_t pages = PagesOf(bytes);
    if (pages > memory_.limit - memory_.current || Fails(PoisonFault::kAllocation)) {
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
    ++counts_.allocations;
    memory_.current += pages;
    memory_.peak = std::max(memory_.peak, memory_.current);
    Put([this, memory, pages] { std::memset(Real(memory), 0xff, pages); });
    // At the end of its pages, so that what runs over it meets the one behind.
    return memory + pages - RoundUp(std::max<std::int64_t>(bytes, 1), 256);
  }

  void Free(void* data, std::int64_t bytes) noexcept override {
    watched.Refuse("it gives memory of the device back");
    NoteMemoryChange();
    const std::lock_guard lock(mutex_);
    const std::int64_t pages = PagesOf(bytes);
    std::byte* memory = static_cast<std::byte*>(data) + RoundUp(std::max<std::int64_t>(bytes, 1), 256) - pages;
    memory_.current -= pages;
    Put([this, memory, pages] { std::memset(Real(memory), 0xff, pages); });
    free_[pages].push_back(memory);
  }

  Queue& queue() override { return *this; }
  void WhenDone(std::function<void()> then) noexcept override {
    std::unique_lock lock(mutex_);
    pending_.emplace_back(done_ + std::ssize(work_), std::move(then));
    CallReady(std::move(lock));
  }
  MemoryUse memory() const override {
    const std::lock_guard lock(mutex_);
    return memory_;
  }
  void SetMemoryLimit(std::int64_t bytes) override {
    const std::lock_guard lock(mutex_);
    if (bytes < memory_.current) throw Error(ErrorCode::kInvalidArgument, "more of the poison device is in use");
    memory_.limit = bytes;
  }
  std::unique_ptr<LateFaults> MakeLateFaults() override { return std::make_unique<PoisonFaults>(*this); }
  std::unique_ptr<Recorder> MakeRecorder() override;
  std::int64_t num_host_waits() const override { return Counts().host_waits; }
  PoisonCounts Counts() const {
    const std::lock_guard lock(mutex_);
    PoisonCounts counts = counts_;
    counts.bytes = memory_.current;
    return counts;
  }

  std::vector<std::int64_t> Orders() const {
    const std::lock_guard lock(mutex_);
    return orders_;
  }

  void Copy(const void* from, void* to, std::int64_t bytes) override {
    const std::lock_guard lock(mutex_);
    ++counts_.copies;
    const auto *a = static_cast<const std::byte*>(from), *b = static_cast<const std::byte*>(to);
    if (a < b + bytes && b < a + bytes) std::abort();  // a device may do it in any order
    PutWork([=, this] { std::memcpy(Real(to), Real(from), bytes); });
  }
  void Fill(void* to, std::uint8_t byte, std::int64_t bytes) override {
    const std::lock_guard lock(mutex_);
    PutWork([=, this] { std::memset(Real(to), byte, bytes); });
  }
  void Add(const void* from, void* to, DType dtype, std::int64_t count) override {
    const std::lock_guard lock(mutex_);
    PutWork([=, this] {
      const Shape shape({count});
      Accumulate({const_cast<void*>(Real(from)), &shape, dtype}, {Real(to), &shape, dtype});
    });
  }
  void CopyFromHost(const void* from_host, void* to, std::int64_t bytes) override {
    watched.MeetHost("it copies from the host");
    const auto* begin = static_cast<const std::byte*>(from_host);
    const std::lock_guard lock(mutex_);
    ++counts_.copies_from_host;
    PutWork([this, to, held = std::vector<std::byte>(begin, begin + bytes)] {
      if (!held.empty()) std::memcpy(Real(to), held.data(), held.size());
    });
  }
  void CopyToHost(const void* from, void* to_host, std::int64_t bytes) override {
    watched.MeetHost("it copies to the host");
    std::unique_lock lock(mutex_);
    Put([=, this] { std::memcpy(to_host, Real(from), bytes); });
    WaitForAll(std::move(lock));
  }
  void Wait() override {
    watched.MeetHost("it waits for the device");
    WaitForAll(std::unique_lock(mutex_));
  }

  Device device() const override { return {.kind = DeviceKind::kPrivate, .index = static_cast<std::int16_t>(index_)}; }
  StreamId stream_id() const override { return kFirstPoisonStream + index_; }
  void WaitFor(StreamId stream) override { Order(-static_cast<std::int64_t>(stream)); }
  void LetWait(StreamId stream) override { Order(static_cast<std::int64_t>(stream)); }
  std::shared_ptr<const double> MarkTime() override {
    auto time = std::make_shared<double>(0);
    const std::lock_guard lock(mutex_);
    Put([time] { *time = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); });
    return time;
  }

  void PutKernel(std::function<void()> run) {
    const std::lock_guard lock(mutex_);
    ++counts_.kernels;
    PutWork(std::move(run));
  }

  // All of them, one after the other, as one work; and waits, or not, until that is the only one.
  void PutRecorded(const std::shared_ptr<const Recording>& recording, bool waits) {
    const std::lock_guard lock(mutex_);
    ++counts_.played;
    PutWork([recording, seed = static_cast<unsigned>(counts_.played)] { DoInSomeOrder(*recording, seed); });
    if (waits) DoAllBut(1);
  }

 private:
  static constexpr std::int64_t kPage = 4096;
  static std::int64_t RoundUp(std::int64_t bytes, std::int64_t unit) { return (bytes + unit - 1) / unit * unit; }
  static std::int64_t PagesOf(std::int64_t bytes) { return RoundUp(std::max<std::int64_t>(bytes, 1), kPage); }

  // Whether the test asked for this one to fail.
  bool Fails(PoisonFault fault) const {
    Conditions& conditions = TheConditions();
    return index_ == 0 && conditions.fault == fault && conditions.before_fault-- == 0;
  }

  void PutWork(std::function<void()> work) {
    if (Fails(PoisonFault::kLaunch)) throw Error(ErrorCode::kFailed, "the poison device refuses this");
    if (Fails(PoisonFault::kWork)) {
      work = [] { throw Error(ErrorCode::kFailed, "work on the poison device failed"); };
    }
    if (watched.kept != nullptr) return watched.kept->back().works.push_back(std::move(work));
    Put(std::move(work));
  }

  void Put(std::function<void()> work) {
    work_.push_back(std::move(work));
    SomeGoOn();
  }

  // By chance, if a test asked for that.
  static void SomeGoOn();

  void WaitForAll(std::unique_lock<std::mutex> lock) {
    std::exception_ptr failure;
    try {
      DoAll();
    } catch (...) {
      failure = std::current_exception();
    }
    CallReady(std::move(lock));
    if (failure != nullptr) std::rethrow_exception(failure);
  }

  void Order(std::int64_t stream) {
    const std::lock_guard lock(mutex_);
    orders_.push_back(stream);
  }

  // Without the lock: functions may want others.
  void CallReady(std::unique_lock<std::mutex> lock) {
    std::vector<std::function<void()>> ready;
    for (; !pending_.empty() && pending_.front().first <= done_; pending_.pop_front()) {
      ready.push_back(std::move(pending_.front().second));
    }
    lock.unlock();
    for (const auto& then : ready) then();
  }

  // What is done now. A failure is thrown by the next wait.
  void Do(std::int64_t count) {
    for (; count > 0 && !work_.empty(); --count) {
      const std::function<void()> work = std::move(work_.front());
      work_.pop_front();
      ++done_;
      try {
        if (failure_ == nullptr) work();
      } catch (...) {
        failure_ = std::current_exception();
      }
    }
  }

  void DoAll() { DoAllBut(0); }
  void DoAllBut(std::int64_t last) {
    ++counts_.host_waits;
    SomeGoOn();
    Do(std::ssize(work_) - last);
    if (failure_ != nullptr) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

  const int index_;
  std::mutex& mutex_ = TheConditions().mutex;
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

// Those that have been asked for.
std::array<std::atomic<PoisonRuntime*>, kNumPoisonDevices> runtimes = {};

PoisonRuntime& RuntimeAt(int index) {
  static std::mutex mutex;
  if (index < 0 || index >= kNumPoisonDevices) {
    throw Error(ErrorCode::kInvalidArgument, StrCat("there is no poison device ", index));
  }
  const std::lock_guard lock(mutex);
  if (runtimes[index] == nullptr) runtimes[index] = new PoisonRuntime(index);
  return *runtimes[index];
}

void PoisonRuntime::SomeGoOn() {
  Conditions& conditions = TheConditions();
  if (!conditions.order) return;
  for (PoisonRuntime* runtime : runtimes) {
    constexpr unsigned kMost = 6;
    const unsigned drawn = (*conditions.order)() % (2 * kMost);
    if (runtime != nullptr && drawn < kMost) runtime->Do(drawn);
  }
}

class PoisonRecorder : public Recorder {
 public:
  explicit PoisonRecorder(PoisonRuntime& runtime) : runtime_(runtime) {}
  void Watch(const std::function<void()>& work, std::string* refusal) override {
    const ScopedValue<Watched> scope(watched, {.refusal = refusal});
    work();
  }
  void Record(const std::function<void()>& work, std::string* refusal) override {
    pieces_.clear();
    kept_ = {std::make_shared<Recording>(1)};
    num_calls_ = 0;
    {
      const ScopedValue<Watched> scope(watched, {.refusal = refusal, .kept = kept_.back().get()});
      work();
    }
    if (!refusal->empty()) return;
    RecordingTimes times = {.recordings = 1, .graphs = std::ssize(kept_)};
    for (const auto& piece : kept_) {
      for (const auto& call : *piece) times.nodes += std::ssize(call.works);
    }
    AddRecordingTimes(times);
    pieces_ = {kept_.begin(), kept_.end()};
    kept_.clear();
  }
  // The call that is under way goes on in the next piece. What calls are behind and is not there has been done.
  void Cut() override {
    if (watched.kept == nullptr) return;
    const KeptCall& call = watched.kept->back();
    kept_.push_back(std::make_shared<Recording>(1, KeptCall{.lane = call.lane, .number = call.number}));
    watched.kept = kept_.back().get();
  }
  int num_pieces() const override { return static_cast<int>(pieces_.size()); }
  void Play(int piece) override {
    runtime_.PutRecorded(pieces_[piece], /*waits=*/piece > 0 && piece + 1 < num_pieces());
  }
  int num_lanes() const override { return 3; }
  void InLane(int lane, std::span<const int> behind, const std::function<void()>& work) override {
    if (watched.kept == nullptr) return work();
    watched.kept->push_back({.lane = lane, .behind = {behind.begin(), behind.end()}, .number = num_calls_++});
    work();
    watched.kept->emplace_back();  // what follows is in no call
  }

 private:
  PoisonRuntime& runtime_;
  int num_calls_ = 0;                             // of what is kept
  std::vector<std::shared_ptr<Recording>> kept_;  // while it records
  std::vector<std::shared_ptr<const Recording>> pieces_;
};

std::unique_ptr<Recorder> PoisonRuntime::MakeRecorder() { return std::make_unique<PoisonRecorder>(*this); }

// One run of a kernel, with copies of what the caller lends to it.
class LateRun {
 public:
  explicit LateRun(const OpRun& run)
      : runtime_(static_cast<PoisonRuntime&>(run.queue())),
        run_number_(run.context().recording == nullptr ? run.context().RunNumber() : 0),
        number_of_played_(run.context().recording == nullptr ? nullptr : run.context().RunNumberOnDevice()),
        faults_(run.context().faults),
        late_fault_(PoisonFaults::Of(run.context())),
        site_(run.context().site),
        stops_(run.context().stops_after_faults),
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

  PoisonRuntime& runtime() const { return runtime_; }

  void Do(const RunFn& kernel) {
    if (late_fault_ != nullptr && stops_ && late_fault_->any()) return;
    const std::vector<TensorView> inputs = Views(inputs_), outputs = Views(outputs_);
    RunContext context;
    context.run = number_of_played_ == nullptr
                      ? &run_number_
                      : static_cast<const std::uint64_t*>(runtime_.Real(const_cast<void*>(number_of_played_)));
    FaultRecord found;
    context.faults = late_fault_ == nullptr ? faults_ : &found;
    OpRun run(inputs, outputs, context, step_);
    run.SetPart(part_, parts_);
    run.SetAdds(adds_);
    if (range_) run.SetRange(&*range_);
    kernel(run);
    if (std::optional<Fault> fault = found.Take()) late_fault_->Note(site_, std::move(*fault));
  }

 private:
  struct Held {
    TensorView view;
    Shape shape;
  };
  void Hold(const TensorView& view, std::vector<Held>* held) const {
    held->push_back({view, view.shape == nullptr ? Shape() : *view.shape});
    held->back().view.data = runtime_.Real(static_cast<std::byte*>(view.data));
  }
  static std::vector<TensorView> Views(const std::vector<Held>& held) {
    std::vector<TensorView> views;
    for (const Held& item : held) {
      views.push_back(item.view);
      if (item.view.shape != nullptr) views.back().shape = &item.shape;
    }
    return views;
  }

  PoisonRuntime& runtime_;
  std::vector<Held> inputs_, outputs_;
  const std::uint64_t run_number_;
  const void* const number_of_played_;  // in memory of the device, for what is recorded; or null
  FaultRecord* const faults_;
  const std::shared_ptr<NotedFault> late_fault_;
  const FaultSite site_;
  const bool stops_;
  const std::int64_t step_;
  const int part_, parts_;
  std::uint64_t adds_ = 0;
  std::optional<RunRange> range_;
};

// The kernel of the CPU, put into the queue. One that notes faults in a record on the host is waited for.
Kernel LateKernel(const Kernel& cpu) {
  const bool checks = cpu.checks_values;
  return {.make = [make = cpu.make, checks](const OperatorCall& op) -> RunFn {
            return [kernel = make(op), checks](const OpRun& run) {
              const auto late = std::make_shared<LateRun>(run);
              late->runtime().PutKernel([kernel, late] { late->Do(kernel); });
              if (!checks) return;
              if (LateFaults* const late_faults = run.context().late_faults) return late_faults->SetPending();
              late->runtime().Wait();
            };
          },
          .can_add = cpu.can_add,
          .can_leave_out = cpu.can_leave_out,
          .checks_values = cpu.checks_values,
          .stops_after_faults = true};
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

// The program of the CPU, put into the queue.
RunRegionFn MakeLateRegion(const DeviceRegion& made) {
  return [program = std::make_shared<const RegionProgram>(made.region), host_inputs = made.host_inputs](
             const OpRun& run, std::span<const void* const> inputs, std::span<void* const> outputs) {
    auto& runtime = static_cast<PoisonRuntime&>(run.queue());
    std::vector<const void*> from(inputs.begin(), inputs.end());
    std::vector<void*> to(outputs.begin(), outputs.end());
    std::vector<std::int64_t> copies;
    for (size_t i = 0; i < from.size(); ++i) {
      if (std::ranges::count(host_inputs, static_cast<int>(i)) == 0) {
        from[i] = runtime.Real(const_cast<void*>(from[i]));
      } else {
        copies.push_back(*static_cast<const std::int64_t*>(from[i]));
      }
    }
    for (void*& output : to) output = runtime.Real(output);
    const std::shared_ptr<NotedFault> fault = PoisonFaults::Of(run.context());
    const bool stops = fault != nullptr && run.context().stops_after_faults;
    runtime.PutKernel([=]() mutable {
      if (stops && fault->any()) return;
      for (size_t k = 0; k < host_inputs.size(); ++k) from[host_inputs[k]] = &copies[k];
      program->Run(from, to);
    });
  };
}

constexpr Target kPoisonTarget = {.device = DeviceKind::kPrivate};
const DeviceRegistration poison(DeviceKind::kPrivate,
                                {.target = &kPoisonTarget,
                                 .executor = "recorded",
                                 .open = [](int index) -> DeviceRuntime& { return RuntimeAt(index); },
                                 .find_kernel = FindLateKernel,
                                 .make_region = MakeLateRegion});
const ExecutorRegistration serial("serial", DeviceKind::kPrivate, MakeSerialExecutor);
const ExecutorRegistration recorded("recorded", DeviceKind::kPrivate,
                                    [] { return MakeRecordingExecutor(MakeSerialStepRunner); }, {.records_runs = true});

}  // namespace

PoisonCounts CountsOfPoisonDevice(int index) { return RuntimeAt(index).Counts(); }

std::vector<std::int64_t> OrdersOfPoisonDevice(int index) { return RuntimeAt(index).Orders(); }

PoisonOrder::PoisonOrder(unsigned seed) {
  Conditions& conditions = TheConditions();
  const std::lock_guard lock(conditions.mutex);
  conditions.order.emplace(seed);
}
PoisonOrder::~PoisonOrder() {
  Conditions& conditions = TheConditions();
  const std::lock_guard lock(conditions.mutex);
  conditions.order.reset();
}

PoisonFailure::PoisonFailure(PoisonFault fault, std::int64_t k) {
  Conditions& conditions = TheConditions();
  const std::lock_guard lock(conditions.mutex);
  conditions.fault = fault;
  conditions.before_fault = k;
}
PoisonFailure::~PoisonFailure() {
  Conditions& conditions = TheConditions();
  const std::lock_guard lock(conditions.mutex);
  conditions.fault.reset();
}
bool PoisonFailure::has_happened() const {
  Conditions& conditions = TheConditions();
  const std::lock_guard lock(conditions.mutex);
  return conditions.before_fault < 0;
}

}  // namespace stepnet
