// An operator whose inputs and outputs are called by their numbers.
#pragma once

#include <string>

#include "stepnet/core/strings.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {

// Inputs in0, in1, … and outputs out0, out1, ….
inline OperatorDef NumberedOperator(const std::string& type, int num_inputs, int num_outputs = 1) {
  OperatorDef def;
  def.set_type(type);
  for (int i = 0; i < num_inputs; ++i) def.add_input(StrCat("in", i));
  for (int o = 0; o < num_outputs; ++o) def.add_output(StrCat("out", o));
  return def;
}

}  // namespace stepnet
