#include "stepnet/nets/net.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "stepnet/core/cancellation.h"
#include "stepnet/core/executor_registry.h"
#include "stepnet/core/playing_observer.h"
#include "stepnet/core/scoped_value.h"
#include "stepnet/core/strings.h"
#include "stepnet/core/thread_pool.h"
#include "stepnet/nets/completion.h"
#include "stepnet/nets/dag_net.h"
#include "stepnet/nets/decomposition.h"
#include "stepnet/nets/net_check.h"
#include "stepnet/nets/net_recordings.h"
#include "stepnet/nets/operator_lanes.h"
#include "stepnet/nets/overwritten_blobs.h"
#include "stepnet/nets/placement.h"
#include "stepnet/nets/side_effects.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

class SimpleNet : public Net {
 protected:
  void RunOperators() override {
    if (late_faults_ == nullptr) late_faults_ = MakeLateFaults();
    if (first_update_ < 0) first_update_ = FirstUpdate();
    Lend(&context_);
    context_.late_faults = late_faults_.get();
    // Forgets those of a run that an exception has ended.
    if (late_faults_ != nullptr && late_faults_->pending()) late_faults_->Take();
    if (!overwritten_) overwritten_.emplace(operators_, workspace());
    const OverwritingRun overwriting(*overwritten_);
    // First what may find no memory: before operators have changed what the next run reads.
    for (const int i : entries_) RunNext(i, context_);
    const int num_run = RunRecorded();
    RunOthers(num_run);
    ThrowLateFaults(late_faults_.get());
  }
  bool RunsInTurn() const override { return true; }

 private:
  void RunNext(int i, RunContext& context) {
    overwritten_->Use(static_cast<size_t>(i));
    RunOperator(i, context);
  }

  // Looks once more whether the run shall stop, and not from then on.
  void BeginUpdates(std::optional<CancellationScope>* scope) const {
    if (scope->has_value()) return;
    CheckCancelled();
    scope->emplace(nullptr);
  }

  // Runs those from operator `begin` on, without entries.
  void RunOthers(int begin) {
    std::optional<CancellationScope> updates;
    for (int i = begin; i < static_cast<int>(operators_.size()); ++i) {
      if (i >= first_update_) BeginUpdates(&updates);
      if (!std::ranges::binary_search(entries_, i)) RunNext(i, context_);
    }
  }

  // Runs the operators that can be recorded, or plays them; gives their number.
  int RunRecorded() {
    if (!recordable_) recordable_ = Recordable();
    const int count = recordable_->count;
    if (count == 0) return 0;
    const bool are_new = std::exchange(observers_before_, observers_) != observers_;
    if (!AllLetPlay(observers_)) {  // they see each operator
      if (recordings_ != nullptr) recordings_->Forget();
      return 0;
    }
    if (are_new && !observers_.empty()) recordings_.reset();  // they have not seen what is in them
    first_refused_ = -1;
    if (recordings_ == nullptr) MakeRecordings(count);
    NetRecordings::Recording& recording = recordings_->OfNextRun();
    Lend(&recording.context);
    recording.context.late_faults = late_faults_.get();
    recordings_->Run(recording, [&] { RunInLanes(recording); });
    if (recording.run->has_given_up()) RecordLess(recording.run->refusal());
    return count;
  }

  void RunInLanes(NetRecordings::Recording& recording) {
    recording.context.PrepareLanes(num_lanes_);
    const auto run = [&](const OperatorLane& at) {
      RunContext& context = recording.context.lanes[at.lane];
      RunNext(at.op, context);
      NoteRefusal(at.op, context);
    };
    Recorder* const recorder = recording.run->recorder();
    std::optional<CancellationScope> updates;
    for (const OperatorLane& at : lanes_) {
      if (at.op >= first_update_) BeginUpdates(&updates);
      recorder == nullptr ? run(at) : recorder->InLane(at.lane, at.behind, [&] { run(at); });
    }
    // Which takes the memory that the next run needs.
    for (RunContext& context : recording.context.lanes) context.ResetScratch();
  }

  void NoteRefusal(int i, const RunContext& context) {
    const bool is_refused = context.recording != nullptr && !context.recording->refusal.empty();
    if (is_refused && first_refused_ < 0) first_refused_ = i;
  }

