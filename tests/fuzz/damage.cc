#include "damage.h"

#include <cstdint>
#include <string>
#include <vector>

#include "stepnet/core/operator.h"

namespace stepnet {
namespace {

using Names = google::protobuf::RepeatedPtrField<std::string>;

int Below(int n, std::mt19937& random) { return static_cast<int>(random() % static_cast<unsigned>(n)); }

std::vector<std::string> NamesOf(const NetDef& net) {
  std::vector<std::string> names(net.external_input().begin(), net.external_input().end());
  for (const OperatorDef& op : net.op()) {
    names.insert(names.end(), op.input().begin(), op.input().end());
    names.insert(names.end(), op.output().begin(), op.output().end());
    for (const Argument& arg : op.arg()) names.insert(names.end(), arg.strings().begin(), arg.strings().end());
  }
  return names;
}

void DamageList(Names* list, const std::vector<std::string>& names, std::mt19937& random) {
  if (list->empty()) {
    *list->Add() = names[Below(static_cast<int>(names.size()), random)];
    return;
  }
  const int at = Below(list->size(), random);
  switch (random() % 8) {
    case 0: list->RemoveLast(); break;
    case 1: list->SwapElements(at, Below(list->size(), random)); break;
    case 2: *list->Add() = names[Below(static_cast<int>(names.size()), random)]; break;
    default: *list->Mutable(at) = names[Below(static_cast<int>(names.size()), random)];
  }
}

// The largest numbers go round to the lowest.
std::int64_t Damaged(std::int64_t number, std::mt19937& random) {
  const auto whole = static_cast<std::uint64_t>(number);
  switch (random() % 6) {
    case 0: return static_cast<std::int64_t>(whole + 1);
    case 1: return static_cast<std::int64_t>(whole - 1);
    case 2: return Below(9, random) - 4;
    case 3: return static_cast<std::int64_t>(2 * whole);
    case 4: return std::int64_t{1} << random() % 63;
    default: return static_cast<std::int64_t>(0 - whole);
  }
}

void DamageArgument(Argument* arg, const std::vector<std::string>& names, std::mt19937& random) {
  if (arg->has_n()) return Damage(arg->mutable_n(), random);
  if (arg->has_i()) arg->set_i(Damaged(arg->i(), random));
  if (arg->has_f()) arg->set_f(static_cast<float>(Below(9, random) - 4) * arg->f());
  if (arg->ints_size() > 0) {
    std::int64_t& number = *arg->mutable_ints()->Mutable(Below(arg->ints_size(), random));
    number = Damaged(number, random);
  }
  if (arg->strings_size() > 0) DamageList(arg->mutable_strings(), names, random);
}

void DamageOperator(OperatorDef* op, const std::vector<std::string>& names, std::mt19937& random) {
  static const std::vector<std::string> types = OperatorTypes();
  switch (random() % 8) {
    case 0: return op->set_type(types[Below(static_cast<int>(types.size()), random)]);
    case 1: return DamageList(op->mutable_output(), names, random);
    case 2:
    case 3: return DamageList(op->mutable_input(), names, random);
    default:
      if (op->arg_size() == 0) return DamageList(op->mutable_input(), names, random);
      DamageArgument(op->mutable_arg(Below(op->arg_size(), random)), names, random);
  }
}

}  // namespace

void Damage(NetDef* net, std::mt19937& random) {
  if (net->op_size() == 0) return;
  std::vector<std::string> names = NamesOf(*net);
  names.emplace_back("unknown");
  const int at = Below(net->op_size(), random);
  switch (random() % 10) {
    case 0: net->mutable_op()->SwapElements(at, Below(net->op_size(), random)); break;
    case 1: net->mutable_op()->DeleteSubrange(at, 1); break;
    case 2: *net->add_op() = OperatorDef(net->op(at)); break;
    default: DamageOperator(net->mutable_op(at), names, random);
  }
}

}  // namespace stepnet
