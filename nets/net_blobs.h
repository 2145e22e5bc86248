// What goes into a net and what comes out of it, by its operators alone.
#pragma once

#include <limits>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace stepnet {

class NetDef;
struct NetProblem;

// The indices of the operators of a net that use a blob.
struct BlobUse {
  static constexpr int kNever = std::numeric_limits<int>::max();

  int first_read = kNever;
  int last_read = -1;
  int first_write = kNever;
  int last_write = -1;

  bool IsRead() const { return first_read != kNever; }
  bool IsWritten() const { return first_write != kNever; }
  bool IsUsed() const { return IsRead() || IsWritten(); }
  // An operator that reads and writes the blob reads it first.
  bool IsReadFirst() const { return IsRead() && first_read <= first_write; }
};
std::map<std::string, BlobUse> UsesOf(const NetDef& net);

// The blobs that `net` reads before it writes them, sorted.
std::vector<std::string> BlobsReadFirst(const NetDef& net);

// The same, with whether all readers ask for the shape alone (BlobsReadForShape). Views of the net.
std::unordered_map<std::string_view, bool> ReadFirstForShape(const NetDef& net);

// Those blobs in the order of reading, then what the net gives as it is (external_output).
std::vector<std::string> ReadFirst(const NetDef& net);

// The blobs that the net writes and no operator reads, in the order of writing.
std::vector<std::string> UnreadBlobs(const NetDef& net);

// The blobs that `net` reads before it writes them and of which all readers ask for the shape alone, as SumReduceLike
// does of its second input. Their elements need not be kept for them.
std::vector<std::string> BlobsReadForShape(const NetDef& net);

// The blobs that `net` reads and nothing gives: neither an operator of it, nor a caller, nor are they among `given`.
// They are those that a problem of its check is about.
std::set<std::string> BlobsOfNobody(const NetDef& net, std::span<const NetProblem> problems,
                                    const std::set<std::string>& given = {});

// What to say of so many of those, and nothing of a few: a net without its parameters lacks many blobs, one with a
// mistake a few. `giver`: what has parameters, as "--init_net=F names the file that does".
std::string AdviceOnParameters(size_t num_missing, std::string_view giver);

}  // namespace stepnet
