// Operators of nets, for Python: what they are and what shapes they give. Whoever writes nets in another format asks
// them.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>

#include "stepnet/core/operator.h"
#include "stepnet/nets/recurrent_spec.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet::python {

class Operator {
 public:
  // Throws what OperatorCall throws.
  explicit Operator(const OperatorDef& def) : call_(def) {}

  const OperatorCall& call() const { return call_; }

  // All arguments that the type declares, by name: as given, or the default; None for those that have neither.
  nanobind::dict Arguments() const;

  // (dtype as NumPy calls it, sizes) of each output, for (dtype, sizes, elements) of each input, where elements is a
  // list of the whole numbers in it, or None where they are not known. Throws what the type's shape rule throws, and
  // kInvalidArgument where shapes follow from elements that are not known.
  nanobind::list InferShapes(const nanobind::list& inputs) const;

  // Tells of a RecurrentNetwork, in a dictionary:
  //   step          list of Operator
  //   states        list of (name, index of the input that it starts from)
  //   links         list of (internal, external, offset, window)
  //   aliases       list of (state, output, offset)
  //   step_outputs  list of (blob of the step, output)
  //   timestep      name
  // Throws what RecurrentSpecOf throws.
  nanobind::dict Recurrent() const;

 private:
  OperatorCall call_;
};

// The operators of a net, in its order.
nanobind::list OperatorsOf(const NetDef& net);

}  // namespace stepnet::python
