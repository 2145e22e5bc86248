// What of a net can be recorded, to be played (nets/net_recordings.h).
#pragma once

#include <string>
#include <vector>

#include "stepnet/nets/net_operator.h"

namespace stepnet {

// An operator of a net, as far as it matters here.
struct OperatorToRecord {
  const NetOperator* op = nullptr;
  int origin = 0;         // its index in the net as it was written
  bool is_entry = false;  // it brings an input to the device, before others run
  bool outlives = false;  // it changes what lasts (ChangesWhatLasts)
};

// The operators in front that do nothing but put work into the queue of one device, whatever the values are: an
// operator on the host, one that works on blobs themselves or reads values on the host, or one for which the host looks
// at faults first, comes after them. So what is recorded is known before anything runs.
struct RecordableOperators {
  int count = 0;
  std::string why_no_more;  // "operator 3, Print, runs on the host"; "" where it is all of the net
};
RecordableOperators FindRecordable(const std::vector<OperatorToRecord>& operators);

bool RunsSteps(const OperatorCall& op);
// Blobs that an operator that runs steps sets although they are none of its outputs; of others none.
std::vector<std::string> OtherBlobs(const OperatorCall& op);

}  // namespace stepnet
