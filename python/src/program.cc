#include "stepnet/python/src/program.h"

#include <algorithm>
#include <deque>
#include <set>
#include <utility>

#include "stepnet/core/error.h"
#include "stepnet/core/memory_for.h"
#include "stepnet/core/strings.h"
#include "stepnet/core/tensor_home.h"
#include "stepnet/nets/backward.h"
#include "stepnet/nets/backward_step.h"
#include "stepnet/nets/model.h"
#include "stepnet/nets/net_blobs.h"
#include "stepnet/nets/op_builder.h"
#include "stepnet/nets/overwritten_blobs.h"
#include "stepnet/nets/recording.h"
#include "stepnet/python/src/names.h"

namespace stepnet::python {
namespace {

// `name`, or with _ behind it as often as it takes to be none of `taken`, of which it then is.
std::string TakeName(std::string name, std::set<std::string>* taken) {
  while (!taken->insert(name).second) name += "_";
  return name;
}

// Makes each of the gradients that is by rows one tensor, by operators that it adds to the net.
void MakeDense(std::map<std::string, GradientBlobs>* gradients, NetDef* net) {
  std::set<std::string> taken = BlobsOf(*net);
  for (auto& [input, gradient] : *gradients) {
    if (gradient.absent() || !gradient.dense.empty()) continue;
    const std::string dense = TakeName(input + "_grad", &taken);
    AddOp(net, "SparseToDense", {gradient.indices, gradient.values, input}, {dense});
    gradient = {.dense = dense};
  }
}

// The net with those of its operators from `begin` up to `end`.
NetDef Part(const NetDef& net, int begin, int end) {
  NetDef part = net;
  part.clear_op();
  for (int i = begin; i < end; ++i) *part.add_op() = net.op(i);
  part.clear_external_output();
  return part;
}

// The caller's: what others go on to use is copied.
Tensor OwnOnHost(const Tensor& tensor, bool is_others) {
  Tensor own = tensor.To({});
  return is_others || own.IsLent() || own.ConstantId() != 0 ? own.Clone() : own;
}

// A copy always: the net goes on to use the memory that it has, so that the next run finds the same, and is played.
Tensor OwnOnDevice(const Tensor& tensor, const Device& device) {
  return tensor.device() == device ? tensor.Clone() : tensor.To(device);
}

// Where a net reads what it is given on a device: where it lies, or, where that is elsewhere than the last time, in a
// copy, so that the run finds the same and is played.
class GivenPlace {
 public:
  explicit GivenPlace(Device device) : home_(device) {}
  Tensor Settle(const Tensor& given) {
    if (given.device().IsHost()) return given;
    const void* const before = std::exchange(last_, given.raw(given.device()));
    return before == nullptr || before == last_ ? given : home_.CopyOf(given);
  }

