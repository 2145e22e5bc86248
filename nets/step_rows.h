// Which rows of states a step writes, and by which names it sees them: what its gradient depends on.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "stepnet/nets/link_roles.h"

namespace stepnet {

class StepRows {
 public:
  // `spec` has a step net, and outlives this. Functions take its links.
  explicit StepRows(const RecurrentSpec& spec);

  // Blobs that the step net writes.
  const std::set<std::string>& written() const { return written_; }
  // Returns those of written() that start with a value, which the step overwrites.
  const std::set<std::string>& changing() const { return changing_; }

  // Whether the step writes the link's rows of a state: as an operator's output, or with what another link gives the
  // blob.
  bool Writes(const Link& link) const;
  // Whether an operator writes them.
  bool Gives(const Link& link) const { return Writes(link) && written_.contains(link.internal); }
  // Whether the step hands on to the state what another link gives the blob.
  bool Passes(const Link& link) const { return Writes(link) && !written_.contains(link.internal); }

  // The blobs that show a row which the step writes by another name.
  std::set<std::string> OtherNames() const;

  // Throws kInvalidNet where rows hold values of which no gradient can be made.
  void RefuseLostValues() const;

 private:
  void ForEachPairOnARow(const std::function<void(const Link& one, const Link& other)>& look) const;
  void RefuseChangedRows() const;
  void RefuseRowsWrittenTwice() const;
  void RefuseReadsBeforeWrites() const;

  const RecurrentSpec& spec_;
  const std::vector<LinkRole> roles_;  // of its links
  std::set<std::string> written_;
  std::set<std::string> changing_;
};

}  // namespace stepnet