  // Those in front of the operator that speaks against it may be recorded yet.
  void RecordLess(const std::string& why) {
    const int i = first_refused_;
    recordable_ = {
        .count = std::max(i, 0),
        .why_no_more = i < 0 ? why : StrCat("operator ", origins_[i], ", ", operators_[i]->call().type(), ": ", why)};
    recordings_.reset();
  }

  void MakeRecordings(int count) {
    const std::vector<OperatorToRecord> operators = OperatorsToRecord();
    const auto first = std::ranges::find(operators, false, &OperatorToRecord::is_entry);
    const RunOptions& options = first->op->call().options();
    recordings_ = std::make_unique<NetRecordings>(operators, count, workspace(), options.device(),
                                                  options.target->max_recorded_operators);
    lanes_ = FindLanes(operators, count, recordings_->num_lanes());
    for (const OperatorLane& at : lanes_) num_lanes_ = std::max(num_lanes_, at.lane + 1);
  }

  std::unique_ptr<LateFaults> late_faults_;
  std::optional<OverwrittenBlobs> overwritten_;
  RunContext context_;
  std::unique_ptr<NetRecordings> recordings_;
  ObserverList observers_before_;    // of the last run
  std::vector<OperatorLane> lanes_;  // of the operators that are recorded
  int num_lanes_ = 1;
  int first_update_ = -1;   // of the operators, their number where there is none; below 0: not known yet
  int first_refused_ = -1;  // of the operators, in the run that was watched or recorded last
};

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
  const std::shared_ptr<const NetDef> def = Completed(as_written);
  const std::string name = def->name();
  try {
    CheckedCalls checked;
    ThrowIfProblems(CheckNet(
        *def,
        {.run = options, .blob_exists = [&](const std::string& blob) { return workspace.HasBlob(blob); }, .owner = def},
        &checked));
    DecomposedNet decomposed = Decomposed(def, NetUse::kInference);
    PlacedNet placed = Place(std::move(decomposed.net), options);
    const NetDef& net_def = *placed.net;
    if (placed.net != def) checked.clear();
    std::unique_ptr<Net> net;
    if (CanonicalNetType(net_def.type()) == "simple") {
      net = std::make_unique<SimpleNet>();
    } else {
      net = MakeDagNet(net_def, options.target->device);
    }
    net->name_ = name;
    net->workspace_ = &workspace;
    net->entries_ = std::move(placed.entries);
    for (const int part : placed.origins) net->origins_.push_back(decomposed.origins[part]);
    net->wholes_ = std::move(decomposed.wholes);
    net->outlives_ = ChangesWhatLasts(net_def);
    const std::vector<bool> may_keep = KeptOutputs::MayBe(net_def);
    std::vector<OperatorCall::Readers> readers = ReadersOfOutputs(net_def);
    SharedOptions shared(options);
    for (int i = 0; i < net_def.op_size(); ++i) {
      constexpr std::int64_t kWork = 5'000;  // of one operator
      CountWork(kWork);
      const OperatorDef& op = net_def.op(i);
      try {
        const auto before = checked.find(i);
        OperatorCall call = before != checked.end()
                                ? before->second.ReadBy(std::move(readers[i]))
                                : OperatorCall(op, shared.On(placed.devices[i]), std::move(readers[i]), placed.net);
        const NetOperator& made =
            *net->operators_.emplace_back(std::make_unique<NetOperator>(std::move(call), workspace));
        net->kept_.emplace_back();
        if (may_keep[i] && made.device().IsHost()) net->kept_.back().emplace(made);
      } catch (...) {
        throw CurrentError().At(
            {.net = name, .op_index = net->origins_[i], .op_text = net->TextOf(i, OperatorText(op))});
      }
    }
    return net;
  } catch (Error& error) {
    if (error.places().empty()) error.At({.net = name});
    throw;
  }
}

int Net::FirstUpdate() const {
  std::set<int> origins;  // of updates: a copy that serves one has its origin
  int first = static_cast<int>(operators_.size());
  for (; first > 0; --first) {
    const int i = first - 1;
    if (!IsUpdate(i) && !origins.contains(origins_[i])) break;
    origins.insert(origins_[i]);
  }
  return first;
}

