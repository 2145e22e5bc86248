// Renaming the blobs of a net, wherever it refers to them.
#pragma once

#include <map>
#include <string>

namespace stepnet {

class NetDef;

// Gives every blob that `names` maps its new name: in inputs, outputs, control inputs and external inputs and outputs,
// in arguments that are declared to name blobs (links, aliases, `<blob>.rename` with the name that is part of theirs),
// and in nets within arguments. Blobs that only a step net knows are renamed too when `names` lists them.
// Throws kInvalidNet when two blobs would become one.
void RenameBlobs(const std::map<std::string, std::string>& names, NetDef* net);

}  // namespace stepnet
