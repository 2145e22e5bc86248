#include "stepnet/nets/net_operator.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <ranges>
#include <string_view>
#include <unordered_map>

#include "stepnet/core/executor_registry.h"
#include "stepnet/core/first_failure.h"
#include "stepnet/core/thread_pool.h"

namespace stepnet {

namespace {

class BlobHost : public OpHost {
 public:
  BlobHost(std::span<Blob* const> inputs, std::span<Blob* const> outputs, Workspace& workspace)
      : inputs_(inputs), outputs_(outputs), workspace_(workspace) {}
  const Blob& Input(int i) override { return *inputs_[i]; }
  Blob& Output(int i) override { return *outputs_[i]; }
  Workspace& workspace() override { return workspace_; }

 private:
  std::span<Blob* const> inputs_;
  std::span<Blob* const> outputs_;
  Workspace& workspace_;
};

// The inputs whose elements the shape rule reads, as far as the operator has them.
auto ValueInputs(const OperatorCall& call) {
  return call.schema().shape_value_inputs |
         std::views::filter([n = static_cast<int>(call.inputs().size())](int i) { return i < n; });
}

// The parts of one run of a kernel: each thread takes the next one that is left.
class PartsOfRun : public SharedWork {
 public:
  using RunPart = std::function<void(int part, int lane)>;
  PartsOfRun(int parts, RunPart run_part) : parts_(parts), left_(parts), run_part_(std::move(run_part)) {}

  void Join(int lane) override {
    for (int part = next_++; part < parts_; part = next_++) {
      try {
        run_part_(part, lane);
      } catch (...) {
        failure_.Note();
      }
      const std::lock_guard lock(mutex_);
      if (--left_ == 0) done_.notify_one();
    }
    if (lane != 0) return;
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return left_ == 0; });
  }

  // Throws what the first failing part threw.
  void Check() { failure_.Rethrow(); }

 private:
  const int parts_;
  std::atomic<int> next_ = 0;
  std::mutex mutex_;
  std::condition_variable done_;  // for the caller
  int left_;
  const RunPart run_part_;
  FirstFailure failure_;
};

// Throws kTypeMismatch for an input that holds no tensor.
void ExpectTensors(const OperatorCall& call, std::span<Blob* const> inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i]->HasTensor()) continue;
    const auto& declared = call.schema().inputs;  // the last one may stand for any number
    const auto& input = declared[std::min(i, declared.size() - 1)];
    throw Error(ErrorCode::kTypeMismatch,
                StrCat("blob \"", inputs[i]->name(), "\" holds ", inputs[i]->Description(), ", a tensor is needed; ",
                       call.type(), " reads it as ", input.name, ": ", input.doc));
  }
}

// An operator writes to the blob in place: it must be no constant, nor memory of somebody else.
void ExpectMayWrite(const Blob& blob) {
  if (!blob.HasTensor()) return;
  if (blob.GetTensor().IsLent()) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("blob \"", blob.name(),
                       "\" holds memory that is lent to be read (Tensor::Wrap), which an operator cannot write in "
                       "place; let it write another blob, or give the blob a copy"));
  }
  if (blob.GetTensor().ConstantId() == 0) return;
  throw Error(ErrorCode::kInvalidArgument,
              StrCat("blob \"", blob.name(),
                     "\" holds a constant tensor (Tensor::SetConstant), which an operator cannot "
                     "write in place; let it write another blob, or give the blob a copy"));
}

}  // namespace

