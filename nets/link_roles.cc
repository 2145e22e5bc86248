#include "stepnet/nets/link_roles.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <unordered_set>

#include "stepnet/nets/net_blobs.h"
#include "stepnet/nets/net_check.h"
#include "stepnet/proto/net.pb.h"

namespace stepnet {
namespace {

class RoleFinder {
 public:
  RoleFinder(const RecurrentSpec& spec, std::vector<NetProblem>* problems)
      : spec_(spec), problems_(problems), uses_(UsesOf(*spec.step_net)), roles_(spec.links.size()) {
    for (const RecurrentState& state : spec.states) new_rows_[state.name] = 0;
    for (size_t i = 0; i < spec.links.size(); ++i) {
      by_blob_[spec.links[i].internal].push_back(i);
      const auto found = new_rows_.find(spec.links[i].external);
      if (found != new_rows_.end()) found->second = std::max(found->second, LastRow(spec.links[i]));
    }
  }

  std::vector<LinkRole> Find() {
    for (const auto& [blob, links] : by_blob_) NoteWritesOfNewRows(blob, links);
    for (const auto& [blob, links] : by_blob_) FindRoles(blob, links);
    if (problems_ != nullptr) CheckUses();
    return std::move(roles_);
  }

 private:
  static std::int64_t LastRow(const Link& link) { return link.offset + link.window - 1; }

  BlobUse UseOf(const std::string& blob) const {
    const auto found = uses_.find(blob);
    return found == uses_.end() ? BlobUse{} : found->second;
  }

  // Row 0 is an initial value in any case.
  bool ShowsNewRow(const Link& link) const {
    const auto found = new_rows_.find(link.external);
    return found != new_rows_.end() && found->second > 0 && LastRow(link) == found->second;
  }

  // When the row has been written through this blob, if it is: a blob with several links is copied out at its end, or
  // at its first use when the step passes it on as it is.
  void NoteWritesOfNewRows(const std::string& blob, const std::vector<size_t>& links) {
    const BlobUse use = UseOf(blob);
    if (!use.IsWritten() && links.size() == 1) return;
    const int written = !use.IsWritten()    ? std::min(use.first_read, spec_.step_net->op_size())
                        : links.size() == 1 ? use.first_write
                                            : use.last_write;
    for (const size_t i : links) {
      if (ShowsNewRow(spec_.links[i])) new_row_writes_[spec_.links[i].external].emplace(written, blob);
    }
  }

  // Whether the rows have a value when operator `k` runs.
  bool HasValue(const Link& link, int k) const {
    if (!ShowsNewRow(link)) return true;
    const auto writes = new_row_writes_.find(link.external);
    if (writes == new_row_writes_.end()) return false;
    for (const auto& [written, blob] : writes->second) {
      if (written >= k) return false;
      if (blob != link.internal) return true;
    }
    return false;
  }

  void FindRoles(const std::string& blob, const std::vector<size_t>& links) {
    const BlobUse use = UseOf(blob);
    const bool is_passed_on = !use.IsWritten() && links.size() > 1;
    if (links.size() == 1) {
      roles_[links[0]] = {.is_source = use.IsReadFirst() || !use.IsWritten(), .is_destination = use.IsWritten()};
      if (use.IsReadFirst() && !HasValue(spec_.links[links[0]], use.first_read)) ReportReadFirst(blob, links, use);
      return;
    }
    for (const size_t i : links) roles_[i].is_destination = true;
    if (!use.IsReadFirst() && !is_passed_on) return;
    int sources = 0;
    for (const size_t i : links) {
      // What no operator reads is passed on before the first one.
      if (!HasValue(spec_.links[i], use.IsRead() ? use.first_read : 0)) continue;
      roles_[i] = {.is_source = true, .is_destination = false};
      ++sources;
    }
    if (sources == 0) ReportReadFirst(blob, links, use);
    if (sources > 1) {
      Report({.message = StrCat("\"", blob, "\" is linked to ", sources,
                                " blobs that all have a value before the step; it can have one")});
    }
  }

