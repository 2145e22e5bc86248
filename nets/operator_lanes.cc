#include "stepnet/nets/operator_lanes.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "stepnet/core/access_order.h"

namespace stepnet {
namespace {

constexpr int kNone = -1;

// What blobs are called together that may lie in one piece of memory: those that one run of steps gives.
class MemoryNames {
 public:
  void Add(const OperatorCall& op) {
    if (!RunsSteps(op)) return;
    std::vector<std::string> blobs = OtherBlobs(op);
    blobs.insert(blobs.end(), op.outputs().begin(), op.outputs().end());
    for (const std::string& blob : blobs) {
      const std::string from = Of(blob), to = Of(blobs.front());
      if (from != to) name_of_[from] = to;
    }
  }

  std::string Of(std::string blob) const {
    for (auto found = name_of_.find(blob); found != name_of_.end(); found = name_of_.find(blob)) blob = found->second;
    return blob;
  }

 private:
  std::map<std::string, std::string> name_of_;
};

class LaneFinder {
 public:
  LaneFinder(MemoryNames memory, int num_lanes) : memory_(std::move(memory)), last_in_(num_lanes, kNone) {}

  // Operators come in their order.
  void Add(int op, const OperatorToRecord& entry) {
    const int place = static_cast<int>(found_.size());
    const std::vector<int> before = PlacesBefore(place, entry);
    std::vector<int> reached(last_in_.size(), kNone);  // by lane: up to where this operator comes behind it in any case
    for (const int p : before) MoveUp(reached_[p], &reached);
    OperatorLane& found = found_.emplace_back(OperatorLane{.op = op});
    found.lane = LaneFor(entry.op->call(), before, reached);
    std::vector<int> waited(last_in_.size(), kNone);  // by lane: for the last of those before it alone
    for (const int p : before) waited[found_[p].lane] = std::max(waited[found_[p].lane], p);
    for (size_t lane = 0; lane < waited.size(); ++lane) {
      if (waited[lane] != kNone && static_cast<int>(lane) != found.lane) found.behind.push_back(waited[lane]);
    }
    const int last = last_in_[found.lane];
    if (last != kNone) MoveUp(reached_[last], &reached);
    reached[found.lane] = place;
    reached_.push_back(std::move(reached));
    last_in_[found.lane] = place;
  }

  std::vector<OperatorLane> Take() { return std::move(found_); }

 private:
  static void MoveUp(const std::vector<int>& to, std::vector<int>* reached) {
    for (size_t lane = 0; lane < to.size(); ++lane) (*reached)[lane] = std::max((*reached)[lane], to[lane]);
  }

  // What it waits for, by the blobs that both use.
  std::vector<int> PlacesBefore(int place, const OperatorToRecord& entry) {
    std::vector<int> before;
    const auto add = [&](int earlier, int) { before.push_back(earlier); };
    const OperatorCall& op = entry.op->call();
    for (const std::string& blob : op.inputs()) accesses_[memory_.Of(blob)].Read(place, add);
    for (const std::string& blob : op.outputs()) accesses_[memory_.Of(blob)].Write(place, add);
    for (const std::string& blob : OtherBlobs(op)) accesses_[memory_.Of(blob)].Write(place, add);
    if (entry.outlives) {  // it is not to run where something before it has found a fault
      for (const int last : last_in_) {
        if (last != kNone) before.push_back(last);
      }
    }
    return before;
  }

  // One whose last operator is waited for in any case, where what was computed last is; one that nobody uses, for what
  // runs steps; otherwise where what was computed last is.
  int LaneFor(const OperatorCall& op, const std::vector<int>& before, const std::vector<int>& reached) const {
    const int last = before.empty() ? kNone : *std::ranges::max_element(before);
    const auto is_free = [&](size_t lane) { return last_in_[lane] != kNone && last_in_[lane] <= reached[lane]; };
    const int home = last == kNone ? 0 : found_[last].lane;
    if (!RunsSteps(op) || last_in_[home] == kNone || is_free(home)) return home;
    for (size_t lane = 0; lane < last_in_.size(); ++lane) {
      if (is_free(lane)) return static_cast<int>(lane);
    }
    const auto unused = std::ranges::find(last_in_, kNone);
    return unused == last_in_.end() ? home : static_cast<int>(unused - last_in_.begin());
  }

  const MemoryNames memory_;
  std::vector<OperatorLane> found_;
  std::vector<std::vector<int>> reached_;  // by operator and lane: up to where it comes behind the lane
  std::vector<int> last_in_;               // by lane
  std::map<std::string, AccessOrder<int>> accesses_;
};

}  // namespace

std::vector<OperatorLane> FindLanes(const std::vector<OperatorToRecord>& operators, int count, int num_lanes) {
  MemoryNames memory;
  int num_long = 0;
  for (int i = 0; i < count; ++i) {
    memory.Add(operators[i].op->call());
    if (!operators[i].is_entry && RunsSteps(operators[i].op->call())) ++num_long;
  }
  LaneFinder finder(std::move(memory), num_long < 2 ? 1 : num_lanes);
  for (int i = 0; i < count; ++i) {
    if (!operators[i].is_entry) finder.Add(i, operators[i]);
  }
  return finder.Take();
}

}  // namespace stepnet