NetOperator::NetOperator(OperatorCall call)
    : call_(std::move(call)), text_(call_.Text()), device_(call_.options().device()) {
  std::unordered_map<std::string_view, int> number_of;  // of inputs, the first of a name
  for (int i = 0; i < call_.num_inputs(); ++i) number_of.emplace(call_.inputs()[i], i);
  for (const std::string& output : call_.outputs()) {
    const auto found = number_of.find(output);
    in_place_of_.push_back(found == number_of.end() ? -1 : found->second);
  }
  input_views_.resize(call_.inputs().size());
  output_views_.resize(call_.outputs().size());  // null for kernels that take blobs
  const Kernel* kernel = call_.schema().FindKernel(device_.kind);
  if (kernel == nullptr) {
    throw Error(ErrorCode::kInvalidNet, StrCat(call_.type(), " has no kernel for ", DeviceKindName(device_.kind)));
  }
  kernel_ = kernel->make(call_);
  checks_values_ = kernel->checks_values || call_.schema().formula != nullptr;  // formulas check what they divide by
  stops_after_faults_ = kernel->stops_after_faults;
  takes_blobs_ = kernel->takes_blobs;
  if (!device_.IsHost()) host_inputs_ = kernel->host_inputs;
  uses_threads_ = ExecutorPropertiesOf(call_.options()).uses_threads;
}

NetOperator::NetOperator(OperatorCall call, Workspace& workspace) : NetOperator(std::move(call)) {
  workspace_ = &workspace;
  for (const std::string& input : call_.inputs()) inputs_.push_back(&workspace.CreateBlob(input));
  for (const std::string& output : call_.outputs()) outputs_.push_back(&workspace.CreateBlob(output));
}

bool NetOperator::WritesWhereOutputsAre() const {
  const auto is_of = [](const Blob& blob, const TensorInfo& info) {
    return blob.HasTensor() && blob.GetTensor().dtype() == info.dtype && blob.GetTensor().shape() == info.shape;
  };
  bool is_as_last = !output_infos_.empty() && !shapes_read_values_;
  for (size_t i = 0; i < inputs_.size() && is_as_last; ++i) is_as_last = is_of(*inputs_[i], input_infos_[i]);
  for (size_t o = 0; o < outputs_.size(); ++o) {
    const Blob& blob = *outputs_[o];
    if (in_place_of_[o] >= 0 || !blob.HasTensor()) continue;
    const bool is_there = blob.GetTensor().device() == device_ && blob.GetTensor().OwnsStorageAlone();
    if (!is_there || !is_as_last || !is_of(blob, output_infos_[o])) return false;
  }
  return true;
}

bool NetOperator::InputsChanged(std::span<Blob* const> inputs) {
  ExpectTensors(call_, inputs);  // before anything is noted: outputs never keep shapes of other inputs
  // No outputs: there are no inputs to compare, or the rule has thrown.
  bool changed = input_infos_.size() != inputs.size() || output_infos_.empty() || shapes_read_values_;
  input_infos_.resize(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& tensor = inputs[i]->GetTensor();
    TensorInfo& info = input_infos_[i];
    if (info.dtype == tensor.dtype() && info.shape == tensor.shape()) continue;
    info = {.dtype = tensor.dtype(), .shape = tensor.shape()};
    shapes_read_values_ = false;
    changed = true;
  }
  return changed;
}

// Values are read where the rule asks for them: the host waits for those of a device.
std::vector<TensorInfo> NetOperator::InferShapes(std::span<Blob* const> inputs, RunContext& context) {
  const ShapeRule& rule = call_.schema().shapes;
  for (const int i : ValueInputs(call_)) input_infos_[i].value = Tensor();  // of a run in which the rule threw
  if (!shapes_read_values_) {
    try {
      return rule(ShapeQuery(call_, input_infos_));
    } catch (const ValueUnknown&) {
      shapes_read_values_ = true;
    }
  }
  if (context.recording != nullptr) context.recording->Refuse("shapes follow from values");
  for (const int i : ValueInputs(call_)) input_infos_[i].value = inputs[i]->GetTensor().To({});
  std::vector<TensorInfo> inferred = rule(ShapeQuery(call_, input_infos_));
  // Not to keep the tensors alive, nor to make their blobs look shared.
  for (const int i : ValueInputs(call_)) input_infos_[i].value = Tensor();
  return inferred;
}

