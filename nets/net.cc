#include "stepnet/nets/net.h"

#include <algorithm>
#include <optional>
#include <set>
#include <unordered_set>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/scoped_value.h"
#include "stepnet/core/strings.h"
#include "stepnet/core/thread_pool.h"
#include "stepnet/nets/completion.h"
#include "stepnet/nets/dag_net.h"
#include "stepnet/nets/net_check.h"
#include "stepnet/nets/placement.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

class SimpleNet : public Net {
 protected:
  void RunOperators() override {
    Lend(&context_);
    if (late_faults_ == nullptr) late_faults_ = MakeLateFaults();
    context_.late_faults = late_faults_.get();
    // Those of a run that an exception has ended.
    if (late_faults_ != nullptr && late_faults_->pending()) late_faults_->Take();
    // First what may find no memory: before operators have changed what the next run reads.
    for (const int i : entries_) RunOperator(i, context_);
    RunOthers();
    ThrowLateFaults(late_faults_.get());
  }

 private:
  void RunOthers() {
    auto entry = entries_.begin();
    for (int i = 0; i < static_cast<int>(operators_.size()); ++i) {
      if (entry != entries_.end() && *entry == i) {
        ++entry;
      } else {
        RunOperator(i, context_);
      }
    }
  }

  std::unique_ptr<LateFaults> late_faults_;
  RunContext context_;
};

// Says of each operator whether it writes what an operator at or before it reads.
std::vector<bool> WritesWhatWasRead(const NetDef& net) {
  std::unordered_set<std::string> read_first, written;
  std::vector<bool> writes;
  for (const OperatorDef& op : net.op()) {
    for (const std::string& input : op.input()) {
      if (!written.contains(input)) read_first.insert(input);
    }
    written.insert(op.output().begin(), op.output().end());
    writes.push_back(std::ranges::any_of(op.output(), [&](const auto& blob) { return read_first.contains(blob); }));
  }
  return writes;
}

}  // namespace

std::unique_ptr<Net> Net::Create(const NetDef& as_written, Workspace& workspace, const RunOptions& options) {
  if (options.threads < 0 || options.threads > kMaxThreads) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("a run on ", options.threads, " threads; must be between 0 and ", kMaxThreads));
  }
  if (options.math != Math::kFloat32 && options.device().IsHost()) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("products in ", MathName(options.math), " are a GPU's; the CPU computes them in float32"));
  }
  const NetDef def = Completed(as_written);
  try {
    ThrowIfProblems(CheckNet(
        def, {.run = options, .blob_exists = [&](const std::string& blob) { return workspace.HasBlob(blob); }}));
    PlacedNet placed = Place(def, options);
    const NetDef& net_def = *placed.net;
    std::unique_ptr<Net> net;
    if (CanonicalNetType(def.type()) == "simple") {
      net = std::make_unique<SimpleNet>();
    } else {
      net = MakeDagNet(net_def, options.target->device);
    }
    net->name_ = def.name();
    net->entries_ = std::move(placed.entries);
    net->origins_ = std::move(placed.origins);
    net->outlives_ = WritesWhatWasRead(net_def);
    std::vector<std::vector<std::vector<std::string>>> readers = ReadersOfOutputs(net_def);
    for (int i = 0; i < net_def.op_size(); ++i) {
      constexpr std::int64_t kWork = 5'000;  // of one operator
      CountWork(kWork);
      const OperatorDef& op = net_def.op(i);
      try {
        OperatorCall init(op, OnDevice(options, placed.devices[i]));
        init.SetReaders(std::move(readers[i]));
        net->operators_.push_back(std::make_unique<NetOperator>(std::move(init), workspace));
      } catch (...) {
        throw CurrentError().At({.net = def.name(), .op_index = net->origins_[i], .op_text = OperatorText(op)});
      }
    }
    return net;
  } catch (Error& error) {
    if (error.places().empty()) error.At({.net = def.name()});
    throw;
  }
}

void Net::Run(const Cancellation* cancellation) {
  const std::lock_guard lock(mutex_);
  const CancellationScope cancelled(cancellation);
  const ObservedScope scope(observers_, {.net = &name_});
  try {
    RunOperators();
  } catch (...) {
    ++run_;
    throw;
  }
  ++run_;
}

void Net::Wait() {
  std::set<Queue*> queues;
  for (const std::unique_ptr<NetOperator>& op : operators_) {
    const Device device = op->init().options().device();
    if (!device.IsHost()) queues.insert(&RuntimeOf(device).queue());
  }
  for (Queue* queue : queues) queue->Wait();
}

void Net::Lend(RunContext* context) const {
  context->run = &run_;
  context->observers = observers_;
}

std::unique_ptr<LateFaults> Net::MakeLateFaults() const {
  std::optional<Device> device;
  for (const std::unique_ptr<NetOperator>& op : operators_) {
    if (op->device().IsHost() || op->device() == device) continue;
    if (device) return nullptr;
    device = op->device();
  }
  if (!device) return nullptr;
  try {
    return RuntimeOf(*device).MakeLateFaults();
  } catch (...) {  // the first that needs the device
    const auto first = std::ranges::find(operators_, *device, [](const auto& op) { return op->device(); });
    throw ErrorAt(static_cast<int>(first - operators_.begin()), CurrentError());
  }
}

void Net::ThrowLateFaults(LateFaults* late_faults) {
  if (late_faults == nullptr || !late_faults->pending()) return;
  if (std::optional<LateFaults::Found> found = late_faults->Take()) {
    throw ErrorAt(found->net_op, std::move(found->fault.error));
  }
}

Error Net::ErrorAt(int i, Error error) const {
  const NetOperator& op = *operators_[i];
  return error.At({.net = name_, .op_index = origins_[i], .op_text = op.text(), .blobs = op.InputsText()});
}

void Net::RunOperator(int i, RunContext& context) {
  NetOperator& op = *operators_[i];
  // What cannot ask for faults on the device, and would do what is seen after the run.
  if (op.device().IsHost() || (outlives_[i] && !op.stops_after_faults())) ThrowLateFaults(context.late_faults);
  context.site = {.net_op = i};
  context.stops_after_faults = outlives_[i];
  try {
    CheckCancelled();
    const Device device = op.init().options().device();
    const bool shows_queue = !context.observers.empty() && !device.IsHost();
    const ObservedScope scope(context.observers, {.kind = RunEventKind::kOperator,
                                                  .net = &name_,
                                                  .op_index = i,
                                                  .op_type = &op.init().type(),
                                                  .op_text = &op.text(),
                                                  .queue = shows_queue ? &RuntimeOf(device).queue() : nullptr});
    FaultRecord faults;
    {
      const ScopedValue<FaultRecord*> noted(context.faults, op.checks_values() ? &faults : nullptr);
      op.Run(context);
    }
    faults.Throw();
  } catch (...) {
    Error error = CurrentError();
    // What was thrown may come of the value with which a kernel before went on.
    if (error.code() != ErrorCode::kCancelled) ThrowLateFaults(context.late_faults);
    throw ErrorAt(i, std::move(error));
  }
}

void RunNetOnce(const NetDef& def, Workspace& workspace, const RunOptions& options) {
  Net::Create(def, workspace, options)->Run();
}

}  // namespace stepnet