bool Net::IsUpdate(int i) const {
  const OperatorCall& call = operators_[i]->call();
  const bool is_in_place = std::ranges::any_of(call.outputs(), [&](const std::string& blob) {
    return std::ranges::find(call.inputs(), blob) != call.inputs().end();
  });
  return outlives_[i] && is_in_place &&
         std::ranges::none_of(call.arguments(), [](const auto& argument) { return argument.second.net != nullptr; });
}

std::vector<OperatorToRecord> Net::OperatorsToRecord() const {
  std::vector<OperatorToRecord> operators;
  for (size_t i = 0; i < operators_.size(); ++i) {
    operators.push_back({.op = operators_[i].get(), .origin = origins_[i], .outlives = outlives_[i]});
  }
  for (const int i : entries_) operators[i].is_entry = true;
  return operators;
}

RecordableOperators Net::FindRecordableOperators() const {
  const auto is_there = [](const auto& op) { return !op->call().options().device().IsHost(); };
  const auto there = std::ranges::find_if(operators_, is_there);
  if (there == operators_.end()) return {.why_no_more = "all operators run on the host"};
  if (!RunsInTurn()) return {.why_no_more = "a net of this type runs operators side by side"};
  const RunOptions& options = (*there)->call().options();
  if (!ExecutorPropertiesOf(options).records_runs) {
    return {.why_no_more = StrCat("the executor \"", options.executor, "\" does not record")};
  }
  return FindRecordable(OperatorsToRecord());
}

void Net::Run(const Cancellation* cancellation) {
  const std::lock_guard lock(mutex_);
  const CancellationScope cancelled(cancellation);
  const ObservedScope scope(observers_, {.net = &name_});
  try {
    RunOperators();
  } catch (Error& error) {
    ++run_;
    if (error.places().empty()) error.At({.net = name_});
    throw;
  } catch (...) {
    ++run_;
    throw;
  }
  ++run_;
}

void Net::Wait() {
  std::set<Queue*> queues;
  for (const std::unique_ptr<NetOperator>& op : operators_) {
    const Device device = op->call().options().device();
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

// Parts of an operator read blobs of which whoever wrote the net knows nothing: shown is what the whole reads.
Error Net::ErrorAt(int i, Error error) const {
  const NetOperator& op = *operators_[i];
  const auto whole = wholes_.find(origins_[i]);
  std::string blobs;
  if (whole == wholes_.end()) {
    blobs = op.InputsText();
  } else {
    std::vector<std::string> items;
    for (const std::string& name : whole->second.inputs) {
      if (const Blob* blob = workspace().FindBlob(name)) items.push_back(StrCat(name, " ", blob->Description()));
    }
    blobs = Join(items, ", ");
  }
  return error.At({.net = name_, .op_index = origins_[i], .op_text = TextOf(i, op.text()), .blobs = std::move(blobs)});
}

std::string Net::TextOf(int i, const std::string& part) const {
  const auto whole = wholes_.find(origins_[i]);
  return whole == wholes_.end() ? part : whole->second.text;
}

void Net::RunOperator(int i, RunContext& context) {
  NetOperator& op = *operators_[i];
  if (context.late_faults != nullptr) {
    // What cannot ask for faults on the device, and would do what is seen after the run.
    const bool can_ask = op.stops_after_faults() && op.WritesWhereOutputsAre();
    if (op.device().IsHost() || (outlives_[i] && !can_ask)) ThrowLateFaults(context.late_faults);
  }
  context.site = {.net_op = i};
  context.stops_after_faults = outlives_[i];
  try {
    CheckCancelled();
    if (kept_[i] && kept_[i]->Hold()) return;
    const Device device = op.call().options().device();
    const bool shows_queue = !context.observers.empty() && !device.IsHost();
    const ObservedScope scope(context.observers, {.kind = RunEventKind::kOperator,
                                                  .net = &name_,
                                                  .op_index = i,
                                                  .op_type = &op.call().type(),
                                                  .op_text = &op.text(),
                                                  .queue = shows_queue ? &RuntimeOf(device).queue() : nullptr});
    FaultRecord faults;
    {
      const ScopedValue<FaultRecord*> noted(context.faults, op.checks_values() ? &faults : nullptr);
      op.Run(context);
    }
    faults.Throw();
    if (kept_[i]) kept_[i]->Keep();
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
