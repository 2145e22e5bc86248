// What a backward step computes again, instead of reading what the run forward would have kept for it.
#pragma once

#include <set>
#include <string>

#include "stepnet/nets/recurrent_spec.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {

// The backward step net behind those operators of the step net, in their order, that give it blobs of `named` again.
// What neither it nor others of these operators read is not computed, nor that of which it reads the shape alone; rows
// of states that one operator gives are there.
NetDef WithRecomputed(const RecurrentSpec& spec, const std::set<std::string>& named, const NetDef& backward);

}  // namespace stepnet
