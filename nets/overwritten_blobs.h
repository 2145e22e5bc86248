// OverwrittenBlobs: blobs that operators of a net write before any operator reads them. When a run begins, and where
// somebody knows that nobody reads what the last one gave, what they hold is spare memory, until their operator begins.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "stepnet/core/spare_memory.h"
#include "stepnet/nets/net_operator.h"

namespace stepnet {

class OverwrittenBlobs final : public SpareMemory {
 public:
  using Operators = std::span<const std::unique_ptr<NetOperator>>;
  // `operators` are all of a net, in their order, bound to `workspace`: both must outlive the object. Blobs that others
  // use while the net does not run are none of them.
  OverwrittenBlobs(Operators operators, Workspace& workspace, const std::set<const Blob*>& of_others = {});
  ~OverwrittenBlobs() { Withdraw(); }

  // From now on nobody reads what they hold.
  void SpareAll();
  // Operator i begins: it may write its own. A net calls this for each operator, so it takes little.
  void Use(size_t i);
  // From now on anybody may read or write any.
  void UseAll();

  double Gain() override;
  bool FreeNext() override;

 private:
  struct Entry {
    Blob* blob = nullptr;
    std::int64_t used_in = 0;  // the run that may have written it
  };
  // An operator looks it up in each run, and others may remove it.
  struct NamedEntry {
    size_t entry;
    std::string name;
  };

  // The next one that holds something; null where there is none. REQUIRES mutex_.
  Blob* NextSpare() const;

  Workspace& workspace_;
  std::mutex mutex_;
  std::vector<Entry> entries_;     // of all operators, in their order
  std::vector<size_t> begins_;     // operator i has entries [begins_[i], begins_[i + 1])
  std::vector<NamedEntry> named_;  // those that are not bound
  std::int64_t run_ = 0;           // its number, from 1 on
  bool is_running_ = false;        // else all are used
};

// A run of a net, as long as this lives.
class OverwritingRun {
 public:
  explicit OverwritingRun(OverwrittenBlobs& blobs) : blobs_(blobs) { blobs.SpareAll(); }
  OverwritingRun(const OverwritingRun&) = delete;
  OverwritingRun& operator=(const OverwritingRun&) = delete;
  ~OverwritingRun() { blobs_.UseAll(); }

 private:
  OverwrittenBlobs& blobs_;
};

}  // namespace stepnet
