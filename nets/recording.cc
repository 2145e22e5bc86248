#include "stepnet/nets/recording.h"

#include <algorithm>
#include <set>

#include "stepnet/nets/recurrent_spec.h"
#include "stepnet/nets/side_effects.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

constexpr std::string_view kForward = "RecurrentNetwork", kGradient = "RecurrentNetworkGradient";

// While the kernel runs. What shape rules may read they read for some inputs alone.
bool ReadsOnHost(const OperatorSchema& schema, DeviceKind device, int num_inputs) {
  const Kernel* const kernel = schema.FindKernel(device);
  return kernel != nullptr && std::ranges::any_of(kernel->host_inputs, [&](int input) { return input < num_inputs; });
}

// Whether it does something for which it has no output: one that counts in place has.
bool DoesMore(const OperatorSchema& schema) {
  return schema.has_side_effects && (schema.outputs.empty() || schema.enforced_in_place.size() < schema.outputs.size());
}

// Why the steps of a net cannot be recorded, or "".
std::string WhyNotSteps(const NetDef* step_net, DeviceKind device) {
  if (step_net == nullptr) return "";
  for (const OperatorDef& op : step_net->op()) {
    const OperatorSchema& schema = GetOperator(op.type());
    if (schema.TakesBlobs(device)) return StrCat("has steps with ", op.type(), ", which works on blobs");
    if (DoesMore(schema)) return StrCat("has steps with ", op.type(), ", which does more than to compute");
    if (ReadsOnHost(schema, device, op.input_size())) {
      return StrCat("has steps with ", op.type(), ", whose inputs the host reads");
    }
  }
  return "";
}

bool StepsMayFindFaults(const NetDef* step_net, DeviceKind device) {
  return step_net != nullptr && std::ranges::any_of(step_net->op(), [&](const OperatorDef& op) {
           return MayFindFaults(OperatorCall(op), device);
         });
}

// What runs steps finds nothing itself.
bool RunMayFindFaults(const OperatorCall& op, DeviceKind device) {
  if (!RunsSteps(op)) return MayFindFaults(op, device);
  const std::shared_ptr<const RecurrentSpec> spec = RecurrentSpecOf(op);
  return StepsMayFindFaults(op.type() == kForward ? spec->step_net.get() : spec->backward_step_net.get(), device);
}

std::string WhyNot(const OperatorCall& op, Device device) {
  if (op.options().device().IsHost()) return "runs on the host";
  if (op.options().device() != device) return StrCat("runs on another device than ", device);
  if (DoesMore(op.schema())) return "does more than to compute";
  if (ReadsOnHost(op.schema(), device.kind, op.num_inputs())) return "has inputs that the host reads";
  if (!RunsSteps(op)) return op.schema().TakesBlobs(device.kind) ? "works on blobs" : "";
  const std::shared_ptr<const RecurrentSpec> spec = RecurrentSpecOf(op);
  const std::string why = WhyNotSteps(spec->step_net.get(), device.kind);
  return why.empty() ? WhyNotSteps(spec->backward_step_net.get(), device.kind) : why;
}

}  // namespace

bool RunsSteps(const OperatorCall& op) { return op.type() == kForward || op.type() == kGradient; }

std::vector<std::string> OtherBlobs(const OperatorCall& op) {
  if (!RunsSteps(op)) return {};
  std::vector<std::string> blobs = op.Strings("recurrent_states");
  if (op.type() != kForward) {
    for (std::string& blob : blobs) blob = RenamedBy(op, blob + "_grad");
    return blobs;
  }
  if (op.Bool("private_states")) blobs.clear();
  for (const char* const outputs : {"alias_dst", "step_output_dst"}) {
    const std::vector<std::string>& names = op.Strings(outputs);
    blobs.insert(blobs.end(), names.begin(), names.end());
  }
  return blobs;
}

RecordableOperators FindRecordable(const std::vector<OperatorToRecord>& operators) {
  std::set<std::string> records;  // of forward runs
  std::optional<Device> device;
  bool may_have_faults = false;
  for (size_t i = 0; i < operators.size(); ++i) {
    const OperatorToRecord& entry = operators[i];
    if (entry.is_entry) continue;
    const OperatorCall& op = entry.op->call();
    if (!device) device = op.options().device();
    std::string why = WhyNot(op, *device);
    if (why.empty() && op.type() == kGradient && !records.contains(op.inputs().back())) {
      why = "goes back through a run of another net";
    } else if (why.empty() && entry.outlives && !entry.op->stops_after_faults() &&
               (may_have_faults || (op.type() == kGradient && RunMayFindFaults(op, device->kind)))) {
      why = "runs only when the host has looked for bad values";
    }
    if (!why.empty()) {
      // Copies to the host are there for the operator behind them.
      const OperatorToRecord* cause = &entry;
      const OperatorToRecord* const last = &operators.back();
      while (cause->op->call().type() == "EnsureCPUOutput" && cause != last && cause[1].origin == entry.origin) ++cause;
      const OperatorCall& asked = cause->op->call();
      if (asked.options().device().IsHost()) why = "runs on the host";
      return {.count = static_cast<int>(i),
              .why_no_more = StrCat("operator ", entry.origin, ", ", asked.type(), ", ", why)};
    }
    for (const std::string& output : op.outputs()) records.erase(output);
    if (op.type() == kForward) records.insert(op.outputs().back());
    may_have_faults = may_have_faults || RunMayFindFaults(op, device->kind);
  }
  return {.count = static_cast<int>(operators.size())};
}

}  // namespace stepnet
