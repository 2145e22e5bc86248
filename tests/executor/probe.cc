#include "probe.h"

#include <atomic>
#include <mutex>

#include "stepnet/core/operator.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

std::function<void(const ProbePlace&)> the_visit;
std::atomic<int> num_running = 0;

struct Running {
  Running() { ++num_running; }
  ~Running() { --num_running; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
};

Kernel ProbedKernel(Kernel kernel) {
  kernel.make = [make = kernel.make](const OperatorCall& op) -> RunFn {
    return [kernel = make(op), text = op.Text()](const OpRun& run) {
      const Running running;
      if (the_visit) the_visit({.op = text, .step = run.step()});
      kernel(run);
    };
  };
  return kernel;
}

void AddInput(const Formal& formal, Operator* op) {
  if (formal.variadic) {
    op->OptionalInputs(formal.name, formal.doc);
  } else if (formal.optional) {
    op->OptionalInput(formal.name, formal.doc);
  } else {
    op->Input(formal.name, formal.doc);
  }
}

void AddOutput(const Formal& formal, Operator* op) {
  if (formal.variadic) {
    op->OptionalOutputs(formal.name, formal.doc);
  } else if (formal.optional) {
    op->OptionalOutput(formal.name, formal.doc);
  } else {
    op->Output(formal.name, formal.doc);
  }
}

// Registers, the first time, an operator that does what `type` does.
std::string ProbedType(const std::string& type) {
  const std::string probed_type = "test.Probed." + type;
  if (FindOperator(probed_type) != nullptr) return probed_type;
  const OperatorSchema& schema = GetOperator(type);
  Operator probed(probed_type);
  for (const Formal& formal : schema.inputs) AddInput(formal, &probed);
  for (const Formal& formal : schema.outputs) AddOutput(formal, &probed);
  probed.Args(schema.arguments);
  probed.InPlace(schema.in_place).EnforceInPlace(schema.enforced_in_place).ShapesReadValues(schema.shape_value_inputs);
  probed.Shapes(schema.shapes).CostIs(schema.cost).Rows(schema.rows);
  if (schema.elementwise) probed.Elementwise();
  if (schema.formula) probed.Formula(schema.formula, schema.formula_options);  // which its kernel asks
  probed.Cpu(ProbedKernel(*schema.FindKernel(DeviceKind::kCpu)));
  const Registration registered(probed);
  return probed_type;
}

void ProbeOperators(NetDef* step) {
  for (OperatorDef& op : *step->mutable_op()) op.set_type(ProbedType(op.type()));
}

}  // namespace

NetDef Probed(NetDef net) {
  for (OperatorDef& op : *net.mutable_op()) {
    for (Argument& argument : *op.mutable_arg()) {
      if (argument.has_n()) ProbeOperators(argument.mutable_n());
    }
  }
  return net;
}

Probe::Probe(std::function<void(const ProbePlace&)> visit) { the_visit = std::move(visit); }
Probe::~Probe() { the_visit = nullptr; }
int Probe::NumRunning() { return num_running; }

std::set<ProbePlace> PlacesOf(const std::function<void()>& run) {
  std::mutex mutex;
  std::set<ProbePlace> places;
  const Probe probe([&](const ProbePlace& place) {
    const std::lock_guard lock(mutex);
    places.insert(place);
  });
  run();
  return places;
}

}  // namespace stepnet
