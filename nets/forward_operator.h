// ForwardOperator: a RecurrentNetwork operator as it runs, and as its gradient has to know it.
#pragma once

#include "stepnet/nets/recurrent_spec.h"

namespace stepnet {

struct ForwardOperator {
  OperatorCall op;
  RecurrentSpec spec;      // with what is requested of the backward step net: that tells what a run keeps
  bool keeps_all = false;  // every blob of every step, as somebody fetches them

  // `op` knows its readers.
  explicit ForwardOperator(OperatorCall op);
};

}  // namespace stepnet
