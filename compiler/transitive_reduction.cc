#include "stepnet/compiler/transitive_reduction.h"

#include <algorithm>
#include <cstdint>

#include "stepnet/core/cancellation.h"

namespace stepnet {
namespace {

constexpr int kTargets = 64;  // of one word

// Works for 64 targets at a time, one bit each. Bit i of Reached(u, d) says that a path leads from u of one step to
// target i of the step that is d after it; it follows from the words of u's successors.
class Reduction {
 public:
  Reduction(int num_instructions, const std::vector<Dependency>& edges)
      : num_instructions_(num_instructions), edges_(edges), first_edge_(num_instructions + 1, 0) {
    int max_delta = 0;
    for (const Dependency& edge : edges) {
      ++first_edge_[edge.from + 1];
      max_delta = std::max(max_delta, edge.delta);
    }
    for (int i = 0; i < num_instructions; ++i) first_edge_[i + 1] += first_edge_[i];
    constexpr std::int64_t kMaxWords = 1 << 22, kMaxSteps = 1 << 27;
    const std::int64_t instructions = std::max(num_instructions, 1);
    const std::int64_t words = std::max<std::int64_t>(edges.size(), 1) * ((instructions + kTargets - 1) / kTargets);
    num_rows_ = std::min({max_delta + std::int64_t{1}, kMaxWords / instructions, kMaxSteps / words});
    reached_.resize(num_rows_ * num_instructions);
  }

  // Returns for each edge whether others imply it.
  std::vector<bool> FindImplied() {
    std::vector<bool> implied(edges_.size(), false);
    for (int target = 0; target < num_instructions_ && num_rows_ > 0; target += kTargets) {
      for (int delta = 0; delta < num_rows_; ++delta) {
        CheckCancelled();
        // Within a step nothing behind the targets leads to them.
        const int end = delta == 0 ? std::min(target + kTargets, num_instructions_) : num_instructions_;
        for (int from = end; from-- > 0;) Visit(from, delta, target, &implied);
      }
    }
    return implied;
  }

 private:
  std::uint64_t& Reached(int from, int delta) {
    return reached_[static_cast<size_t>(delta) * num_instructions_ + from];
  }

  // Edges of a step lead to later instructions, which have been visited.
  void Visit(int from, int delta, int target, std::vector<bool>* implied) {
    std::uint64_t by_others = 0;  // in more than one edge
    const int end = first_edge_[from + 1];
    int e = first_edge_[from];
    for (; e < end && edges_[e].delta <= delta; ++e) by_others |= Reached(edges_[e].to, delta - edges_[e].delta);
    std::uint64_t direct = 0;
    while (e-- > first_edge_[from] && edges_[e].delta == delta) {
      const int to = edges_[e].to - target;
      if (to < 0) break;
      if (to >= kTargets) continue;
      direct |= std::uint64_t{1} << to;
      if ((by_others >> to & 1) != 0) (*implied)[e] = true;
    }
    Reached(from, delta) = by_others | direct;
  }

  const int num_instructions_;
  const std::vector<Dependency>& edges_;
  std::vector<int> first_edge_;  // of each instruction; those of the last one end with the last element
  std::int64_t num_rows_ = 0;    // edges over as many steps and more stay
  std::vector<std::uint64_t> reached_;
};

}  // namespace

void RemoveImplied(int num_instructions, std::vector<Dependency>* edges) {
  const std::vector<bool> implied = Reduction(num_instructions, *edges).FindImplied();
  size_t kept = 0;
  for (size_t e = 0; e < edges->size(); ++e) {
    if (!implied[e]) (*edges)[kept++] = (*edges)[e];
  }
  edges->resize(kept);
}

}  // namespace stepnet