  void ReportReadFirst(const std::string& blob, const std::vector<size_t>& links, const BlobUse& use) {
    NetProblem problem{.message = StrCat("\"", blob, "\" is read before anything writes it: it shows the new row of \"",
                                         spec_.links[links[0]].external, "\"")};
    if (use.first_read != BlobUse::kNever) {
      problem.op_index = use.first_read;
      problem.op_text = OperatorText(spec_.step_net->op(use.first_read));
    }
    Report(std::move(problem));
  }

  // Every link is there for something, and every state is written.
  void CheckUses() {
    std::unordered_set<std::string_view> used_elsewhere;
    for (const StepOutput& output : spec_.step_outputs) used_elsewhere.insert(output.blob);
    for (const OperatorDef& op : spec_.BackwardStep()->op()) {
      used_elsewhere.insert(op.input().begin(), op.input().end());
      used_elsewhere.insert(op.output().begin(), op.output().end());
    }
    std::set<std::string> written;
    for (size_t i = 0; i < roles_.size(); ++i) {
      if (roles_[i].is_destination) written.insert(spec_.links[i].external);
    }
    std::set<std::string> reported;
    for (const RecurrentState& state : spec_.states) {
      if (!written.contains(state.name)) reported.insert(ReportUnwritten(state.name));
    }
    for (const auto& [blob, links] : by_blob_) {
      const bool is_used = UseOf(blob).IsUsed() || links.size() > 1 || used_elsewhere.contains(blob);
      if (is_used || reported.contains(blob)) continue;
      Report(
          {.message = StrCat("\"", blob, "\" is linked to \"", spec_.links[links[0]].external,
                             "\", and no operator of the step net reads or writes it", DidYouMean(blob, Unlinked()))});
    }
  }

  // Returns the blob that it names.
  std::string ReportUnwritten(const std::string& state) {
    const auto new_row = std::ranges::find_if(
        spec_.links, [&](const Link& link) { return link.external == state && ShowsNewRow(link); });
    if (new_row != spec_.links.end()) {
      Report({.message =
                  StrCat("no operator of the step net writes \"", new_row->internal, "\", the new row of the state \"",
                         state, "\"", DidYouMean(new_row->internal, Unlinked()))});
      return new_row->internal;
    }
    const bool is_linked = std::ranges::count(spec_.links, state, &Link::external) > 0;
    Report({.message = StrCat("no operator of the step net writes the state \"", state, "\"",
                              is_linked ? "" : ": nothing is linked to it")});
    return "";
  }

  // What the step net computes and no link shows.
  std::vector<std::string> Unlinked() const {
    std::vector<std::string> blobs;
    for (const auto& [blob, use] : uses_) {
      if (use.IsWritten() && !by_blob_.contains(blob)) blobs.push_back(blob);
    }
    return blobs;
  }

  void Report(NetProblem problem) {
    if (problems_ == nullptr) return;
    problem.net = spec_.step_net->name().empty() ? "step_net" : spec_.step_net->name();
    problems_->push_back(std::move(problem));
  }

  const RecurrentSpec& spec_;
  std::vector<NetProblem>* const problems_;
  const std::map<std::string, BlobUse> uses_;
  std::map<std::string, std::vector<size_t>> by_blob_;
  std::map<std::string, std::int64_t> new_rows_;  // by state
  // Which operators write the new row of a state, in order, and by which blob.
  std::map<std::string, std::set<std::pair<int, std::string>>> new_row_writes_;
  std::vector<LinkRole> roles_;
};

}  // namespace

std::vector<LinkRole> FindLinkRoles(const RecurrentSpec& spec, std::vector<NetProblem>* problems) {
  return RoleFinder(spec, problems).Find();
}

}  // namespace stepnet
