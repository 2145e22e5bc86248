#include "stepnet/nets/net.h"

#include <set>

#include "stepnet/core/cancellation.h"
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
    for (size_t i = 0; i < operators_.size(); ++i) RunOperator(static_cast<int>(i), context_);
  }

 private:
  RunContext context_;
};

}  // namespace

std::unique_ptr<Net> Net::Create(const NetDef& as_written, Workspace& workspace, const RunOptions& options) {
  if (options.threads < 0 || options.threads > kMaxThreads) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("a run on ", options.threads, " threads; must be between 0 and ", kMaxThreads));
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
    net->origins_ = std::move(placed.origins);
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

void Net::RunOperator(int i, RunContext& context) {
  NetOperator& op = *operators_[i];
  try {
    CheckCancelled();
    const ObservedScope scope(context.observers, {.kind = RunEventKind::kOperator,
                                                  .net = &name_,
                                                  .op_index = i,
                                                  .op_type = &op.init().type(),
                                                  .op_text = &op.text()});
    FaultRecord faults;
    {
      const FaultScope lent(context, op.checks_values() ? &faults : nullptr);
      op.Run(context);
    }
    faults.Throw();
  } catch (...) {
    throw CurrentError().At({.net = name_, .op_index = origins_[i], .op_text = op.text(), .blobs = op.InputsText()});
  }
}

void RunNetOnce(const NetDef& def, Workspace& workspace, const RunOptions& options) {
  Net::Create(def, workspace, options)->Run();
}

}  // namespace stepnet
