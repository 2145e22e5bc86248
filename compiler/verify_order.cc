#include "stepnet/compiler/verify_order.h"

#include <algorithm>
#include <set>
#include <vector>

#include "stepnet/compiler/verify_operators.h"
#include "stepnet/core/cancellation.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

std::string MemoryOf(const Home& home) {
  return home.kind == Home::Kind::kOutside ? StrCat(AddressText(home.slot), ", ", home.slot.bytes, " bytes") : "";
}

// Calls `read` with each value that the node reads, who reads it, and whether the node itself has given it.
template <typename Read>
void ForEachRead(const StepGraph& graph, const StepNode& node, const Read& read) {
  if (!node.RunsOperators()) {
    for (const int output : node.given()) read(node.inputs[0], graph.NameOf(output), /*is_own=*/false);
    return;
  }
  if (node.packed != kNoValue) read(node.packed, StrCat("@", node.op_index), /*is_own=*/false);
  if (node.IsOneOperator()) {
    for (const int input : node.inputs) read(input, StrCat("@", node.op_index), /*is_own=*/false);
  }
  for (const RegionCall& call : node.calls()) {
    for (const int operand : call.inputs) {
      const bool is_own = operand >= static_cast<int>(node.inputs.size());
      read(node.ValueOf(operand), StrCat("@", call.op_index), is_own);
    }
  }
}

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

}  // namespace

OrderVerifier::Accesses OrderVerifier::AccessesOf(const StepGraph& graph) {
  Accesses accesses;
  const auto note = [&](Key key, int value, int moment) {
    const auto [access, is_new] = accesses.try_emplace(std::move(key), Access{value, moment, moment});
    access->second.first = std::min(access->second.first, moment);
    access->second.last = std::max(access->second.last, moment);
  };
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const int moment = 2 * static_cast<int>(n);
    ForEachRead(graph, graph.nodes[n], [&](int value, const std::string& reader, bool is_own) {
      const std::string name = graph.NameOf(value);
      for (const std::string& by : {reader, std::string()}) {
        note({.value = name, .reader = by}, value, is_own ? moment + 1 : moment);
      }
    });
    for (const int output : graph.nodes[n].given()) {
      note({.value = graph.NameOf(output), .writes = true}, output, moment + 1);
    }
  }
  return accesses;
}

void OrderVerifier::Check(const StepGraph& graph) {
  CheckOnce(graph);
  Accesses accesses = AccessesOf(graph);
  if (has_before_) {
    CheckHomes(graph);
    CheckPairs(graph, accesses);
  }
  has_before_ = true;
  before_ = std::move(accesses);
  memory_of_.clear();
  for (size_t v = 0; v < graph.values.size(); ++v) {
    memory_of_[graph.NameOf(static_cast<int>(v))] = MemoryOf(graph.homes[graph.values[v].home]);
  }
}

void OrderVerifier::CheckHomes(const StepGraph& graph) const {
  for (size_t v = 0; v < graph.values.size(); ++v) {
    const std::string name = graph.NameOf(static_cast<int>(v));
    const std::string memory = MemoryOf(graph.homes[graph.values[v].home]);
    const auto before = memory_of_.find(name);
    if (memory.empty() || before == memory_of_.end() || before->second == memory) continue;
    throw GraphFault{StrCat(name, " comes to live at ", memory, "; before the pass it does not")};
  }
}

void OrderVerifier::CheckPairs(const StepGraph& graph, const Accesses& accesses) const {
  struct Both {
    const Key* key = nullptr;
    const Access* before = nullptr;
    const Access* now = nullptr;
    int home = -1;
  };
  const auto is_term = [&](const Both& access) { return access.key->writes && graph.values[access.now->value].added; };
  // Memory outside that may be shared is one piece, and so is each home of the step.
  std::vector<std::vector<Both>> by_piece(graph.num_bases + graph.homes.size());
  for (const auto& [key, now] : accesses) {
    const auto before = before_.find(key);
    if (before == before_.end()) continue;
    const int h = graph.values[now.value].home;
    const Home& home = graph.homes[h];
    if (home.kind == Home::Kind::kLocal) continue;
    const int piece = home.kind == Home::Kind::kOutside ? home.slot.base : graph.num_bases + h;
    by_piece[piece].push_back({.key = &key, .before = &before->second, .now = &now, .home = h});
  }
  for (const std::vector<Both>& piece : by_piece) {
    for (const Both& a : piece) {
      if (!a.key->writes) continue;
      CountWork(100 * static_cast<std::int64_t>(piece.size()));
      for (const Both& b : piece) {
        const bool is_kept = (a.before->last >= b.before->first || a.now->last <= b.now->first) &&
                             (b.before->last >= a.before->first || b.now->last <= a.now->first);
        if (is_kept || (a.home != b.home && !ShareBytes(graph.homes[a.home], graph.homes[b.home]))) continue;
        if (is_term(a) && is_term(b)) continue;
        const bool came_before = a.before->last < b.before->first;
        throw GraphFault{StrCat(a.key->value, " is given ", came_before ? "before " : "after ", b.key->value, " is ",
                                b.key->writes ? "given" : "read", " no more; they share memory")};
      }
    }
  }
}

}  // namespace stepnet
