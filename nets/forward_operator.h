// ForwardOperator: a RecurrentNetwork operator as it runs, and as its gradient has to know it.
#pragma once

#include <memory>

#include "stepnet/nets/recurrent_spec.h"

namespace stepnet {

struct ForwardOperator {
  OperatorCall op;
  // It knows what is requested of the backward step net, which tells what a run keeps.
  std::shared_ptr<const RecurrentSpec> spec;
  bool keeps_all = false;  // every blob of every step, as somebody fetches them
  // What a run reads and gives is written to before its gradient reads it: nothing of the run can be computed again.
  bool sources_change = false;

  // `op` knows its readers.
  explicit ForwardOperator(OperatorCall op);
};

}  // namespace stepnet
