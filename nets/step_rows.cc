#include "stepnet/nets/step_rows.h"

#include <algorithm>
#include <map>

#include "stepnet/core/cancellation.h"
#include "stepnet/nets/net_blobs.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

[[noreturn]] void ThrowWrittenTwice(const Link& one, const Link& other) {
  throw Error(
      ErrorCode::kInvalidNet,
      StrCat("rows of \"", one.external, "\" are written more than once, which the step net sees as \"", one.internal,
             "\"", one.internal == other.internal ? "" : StrCat(" and as \"", other.internal, "\""),
             "; no gradient can be made"));
}

}  // namespace

StepRows::StepRows(const RecurrentSpec& spec) : spec_(spec), roles_(FindLinkRoles(spec)) {
  for (const OperatorDef& op : spec.step_net->op()) written_.insert(op.output().begin(), op.output().end());
  for (const std::string& blob : BlobsReadFirst(*spec.step_net)) {
    if (written_.contains(blob)) changing_.insert(blob);
  }
  for (const Link& link : spec.links) {
    if (written_.contains(link.internal) && !spec_.IsState(link.external)) changing_.insert(link.internal);
  }
}

bool StepRows::Writes(const Link& link) const {
  return spec_.IsState(link.external) && roles_[static_cast<size_t>(&link - spec_.links.data())].is_destination;
}

// Calls `look` for each two links that show one step a common row.
void StepRows::ForEachPairOnARow(const std::function<void(const Link& one, const Link& other)>& look) const {
  std::vector<const Link*> links;
  for (const Link& link : spec_.links) links.push_back(&link);
  std::ranges::sort(links, {}, [](const Link* link) { return std::pair(link->external, link->offset); });
  for (size_t i = 0; i < links.size(); ++i) {
    const Link& one = *links[i];
    for (size_t k = i + 1; k < links.size(); ++k) {
      CountWork(10);
      if (links[k]->external != one.external || links[k]->offset >= one.offset + one.window) break;
      look(one, *links[k]);
    }
  }
}

std::set<std::string> StepRows::OtherNames() const {
  std::set<std::string> blobs;
  ForEachPairOnARow([&](const Link& one, const Link& other) {
    if (one.internal == other.internal) return;
    if (Writes(one) && !written_.contains(other.internal)) blobs.insert(other.internal);
    if (Writes(other) && !written_.contains(one.internal)) blobs.insert(one.internal);
  });
  return blobs;
}

void StepRows::RefuseLostValues() const {
  RefuseChangedRows();
  RefuseRowsWrittenTwice();
  RefuseReadsBeforeWrites();
}

// A blob that the step reads and then overwrites is in its link's memory where it has one link. What other steps, or
// users, see of such rows changes behind the back of all other gradients.
void StepRows::RefuseChangedRows() const {
  for (const Link& link : spec_.links) {
    const auto is_same_blob = [&](const Link& other) { return other.internal == link.internal; };
    const auto is_same_memory = [&](const Link& other) { return other.external == link.external; };
    if (!changing_.contains(link.internal) || std::ranges::count_if(spec_.links, is_same_blob) > 1) continue;
    const bool is_seen_once = link.window == 1 && std::ranges::count_if(spec_.links, is_same_memory) == 1;
    if (is_seen_once && !spec_.IsState(link.external)) continue;
    throw Error(ErrorCode::kInvalidNet, StrCat("the step net overwrites \"", link.internal, "\", rows of \"",
                                               link.external, "\" that others see too; no gradient can be made"));
  }
}

void StepRows::RefuseRowsWrittenTwice() const {
  ForEachPairOnARow([this](const Link& one, const Link& other) {
    if (one.internal != other.internal && Writes(one) && Writes(other)) ThrowWrittenTwice(one, other);
  });
  std::map<std::string, const Link*> written;  // state → a link by which it is written
  for (const Link& link : spec_.links) {
    if (!Writes(link)) continue;
    // What one step has written another one writes again.
    const auto [known, is_first] = written.emplace(link.external, &link);
    if (!is_first || link.window > 1) ThrowWrittenTwice(*known->second, link);
  }
}

// The gradient of a row is that of what the step leaves in it. What another name of the row showed before it was
// written, or written again, has none.
void StepRows::RefuseReadsBeforeWrites() const {
  std::map<std::string, BlobUse> uses = UsesOf(*spec_.step_net);
  const auto refuse = [&](const Link& writer, const Link& reader) {
    const BlobUse &of_writer = uses[writer.internal], &of_reader = uses[reader.internal];
    if (!of_writer.IsWritten() || of_reader.first_read > of_writer.last_write) return;
    if (of_reader.last_read > of_writer.first_write) ThrowWrittenTwice(writer, reader);
    throw Error(ErrorCode::kInvalidNet,
                StrCat("the step net reads rows of \"", reader.external, "\" as \"", reader.internal,
                       "\" and then writes them as \"", writer.internal,
                       "\"; no gradient can be made: write rows behind those that are read (link_offset)"));
  };
  ForEachPairOnARow([&](const Link& one, const Link& other) {
    if (one.internal == other.internal) return;
    refuse(one, other);
    refuse(other, one);
  });
}

}  // namespace stepnet
