#include "stepnet/core/run_context.h"

#include <limits>
#include <new>

#include "stepnet/core/error.h"
#include "stepnet/core/memory_fill.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

constexpr std::align_val_t kAlignment{64};

}  // namespace

void Scratch::Release::operator()(std::byte* data) const {
  if (runtime != nullptr) return runtime->Free(data, bytes);
  ::operator delete[](data, kAlignment);
}

Scratch::Block Scratch::Allocate(std::int64_t bytes) const {
  if (!device_.IsHost()) {
    DeviceRuntime& runtime = RuntimeOf(device_);
    return Block(static_cast<std::byte*>(runtime.Allocate(bytes)), Release(&runtime, bytes));
  }
  void* data = ::operator new[](static_cast<size_t>(bytes), kAlignment, std::nothrow);
  if (data == nullptr) {
    throw Error(ErrorCode::kOutOfMemory, StrCat("the system refused ", bytes, " bytes of scratch memory"));
  }
  return Block(static_cast<std::byte*>(data));
}

void* Scratch::Get(std::int64_t bytes) {
  if (bytes < 0 || bytes > std::numeric_limits<std::int64_t>::max() / 2) {
    throw Error(ErrorCode::kOutOfMemory, StrCat(bytes, " bytes of scratch memory"));
  }
  // What libraries of a device are lent begins where an allocation of its own would.
  const std::int64_t unit = device_.IsHost() ? 64 : 256;
  const std::int64_t rounded = (bytes + unit - 1) / unit * unit + unit;
  const std::int64_t begin = used_;
  used_ += rounded;
  if (used_ > capacity_) overflow_.push_back(Allocate(rounded));
  std::byte* data = used_ <= capacity_ ? block_.get() + begin : overflow_.back().get();
  if (device_.IsHost()) FillUnwritten(data, rounded);
  return data;
}

void Scratch::Reset() {
  if (!overflow_.empty()) {
    overflow_.clear();
    block_.reset();
    capacity_ = 0;
    block_ = Allocate(used_);
    capacity_ = used_;
  }
  used_ = 0;
}

void RunContext::UseDevice(Device device) {
  ResetScratch();
  if (device.IsHost()) {
    queue = nullptr;
    return;
  }
  if (device_scratch.device() != device) device_scratch = Scratch(device);
  queue = &RuntimeOf(device).queue();
}

RunCell::RunCell(Device device) : device_(device), memory_(RuntimeOf(device).Allocate(sizeof(std::uint64_t))) {}

RunCell::~RunCell() { RuntimeOf(device_).Free(memory_, sizeof(std::uint64_t)); }

void RunCell::Set(std::uint64_t run, Queue& queue) {
  if (run_ == run) return;
  run_.reset();
  queue.CopyFromHost(&run, memory_, sizeof(run));
  run_ = run;
}

void RunReaders::Set(std::uint64_t run, Queue& queue) const {
  for (const auto& cell : cells) cell->Set(run, queue);
}

const void* RunContext::RunNumberOnDevice() {
  if (run_cell == nullptr || run_cell->device() != device_scratch.device()) {
    run_cell = std::make_shared<RunCell>(device_scratch.device());
  }
  run_cell->Set(run == nullptr ? 0 : *run, *queue);
  if (readers != nullptr) readers->cells.push_back(run_cell);
  return run_cell->memory();
}

void RunContext::PrepareLanes(int num_lanes) {
  const auto count = static_cast<size_t>(num_lanes);
  if (lanes.size() < count) lanes.resize(count);
  for (size_t lane = 0; lane < count; ++lane) {
    lanes[lane].observers = observers;
    lanes[lane].run = run;
    lanes[lane].faults = faults;
    lanes[lane].late_faults = late_faults;
    lanes[lane].site = site;
    lanes[lane].readers = readers;
  }
}

}  // namespace stepnet
