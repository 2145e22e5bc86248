// AccessOrder: who waits for whom, of all that read and write one thing: a blob of a net, a byte of a plan's memory.
//
// It is told of accesses in program order. Whoever reads waits for the last writer (read after write), whoever writes
// for all who have read since (write after read), or for the last writer where nobody has (write after write). What
// waits for those follows, so there are about as many edges as accesses, however many use the same thing.
#pragma once

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

namespace stepnet {

// Accesses of equal `node_of(access)` are by one node, which does not wait for itself and reads before it writes.
template <typename Access, typename NodeOf = std::identity>
class AccessOrder {
 public:
  explicit AccessOrder(NodeOf node_of = {}) : node_of_(std::move(node_of)) {}

  // Calls add_edge(earlier, access) for each access that this one waits for.
  template <typename AddEdgeFn>
  void Read(const Access& access, AddEdgeFn add_edge) {
    AddEdges(writes_, access, add_edge);
    reads_.push_back(access);
  }
  template <typename AddEdgeFn>
  void Write(const Access& access, AddEdgeFn add_edge) {
    const auto is_own = [&](const Access& other) { return node_of_(other) == node_of_(access); };
    if (!writes_.empty() && is_own(writes_.front())) {  // what comes before has been waited for
      writes_.push_back(access);
      return;
    }
    AddEdges(reads_.empty() ? writes_ : reads_, access, add_edge);
    std::erase_if(reads_, [&](const Access& read) { return !is_own(read); });
    writes_.assign(1, access);
  }

 private:
  template <typename AddEdgeFn>
  void AddEdges(const std::vector<Access>& earlier, const Access& access, AddEdgeFn& add_edge) const {
    for (const Access& before : earlier) {
      if (node_of_(before) != node_of_(access)) add_edge(before, access);
    }
  }

  const NodeOf node_of_;
  std::vector<Access> writes_;  // of the node that wrote last
  std::vector<Access> reads_;   // by that node and since
};

}  // namespace stepnet
