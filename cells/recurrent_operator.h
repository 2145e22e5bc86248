// RecurrentOperator: a RecurrentNetwork while layers of a cell are being written into it, one above the other, or two
// directions beside each other, in one step net.
//
// So they overlap: the compiler takes their loops apart again (compiler/find_stages.h), and while a layer is at a chunk
// of steps, the one below is at the next.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "stepnet/nets/recurrent_spec.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {

// Names of blobs that are taken.
class NameSet {
 public:
  void Take(const std::string& name) { names_.insert(name); }
  bool Contains(const std::string& name) const { return names_.contains(name); }
  // `name`, or with "_" behind it until nobody has it.
  std::string Unused(std::string name) {
    while (!names_.insert(name).second) name += '_';
    return name;
  }
  // The same for a state, whose gradient is called so with "_grad" behind it: nobody has that name either.
  std::string UnusedState(std::string name) {
    while (Contains(name) || Contains(name + "_grad")) name += '_';
    Take(name + "_grad");
    return Unused(std::move(name));
  }

 private:
  std::set<std::string> names_;
};

struct RecurrentOperator {
  NameSet names = {};  // in the step net
  // Masks of steps, bool [T, B]: by the blob outside the blob of the step, [1, B].
  std::map<std::string, std::string> masks = {};
  // Blob of the step: what the layer that was written last gives to the next one, [1, B, …].
  std::string top = {};
  NetDef step = {};
  std::vector<Link> links = {};
  std::vector<std::string> inputs = {};
  std::vector<RecurrentState> states = {};
  std::vector<OffsetAlias> aliases = {};
  std::vector<StepOutput> step_outputs = {};
  std::vector<std::string> outputs = {};  // without the record
  std::vector<OperatorDef> after = {};    // that belong behind it

  // The place of the input, which becomes one where it is none yet.
  int AddInput(const std::string& blob);
  void AddLink(const Link& link);  // unless it is there, as that of a mask which several layers read
  // Adds it to the net, with what belongs behind it.
  void Write(const std::string& record, NetDef* net);
};

}  // namespace stepnet
