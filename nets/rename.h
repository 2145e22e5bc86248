// Renaming the blobs of a net, wherever it refers to them.
#pragma once

#include <map>
#include <set>
#include <string>

namespace stepnet {

class NetDef;
class OperatorDef;

// Gives every blob that `names` maps its new name: in inputs, outputs, control inputs and external inputs and outputs,
// in arguments that are declared to name blobs (links, aliases, `<blob>.rename` with the name that is part of theirs),
// and in nets within arguments. Blobs that only a step net knows are renamed too when `names` lists them.
// Throws kInvalidNet when two blobs would become one.
void RenameBlobs(const std::map<std::string, std::string>& names, NetDef* net);

// The names of all blobs that RenameBlobs would reach.
std::set<std::string> BlobNames(const NetDef& net);

// Whether the operator's arguments are nets, whose parts name blobs.
bool HoldsNets(const OperatorDef& op);

// The operator with new names for blobs that it reads, also in its arguments where it holds nets; there the gradients
// of these blobs, `<blob>_grad`, are renamed, too. Its outputs keep their names.
OperatorDef WithInputsNamed(const OperatorDef& op, const std::map<std::string, std::string>& names);

}  // namespace stepnet