void NetOperator::PrepareOutputs(std::span<Blob* const> inputs, std::span<Blob* const> outputs, RunContext& context) {
  if (InputsChanged(inputs)) {
    output_infos_.clear();  // stays so when the rule throws, and the next run infers again
    std::vector<TensorInfo> inferred = InferShapes(inputs, context);
    if (inferred.size() < outputs.size()) {
      throw Error(ErrorCode::kInternal, StrCat("the shape rule of ", call_.type(), " gives ", inferred.size(),
                                               " outputs, the operator has ", outputs.size()));
    }
    output_infos_ = std::move(inferred);
    parts_ = NumParts();
  }
  for (size_t o = 0; o < outputs.size(); ++o) {
    const TensorInfo& info = output_infos_[o];
    const int i = in_place_of_[o];
    if (i < 0) {
      output_views_[o] = outputs[o]->MakeTensor(info.dtype, info.shape, device_).View(device_);
      continue;
    }
    ExpectMayWrite(*inputs[i]);
    const Tensor& tensor = inputs[i]->GetTensor();
    if (!(input_infos_[i] == info)) outputs[o]->SetTensor(tensor.Reinterpreted(info.dtype, info.shape));
    output_views_[o] = outputs[o]->GetTensor().View(device_);
  }
}

int NetOperator::NumParts() const {
  const PartsRule& rule = call_.schema().FindKernel(target().device)->max_parts;
  if (!rule || !uses_threads_) return 1;
  const double worth = EstimateMicroseconds(LastCost(), target()) / target().microseconds_to_wake;
  if (worth < 2) return 1;  // how many cores there are is read from a file
  const int asked = call_.options().threads;
  const int threads = asked > 0 ? asked : NumCores();
  const int max_parts = static_cast<int>(std::clamp<double>(worth, 1, threads));
  return std::min(max_parts, rule(ShapeQuery(call_, input_infos_), output_infos_));
}

void NetOperator::RunParts(RunContext& context, std::int64_t step) {
  context.PrepareLanes(parts_);
  const auto work = std::make_shared<PartsOfRun>(parts_, [&](int part, int lane) {
    RunContext& own = context.lanes[lane];
    own.scratch.Reset();
    OpRun run(input_views_, output_views_, own, step);
    run.SetPart(part, parts_);
    kernel_(run);
  });
  ThreadPool::Process().Run(work, parts_ - 1);
  work->Check();
}

void NetOperator::CopyHostInputs(std::span<Blob* const> inputs) {
  host_copies_.resize(inputs.size());
  for (const int i : host_inputs_) {
    if (i >= static_cast<int>(inputs.size())) break;
    host_copies_[i] = inputs[i]->GetTensor().To({});
    input_views_[i].data = host_copies_[i].raw();
  }
}

void NetOperator::RunOn(std::span<Blob* const> inputs, std::span<Blob* const> outputs, Workspace& workspace,
                        RunContext& context, std::int64_t step) {
  context.UseDevice(device_);
  if (!takes_blobs_) {
    PrepareOutputs(inputs, outputs, context);
    for (size_t i = 0; i < inputs.size(); ++i) {
      // In place with another shape: the input keeps the shape that it had.
      input_views_[i] = {inputs[i]->GetTensor().raw(device_), &input_infos_[i].shape, input_infos_[i].dtype};
    }
    if (!host_inputs_.empty()) CopyHostInputs(inputs);
    if (parts_ > 1) return RunParts(context, step);
    kernel_(OpRun(input_views_, output_views_, context, step));
    return;
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool has_tensor = inputs[i]->HasTensor();
    input_views_[i] = has_tensor ? inputs[i]->GetTensor().View(inputs[i]->GetTensor().device()) : TensorView{};
  }
  BlobHost host(inputs, outputs, workspace);
  kernel_(OpRun(input_views_, output_views_, context, step, &host));
}

Cost NetOperator::LastCost() const {
  return output_infos_.empty() ? Cost{} : EstimateCost(call_, input_infos_, output_infos_);
}

std::string NetOperator::InputsText() const {
  std::vector<std::string> items;
  for (const Blob* blob : inputs_) items.push_back(StrCat(blob->name(), " ", blob->Description()));
  return Join(items, ", ");
}

}  // namespace stepnet
