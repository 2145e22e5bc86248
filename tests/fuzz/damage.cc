#include "damage.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "stepnet/core/operator.h"

namespace stepnet {
namespace {

using Strings = google::protobuf::RepeatedPtrField<std::string>;
using Names = std::vector<std::string>;

template <typename Items>
auto& Any(Items& items, std::mt19937& random) {
  return items[Below(static_cast<int>(items.size()), random)];
}

Names NamesOf(const NetDef& net) {
  Names names(net.external_input().begin(), net.external_input().end());
  for (const OperatorDef& op : net.op()) {
    names.insert(names.end(), op.input().begin(), op.input().end());
    names.insert(names.end(), op.output().begin(), op.output().end());
    for (const Argument& arg : op.arg()) names.insert(names.end(), arg.strings().begin(), arg.strings().end());
  }
  names.emplace_back("unknown");
  return names;
}

// Not those of tests, so that a seed gives the same damage in every program.
const std::string& AnyType(std::mt19937& random) {
  static const Names types = [] {
    Names all = OperatorTypes();
    std::erase_if(all, [](const std::string& type) { return type.starts_with("test."); });
    return all;
  }();
  return Any(types, random);
}

// A type that takes as many inputs and gives as many outputs, so that the operator may still run.
std::string SimilarType(const OperatorDef& op, std::mt19937& random) {
  const auto fits = [&](const OperatorSchema& schema) {
    return schema.min_inputs() <= op.input_size() && op.input_size() <= schema.max_inputs() &&
           schema.min_outputs() <= op.output_size() && op.output_size() <= schema.max_outputs();
  };
  std::string type = AnyType(random);
  for (int tries = 0; tries < 100 && !fits(GetOperator(type)); ++tries) type = AnyType(random);
  return type;
}

void DamageList(Strings* list, const Names& names, std::mt19937& random) {
  if (list->empty()) {
    *list->Add() = Any(names, random);
    return;
  }
  const int at = Below(list->size(), random);
  switch (random() % 10) {
    case 0: list->RemoveLast(); break;
    case 1: list->SwapElements(at, Below(list->size(), random)); break;
    case 2: *list->Add() = Any(names, random); break;
    case 3:
    case 4: *list->Mutable(at) = Misspelt(list->Get(at), random); break;
    default: *list->Mutable(at) = Any(names, random);
  }
}

void DamageArgument(Argument* arg, const Names& names, std::mt19937& random) {
  if (arg->has_n() && random() % 16 != 0) return Damage(arg->mutable_n(), random);
  if (random() % 32 == 0) return arg->set_name(Misspelt(arg->name(), random));
  if (arg->has_i()) arg->set_i(DamagedInteger(arg->i(), random));
  if (arg->has_f()) arg->set_f(static_cast<float>(DamagedNumber(arg->f(), random)));
  if (arg->has_s()) arg->set_s(Misspelt(arg->s(), random));
  if (arg->ints_size() > 0) {
    std::int64_t& number = *arg->mutable_ints()->Mutable(Below(arg->ints_size(), random));
    number = DamagedInteger(number, random);
  }
  if (arg->strings_size() > 0) DamageList(arg->mutable_strings(), names, random);
}

// An argument that the type declares, with a value of whatever kind.
void AddArgument(OperatorDef* op, std::mt19937& random) {
  const OperatorSchema* schema = FindOperator(op->type());
  if (schema == nullptr || schema->arguments.empty()) return;
  Argument* arg = op->add_arg();
  const ArgumentSpec& spec = Any(schema->arguments, random);
  arg->set_name(spec.name);
  switch (spec.type) {
    case ArgumentType::kFloat:
    case ArgumentType::kNumber: return arg->set_f(static_cast<float>(DamagedNumber(1, random)));
    case ArgumentType::kString:
      return arg->set_s(spec.constraint.one_of.empty() ? "x" : Any(spec.constraint.one_of, random));
    case ArgumentType::kInts: return arg->add_ints(DamagedInteger(0, random));
    default: return arg->set_i(DamagedInteger(0, random));
  }
}

// Lists of arguments whose entries belong together one by one.
const std::array<Names, 6> kParallelLists = {
    {{"link_internal", "link_external", "link_offset", "link_window"},
     {"backward_link_internal", "backward_link_external", "backward_link_offset", "backward_link_window"},
     {"alias_src", "alias_dst", "alias_offset"},
     {"step_output_src", "step_output_dst"},
     {"recurrent_states", "initial_recurrent_state_ids"},
     {"param", "param_grads"}}};

int SizeOf(const Argument& arg) { return std::max(arg.strings_size(), arg.ints_size()); }

// Applies `change` to whichever list the argument holds.
void ChangeList(Argument* arg, const auto& change) {
  if (arg->strings_size() > 0) change(arg->mutable_strings());
  if (arg->ints_size() > 0) change(arg->mutable_ints());
}

void RemoveEntry(Argument* arg, int at) {
  ChangeList(arg, [&](auto* list) { list->erase(list->begin() + at); });
}

void RepeatEntry(Argument* arg, int at) {
  ChangeList(arg, [&](auto* list) {
    const auto entry = list->Get(at);
    *list->Add() = entry;
  });
}

void ChangeEntry(Argument* arg, int at, const Names& names, std::mt19937& random) {
  if (at < arg->strings_size()) *arg->mutable_strings(at) = Any(names, random);
  if (at < arg->ints_size()) arg->set_ints(at, DamagedInteger(arg->ints(at), random));
}

// One entry, in all lists or in one of them.
void DamageEntry(const std::vector<Argument*>& lists, int at, const Names& names, std::mt19937& random) {
  const int other = Below(SizeOf(*lists.front()), random);
  switch (random() % 6) {
    case 0:
      for (Argument* list : lists) RemoveEntry(list, at);
      break;
    case 1: {
      for (Argument* list : lists) RepeatEntry(list, at);
      ChangeEntry(Any(lists, random), SizeOf(*lists.front()) - 1, names, random);
      break;
    }
    case 2:
      for (Argument* list : lists) ChangeList(list, [&](auto* entries) { entries->SwapElements(at, other); });
      break;
    case 3: ChangeList(Any(lists, random), [&](auto* entries) { entries->SwapElements(at, other); }); break;
    default: ChangeEntry(Any(lists, random), at, names, random);
  }
}

Argument* Find(OperatorDef* op, const std::string& name) {
  const auto found = std::ranges::find(*op->mutable_arg(), name, &Argument::name);
  return found == op->mutable_arg()->end() ? nullptr : &*found;
}

// Links, aliases, states and the like. False when the operator has none of those that were chosen.
bool DamageParallelLists(OperatorDef* op, const Names& names, std::mt19937& random) {
  std::vector<Argument*> lists;
  for (const std::string& name : Any(kParallelLists, random)) {
    Argument* arg = Find(op, name);
    if (arg != nullptr && SizeOf(*arg) > 0) lists.push_back(arg);
  }
  if (lists.empty()) return false;
  const int entries = SizeOf(*lists.front());
  if (!std::ranges::all_of(lists, [&](const Argument* list) { return SizeOf(*list) == entries; })) return false;
  DamageEntry(lists, Below(entries, random), names, random);
  return true;
}

// What the gradient of a recurrent operator repeats of it is changed there too, half of the time.
void CopyArgumentsToGradients(const OperatorDef& before, const OperatorDef& after, NetDef* net) {
  for (OperatorDef& op : *net->mutable_op()) {
    if (op.type() != "RecurrentNetworkGradient") continue;
    for (int i = 0; i < std::min(before.arg_size(), after.arg_size()); ++i) {
      Argument* arg = Find(&op, before.arg(i).name());
      if (arg != nullptr && arg->SerializeAsString() == before.arg(i).SerializeAsString()) *arg = after.arg(i);
    }
  }
}

void DamageOperator(OperatorDef* op, const Names& names, std::mt19937& random) {
  if (op->type().starts_with("RecurrentNetwork") && random() % 2 == 0 && DamageParallelLists(op, names, random)) return;
  switch (random() % 10) {
    case 0: return op->set_type(random() % 4 == 0 ? AnyType(random) : SimilarType(*op, random));
    case 1: return DamageList(op->mutable_output(), names, random);
    case 2:
    case 3: return DamageList(op->mutable_input(), names, random);
    case 4: return AddArgument(op, random);
    default:
      if (op->arg_size() == 0) return DamageList(op->mutable_input(), names, random);
      DamageArgument(op->mutable_arg(Below(op->arg_size(), random)), names, random);
  }
}

// Another operator on what is there, often in place.
void InsertOperator(NetDef* net, const Names& names, std::mt19937& random) {
  static const std::array<std::string, 12> kTypes = {"Tanh", "Sigmoid", "Sum",     "Mul", "Copy", "Relu",
                                                     "Sub",  "Scale",   "Softmax", "Add", "Cast", "Slice"};
  OperatorDef op;
  op.set_type(random() % 4 == 0 ? AnyType(random) : Any(kTypes, random));
  for (int inputs = std::clamp(GetOperator(op.type()).min_inputs(), 1, 8); inputs > 0; --inputs) {
    op.add_input(Any(names, random));
  }
  op.add_output(random() % 2 == 0 ? op.input(0) : Any(names, random));
  *net->add_op() = op;
  const int at = Below(net->op_size(), random);
  for (int i = net->op_size() - 1; i > at; --i) net->mutable_op()->SwapElements(i, i - 1);
}

// One name becomes another wherever the net has it, so that two blobs become one or an outside name loses its blob.
void Rename(NetDef* net, const std::string& from, const std::string& to) {
  const auto rename = [&](Strings* list) { std::ranges::replace(*list, from, to); };
  rename(net->mutable_external_input());
  rename(net->mutable_external_output());
  for (OperatorDef& op : *net->mutable_op()) {
    rename(op.mutable_input());
    rename(op.mutable_output());
    for (Argument& arg : *op.mutable_arg()) {
      rename(arg.mutable_strings());
      if (arg.has_n()) Rename(arg.mutable_n(), from, to);
    }
  }
}

void DamageWhole(NetDef* net, const Names& names, std::mt19937& random) {
  static const Names kTypes = {"", "simple", "dag", "async_scheduling", "rnn", "unknown"};
  switch (random() % 4) {
    case 0: return net->set_type(Any(kTypes, random));
    case 1: return DamageList(net->mutable_external_input(), names, random);
    case 2: return DamageList(net->mutable_external_output(), names, random);
    default: return Rename(net, Any(names, random), Any(names, random));
  }
}

}  // namespace

int Below(int n, std::mt19937& random) { return static_cast<int>(random() % static_cast<unsigned>(n)); }

std::int64_t DamagedInteger(std::int64_t number, std::mt19937& random) {
  static const std::vector<std::int64_t> kExtremes = {0,
                                                      1,
                                                      -1,
                                                      std::int64_t{1} << 31,
                                                      (std::int64_t{1} << 31) - 1,
                                                      (std::int64_t{1} << 32) + 1,
                                                      std::int64_t{1} << 40,
                                                      std::int64_t{1} << 62,
                                                      std::numeric_limits<std::int64_t>::max(),
                                                      std::numeric_limits<std::int64_t>::max() - 1,
                                                      std::numeric_limits<std::int64_t>::min()};
  const auto whole = static_cast<std::uint64_t>(number);  // the largest numbers go round to the lowest
  switch (random() % 8) {
    case 0:
    case 1: return static_cast<std::int64_t>(whole + 1);
    case 2: return static_cast<std::int64_t>(whole - 1);
    case 3:
    case 4: return Below(9, random) - 4;
    case 5: return static_cast<std::int64_t>(2 * whole);
    case 6: return static_cast<std::int64_t>(0 - whole);
    default: return Any(kExtremes, random);
  }
}

double DamagedNumber(double number, std::mt19937& random) {
  using Limits = std::numeric_limits<double>;
  static const std::vector<double> kExtremes = {
      0, -0.0, Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN(), 3e38, 1e300, 1e-40, -1, 9.3e18};
  if (random() % 2 == 0) return (Below(9, random) - 4) * number;
  return Any(kExtremes, random);
}

std::string Misspelt(std::string name, std::mt19937& random) {
  static const std::array<std::string, 4> kHostile = {"\n!touch made\n", "$(touch made)", "\x1b]0;title\x07",
                                                      "../../x"};
  if (random() % 32 == 0) return name + Any(kHostile, random);
  if (name.empty()) return "x";
  const int at = Below(static_cast<int>(name.size()), random);
  switch (random() % 4) {
    case 0: return name.erase(at, 1);
    case 1: return name.insert(at, 1, name[at]);
    case 2: return name + "_";
    default: name[at] = static_cast<char>('a' + random() % 26); return name;
  }
}

void Damage(NetDef* net, std::mt19937& random) {
  if (net->op_size() == 0) return;
  const Names names = NamesOf(*net);
  const int at = Below(net->op_size(), random);
  switch (random() % 20) {
    case 0:
    case 1: return net->mutable_op()->SwapElements(at, Below(net->op_size(), random));
    case 2: return net->mutable_op()->DeleteSubrange(at, 1);
    case 3: *net->add_op() = OperatorDef(net->op(at)); return;
    case 4:
    case 5: return InsertOperator(net, names, random);
    case 6: return DamageWhole(net, names, random);
    case 7: return DamageMessage(net->mutable_op(at), random);
    default: break;
  }
  const OperatorDef before = net->op(at);
  DamageOperator(net->mutable_op(at), names, random);
  if (before.type() == "RecurrentNetwork" && random() % 2 == 0) CopyArgumentsToGradients(before, net->op(at), net);
}

}  // namespace stepnet
