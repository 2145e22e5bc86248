// OrderVerifier: checks that passes keep the order in which a step reads and writes its memory.
#pragma once

#include <map>
#include <string>
#include <utility>

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
  // Who touches a value. Operators are told apart by their number, moves and packings by what they give.
  struct Key {
    std::string value;
    std::string reader;  // "" when all readers are meant, and for what gives the value
    bool writes = false;

    friend auto operator<=>(const Key&, const Key&) = default;
  };
  struct Access {
    int value = kNoValue;
    int first = 0;  // moments of the step: in each node, what it reads comes before what it gives
    int last = 0;
  };
  using Accesses = std::map<Key, Access>;

  static Accesses AccessesOf(const StepGraph& graph);
  void CheckHomes(const StepGraph& graph) const;
  void CheckPairs(const StepGraph& graph, const Accesses& accesses) const;

  bool has_before_ = false;
  Accesses before_;                               // of the graph before the pass
  std::map<std::string, std::string> memory_of_;  // by value of it: which memory outside, "" for other memory
};

}  // namespace stepnet
