// What a step does with the rows that links show: which it reads as they are before it, which it writes.
//
// The order of reads and writes in the step net decides, and nothing else: offsets and windows say which rows these
// are. The last row of a state that any link shows is its new row: it has no value until an operator of the step has
// written it, under whichever name. All other rows have one: initial values, what earlier steps wrote, or zeros.
#pragma once

#include <vector>

#include "stepnet/nets/recurrent_spec.h"

namespace stepnet {

struct LinkRole {
  bool is_source = false;       // the blob starts as what the rows hold
  bool is_destination = false;  // the rows become what the step leaves in the blob
};

// One for each link of `spec`, in its order. A blob with one link lives in those rows; one with several links is copied
// from its source to the others. Appends to `problems`, where given: blobs that are read before anything writes them,
// that have several sources, or that no operator uses; states that no operator writes.
std::vector<LinkRole> FindLinkRoles(const RecurrentSpec& spec, std::vector<NetProblem>* problems = nullptr);

}  // namespace stepnet
