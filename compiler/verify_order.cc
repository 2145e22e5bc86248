#include "stepnet/compiler/verify_order.h"

#include <algorithm>
#include <set>

#include "stepnet/compiler/verify_operators.h"
#include "stepnet/core/cancellation.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

// What runs once reads what there is before the first step.
void CheckOnce(const StepGraph& graph) {
  const int num_once = graph.NumOnceNodes();
  if (num_once == 0) return;
  std::set<int> written;  // bases
  for (size_t n = num_once; n < graph.nodes.size(); ++n) {
    for (const int output : graph.nodes[n].given()) {
      const Home& home = graph.homes[graph.values[output].home];
      if (home.kind == Home::Kind::kOutside) written.insert(home.slot.base);
    }
  }
  for (int n = 0; n < num_once; ++n) {
    for (const int input : graph.nodes[n].inputs) {
      const Home& home = graph.homes[graph.values[input].home];
      if (home.kind != Home::Kind::kOutside || !written.contains(home.slot.base)) continue;
      throw GraphFault{StrCat(graph.NameOf(input), " is read once, before the first step, and steps write its memory")};
    }
  }
}

// Tells operators apart, also of another net.
template <typename T>
std::int64_t NumberOf(const T& of) {
  constexpr std::int64_t kOfOtherNet = std::int64_t{1} << 31;
  return of.net.empty() ? of.op_index : of.op_index + kOfOtherNet;
}

}  // namespace

OrderVerifier::ValueId OrderVerifier::IdOf(const StepValue& value) {
  const ValueId blob = blobs_.emplace(value.blob, std::ssize(blobs_)).first->second;
  return (2 * blob + (value.outside ? 1 : 0)) << 32 | static_cast<std::uint32_t>(value.version);
}

std::vector<OrderVerifier::Access> OrderVerifier::AccessesOf(const StepGraph& graph, const std::vector<ValueId>& ids) {
  std::vector<Access> all;
  const auto read = [&](int value, std::int64_t reader, int moment) {
    for (const std::int64_t by : {reader, kAll}) {
      all.push_back({.of = ids[value], .reader = by, .value = value, .first = moment, .last = moment});
    }
  };
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const StepNode& node = graph.nodes[n];
    const int moment = 2 * static_cast<int>(n);
    const bool is_region = !node.calls().empty();
    const std::int64_t reader = node.RunsOperators() ? NumberOf(node) : ~ids[node.outputs[0]];
    for (const int input : node.inputs) {
      if (!is_region) read(input, reader, moment);
    }
    if (node.packed != kNoValue) read(node.packed, reader, moment);
    for (const RegionCall& call : node.calls()) {
      for (const int operand : call.inputs) {
        const bool is_own = operand >= static_cast<int>(node.inputs.size());
        read(node.ValueOf(operand), NumberOf(call), is_own ? moment + 1 : moment);
      }
    }
    for (const int value : node.given()) {
      all.push_back(
          {.of = ids[value], .writes = true, .reader = kAll, .value = value, .first = moment + 1, .last = moment + 1});
    }
  }
  std::ranges::stable_sort(all, {}, &Access::key);
  std::vector<Access> accesses;
  for (const Access& access : all) {  // those of one key are in the order of their nodes
    const bool is_new = accesses.empty() || accesses.back().key() != access.key();
    if (is_new) accesses.push_back(access);
    accesses.back().last = std::max(accesses.back().last, access.last);
  }
  return accesses;
}

void OrderVerifier::Check(const StepGraph& graph) {
  CheckOnce(graph);
  std::vector<ValueId> ids;
  for (const StepValue& value : graph.values) ids.push_back(IdOf(value));
  std::vector<Access> accesses = AccessesOf(graph, ids);
  CheckPlaces(graph, ids);
  if (before_) CheckPairs(graph, accesses);
  before_ = std::move(accesses);
}

void OrderVerifier::CheckPlaces(const StepGraph& graph, const std::vector<ValueId>& ids) {
  std::unordered_map<ValueId, std::optional<Place>> place_of;
  for (size_t v = 0; v < ids.size(); ++v) {
    const Home& home = graph.homes[graph.values[v].home];
    std::optional<Place>& place = place_of[ids[v]];
    if (home.kind != Home::Kind::kOutside) continue;
    place = Place{home.slot.base, home.slot.offset, home.slot.row_bytes, home.slot.bytes};
    const auto before = place_of_.find(ids[v]);
    if (before == place_of_.end() || before->second == place) continue;
    throw GraphFault{StrCat(graph.NameOf(static_cast<int>(v)), " comes to live at ", AddressText(home.slot), ", ",
                            home.slot.bytes, " bytes; before the pass it does not")};
  }
  place_of_ = std::move(place_of);
}

void OrderVerifier::CheckPairs(const StepGraph& graph, const std::vector<Access>& accesses) const {
  struct Both {
    const Access* before = nullptr;
    const Access* now = nullptr;
    int home = -1;
  };
  const auto is_term = [&](const Both& access) { return access.now->writes && graph.values[access.now->value].added; };
  // Memory outside that may be shared is one piece, and so is each home of the step.
  std::vector<std::vector<Both>> by_piece(graph.num_bases + graph.homes.size());
  auto before = before_->begin();
  for (const Access& now : accesses) {
    while (before != before_->end() && before->key() < now.key()) ++before;
    if (before == before_->end() || before->key() != now.key()) continue;
    const int h = graph.values[now.value].home;
    const Home& home = graph.homes[h];
    if (home.kind == Home::Kind::kLocal) continue;
    const int piece = home.kind == Home::Kind::kOutside ? home.slot.base : graph.num_bases + h;
    by_piece[piece].push_back({.before = &*before, .now = &now, .home = h});
  }
  for (const std::vector<Both>& piece : by_piece) {
    for (const Both& a : piece) {
      if (!a.now->writes) continue;
      CountWork(100 * static_cast<std::int64_t>(piece.size()));
      for (const Both& b : piece) {
        const bool is_kept = (a.before->last >= b.before->first || a.now->last <= b.now->first) &&
                             (b.before->last >= a.before->first || b.now->last <= a.now->first);
        if (is_kept || (a.home != b.home && !ShareBytes(graph.homes[a.home], graph.homes[b.home]))) continue;
        if (is_term(a) && is_term(b)) continue;
        const bool came_before = a.before->last < b.before->first;
        throw GraphFault{StrCat(graph.NameOf(a.now->value), " is given ", came_before ? "before " : "after ",
                                graph.NameOf(b.now->value), " is ", b.now->writes ? "given" : "read",
                                " no more; they share memory")};
      }
    }
  }
}

}  // namespace stepnet
