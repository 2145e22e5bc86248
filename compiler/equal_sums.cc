#include "stepnet/compiler/equal_sums.h"

#include <algorithm>
#include <set>

#include "stepnet/compiler/import_step.h"
#include "stepnet/core/cancellation.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

constexpr const char* kSum = "SumReduceLike";

class SumDropper {
 public:
  explicit SumDropper(const StepPlanRequest& request) : request_(request), net_(*request.net) {
    for (const BoundBlob& bound : request.bound) bound_.emplace(bound.slot.blob, &bound.slot);
    for (const auto& [blob, slot] : bound_) outside_.insert(blob);
    for (const auto& [blob, list] : request.bound_dynamic) outside_.insert(blob);
    for (const StepMove& move : request.moves) outside_.insert(move.blob);
    for (int k = 0; k < net_.op_size(); ++k) {
      for (const std::string& input : net_.op(k).input()) readers_[input].insert(k);
      for (const std::string& output : net_.op(k).output()) writers_[output].insert(k);
    }
  }

  std::optional<NetDef> Run() {
    const StepGraph graph = ImportStep(request_);
    bool drops = false;
    for (const StepNode& node : graph.nodes) {
      CheckCancelled();
      if (!IsEqualSum(graph, node)) continue;
      const int k = node.op_index;
      const std::string term = net_.op(k).input(0), sum = net_.op(k).output(0);
      if (MayGiveSum(k, term, sum)) {
        GiveSum(k, term, sum);
      } else if (MayReadTerm(k, term, sum)) {
        ReadTerm(k, term, sum);
      } else {
        continue;
      }
      drops = true;
    }
    if (!drops) return {};
    return std::move(net_);
  }

 private:
  using Places = std::set<int>;  // indices of operators

  static bool IsEqualSum(const StepGraph& graph, const StepNode& node) {
    if (!node.IsOneOperator() || node.by_blobs || node.call->type() != kSum) return false;
    return graph.values[node.inputs[0]].info == graph.values[node.outputs[0]].info;
  }

  static bool HasIn(const Places& places, int begin, int end) {  // in [begin, end)
    const auto found = places.lower_bound(begin);
    return found != places.end() && *found < end;
  }
  bool IsReadIn(const std::string& blob, int begin, int end) { return HasIn(readers_[blob], begin, end); }
  bool IsWrittenIn(const std::string& blob, int begin, int end) { return HasIn(writers_[blob], begin, end); }

  // Whether operators [begin, end) write to the blob by whatever name, or, with `or_read`, read it so.
  bool IsTouchedIn(const std::string& blob, int begin, int end, bool or_read) {
    if (IsWrittenIn(blob, begin, end) || (or_read && IsReadIn(blob, begin, end))) return true;
    const auto own = bound_.find(blob);
    if (own == bound_.end()) return false;
    return std::ranges::any_of(bound_, [&](const auto& other) {
      if (!ShareBytes(*own->second, *other.second)) return false;
      return IsWrittenIn(other.first, begin, end) || (or_read && IsReadIn(other.first, begin, end));
    });
  }

  // Whether the operator that gives the term can write the sum instead: nobody else sees the term, and nobody the
  // memory of the sum before operator k.
  bool MayGiveSum(int k, const std::string& term, const std::string& sum) {
    if (term == sum || outside_.contains(term)) return false;
    if (readers_[term] != Places{k} || writers_[term].size() != 1) return false;
    const int producer = *writers_[term].begin();
    return producer < k && !IsTouchedIn(sum, producer, k, /*or_read=*/true);
  }

  void GiveSum(int k, const std::string& term, const std::string& sum) {
    const int producer = *writers_[term].begin();
    std::ranges::replace(*net_.mutable_op(producer)->mutable_output(), term, sum);
    writers_[sum].insert(producer);
    writers_[term].clear();
    LeaveOut(k);
  }

  // The next operator that writes the blob; as many as there are where none does.
  int NextWriter(int k, const std::string& blob) {
    const auto next = writers_[blob].upper_bound(k);
    return next == writers_[blob].end() ? net_.op_size() : *next;
  }

  // The operators that read what operator k leaves in the blob.
  Places ReadersOf(int k, const std::string& blob) {
    return {readers_[blob].upper_bound(k), readers_[blob].upper_bound(NextWriter(k, blob))};
  }

  // Whether what operator k leaves in the blob is seen otherwise than by its name in operators.
  bool IsSeenOutside(int k, const std::string& blob) {
    if (!outside_.contains(blob)) return false;
    const int next = NextWriter(k, blob);
    if (next == net_.op_size() || !bound_.contains(blob)) return true;
    return std::ranges::any_of(bound_, [&](const auto& other) {
      return other.first != blob && ShareBytes(*bound_.at(blob), *other.second) && IsReadIn(other.first, k, next + 1);
    });
  }

  // Whether those who read the sum can read the term instead: it is not seen from outside, and the term stays until
  // they have read it.
  bool MayReadTerm(int k, const std::string& term, const std::string& sum) {
    if (IsSeenOutside(k, sum)) return false;
    const Places readers = ReadersOf(k, sum);
    const auto must_overwrite = [&](int m) {
      const OperatorDef& op = net_.op(m);
      return std::ranges::any_of(GetOperator(op.type()).enforced_in_place, [&](const auto& pair) {
        return pair.first < op.input_size() && op.input(pair.first) == sum;
      });
    };
    if (std::ranges::any_of(readers, must_overwrite)) return false;
    return readers.empty() || !IsTouchedIn(term, k, *readers.rbegin() + 1, /*or_read=*/false);
  }

  void ReadTerm(int k, const std::string& term, const std::string& sum) {
    for (const int m : ReadersOf(k, sum)) {
      std::ranges::replace(*net_.mutable_op(m)->mutable_input(), sum, term);
      readers_[sum].erase(m);
      readers_[term].insert(m);
    }
    LeaveOut(k);
  }

  void LeaveOut(int k) {
    for (const std::string& input : net_.op(k).input()) readers_[input].erase(k);
    for (const std::string& output : net_.op(k).output()) writers_[output].erase(k);
    net_.mutable_op(k)->Clear();
  }

  const StepPlanRequest& request_;
  NetDef net_;
  std::map<std::string, const Slot*> bound_;
  std::set<std::string> outside_;          // blobs that are seen, or filled, by others than operators
  std::map<std::string, Places> readers_;  // of each blob
  std::map<std::string, Places> writers_;
};

}  // namespace

std::optional<NetDef> WithoutEqualSums(const StepPlanRequest& request) {
  const auto is_sum = [](const OperatorDef& op) { return op.type() == kSum; };
  if (std::ranges::none_of(request.net->op(), is_sum)) return {};
  return SumDropper(request).Run();
}

}  // namespace stepnet
