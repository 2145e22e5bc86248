// OrderVerifier: checks that passes keep the order in which a step reads and writes its memory.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "stepnet/compiler/step_graph.h"

namespace stepnet {

// Looks at the graphs of one plan, one pass after the other.
class OrderVerifier {
 public:
  // Throws GraphFault (compiler/verify_operators.h), naming the values, for a graph in which
  // - a value has come into memory outside, or into other memory outside (it may come out of it);
  // - two accesses of values that share bytes in a step, of which one writes, come in another order than before the
  //   pass. An access is a value given, or a value read: by one operator or move, and by all that read it. Terms of a
  //   sum may be added in any order;
  // - what runs once for all steps, before the first one, reads memory outside that steps write.
  void Check(const StepGraph& graph);

 private:
  using ValueId = std::int64_t;  // of a name, in all graphs
  // What one value is touched by in a step. Moments count nodes: in each, what it reads comes before what it gives.
  struct Access {
    ValueId of = 0;
    bool writes = false;
    std::int64_t reader = 0;  // the number of an operator, or ~ValueId of what a move or packing gives; kAll of them
    int value = kNoValue;
    int first = 0;
    int last = 0;

    auto key() const { return std::tuple(of, writes, reader); }
  };
  static constexpr std::int64_t kAll = std::numeric_limits<std::int64_t>::max();
  // Where memory outside lies: base, offset, row_bytes, bytes.
  using Place = std::array<std::int64_t, 4>;

  ValueId IdOf(const StepValue& value);
  static std::vector<Access> AccessesOf(const StepGraph& graph, const std::vector<ValueId>& ids);
  void CheckPlaces(const StepGraph& graph, const std::vector<ValueId>& ids);
  void CheckPairs(const StepGraph& graph, const std::vector<Access>& accesses) const;

  std::unordered_map<std::string, ValueId> blobs_;
  // What the graph before the pass had, if there is one:
  std::optional<std::vector<Access>> before_;                   // by key
  std::unordered_map<ValueId, std::optional<Place>> place_of_;  // nothing: in other memory
};

}  // namespace stepnet
