// StepPlanRequest: a step net and the memory that its blobs are bound to, of which a StepPlan is made.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "stepnet/compiler/step_plan.h"

namespace stepnet {

// A blob that lives outside of the plan's arenas, as the caller describes it.
struct BoundBlob {
  Slot slot;
  TensorInfo info;       // what one step sees
  bool readable = true;  // has a value before the first operator of the step
};

// Moves a blob's value between its memory and memory outside, once a step.
struct StepMove {
  enum class Kind {
    kCopyIn,   // before the first operator that uses the blob: blob = outside
    kAddIn,    // before the first operator that uses the blob: blob += outside
    kCopyOut,  // after the last operator that writes the blob: outside = blob
    kAddOut,   // after the last operator that writes the blob: outside += blob
  };
  Kind kind = Kind::kCopyOut;
  std::string blob;
  Slot outside;
  TensorInfo info;        // of `outside`; the blob must hold as many elements of the dtype
  bool required = false;  // an error when nothing gives the blob a value; otherwise the move is left out
  // Home::starts_at_zero, of a kAddOut: nothing but such moves uses the base.
  bool starts_at_zero = false;
};

struct StepPlanRequest {
  const NetDef* net = nullptr;
  bool backward = false;
  RunOptions options = {};
  int num_bases = 0;  // bases that the bound blobs use; the arenas' follow
  // How many rows a ring has, a power of two: so many steps may be under way at once where nothing else orders them.
  std::int64_t ring_rows = 1;
  std::int64_t max_steps = 0;   // as in StepPlan
  std::int64_t max_queues = 0;  // likewise
  std::vector<BoundBlob> bound = {};
  // Dynamic blobs that exist before the first operator, with the index of their list.
  std::map<std::string, int> bound_dynamic = {};
  int num_dynamic_lists = 0;
  std::vector<StepMove> moves = {};
  std::set<int> lent = {};           // bases that the caller owns: steps may change only a copy
  std::vector<RowMove> before = {};  // the first step, in this order
  std::vector<RowMove> after = {};   // the last step
};

}  // namespace stepnet
