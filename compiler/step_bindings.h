// StepBindings: which memory the blobs of a step net have outside of it, for ImportStep.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "stepnet/compiler/step_graph.h"

namespace stepnet {

// A blob that lives outside, in memory (kOutside) or in a list of blobs (kDynamic). `home.slot.blob` is its name.
struct BoundBlob {
  Home home;
  TensorInfo info = {};       // what one step sees; meaningless in a list
  bool readable = true;       // has a value before the first operator of the step
  std::string sized_by = {};  // the operator's input whose shape says what a row of a state is; "" for other memory
};

// Moves a blob's value between its memory and memory outside, once a step.
struct BoundMove {
  enum class Kind {
    kCopyIn,   // before the first operator that uses the blob: blob = outside
    kAddIn,    // before the first operator that uses the blob: blob += outside
    kCopyOut,  // after the last operator that writes the blob: outside = blob
    kAddOut,   // after the last operator that writes the blob: outside += blob
  };
  Kind kind = Kind::kCopyOut;
  std::string blob;
  Home outside;           // kOutside; `slot.blob` is the name that people know it by
  TensorInfo info;        // of `outside`; the blob must hold as many elements of the dtype
  bool required = false;  // an error when nothing gives the blob a value; otherwise the move is left out
};

// A copy of a blob, once a step, in rows of its own, as large as the value is that the step leaves in the blob.
struct BoundOutput {
  std::string blob;  // a blob that the step writes
  std::string name;  // that people know the rows by
  int base = -1;
};

// What somebody reads of a blob when all steps have run.
enum class KeptPart { kShape, kValue };

struct StepBindings {
  std::vector<BoundBlob> blobs = {};
  std::vector<BoundMove> moves = {};
  std::vector<BoundOutput> outputs = {};
  std::map<std::string, KeptPart> kept = {};  // by blob; where the shape is unknown the value is kept for it
  bool keeps_all = false;                     // the values of all blobs
};

}  // namespace stepnet
