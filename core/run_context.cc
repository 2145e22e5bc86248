#include "stepnet/core/run_context.h"

#include <algorithm>
#include <limits>
#include <new>

#include "stepnet/core/error.h"
#include "stepnet/core/memory_fill.h"
#include "stepnet/core/strings.h"
#include "stepnet/core/target.h"

namespace stepnet {
namespace {

constexpr std::align_val_t kAlignment{kLineBytes};

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
  const std::int64_t unit = device_.IsHost() ? kLineBytes : 256;
  const std::int64_t rounded = (bytes + unit - 1) / unit * unit + unit;
  const std::int64_t begin = used_;
  used_ += rounded;
  if (used_ > capacity_) overflow_.push_back(Allocate(rounded));
  std::byte* data = used_ <= capacity_ ? block_.get() + begin : overflow_.back().get();
  if (device_.IsHost()) FillUnwritten(data, rounded);
  return data;
}

void Scratch::Grow() {
  overflow_.clear();
  block_.reset();
  capacity_ = 0;
  block_ = Allocate(used_);
  capacity_ = used_;
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

void RecordingNotes::Note(Reader reader) {
  const auto is_same = [&](const Reader& other) {
    return other.from == reader.from && other.cell == reader.cell && other.copy == reader.copy;
  };
  if (std::ranges::none_of(readers, is_same)) readers.push_back(std::move(reader));
}

void RecordingNotes::Cut() {
  recorder->Cut();
  num_in_piece = 0;
}

void RecordingNotes::SetNumbers(const std::uint64_t* then, const std::uint64_t* now, Queue& queue) const {
  for (const Reader& reader : readers) {  // in their order: one may read what another keeps
    const std::uint64_t* const from = reader.from == then ? now : reader.from;
    const std::uint64_t number = from == nullptr ? 0 : *from;
    if (reader.cell != nullptr) reader.cell->Set(number, queue);
    if (reader.copy != nullptr) *reader.copy = number;
  }
}

const void* RunContext::RunNumberOnDevice() {
  static constexpr std::uint64_t kNone = 0;
  if (device_scratch.device().IsHost()) return run == nullptr ? &kNone : run;
  // What sets the number is not recorded: it is set before what was recorded is played.
  const std::string refusal = recording == nullptr ? std::string() : recording->refusal;
  if (run_cell == nullptr || run_cell->device() != device_scratch.device()) {
    run_cell = std::make_shared<RunCell>(device_scratch.device());
  }
  run_cell->Set(run == nullptr ? 0 : *run, *queue);
  if (recording != nullptr) {
    recording->refusal = refusal;
    recording->Note({.from = run, .cell = run_cell});
  }
  return run_cell->memory();
}

void RunContext::KeepRunNumber(std::uint64_t* copy) {
  *copy = run == nullptr ? 0 : *run;
  if (recording != nullptr) recording->Note({.from = run, .copy = copy});
}

void RunContext::ServeRunOf(const RunContext& other) {
  observers = other.observers;
  run = other.run;
  faults = other.faults;
  late_faults = other.late_faults;
  site = other.site;
  recording = other.recording;
}

void RunContext::PrepareLanes(int num_lanes) {
  const auto count = static_cast<size_t>(num_lanes);
  if (lanes.size() < count) lanes.resize(count);
  for (size_t lane = 0; lane < count; ++lane) lanes[lane].ServeRunOf(*this);
}

}  // namespace stepnet