 private:
  const void* last_ = nullptr;
  TensorHome home_;
};

}  // namespace

ProgramDef WithGradients(ProgramDef def, const std::vector<bool>& is_floating, const std::vector<std::string>& names,
                         const GradientRequests& requests) {
  std::set<std::string> taken = BlobsOf(def.net);
  std::map<std::string, std::string> seeds;
  def.output_gradients.clear();
  for (size_t i = 0; i < def.outputs.size(); ++i) {
    const std::string& output = def.outputs[i];
    def.output_gradients.push_back(is_floating[i] ? TakeName(output + "_output_grad", &taken) : "");
    if (is_floating[i]) seeds[output] = def.output_gradients.back();
  }
  def.differentiated = AskedFor(names, requests);
  AddBackwardStepNets(&def.net, def.differentiated);
  GradientRequests left_out;  // what is written or added may be zeros, which no net computes
  for (const auto& [name, request] : requests) {
    if (request == GradientRequest::kNone) left_out[name] = request;
  }
  NetWithGradients made = AddGradientsFrom(def.net, seeds, names, left_out);
  MakeDense(&made.gradients, &made.net);
  def.gradients.clear();
  for (const std::string& name : def.differentiated) {
    const auto request = requests.find(name);
    const auto found = made.gradients.find(name);
    def.is_added.push_back(request != requests.end() && request->second == GradientRequest::kAdd);
    def.gradients.push_back(found == made.gradients.end() ? "" : found->second.dense);
  }
  def.net = Part(made.net, 0, made.num_forward);
  def.backward = Part(made.net, made.num_forward, made.net.op_size());
  // What the backward net reads of the forward run counts as read.
  std::set<std::string> read(def.outputs.begin(), def.outputs.end());
  const std::map<std::string, BlobUse> uses = UsesOf(def.net);
  for (const std::string& blob : BlobsReadFirst(def.backward)) {
    const auto use = uses.find(blob);
    if (use != uses.end() && use->second.IsWritten()) read.insert(blob);
  }
  for (const std::string& blob : read) def.net.add_external_output(blob);
  for (const std::string& blob : def.gradients) {
    if (!blob.empty()) def.backward.add_external_output(blob);
  }
  return def;
}

struct Program::Session {
  explicit Session(Workspace* shared) : workspace(shared) {}

  Workspace workspace;
  std::vector<std::pair<const Blob*, Blob*>> taken;  // blobs of ProgramDef::shared, and ours of their names
  std::uint64_t version = 0;                         // of what they hold
  std::vector<Blob*> inputs, outputs;
  std::vector<Blob*> output_gradients, gradients, differentiated;  // null for blobs that there are not
  std::unique_ptr<Net> net, backward;
  // What they write first: spare memory while nobody uses the session, and for `backward` until it runs, too.
  std::optional<OverwrittenBlobs> written, written_back;
  std::deque<GivenPlace> input_places, gradient_places;  // of inputs, and of gradients of outputs
  std::vector<Tensor> zeros;  // on the device, of outputs: their gradients where none are given
  std::uint64_t run = 0;      // the number of the last one
  bool is_on_device = false;  // its inputs, some of them, and all that it gives
  bool may_be_under_way = false;

  void MakeSpare(const Workspace* shared) {
    std::set<const Blob*> of_others;
    const auto add = [&](const Workspace& of, const std::vector<std::string>& names) {
      for (const std::string& name : names) of_others.insert(of.FindBlob(name));
    };
    if (shared != nullptr) add(*shared, shared->LocalBlobs());
    written.emplace(net->operators(), workspace, of_others);
    if (backward == nullptr) return;
    // What the run forward has left may be read until the run back writes there.
    for (const auto& op : net->operators()) {
      of_others.insert(op->outputs().begin(), op->outputs().end());
      add(workspace, OtherBlobs(op->call()));
    }
    written_back.emplace(backward->operators(), workspace, of_others);
  }

  // Somebody uses the session for a run, and what that leaves.
  void Begin() { written->UseAll(); }
  // Nobody does any more.
  void End() {
    ReleaseGiven();
    written->SpareAll();
    if (written_back) written_back->SpareAll();
  }

  // Runs it; what is not on the device waits for it.
  void Run(Net& which) {
    may_be_under_way = is_on_device;
    which.SetRunCounter(run);
    which.Run();
    if (!is_on_device) which.Wait();
  }

