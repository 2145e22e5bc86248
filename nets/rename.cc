#include "stepnet/nets/rename.h"

#include <algorithm>
#include <set>

#include "stepnet/core/operator.h"
#include "stepnet/io/proto_io.h"
#include "stepnet/nets/op_arguments.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

class Renamer {
 public:
  explicit Renamer(const std::map<std::string, std::string>& names) : names_(names) {}

  void Rename(NetDef* net) {
    for (OperatorDef& op : *net->mutable_op()) {
      RenameAll(op.mutable_input());
      RenameAll(op.mutable_output());
      RenameAll(op.mutable_control_input());
      const OperatorSchema* schema = FindOperator(op.type());
      if (schema != nullptr) WriteDefaults(*schema, &op);
      for (Argument& argument : *op.mutable_arg()) RenameIn(schema, &argument);
    }
    RenameAll(net->mutable_external_input());
    RenameAll(net->mutable_external_output());
  }

  const std::set<std::string>& kept() const { return kept_; }

 private:
  std::string NewName(const std::string& blob) {
    const auto found = names_.find(blob);
    if (found != names_.end()) return found->second;
    kept_.insert(blob);
    return blob;
  }

  // An argument that is left out names a blob too, when its default does.
  void WriteDefaults(const OperatorSchema& schema, OperatorDef* op) const {
    for (const ArgumentSpec& spec : schema.arguments) {
      const std::optional<std::string>& name = spec.default_value.s;
      const bool is_written = FindArgument(*op, spec.name) != nullptr;
      if (!spec.names_blobs || !name || is_written || !names_.contains(*name)) continue;
      Argument* argument = op->add_arg();
      argument->set_name(spec.name);
      argument->set_s(*name);
    }
  }

  template <typename Strings>
  void RenameAll(Strings* blobs) {
    for (std::string& blob : *blobs) blob = NewName(blob);
  }

  void RenameIn(const OperatorSchema* schema, Argument* argument) {
    const ArgumentSpec* spec = schema != nullptr ? schema->FindArgument(argument->name()) : nullptr;
    if (argument->has_n()) Rename(argument->mutable_n());
    for (NetDef& net : *argument->mutable_nets()) Rename(&net);
    if (spec == nullptr) return;
    if (spec->type == ArgumentType::kNet && argument->has_s() && !argument->s().empty()) {
      NetDef net;  // a step net in text
      ParseMessageText(argument->s(), argument->name(), &net);
      Rename(&net);
      argument->set_s(PrintMessageText(net));
    }
    if (!spec->names_blobs) return;
    RenameAll(argument->mutable_strings());
    if (argument->has_s()) argument->set_s(NewName(argument->s()));
    const std::string& name = argument->name();
    if (name.ends_with(kRenameSuffix)) {
      argument->set_name(StrCat(NewName(name.substr(0, name.size() - kRenameSuffix.size())), kRenameSuffix));
    }
  }

  const std::map<std::string, std::string>& names_;
  std::set<std::string> kept_;
};

}  // namespace

std::set<std::string> BlobNames(const NetDef& net) {
  NetDef copy = net;
  const std::map<std::string, std::string> none;
  Renamer renamer(none);
  renamer.Rename(&copy);
  return renamer.kept();
}

bool HoldsNets(const OperatorDef& op) {
  const OperatorSchema* schema = FindOperator(op.type());
  return schema != nullptr && std::ranges::any_of(schema->arguments, [](const ArgumentSpec& spec) {
           return spec.type == ArgumentType::kNet;
         });
}

OperatorDef WithInputsNamed(const OperatorDef& op, const std::map<std::string, std::string>& names) {
  std::map<std::string, std::string> used;
  for (const std::string& input : op.input()) {
    if (const auto found = names.find(input); found != names.end()) used.insert(*found);
  }
  if (used.empty()) return op;
  NetDef net;
  *net.add_op() = op;
  OperatorDef& renamed = *net.mutable_op(0);
  if (!HoldsNets(op)) {
    for (std::string& input : *renamed.mutable_input()) {
      if (const auto found = used.find(input); found != used.end()) input = found->second;
    }
    return renamed;
  }
  for (const auto& [blob, name] : std::map(used)) used[blob + "_grad"] = name + "_grad";
  renamed.clear_output();
  RenameBlobs(used, &net);
  *net.mutable_op(0)->mutable_output() = op.output();
  return net.op(0);
}

void RenameBlobs(const std::map<std::string, std::string>& names, NetDef* net) {
  NetDef renamed = *net;
  Renamer renamer(names);
  renamer.Rename(&renamed);
  std::set<std::string> taken = renamer.kept();
  for (const auto& [old_name, new_name] : names) {
    if (taken.insert(new_name).second) continue;
    throw Error(ErrorCode::kInvalidNet,
                StrCat("cannot rename \"", old_name, "\" to \"", new_name, "\": another blob has that name"))
        .At({.net = net->name()});
  }
  *net = std::move(renamed);
}

}  // namespace stepnet