  // Lets go of what belongs to the caller.
  void ReleaseGiven() {
    for (Blob* blob : inputs) blob->Reset();
    for (Blob* blob : output_gradients) {
      if (blob != nullptr) blob->Reset();
    }
  }
};

// A session for one run, which goes back when that is over.
class Program::Lease {
 public:
  explicit Lease(Program& program) : program_(program) {
    {
      const std::lock_guard lock(program_.mutex_);
      if (!program_.free_.empty()) {
        session_ = std::move(program_.free_.back());
        program_.free_.pop_back();
      }
    }
    if (session_ == nullptr) session_ = program_.MakeSession();
    session_->Begin();
  }
  ~Lease() {
    if (session_ != nullptr) program_.GiveBack(std::move(session_));
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  Session& operator*() { return *session_; }
  std::unique_ptr<Session> Release() { return std::move(session_); }

 private:
  Program& program_;
  std::unique_ptr<Session> session_;
};

Program::Program(ProgramDef def) : def_(std::move(def)) {
  std::map<std::string, BlobUse> uses = UsesOf(def_.net);
  for (const std::string& input : def_.inputs) is_overwritten_.push_back(uses[input].IsWritten());
  for (const std::string& output : def_.outputs) is_kept_.push_back(uses[output].IsReadFirst());
  for (const auto& [blob, use] : uses) {
    if (use.IsWritten() && def_.shared != nullptr && def_.shared->workspace.HasBlob(blob)) has_state_ = true;
  }
  free_.push_back(MakeSession());
}

// What a device does must not outlive its kernels.
Program::~Program() {
  for (std::unique_ptr<Session>& session : free_) {
    if (!session->may_be_under_way) continue;
    RuntimeOf(def_.options.device()).WhenDone([shared = def_.shared, kept = std::shared_ptr(std::move(session))] {});
  }
}

std::unique_ptr<Program::Session> Program::MakeSession() const {
  auto session = std::make_unique<Session>(def_.shared == nullptr ? nullptr : &def_.shared->workspace);
  if (def_.shared != nullptr && !has_state_) {
    for (const std::string& name : def_.shared->workspace.LocalBlobs()) {
      const Blob& blob = def_.shared->workspace.GetBlob(name);
      if (!blob.HasObject()) session->taken.emplace_back(&blob, &session->workspace.CreateLocalBlob(name));
    }
    TakeShared(*session);
  }
  const auto blobs_of = [&](const std::vector<std::string>& names) {
    std::vector<Blob*> blobs;
    for (const std::string& name : names)
      blobs.push_back(name.empty() ? nullptr : &session->workspace.CreateBlob(name));
    return blobs;
  };
  session->inputs = blobs_of(def_.inputs);
  session->net = Net::Create(def_.net, session->workspace, def_.options);
  session->outputs = blobs_of(def_.outputs);
  session->differentiated = blobs_of(def_.differentiated);
  session->output_gradients = blobs_of(def_.output_gradients);
  // There is nothing to run where no output depends on what is differentiated by, or all that do are what was given.
  if (def_.backward.op_size() > 0) session->backward = Net::Create(def_.backward, session->workspace, def_.options);
  session->gradients = blobs_of(def_.gradients);
  session->MakeSpare(def_.shared == nullptr ? nullptr : &def_.shared->workspace);
  for (size_t i = 0; i < def_.inputs.size(); ++i) session->input_places.emplace_back(def_.options.device());
  for (size_t i = 0; i < def_.output_gradients.size(); ++i) {
    session->gradient_places.emplace_back(def_.options.device());
  }
  return session;
}

void Program::TakeShared(Session& session) const {
  if (session.taken.empty()) return;
  const std::lock_guard lock(def_.shared->mutex);
  if (std::exchange(session.version, def_.shared->version) == def_.shared->version) return;
  for (const auto& [from, to] : session.taken) {
    if (from->HasTensor()) to->SetTensor(from->GetTensor());
  }
}

void Program::GiveBack(std::unique_ptr<Session> session) {
  session->End();
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(session));
}

void Program::RunForward(Session& session, const std::vector<Tensor>& inputs, std::optional<std::uint64_t> draw) {
  TakeShared(session);
  for (size_t i = 0; i < inputs.size(); ++i) {
    session.inputs[i]->SetTensor(WithMemoryFor("a copy of the input", def_.inputs[i], [&] {
      return is_overwritten_[i] ? inputs[i].Clone() : session.input_places[i].Settle(inputs[i]);
    }));
  }
  session.is_on_device = std::ranges::any_of(inputs, [](const Tensor& input) { return !input.device().IsHost(); });
  session.run = draw ? *draw : (*def_.num_runs)++;
  try {
    session.Run(*session.net);
  } catch (...) {
    if (has_state_ && !draw) --*def_.num_runs;  // nothing has changed, and what comes is the same run again
    throw;
  }
}

std::vector<Tensor> Program::OutputsOf(const Session& session) const {
  std::vector<Tensor> outputs;
  outputs.reserve(session.outputs.size());
  for (size_t i = 0; i < session.outputs.size(); ++i) {
    const Blob& blob = *session.outputs[i];
    const Tensor tensor = blob.HasTensor() ? blob.GetTensor() : Tensor();
    outputs.push_back(WithMemoryFor("a copy of the output", def_.outputs[i], [&] {
      return session.is_on_device ? OwnOnDevice(tensor, def_.options.device())
                                  : OwnOnHost(tensor, /*is_others=*/is_kept_[i]);
    }));
  }
  return outputs;
}

std::vector<Tensor> Program::Run(const std::vector<Tensor>& inputs, std::optional<std::uint64_t> draw) {
  std::unique_lock turn(turn_, std::defer_lock);
  if (has_state_) turn.lock();
  Lease session(*this);
  RunForward(*session, inputs, draw);
  return BehindRun([&] { return OutputsOf(*session); });
}

std::pair<std::vector<Tensor>, std::unique_ptr<Pullback>> Program::RunForGradients(const std::vector<Tensor>& inputs,
                                                                                   std::optional<std::uint64_t> draw) {
  std::unique_lock turn(turn_, std::defer_lock);
  if (has_state_) turn.lock();
  Lease session(*this);
  RunForward(*session, inputs, draw);
  std::vector<Tensor> outputs = OutputsOf(*session);
  return {std::move(outputs), std::make_unique<Pullback>(shared_from_this(), session.Release())};
}

std::map<std::string, Tensor> Program::ReadShared(const std::vector<std::string>& blobs, std::uint64_t* num_runs) {
  const std::lock_guard turn(turn_);
  if (num_runs != nullptr) *num_runs = *def_.num_runs;
  std::map<std::string, Tensor> tensors;
  {
    const std::lock_guard lock(def_.shared->mutex);
    for (const std::string& blob : blobs) tensors[blob] = def_.shared->workspace.GetTensor(blob);
  }
  for (auto& [blob, tensor] : tensors) {
    tensor = WithMemoryFor("a copy of the blob", blob, [&, &of = tensor] { return of.To({}).Clone(); });
  }
  return tensors;
}

void Program::WriteShared(const std::map<std::string, Tensor>& tensors, std::optional<std::int64_t> num_runs) {
  const std::lock_guard turn(turn_);
  std::map<std::string, Tensor> copies;
  for (const auto& [blob, tensor] : tensors) {
    copies[blob] = WithMemoryFor("a copy for the blob", blob, [&, &given = tensor] { return given.Clone(); });
  }
  const std::lock_guard lock(def_.shared->mutex);
  std::vector<std::string> written;
  for (const auto& [blob, tensor] : copies) {
    def_.shared->workspace.SetTensor(blob, tensor);
    written.push_back(blob);
  }
  SetConstant(written, def_.net, def_.shared->workspace);
  ++def_.shared->version;
  if (num_runs) *def_.num_runs = static_cast<std::uint64_t>(*num_runs);
}

Pullback::Pullback(std::shared_ptr<Program> program, std::unique_ptr<Program::Session> session)
    : program_(std::move(program)), session_(std::move(session)) {
  const auto infos_of = [none = Tensor()](const std::vector<Blob*>& blobs) {
    std::vector<TensorInfo> infos;
    infos.reserve(blobs.size());
    for (const Blob* blob : blobs) {
      const Tensor& tensor = blob->HasTensor() ? blob->GetTensor() : none;
      infos.push_back({.dtype = tensor.dtype(), .shape = tensor.shape()});
    }
    return infos;
  };
  outputs_ = infos_of(session_->outputs);
  differentiated_ = infos_of(session_->differentiated);
}

Pullback::~Pullback() { program_->GiveBack(std::move(session_)); }

std::vector<std::pair<std::string, Tensor>> Pullback::Kept() const {
  std::vector<std::pair<std::string, Tensor>> kept;
  const auto add = [&](const char* what, const std::vector<std::string>& names, const std::vector<Blob*>& blobs) {
    for (size_t i = 0; i < blobs.size(); ++i) {
      if (blobs[i]->HasTensor()) kept.emplace_back(StrCat(what, " \"", names[i], "\""), blobs[i]->GetTensor());
    }
  };
  add("what the call was given as", program_->def_.inputs, session_->inputs);
  add("the output", program_->def_.outputs, session_->outputs);
  return kept;
}

bool Pullback::IsAdded(size_t i) const { return program_->def_.is_added[i]; }

// Those on the device are kept, in the same memory for each run.
Tensor Pullback::ZerosOf(size_t output) {
  const TensorInfo& info = outputs_[output];
  if (!session_->is_on_device) return Tensor::Zeros(info.dtype, info.shape);
  session_->zeros.resize(outputs_.size());
  Tensor& zeros = session_->zeros[output];
  if (!zeros.defined() || zeros.dtype() != info.dtype || zeros.shape() != info.shape) {
    zeros = Tensor::Zeros(info.dtype, info.shape, program_->def_.options.device());
  }
  return zeros;
}

// Gradient `i` of the run, the caller's: it may be what was given, or that of another input too.
Tensor Pullback::OwnGradient(size_t i, const std::vector<Tensor>& before, bool to_host) const {
  const Device device = session_->is_on_device && !to_host ? program_->def_.options.device() : Device{};
  const TensorInfo& by = differentiated_[i];
  const Blob* blob = session_->gradients[i];
  if (blob == nullptr) return Tensor::Zeros(by.dtype, by.shape, device);
  const Tensor& tensor = blob->GetTensor();
  const auto shares = [&](const Tensor& other) { return tensor.SharesStorageWith(other); };
  const Tensor own =
      device.IsHost() ? OwnOnHost(tensor, std::ranges::any_of(before, shares)) : OwnOnDevice(tensor, device);
  return own.Reshaped(by.shape);
}

std::vector<Tensor> Pullback::Run(const std::vector<Tensor>& output_gradients, const std::vector<bool>& adds_there) {
  const std::lock_guard lock(mutex_);
  if (session_->written_back) session_->written_back->UseAll();
  for (size_t i = 0; i < session_->output_gradients.size(); ++i) {
    Blob* const blob = session_->output_gradients[i];
    if (blob == nullptr) continue;
    const Tensor& given = output_gradients[i];
    blob->SetTensor(WithMemoryFor("the gradient of the output", program_->def_.outputs[i], [&] {
      return given.defined() ? session_->gradient_places[i].Settle(given) : ZerosOf(i);
    }));
  }
  if (session_->backward != nullptr) session_->Run(*session_->backward);
  std::vector<Tensor> gradients;
  gradients.reserve(differentiated_.size());
  for (size_t i = 0; i < differentiated_.size(); ++i) {
    const bool to_host = IsAdded(i) && (adds_there.empty() || !adds_there[i]);
    gradients.push_back(WithMemoryFor("the gradient of", program_->def_.differentiated[i],
                                      [&] { return OwnGradient(i, gradients, to_host); }));
  }
  for (Blob* blob : session_->output_gradients) {
    if (blob != nullptr) blob->Reset();
  }
  return gradients;
}

}  // namespace stepnet::python
